/* libFuzzer on imports.h: a first line of a file, then the words of a command line,
 * whose "FILE" is that file.  The command that tries the imports is bounded and has the
 * text that tries them once. */
#include "fuzz.h"

#include "launcher/job/imports.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz_input in = { data, size };
	struct strv argv = { 0 }, out = { 0 };
	size_t n, texts = 0;
	char *line = fuzz_part(&in, &n), *words = fuzz_part(&in, NULL);
	const char *file = fuzz_file(line, n);

	fuzz_lines(&argv, words, 64);
	for (size_t i = 0; i < argv.n; i++)
		if (!strcmp(argv.v[i], "FILE")) {
			free(argv.v[i]);
			argv.v[i] = xstrdup(file);
		}
	if (!imports_command(&out, &argv, "/") && out.n)
		abort();
	for (size_t i = 0; i < out.n; i++)
		texts += strchr(out.v[i], '\n') != NULL; /* no other word has it */
	if (out.n && (texts != 1 || out.n > argv.n + 256 / 2 + 4))
		abort();
	strv_free(&argv);
	strv_free(&out);
	free(line);
	free(words);
	return 0;
}
