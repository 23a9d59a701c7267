/* libFuzzer on ssh_said.h: the input is what an ssh program has printed. */
#include "fuzz.h"

#include "launcher/transport/ssh_said.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz_input in = { data, size };
	char *text = fuzz_part(&in, NULL);
	const struct ssh_said s = ssh_said_read(text);

	if (strlen(s.line) > 200 || (s.id == ERR_NONE && (s.again || s.private)))
		abort();
	for (const char *p = s.line; *p; p++)
		if ((unsigned char)*p < ' ' || *p == 0x7f)
			abort();
	if (ssh_said_changed(text) && s.id == ERR_NONE)
		abort();
	free(s.line);
	free(text);
	return 0;
}
