/* libFuzzer on known_hosts.h: the input is a file.
 *
 * A key without a line in the file is never good.  With a line of its own in front it
 * is good, whatever the file holds. */
#include "fuzz.h"

#include "launcher/transport/known_hosts.h"

static const char own[] = "AAAAC3NzaC1lZDI1NTE5AAAAIEFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFB"
			  "QUFBQUFB";

static struct known_keys ask(char *text, size_t n, const char *name)
{
	struct known_file *f = known_file_parse("known_hosts", text, n);
	struct known_keys keys = { 0 };
	char *list;

	known_file_find(f, name, false, &keys);
	known_file_find(f, "n1", true, &keys);
	known_file_drop(f);
	list = known_keys_algorithms(&keys, "");
	if (!strstr(list, "ssh-ed25519") || strlen(list) > 200)
		abort();
	free(list);
	return keys;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const char *const names[] = { "gpu01", "[gpu01]:2222", "10.0.0.1", "" };
	struct fuzz_input in = { data, size };
	size_t n;
	char *text = fuzz_part(&in, &n);
	unsigned char blob[64];
	const size_t len = known_key_decode(blob, sizeof blob, own);

	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		struct str copy = { 0 }, more = { 0 };
		struct known_keys keys;
		enum known_verdict verdict;
		size_t len_more;

		str_addn(&copy, text, n);
		keys = ask(str_take(&copy), n, names[i]);
		verdict = known_keys_judge(&keys, blob, len);
		if (verdict == KNOWN_OK && !memmem(text, n, "AAAA", 4))
			abort();
		known_keys_free(&keys);
		/* with a line of its own, another key in the file does not matter */
		str_addf(&more, "\n%s ssh-ed25519 %s\n", names[i], own);
		str_addn(&more, text, n);
		len_more = more.len;
		keys = ask(str_take(&more), len_more, names[i]);
		if (*names[i] && known_keys_judge(&keys, blob, len) != KNOWN_OK)
			abort();
		known_keys_free(&keys);
	}
	free(text);
	return 0;
}
