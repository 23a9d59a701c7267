/* munge_probe: what common/munge.h does, by hand.
 *
 *   munge_probe wrap TEXT           prints a credential of TEXT
 *   munge_probe unwrap              the credential on stdin: prints what it holds
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

static int wrap(const char *text)
{
	struct str why = { 0 };
	char *credential = munge_wrap(getenv("PROBE_SOCKET"), text, strlen(text), &why);

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

	if (read(STDIN_FILENO, credential, sizeof credential - 1) < 0)
		return 2;
	credential[strcspn(credential, "\n")] = '\0';
	if (munge_unwrap(getenv("PROBE_SOCKET"), credential, &out, &why))
		return fail(&why);
	printf("%.*s\n", (int)out.len, (const char *)buf_head(&out));
	buf_free(&out);
	return 0;
}

int main(int argc, char **argv)
{
	if (argc == 3 && !strcmp(argv[1], "wrap"))
		return wrap(argv[2]);
	if (argc == 2 && !strcmp(argv[1], "unwrap"))
		return unwrap();
	fputs("usage: munge_probe wrap TEXT | unwrap\n", stderr);
	return 2;
}
