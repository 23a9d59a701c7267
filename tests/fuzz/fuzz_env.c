/* libFuzzer on forward.h: the parts are an --env-file, words of -x, and an environment.
 * What comes of it are entries NAME=VALUE, each name once. */
#include "fuzz.h"

#include "launcher/job/env_forward.h"

static void check(const struct strv *l)
{
	struct str shown = { 0 };

	for (size_t i = 0; i < l->n; i++) {
		const char *equals = strchr(l->v[i], '=');
		char *name;

		if (!equals || equals == l->v[i])
			abort();
		name = xstrndup(l->v[i], (size_t)(equals - l->v[i]));
		if (strv_env_get(l, name) != equals + 1)
			abort();
		str_add_value(&shown, name, equals + 1);
		free(name);
	}
	str_free(&shown);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz_input in = { data, size };
	struct strv own = { 0 }, x = { 0 }, out = { 0 }, rest = { 0 };
	struct err e = { 0 };
	char *text, *words, *vars;
	size_t n;

	text = fuzz_part(&in, &n);
	words = fuzz_part(&in, NULL);
	vars = fuzz_part(&in, NULL);
	fuzz_lines(&x, words, 64);
	fuzz_lines(&own, vars, 64);
	if (env_forward_file(&out, fuzz_file(text, n), &e) && (!e.id || !*e.text))
		abort();
	check(&out);
	strv_free(&out);
	if (env_forward_export(&out, &x, &own, &e) && !e.id)
		abort();
	env_forward(&rest, own.v, n % 2, NULL, 0);
	strv_free(&out);
	strv_free(&rest);
	strv_free(&own);
	strv_free(&x);
	free(text);
	free(words);
	free(vars);
	return 0;
}
