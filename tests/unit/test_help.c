/* test_help.c - the option table, and all that is printed from it. */
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
	static const char *const topics[] = { NULL,        "all", "ranks",
					      "--bind-to", "-np", "--mca" };
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

/* NAME as mdoc writes it behind Fl. */
static char *mdoc_name(const char *name, size_t n)
{
	struct str s = { 0 };

	str_add(&s, "Fl ");
	for (size_t i = 1; i < n; i++)
		str_addf(&s, "%s%c", name[i] == '-' ? "\\" : "", name[i]);
	return str_take(&s);
}

/* Every spelling stands in the man page and in the completion, the first in --help all.
 */
START_TEST(printed_everywhere)
{
	const struct option *o = &option_table[_i];
	const char *list = o->names, *name;
	struct str man = { 0 }, all = { 0 }, complete = { 0 };
	struct err e = { 0 };
	size_t n;

	if (o->flags & OPTION_HIDDEN)
		return;
	ck_assert_int_eq(help_generate(&man, "man", &e), 0);
	ck_assert_int_eq(help_generate(&complete, "completion", &e), 0);
	ck_assert_int_eq(help_print(&all, "all", &e), 0);
	ck_assert_ptr_nonnull(strstr(all.s, o->help));
	while ((n = option_next_name(&list, &name))) {
		char *word = xstrndup(name, n), *flag = mdoc_name(name, n);

		ck_assert_msg(strstr(man.s, flag) != NULL, "man: %s", flag);
		ck_assert_msg(strstr(complete.s, word) != NULL, "completion: %s", word);
		free(word);
		free(flag);
	}
	if (o->env)
		ck_assert_msg(strstr(man.s, o->env) != NULL, "man: %s", o->env);
	str_free(&man);
	str_free(&all);
	str_free(&complete);
}
END_TEST

START_TEST(generated)
{
	static const struct {
		const char *form, *has;
	} forms[] = {
		{ "environment", ".It Ev BERTH_NP\nAs\n.Fl np .\n" },
		{ "exits", ".It 241\na host or its agent was lost\n" },
		{ "errors", ".It \"\\&'...' is not a number from N to N\"\n" },
		{ "errors",
		  ".It \"unknown option \\&'...'\"\nrunner \\-\\-help all lists" },
		{ "compat",
		  ".It Fl \\-allow\\-run\\-as\\-root\nOpen MPI, ignored: root" },
		{ "man", ".It Fl np Ar N , Fl n Ar N , Fl \\-num\\-proc Ar N" },
		{ "man", "\n.Pq Cm map-by , Ev BERTH_MAP_BY\n" },
		{ "man", ".It Fl \\-plan Ns Oo = Ns Ar json Oc , " },
		{ "completion", "compgen -W \"slot node\" -- \"$cur\"" },
		{ "variables", "\nBERTH_CONFIG_FILE\n" },
	};

	for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
		struct str out = { 0 };
		struct err e = { 0 };

		ck_assert_int_eq(help_generate(&out, forms[i].form, &e), 0);
		ck_assert_msg(strstr(out.s, forms[i].has) != NULL, "%s: %s",
			      forms[i].form, forms[i].has);
		str_free(&out);
	}
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
	tcase_add_loop_test(t, printed_everywhere, 0, (int)option_count);
	tcase_add_test(t, generated);
	suite_add_tcase(s, t);
	run = srunner_create(s);
	srunner_run_all(run, CK_NORMAL);
	failed = srunner_ntests_failed(run);
	srunner_free(run);
	return failed != 0;
}
