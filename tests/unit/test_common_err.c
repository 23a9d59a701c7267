/* err.h, and the grammar of every row of errors.def. */
#include <check.h>
#include <ctype.h>
#include <unistd.h>

#include "common/err.h"

static const struct {
	const char *name, *sentence, *hint;
	int status;
} rows[] = {
#define ERR(id, status, sentence, hint) { #id, sentence, hint, status },
#include "common/errors.def"
#undef ERR
};
#define ROWS ((int)(sizeof rows / sizeof *rows))

static const int statuses[] = {
#define X(name, status, meaning) status,
	EXITS(X)
#undef X
};

START_TEST(row_has_a_name)
{
	enum err_id id = (enum err_id)(_i + 1);

	ck_assert_str_eq(err_name(id), rows[_i].name);
	ck_assert_int_eq(err_by_name(rows[_i].name), id);
	ck_assert(!strncmp(rows[_i].name, "E_", 2));
	for (int k = 0; k < _i; k++)
		ck_assert_str_ne(rows[k].name, rows[_i].name);
}
END_TEST

START_TEST(row_has_a_status)
{
	size_t i;

	ck_assert_int_eq(err_status((enum err_id)(_i + 1)), rows[_i].status);
	for (i = 0; i < sizeof statuses / sizeof *statuses; i++)
		if (statuses[i] == rows[_i].status)
			return;
	ck_abort_msg("%s: %d is not in exits.h", rows[_i].name, rows[_i].status);
}
END_TEST

/* Lower case, a subject, an option, or a word of capitals such as GPU. */
static bool begins_right(const char *s)
{
	return islower((unsigned char)*s) || *s == '\'' || !strncmp(s, "%s", 2) ||
	       !strncmp(s, "%zu", 3) ||
	       (*s == '-' && (s[1] == '-' || isalpha((unsigned char)s[1]))) ||
	       (isupper((unsigned char)s[0]) && isupper((unsigned char)s[1]));
}

static bool ends_right(const char *s)
{
	char last = s[strlen(s) - 1];

	return last != '.' && last != '!' && last != '\n' && last != ' ';
}

START_TEST(row_has_a_sentence)
{
	const char *s = rows[_i].sentence;

	ck_assert_msg(*s, "%s: no sentence", rows[_i].name);
	ck_assert_msg(begins_right(s), "%s begins wrong: %s", rows[_i].name, s);
	ck_assert_msg(ends_right(s), "%s ends wrong: %s", rows[_i].name, s);
	ck_assert_msg(!strchr(s, '\n'), "%s: more than a line", rows[_i].name);
}
END_TEST

/* A hint is not formatted: a '%s' in it would reach the user. */
START_TEST(row_has_a_hint)
{
	const char *h = rows[_i].hint;
	struct err e;

	if (!*h)
		return;
	ck_assert_msg(!isupper((unsigned char)*h), "%s: hint begins wrong: %s",
		      rows[_i].name, h);
	ck_assert_msg(ends_right(h), "%s: hint ends wrong: %s", rows[_i].name, h);
	ck_assert_msg(!strchr(h, '%'), "%s: hint is shown as it is: %s", rows[_i].name,
		      h);
	ck_assert_msg(!strchr(h, '\n'), "%s: hint of several lines", rows[_i].name);
	ck_assert_msg(strlen(h) < sizeof e.hint, "%s: hint too long", rows[_i].name);
}
END_TEST

START_TEST(names_and_statuses_outside)
{
	ck_assert_int_eq(err_by_name(""), ERR_NONE);
	ck_assert_int_eq(err_by_name("ERR_NONE"), ERR_NONE);
	ck_assert_int_eq(err_by_name("E_NOSUCH"), ERR_NONE);
	ck_assert_int_eq(err_status(ERR_NONE), 0);
	ck_assert_int_eq(err_status(ERR_COUNT), EXIT_RUNNER);
	ck_assert_str_eq(err_name(ERR_COUNT), "?");
	ck_assert_str_eq(err_name((enum err_id) - 1), "?");
}
END_TEST

START_TEST(layers_add_their_subject)
{
	struct err e = { 0 };

	ck_assert_int_eq(err_set(&e, E_NUMBER, "x", 1L, 9L), -1);
	ck_assert_int_eq(e.id, E_NUMBER);
	ck_assert_str_eq(e.text, "'x' is not a number from 1 to 9");
	ck_assert_str_eq(e.hint, "");
	ck_assert_int_eq(err_in(&e, "host '%s'", "a%sb"), -1);
	ck_assert_int_eq(err_in(&e, "-H"), -1);
	ck_assert_str_eq(e.text, "-H: host 'a%sb': 'x' is not a number from 1 to 9");
	ck_assert_int_eq(err_hint(&e, "write %d", 3), -1);
	ck_assert_str_eq(e.hint, "write 3");
	ck_assert_int_eq(err_set(&e, E_WIRE, "other"), -1);
	ck_assert_str_eq(e.text, "the agent's stream is not valid: other");
	ck_assert_str_ne(e.hint, "write 3");
}
END_TEST

START_TEST(no_error_wanted)
{
	ck_assert_int_eq(err_set(NULL, E_NUMBER, "x", 1L, 9L), -1);
	ck_assert_int_eq(err_in(NULL, "here"), -1);
	ck_assert_int_eq(err_hint(NULL, "do"), -1);
}
END_TEST

START_TEST(long_texts_are_cut)
{
	char subject[4000];
	struct err e = { 0 };

	memset(subject, 'x', sizeof subject);
	subject[sizeof subject - 1] = '\0';
	err_set(&e, E_WIRE, subject);
	ck_assert_uint_eq(strlen(e.text), sizeof e.text - 1);
	err_in(&e, "%s", subject);
	ck_assert_uint_eq(strlen(e.text), sizeof e.text - 1);
	ck_assert_str_eq(e.text + sizeof e.text - 4, "...");
	err_hint(&e, "%s", subject);
	ck_assert_uint_eq(strlen(e.hint), sizeof e.hint - 1);
}
END_TEST

/* What err_print() writes, into OUT. */
static void printed(const struct err *e, char *out, size_t size)
{
	int p[2], saved = dup(STDERR_FILENO);
	ssize_t n;

	ck_assert_int_eq(pipe(p), 0);
	dup2(p[1], STDERR_FILENO);
	err_print("runner", e);
	dup2(saved, STDERR_FILENO);
	close(saved);
	close(p[1]);
	n = read(p[0], out, size - 1);
	close(p[0]);
	ck_assert_int_ge(n, 0);
	out[n] = '\0';
}

START_TEST(print)
{
	char out[4096];
	struct err e = { E_NUMBER, "it broke", "" };

	printed(&e, out, sizeof out);
	ck_assert_str_eq(out, "runner: it broke\n");
	err_hint(&e, "mend it");
	printed(&e, out, sizeof out);
	ck_assert_str_eq(out, "runner: it broke\nhint: mend it\n");
	memset(e.text, 'x', sizeof e.text - 1);
	memset(e.hint, 'y', sizeof e.hint - 1);
	e.text[sizeof e.text - 1] = e.hint[sizeof e.hint - 1] = '\0';
	printed(&e, out, sizeof out);
	ck_assert_uint_eq(strlen(out), sizeof e.text + sizeof e.hint - 2 + 16);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("err");
	TCase *c = tcase_create("err");
	SRunner *r = srunner_create(s);
	int failed;

	tcase_add_loop_test(c, row_has_a_name, 0, ROWS);
	tcase_add_loop_test(c, row_has_a_status, 0, ROWS);
	tcase_add_loop_test(c, row_has_a_sentence, 0, ROWS);
	tcase_add_loop_test(c, row_has_a_hint, 0, ROWS);
	tcase_add_test(c, names_and_statuses_outside);
	tcase_add_test(c, layers_add_their_subject);
	tcase_add_test(c, no_error_wanted);
	tcase_add_test(c, long_texts_are_cut);
	tcase_add_test(c, print);
	suite_add_tcase(s, c);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed != 0;
}
