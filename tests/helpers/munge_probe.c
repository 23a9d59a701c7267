/* munge_probe: what common/munge.h does, by hand.
 *
 *   munge_probe wrap TEXT           prints a credential of TEXT
 *   munge_probe unwrap BYTES        the credential on stdin: prints what it holds
 *
 * A failure: one line on stderr, status 1. */
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
	char *credential = munge_wrap(text, strlen(text), &why);

	if (!credential)
		return fail(&why);
	puts(credential);
	free(credential);
	return 0;
}

static int unwrap(size_t n)
{
	struct str why = { 0 };
	char credential[2 * MUNGE_CREDENTIAL_MAX] = "", data[MUNGE_CREDENTIAL_MAX];

	if (n > sizeof data)
		return 2;
	if (read(STDIN_FILENO, credential, sizeof credential - 1) < 0)
		return 2;
	credential[strcspn(credential, "\n")] = '\0';
	if (munge_unwrap(credential, data, n, &why))
		return fail(&why);
	printf("%.*s\n", (int)n, data);
	return 0;
}

int main(int argc, char **argv)
{
	if (argc == 3 && !strcmp(argv[1], "wrap"))
		return wrap(argv[2]);
	if (argc == 3 && !strcmp(argv[1], "unwrap"))
		return unwrap(strtoul(argv[2], NULL, 10));
	fputs("usage: munge_probe wrap TEXT | unwrap BYTES\n", stderr);
	return 2;
}
