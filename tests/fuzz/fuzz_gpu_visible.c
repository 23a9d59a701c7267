/* libFuzzer on gpu_visible.h: the input as Python source, and as the text of `sh
 * -c`. */
#include "launcher/job/gpu_visible.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void as_python(const char *text, size_t n)
{
	struct visible v = { .mode = VISIBLE_ONE };
	size_t lines = 1;

	for (size_t i = 0; i < n; i++)
		lines += text[i] == '\n';
	visible_scan(&v, "f", text, n);
	if (v.mode == VISIBLE_NODE && (v.line < 1 || v.line > lines || !*v.word))
		abort();
	visible_free(&v);
}

static void as_shell(const char *text)
{
	char *words[] = { (char *)"sh",   (char *)"-c",  (char *)text,
			  (char *)"name", (char *)"a b", NULL };
	char *vars[] = { (char *)"PYTHONPATH=/nowhere:", NULL };
	struct strv argv = { words, 5 }, env = { vars, 1 };
	struct visible v = { 0 };

	visible_find(&v, &argv, "/nowhere", &env);
	if (v.mode != VISIBLE_ONE && (v.mode != VISIBLE_NODE || !v.file || !v.word))
		abort();
	visible_free(&v);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = xmalloc(size ? size : 1),
	     *ended = xstrndup((const char *)data, size);

	if (size)
		memcpy(text, data,
		       size); /* a block of its own: a read past it is seen */
	as_python(text, size);
	as_shell(ended);
	free(text);
	free(ended);
	return 0;
}
