/* munge_probe: what common/munge.h does, by hand.
 *
 *   munge_probe wrap        prints a credential of what is on stdin
 *   munge_probe unwrap      prints what the credential on stdin holds
 *
 * PROBE_SOCKET is munged's.  A failure: one line on stderr, status 1. */
#include <stdlib.h>
#include <unistd.h>

#include "common/munge.h"

static int fail(struct str *why)
{
	fprintf(stderr, "munge_probe: %s\n", str_text(why));
	str_free(why);
	return 1;
}

static size_t read_all(char *to, size_t most)
{
	size_t n = 0;
	ssize_t part;

	while (n < most && (part = read(STDIN_FILENO, to + n, most - n)) > 0)
		n += (size_t)part;
	return n;
}

static int wrap(void)
{
	struct str why = { 0 };
	char bytes[MUNGE_CREDENTIAL_MAX], *credential;
	const size_t n = read_all(bytes, sizeof bytes);

	credential = munge_wrap(getenv("PROBE_SOCKET"), bytes, n, &why);
	if (!credential)
		return fail(&why);
	puts(credential);
	free(credential);
	return 0;
}

static int unwrap(void)
{
	struct str why = { 0 };
	struct buf out = { 0 };
	char credential[MUNGE_CREDENTIAL_MAX] = "";

	read_all(credential, sizeof credential - 1);
	credential[strcspn(credential, "\n")] = '\0';
	if (munge_unwrap(getenv("PROBE_SOCKET"), credential, &out, &why))
		return fail(&why);
	fwrite(buf_head(&out), 1, out.len, stdout);
	buf_free(&out);
	return 0;
}

int main(int argc, char **argv)
{
	if (argc == 2 && !strcmp(argv[1], "wrap"))
		return wrap();
	if (argc == 2 && !strcmp(argv[1], "unwrap"))
		return unwrap();
	fputs("usage: munge_probe wrap|unwrap\n", stderr);
	return 2;
}
