/* libFuzzer on rankfile.h: each rank of what parses has a host; an error has a text. */
#include "launcher/cli/rankfile.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = xstrndup((const char *)data, size);
	struct strv hosts = { 0 };
	struct err e = { 0 };
	bool slots;

	if (rankfile_parse(&hosts, &slots, text, "f", &e)) {
		if (hosts.n || hosts.v || !e.id || !*e.text)
			abort();
	} else {
		for (size_t i = 0; i < hosts.n; i++)
			if (!hosts.v[i] || !*hosts.v[i] || *hosts.v[i] == '+' ||
			    strpbrk(hosts.v[i], " \t\r\n#"))
				abort();
		if (!hosts.n || hosts.v[hosts.n])
			abort();
	}
	strv_free(&hosts);
	free(text);
	return 0;
}
