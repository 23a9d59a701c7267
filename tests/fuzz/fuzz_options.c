/* libFuzzer on options.h: the parts are the command line (a word a line), a config file
 * and the environment.  What is accepted is within its limits; what is not has an
 * error. */
#include "fuzz.h"

#include "launcher/cli/options.h"

static void check(const struct request *r)
{
	if (!r->napp || r->reach.host_timeout_ms < 1000 || r->kill_grace_ms < 0 ||
	    r->reach.start_timeout_ms < 1000 || r->timeout_ms < 0)
		abort();
	for (size_t i = 0; i < r->napp; i++)
		if (r->app[i].np < 0 || (!r->app[i].argv.n && r->plan == PLAN_OFF))
			abort();
	for (size_t i = 0; i < r->env.forward.n; i++) { /* each begins with a name */
		const char *entry = r->env.forward.v[i];

		if (!strcspn(entry, "= ,;'\"$/:*0123456789"))
			abort();
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz_input in = { data, size };
	struct strv argv = { 0 }, env = { 0 }, notes = { 0 };
	struct str print = { 0 };
	struct request r;
	struct err e = { 0 };
	char *words, *vars, *text;
	size_t n;

	words = fuzz_part(&in, NULL);
	text = fuzz_part(&in, &n);
	vars = fuzz_part(&in, NULL);
	strv_add(&argv, "runner");
	fuzz_lines(&argv, words, 64);
	fuzz_lines(&env, vars, 64);
	switch (options_read(&r, &notes, &print, fuzz_file(text, n), (int)argv.n,
			     argv.v, env.v, &e)) {
	case OPTIONS_RUN:
		check(&r);
		break;
	case OPTIONS_FAILED:
		if (!e.id || !*e.text)
			abort();
		break;
	case OPTIONS_PRINTED:
		if (!print.len)
			abort();
	}
	options_free(&r);
	strv_free(&notes);
	str_free(&print);
	strv_free(&argv);
	strv_free(&env);
	free(words);
	free(text);
	free(vars);
	return 0;
}
