/* lines.h: text without an end, updates, and what a terminal shows of them. */
#include <check.h>
#include <stdlib.h>

#include "launcher/output/lines.h"

#define O(rank) "[" #rank "]<stdout>:"
#define E(rank) "[" #rank "]<stderr>:"
#define ERASE "\r\x1b[K"
#define BAR(text) "\x1b[?7l" text "\x1b[?7h"

enum { NP = 3 };
enum where { A_FILE, A_DUMB_TERMINAL, A_TERMINAL };

/* A step begins with its kind:
 *   "0o" rank 0 writes the rest to stdout; "0e" to stderr
 *   "?"  each stream that waits has waited long enough
 *   "d"  draw
 *   "t"  the user typed the end of a line
 *   "n"  a note of runner
 *   "s"  its status is the rest
 *   "."  no more comes */
/* clang-format off */
static const struct {
	const char *what;
	enum where where;
	const char *step[10];
	const char *out;
} cases[] = {
	{ "a prompt", A_TERMINAL, { "0oname? ", "?", "0oAda\n" }, O(0) "name? Ada\n" },
	{ "a prompt on a dumb terminal", A_DUMB_TERMINAL, { "0oname? ", "?", "0oAda\n" },
	  O(0) "name? Ada\n" },
	{ "a prompt in a file", A_FILE, { "0oname? ", "?", "1ox\n", "0oAda\n" },
	  O(1) "x\n" O(0) "name? Ada\n" },
	{ "a prompt that is answered", A_TERMINAL, { "0oname? ", "?", "t", "0oHi\n" },
	  O(0) "name? " O(0) "Hi\n" },
	{ "dots", A_TERMINAL, { "0o.", "?", "0o.", "?", "?", "0o.\n" }, O(0) "...\n" },
	{ "a prompt and another's line", A_TERMINAL, { "0oname? ", "?", "1ox\n", "0oAda\n" },
	  O(0) "name? \n" O(1) "x\n" O(0) "Ada\n" },
	{ "dots, another's line, the end of the dots", A_TERMINAL,
	  { "0o..", "?", "1ox\n", "0o\n", "0oz\n" },
	  O(0) "..\n" O(1) "x\n" O(0) "z\n" },
	{ "two prompts", A_TERMINAL, { "0oa", "1ob", "?", "0oA\n", "1oB\n" },
	  O(0) "a\n" O(1) "b\n" O(0) "A\n" O(1) "B\n" },
	{ "a prompt and a note", A_TERMINAL, { "0oa", "?", "nnote\n", "0ob\n" },
	  O(0) "a\nnote\n" O(0) "b\n" },
	{ "a character in parts", A_TERMINAL, { "0o\xe2\x82", "?", "1ox\n", "0o\xac", "?", "0o\n" },
	  O(1) "x\n" O(0) "\xe2\x82\xac\n" },
	{ "a prompt, then an update over it", A_TERMINAL, { "0oa", "?", "0ob\r", "?", "d", "0oc\n" },
	  O(0) "a" ERASE BAR(O(0) "ab") ERASE O(0) "c\n" },
	{ "a prompt, then an update, dumb", A_DUMB_TERMINAL, { "0oa", "?", "0ob\rc\n" },
	  O(0) "ab\n" O(0) "c\n" },

	{ "an update in a file, at last", A_FILE, { "0o1\r", "?", "0o2\r", "0o3\r", "?", "0o4\n" },
	  O(0) "1\n" O(0) "3\n" O(0) "4\n" },
	{ "an update that was written, then its end", A_FILE, { "0o1\r", "?", "0o\nb\n" },
	  O(0) "1\n" O(0) "b\n" },
	{ "an update that was written, then an empty line", A_FILE, { "0o1\r", "?", "0o\n\n" },
	  O(0) "1\n" O(0) "\n" },
	{ "an update that was written, then the end", A_FILE, { "0o\r1\r", "?", "." },
	  O(0) "1\n" },
	{ "an empty line behind '\\r' alone", A_FILE, { "0o\r\r\n" }, O(0) "\r\n" },

	{ "an update in place of another", A_TERMINAL, { "0e1\r", "d", "0e2\r", "d", "d" },
	  BAR(E(0) "1") ERASE BAR(E(0) "2") },
	{ "an update, then a line of its stream", A_TERMINAL, { "0elong\r", "d", "0ea\n", "d" },
	  BAR(E(0) "long") ERASE E(0) "a\n" },
	{ "two ranks' bars, then a print", A_TERMINAL,
	  { "0e\r 10%", "1e\r 20%", "d", "0ohello\n", "d", "0e\r 30%", "d" },
	  BAR(E(1) " 20%") ERASE O(0) "hello\n" BAR(E(1) " 20%") ERASE BAR(E(0) " 30%") },
	{ "an update and a prompt", A_TERMINAL, { "0e1\r", "d", "1oa", "?", "d", "1ob\n", "d" },
	  BAR(E(0) "1") ERASE O(1) "ab\n" BAR(E(0) "1") },
	{ "an update, its end", A_TERMINAL, { "0e1\r", "d", "0e\n", "d" },
	  BAR(E(0) "1") ERASE E(0) "1\r\n" },
	{ "an update that is erased", A_TERMINAL, { "0e1\r", "d", "0e   \r", "0oa\n", "d" },
	  BAR(E(0) "1") ERASE O(0) "a\n" },
	{ "an update that is erased, alone", A_TERMINAL, { "0e1\r", "d", "0e\r   \rx", "0e\r", "d" },
	  BAR(E(0) "1") ERASE BAR(E(0) "x") },
	{ "the last updates", A_TERMINAL, { "0e1\r", "1e\r2", "d", ".", "d" },
	  BAR(E(1) "2") ERASE E(0) "1\n" E(1) "2\n" },
	{ "no cursor moves in an update", A_TERMINAL, { "0e\x1b[31m1\x1b[A\x1b[2K\a\r", "d" },
	  BAR(E(0) "\x1b[31m1\x1b[0m") },
	{ "a status below a line", A_TERMINAL, { "sup", "d", "0oa\n", "d", "sdown", "d", "s", "d" },
	  BAR("runner: up") ERASE O(0) "a\n" BAR("runner: up") ERASE BAR("runner: down") ERASE },
	{ "a status of two rows", A_TERMINAL, { "sup\nr0", "d", "0oa\n", "d", "sx", "d" },
	  BAR("runner: up\nr0") "\r\x1b[1A\x1b[J" O(0) "a\n" BAR("runner: up\nr0")
	  "\r\x1b[1A\x1b[J" BAR("runner: x") },
	{ "a status gives way to an update, and comes back", A_TERMINAL,
	  { "sup", "0e1\r", "d", "sx", "d", "0e\n", "sy", "d" },
	  BAR(E(0) "1") ERASE E(0) "1\r\n" BAR("runner: y") },
	{ "no status in a file", A_FILE, { "sup", "d", "0oa\n", "sx", "d" }, O(0) "a\n" },
	{ "a note and an update", A_TERMINAL, { "0e1\r", "d", "nnote\n", "d" },
	  BAR(E(0) "1") ERASE "note\n" BAR(E(0) "1") },
};
/* clang-format on */

START_TEST(steps)
{
	struct line_stream s[2 * NP], own = { 0 };
	struct buf out = { 0 };
	struct lines l = { .out = &out,
			   .terminal = cases[_i].where != A_FILE,
			   .drawing = cases[_i].where == A_TERMINAL };

	for (uint32_t i = 0; i < 2 * NP; i++)
		s[i] = (struct line_stream){ .index = i };
	for (int k = 0; k < 10 && cases[_i].step[k]; k++) {
		const char *step = cases[_i].step[k];

		for (int i = 0; i < 2 * NP; i++) {
			if (*step == '?' && lines_wait_ms(&l, &s[i]) != LINES_NEVER)
				lines_show(&l, &s[i]);
			if (*step == '.')
				lines_finish(&l, &s[i]);
		}
		if (*step == 'd')
			lines_draw(&l);
		if (*step == 't')
			lines_typed(&l);
		if (*step == 's')
			lines_status(&l, &own, step + 1);
		if (*step == 'n')
			lines_note(&l, step + 1, strlen(step + 1));
		if (*step >= '0' && *step <= '9')
			lines_put(&l, &s[2 * (*step - '0') + (step[1] == 'e')],
				  step + 2, strlen(step + 2));
	}
	buf_add(&out, "", 1);
	ck_assert_str_eq((const char *)buf_head(&out), cases[_i].out);
	for (int i = 0; i < 2 * NP; i++)
		lines_free_stream(&s[i]);
	lines_free_stream(&own);
	buf_free(&out);
}
END_TEST

/* An update that is longer than what is held becomes a line. */
START_TEST(long_update)
{
	struct line_stream s = { .index = 0 };
	struct buf out = { 0 };
	struct lines l = { .out = &out };
	char *x = xcalloc(1, 70001);

	memset(x, 'x', 70000);
	lines_put(&l, &s, x, 70000);
	lines_put(&l, &s, "y\r", 2);
	lines_put(&l, &s, "z\n", 2);
	ck_assert_uint_eq(out.len, strlen(O(0)) * 2 + 70000 + 2 + 2);
	ck_assert_mem_eq(buf_head(&out) + out.len - 16, "y\n" O(0) "z\n", 16);
	lines_free_stream(&s);
	buf_free(&out);
	free(x);
}
END_TEST

START_TEST(waits)
{
	struct line_stream s = { .index = 0 };
	struct buf out = { 0 };
	struct lines file = { .out = &out },
		     terminal = { .out = &out, .terminal = true, .drawing = true };

	ck_assert_int_eq(lines_wait_ms(&terminal, &s), LINES_NEVER);
	lines_put(&file, &s, "a", 1);
	ck_assert_int_eq(lines_wait_ms(&file, &s), LINES_NEVER);
	ck_assert_int_eq(lines_wait_ms(&terminal, &s), 200);
	lines_put(&file, &s, "\r", 1);
	ck_assert_int_eq(lines_wait_ms(&file, &s), 10000);
	ck_assert_int_eq(lines_wait_ms(&terminal, &s), LINES_NEVER);
	lines_put(&file, &s, "b", 1);
	ck_assert_int_eq(lines_wait_ms(&file, &s), 10000);
	lines_show(&file, &s);
	ck_assert_int_eq(lines_wait_ms(&file, &s), LINES_NEVER);
	lines_free_stream(&s);
	buf_free(&out);
}
END_TEST

START_TEST(label_columns)
{
	ck_assert_uint_eq(lines_label_columns(TAG_LONG, false, 1), strlen(O(0)));
	ck_assert_uint_eq(lines_label_columns(TAG_LONG, false, 10), strlen(O(9)));
	ck_assert_uint_eq(lines_label_columns(TAG_SHORT, false, 11), strlen("[10] "));
	ck_assert_uint_eq(lines_label_columns(TAG_NONE, false, 512), 0);
	ck_assert_uint_eq(lines_label_columns(TAG_NONE, true, 512),
			  strlen("2026-11-22T08:24:33.123+01:00 "));
}
END_TEST

/* ---- equal lines ---- */

/* Steps as above; "+" and a number: so many milliseconds pass.  What is due leaves
 * after each step. */
/* clang-format off */
static const struct {
	const char *step[12], *out;
} equals[] = {
	{ { "0oa\n", "1oa\n", "2oa\n" }, "[0-2]<stdout>:a\n" },
	{ { "0oa\n", "1oa\n", "+499" }, "" },
	{ { "0oa\n", "+499", "2oa\n", "+1" }, "[0,2]<stdout>:a\n" },
	{ { "0oa\n", "1ea\n", "+500" }, O(0) "a\n" E(1) "a\n" },
	/* each rank's lines keep their order, and each of them is there */
	{ { "0oa\nb\n", "1ob\na\n", "2oa\nb\n", "+500" },
	  "[0,2]<stdout>:a\n[0-2]<stdout>:b\n" O(1) "a\n" },
	{ { "0oa\nx0\nb\n", "1oa\nx1\nb\n", "2oa\nx2\nb\n" },
	  "[0-2]<stdout>:a\n" O(0) "x0\n" O(1) "x1\n" O(2) "x2\n[0-2]<stdout>:b\n" },
	{ { "0oa\na\n", "1oa\n", "2oa\na\n", "1oa\n", "+500" },
	  "[0-2]<stdout>:a\n[0-2]<stdout>:a\n" },
	/* what is no line yet, and what runner says, come behind those before */
	{ { "0oa\nmore", "1oa\n", "nnote\n", "2oa\n", "." },
	  "[0-1]<stdout>:a\nnote\n" O(0) "more" "\n" O(2) "a\n" },
	{ { "0oa\n", "0o1\r", "?", "+500" }, O(0) "a\n" O(0) "1\n" },
};
/* clang-format on */

START_TEST(equal_lines)
{
	struct line_stream s[2 * NP];
	struct buf out = { 0 };
	struct lines l = { .out = &out, .equal = coalesce_open(NP), .now_ms = 7 };

	for (uint32_t i = 0; i < 2 * NP; i++)
		s[i] = (struct line_stream){ .index = i };
	for (int k = 0; k < 12 && equals[_i].step[k]; k++) {
		const char *step = equals[_i].step[k];

		for (int i = 0; i < 2 * NP; i++) {
			if (*step == '?' && lines_wait_ms(&l, &s[i]) != LINES_NEVER)
				lines_show(&l, &s[i]);
			if (*step == '.')
				lines_finish(&l, &s[i]);
		}
		if (*step == 'n')
			lines_note(&l, step + 1, strlen(step + 1));
		if (*step == '+')
			l.now_ms += strtoul(step + 1, NULL, 10);
		if (*step >= '0' && *step <= '9')
			lines_put(&l, &s[2 * (*step - '0') + (step[1] == 'e')],
				  step + 2, strlen(step + 2));
		lines_put_equal(&l, *step == '.');
	}
	buf_add(&out, "", 1);
	ck_assert_str_eq((const char *)buf_head(&out), equals[_i].out);
	for (int i = 0; i < 2 * NP; i++)
		lines_free_stream(&s[i]);
	coalesce_free(l.equal);
	buf_free(&out);
}
END_TEST

/* Many lines that are never complete: the oldest leave early, and none is lost. */
START_TEST(equal_lines_are_bounded)
{
	struct line_stream s = { .index = 0 };
	struct buf out = { 0 };
	struct lines l = { .out = &out, .equal = coalesce_open(2) };
	char text[1200];
	size_t n = 0;

	memset(text, 'x', sizeof text);
	for (int i = 0; i < 20000; i++) {
		snprintf(text, 9, "%08d", i);
		text[8] = 'x';
		text[sizeof text - 1] = '\n';
		lines_put(&l, &s, text, sizeof text);
		ck_assert_uint_ge(out.len + COALESCE_BYTES + 2 * sizeof text,
				  (size_t)i * sizeof text);
	}
	lines_put_equal(&l, true);
	for (const char *p = (const char *)buf_head(&out), *end = p + out.len; p < end;
	     p += strlen(O(0)) + sizeof text)
		ck_assert_uint_eq(strtoul(p + strlen(O(0)), NULL, 10), n++);
	ck_assert_uint_eq(n, 20000);
	lines_free_stream(&s);
	coalesce_free(l.equal);
	buf_free(&out);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("lines");
	TCase *c = tcase_create("lines");
	SRunner *r = srunner_create(s);
	int failed;

	tcase_add_loop_test(c, steps, 0, (int)(sizeof cases / sizeof *cases));
	tcase_add_test(c, long_update);
	tcase_add_test(c, waits);
	tcase_add_test(c, label_columns);
	tcase_add_loop_test(c, equal_lines, 0, (int)(sizeof equals / sizeof *equals));
	tcase_add_test(c, equal_lines_are_bounded);
	suite_add_tcase(s, c);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed != 0;
}
