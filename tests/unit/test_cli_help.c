/* test_cli_help.c - the option table, and all that is printed from it. */
#include <check.h>
#include <ctype.h>

#include "launcher/cli/compat.h"
#include "launcher/cli/help.h"

static char *upper_env(const char *key)
{
	char *name = xasprintf("BERTH_%s", key);

	for (char *p = name; *p; p++)
		*p = *p == '-' ? '_' : (char)toupper((unsigned char)*p);
	return name;
}

START_TEST(table_row)
{
	const struct option *o = &option_table[_i];
	bool hidden = o->flags & OPTION_HIDDEN;
	char *env = upper_env(o->key ? o->key : "config-file");

	ck_assert_ptr_nonnull(o->names);
	ck_assert_msg(strlen(o->help) <= 53, "%s: '%s' is too long", o->names, o->help);
	ck_assert_msg(hidden || strlen(o->text) > 10, "%s has no text", o->names);
	ck_assert_msg(hidden || !strcmp(o->text + strlen(o->text) - 1, "."), "%s",
		      o->names);
	if (o->env)
		ck_assert_str_eq(o->env, env);
	if (o->key) {
		ck_assert_msg(o->set, "%s", o->names);
		ck_assert_ptr_eq(option_find_key(o->key), o);
	}
	ck_assert_msg(o->set || o->flags & OPTION_PRINTS || !o->key, "%s", o->names);
	free(env);
}
END_TEST

/* No spelling stands twice, in one table or in both. */
START_TEST(table_names)
{
	for (size_t i = 0; i < option_count + compat_count; i++) {
		const char *list = i < option_count
					   ? option_table[i].names
					   : compat_table[i - option_count].names;
		const char *view;
		size_t n;

		while ((n = option_next_name(&list, &view))) {
			char *name = xstrndup(view, n);
			size_t hits = 0;

			for (size_t k = 0; k < option_count; k++)
				hits += option_named(option_table[k].names, name);
			for (size_t k = 0; k < compat_count; k++)
				hits += option_named(compat_table[k].names, name);
			ck_assert_msg(hits == 1, "'%s' stands %zu times", name, hits);
			free(name);
		}
	}
}
END_TEST

START_TEST(test_find)
{
	const char *value;
	bool no;

	ck_assert_ptr_eq(option_find("tag", &no), option_find("--no_tag", &no));
	ck_assert(no);
	ck_assert_ptr_eq(option_find("no-push", &no), option_find_key("no_push"));
	ck_assert(!no);
	ck_assert_ptr_null(option_find("--no-np", &no));
	ck_assert_ptr_null(option_find("", &no));
	ck_assert_ptr_null(option_find("--", &no));
	ck_assert_ptr_eq(option_find_glued("-np16", &value), option_find("np", &no));
	ck_assert_str_eq(value, "16");
	ck_assert_ptr_null(option_find_glued("--np16", &value));
	ck_assert_ptr_null(option_find_glued("-np", &value));
	ck_assert_ptr_null(option_find_glued("-x1", &value));
}
END_TEST

START_TEST(env_names)
{
	size_t n;
	const char *const *names = options_env_names(&n);

	ck_assert_uint_gt(n, 30);
	for (size_t i = 0; i < n; i++) {
		ck_assert_msg(!strncmp(names[i], "BERTH_", 6), "%s", names[i]);
		ck_assert_str_ne(names[i], "BERTH_JOB");
		ck_assert_str_ne(names[i], "BERTH_RANK");
		ck_assert_str_ne(names[i], "BERTH_AGENT");
		for (size_t k = 0; k < i; k++)
			ck_assert_str_ne(names[i], names[k]);
	}
}
END_TEST

static size_t longest_line(const char *text, size_t *lines_out)
{
	size_t longest = 0, count = 0;

	while (*text) {
		size_t n = strcspn(text, "\n");

		longest = n > longest ? n : longest;
		count++;
		text += n + (text[n] == '\n');
	}
	*lines_out = count;
	return longest;
}

START_TEST(help_fits)
{
	static const char *const topics[] = { NULL,          "all",   "ranks",
					      "--bind-to",   "-np",   "--mca",
					      "environment", "slow",  "hang",
					      "mapby",       "memory" };
	struct err e = { 0 };

	for (size_t i = 0; i < sizeof topics / sizeof *topics; i++) {
		struct str out = { 0 };
		size_t n, wide;

		ck_assert_int_eq(help_print(&out, topics[i], &e), 0);
		wide = longest_line(out.s, &n);
		ck_assert_msg(wide <= 79, "%s: %zu columns",
			      topics[i] ? topics[i] : "--help", wide);
		ck_assert_msg(topics[i] || n <= 24, "%zu lines", n);
		str_free(&out);
	}
}
END_TEST

/* --help WORD: WORD is no topic and no option. */
static const struct {
	const char *word, *line, *not ;
} searches[] = {
	{ "mapby", "  --map-by slot|node", "  --bind-to" },
	{ "Perfetto", "  --help slow             -x HOROVOD_TIMELINE=/tmp/t.json\n",
	  NULL },
	{ "cooldown", "  --blacklist-cooldown-range (horovodrun, sets)\n", NULL },
	{ "stall", "  --help hang             -x HOROVOD_STALL_CHECK", NULL },
};

START_TEST(search)
{
	struct str out = { 0 };
	struct err e = { 0 };

	ck_assert_int_eq(help_print(&out, searches[_i].word, &e), 0);
	ck_assert_ptr_nonnull(strstr(out.s, searches[_i].line));
	if (searches[_i].not )
		ck_assert_ptr_null(strstr(out.s, searches[_i].not ));
	str_free(&out);
}
END_TEST

START_TEST(nothing_found)
{
	static const char *const words[] = {
		"xyzzy", "-", "--", "___", "zz", "bindin"
	};
	struct str out = { 0 };

	for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
		struct err e = { 0 };

		ck_assert_msg(help_print(&out, words[i], &e) == -1, "%s", words[i]);
		ck_assert_int_eq(e.id, E_HELP);
		ck_assert_uint_eq(out.len, 0);
	}
}
END_TEST

START_TEST(what_ranks_are_given)
{
	struct str out = { 0 }, all = { 0 };
	struct err e = { 0 };

	ck_assert_int_eq(help_print(&out, "environment", &e), 0);
	ck_assert_ptr_nonnull(strstr(out.s, " NCCL_DEBUG=WARN,"));
	ck_assert_ptr_nonnull(strstr(out.s, " TF_GPU_THREAD_MODE=gpu_private,"));
	ck_assert_ptr_nonnull(strstr(out.s, " OMP_NUM_THREADS=<cores at most 8>,"));
	ck_assert_ptr_nonnull(strstr(out.s, " MASTER_ADDR, "));
	ck_assert_ptr_nonnull(strstr(out.s, " RANK, WORLD_SIZE, "));
	ck_assert_ptr_null(strstr(out.s, "TORCHELASTIC_USE_AGENT_STORE"));
	ck_assert_int_eq(help_print(&all, "all", &e), 0);
	ck_assert_ptr_null(strstr(all.s, "NCCL_DEBUG"));
	str_free(&out);
	str_free(&all);
}
END_TEST

/* The one line of the tables that begins with "KIND\tNAME", without its '\n'. */
static char *table_row_of(const char *kind, const char *name)
{
	char *start = xasprintf("\n%s\t%s\t", kind, name), *at, *row;
	struct str all = { 0 };

	str_add(&all, "\n");
	help_tables(&all);
	at = strstr(all.s, start);
	ck_assert_msg(at != NULL, "no row of %s", name);
	ck_assert_ptr_null(strstr(at + 1, start));
	row = xstrndup(at + 1, strcspn(at + 1, "\n"));
	str_free(&all);
	free(start);
	return row;
}

/* Each option that is not hidden has a line in --help all and a row in the tables. */
START_TEST(printed_everywhere)
{
	const struct option *o = &option_table[_i];
	struct str all = { 0 };
	struct err e = { 0 };
	size_t tabs = 0;
	char *row;

	ck_assert_int_eq(help_print(&all, "all", &e), 0);
	if (o->flags & OPTION_HIDDEN) {
		str_free(&all);
		help_tables(&all);
		row = xasprintf("\t%s\t", o->names);
		ck_assert_ptr_null(strstr(all.s, row));
	} else {
		ck_assert_ptr_nonnull(strstr(all.s, o->help));
		row = table_row_of("option", o->names);
		for (const char *p = row; *p; p++)
			tabs += *p == '\t';
		ck_assert_uint_eq(tabs, 8);
		ck_assert_ptr_nonnull(strstr(row, o->text));
		ck_assert(!o->env || strstr(row, o->env));
	}
	str_free(&all);
	free(row);
}
END_TEST

static const struct {
	const char *kind, *name, *rest;
} rows[] = {
	{ "option", "--map-by", "slot|node\tword\tmap-by\tBERTH_MAP_BY\tslot node\t" },
	{ "option", "--env-file", "FILE\tword\tenv-file\tBERTH_ENV_FILE\t-f\t" },
	{ "option", "--wdir -wd --chdir", "DIR\tword\twdir\tBERTH_WDIR\t-d\t" },
	{ "option", "--plan --dry-run --donotlaunch --do-not-launch",
	  "json|svg|png\ttied\t\t\ttext json svg png\t" },
	{ "option", "-h --help", "TOPIC\tmaybe\t\t\tall ranks hosts environment " },
	{ "option", "--pty", "\t\tpty\tBERTH_PTY\t\t" },
	{ "compat", "--allow-run-as-root", "Open MPI\tignored\troot" },
	{ "advice", "If a job is slow", "--report-bindings\tPrints the GPU" },
	{ "advice", "If a job hangs", "kill -ABRT PID\tSend it" },
	{ "exit", "241", "a host or its agent was lost" },
	{ "error", "2", "unknown option '%s'\tlist the options" },
};

START_TEST(tables)
{
	char *row =
		xasprintf("\n%s\t%s\t%s", rows[_i].kind, rows[_i].name, rows[_i].rest);
	struct str all = { 0 };

	help_tables(&all);
	ck_assert_msg(strstr(all.s, row) != NULL, "no row%s", row);
	str_free(&all);
	free(row);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("help");
	TCase *t = tcase_create("help");
	SRunner *run;
	int failed;

	tcase_add_loop_test(t, table_row, 0, (int)option_count);
	tcase_add_test(t, table_names);
	tcase_add_test(t, test_find);
	tcase_add_test(t, env_names);
	tcase_add_test(t, help_fits);
	tcase_add_loop_test(t, search, 0, (int)(sizeof searches / sizeof *searches));
	tcase_add_test(t, nothing_found);
	tcase_add_test(t, what_ranks_are_given);
	tcase_add_loop_test(t, printed_everywhere, 0, (int)option_count);
	tcase_add_loop_test(t, tables, 0, (int)(sizeof rows / sizeof *rows));
	suite_add_tcase(s, t);
	run = srunner_create(s);
	srunner_run_all(run, CK_NORMAL);
	failed = srunner_ntests_failed(run);
	srunner_free(run);
	return failed != 0;
}
