/* tail.h: the last lines that a rank wrote, and the one that names an exception. */
#include <check.h>

#include "launcher/output/tail.h"

#define STACK(n) "  file.py(" #n "): f\n"
#define TEN                                                                            \
	STACK(0)                                                                       \
	STACK(1) STACK(2) STACK(3) STACK(4) STACK(5) STACK(6) STACK(7) STACK(8) STACK(9)

static const struct {
	const char *line; /* ten lines and one follow it */
	const char *reason;
} cases[] = {
	{ "RuntimeError: berth: rank 1 left the set",
	  "RuntimeError: berth: rank 1 left the set" },
	{ "torch.distributed.DistBackendError: NCCL",
	  "torch.distributed.DistBackendError: NCCL" },
	{ "[rank0]: ValueError: x", "[rank0]: ValueError: x" },
	{ "[rank123]: ValueError: x", "[rank123]: ValueError: x" },
	{ "_MyException: a: b", "_MyException: a: b" },
	{ "KeyboardInterrupt", "KeyboardInterrupt" },
	{ "SystemExit: 3", "SystemExit: 3" },
	{ "Error: ", "Error: " },
	{ "  RuntimeError: it is not in column 0", NULL },
	{ "RuntimeError:no space", NULL },
	{ "RuntimeError at the end", NULL },
	{ "RuntimeError:", NULL },
	{ "UserWarning: it goes on", NULL },
	{ "3Error: a digit", NULL },
	{ ".Error: a point", NULL },
	{ "[rank]: ValueError: x", NULL },
	{ "[rank0] ValueError: x", NULL },
	{ "[rank0]: ", NULL },
	{ "[rank0", NULL },
	{ "error: lower case", NULL },
	{ "At:", NULL },
	{ "", NULL },
};

static void add(struct tail *t, const char *text)
{
	tail_add(t, text, strlen(text));
}

/* However the bytes come. */
START_TEST(lines_of_exceptions)
{
	char *text = xasprintf("before\n%s\n\n" TEN, cases[_i].line);

	for (size_t step = 1; step <= strlen(text); step++) {
		struct tail t = { 0 };
		bool gap = false;

		for (size_t at = 0; at < strlen(text); at += step) {
			size_t left = strlen(text) - at;

			tail_add(&t, text + at, left < step ? left : step);
		}
		ck_assert_pstr_eq(tail_reason(&t, &gap), cases[_i].reason);
		ck_assert_int_eq(gap, cases[_i].reason != NULL);
		ck_assert_str_eq(tail_lines(&t), TEN);
		tail_free(&t);
	}
	free(text);
}
END_TEST

START_TEST(a_reason_that_is_shown)
{
	struct tail t = { 0 };
	bool gap = true;

	ck_assert_str_eq(tail_lines(&t), "");
	ck_assert_ptr_null(tail_reason(&t, &gap));
	add(&t, "AError: one\n");
	for (int i = 0; i < TAIL_LINES - 1; i++) {
		ck_assert_ptr_null(tail_reason(&t, &gap));
		add(&t, STACK(0));
	}
	ck_assert_ptr_null(tail_reason(&t, &gap));
	ck_assert(!strncmp(tail_lines(&t), "AError", 6));
	add(&t, "no end"); /* is shown, and the reason above it no longer */
	ck_assert_pstr_eq(tail_reason(&t, &gap), "AError: one");
	ck_assert(!gap);
	add(&t, "\n");
	ck_assert_pstr_eq(tail_reason(&t, &gap), "AError: one");
	ck_assert(!gap);
	add(&t, "more\n");
	ck_assert_pstr_eq(tail_reason(&t, &gap), "AError: one");
	ck_assert(gap);
	add(&t, "BError: two\n"); /* the last one counts */
	ck_assert_ptr_null(tail_reason(&t, &gap));
	add(&t, TEN "\n");
	ck_assert_pstr_eq(tail_reason(&t, &gap), "BError: two");
	tail_free(&t);
}
END_TEST

START_TEST(a_reason_far_above)
{
	struct tail t = { 0 };
	bool gap;

	add(&t, "AError: one\n");
	for (int i = 1; i < TAIL_WINDOW; i++)
		add(&t, STACK(0));
	ck_assert_pstr_eq(tail_reason(&t, &gap), "AError: one");
	add(&t, STACK(0));
	ck_assert_ptr_null(tail_reason(&t, &gap));
	tail_free(&t);
}
END_TEST

/* The last bytes begin inside the line with the reason, or far behind it. */
START_TEST(a_long_line)
{
	static char x[3 * TAIL_BYTES];
	struct tail t = { 0 };
	bool gap = false;

	memset(x, 'x', sizeof x);
	add(&t, "AError: ");
	tail_add(&t, x, sizeof x);
	add(&t, "\nlast\n");
	ck_assert_uint_eq(strlen(tail_reason(&t, &gap)), TAIL_REASON_BYTES);
	ck_assert(!strncmp(tail_reason(&t, &gap), "AError: xxx", 11));
	ck_assert(gap);
	add(&t, "BError: two\n");
	ck_assert_ptr_null(tail_reason(&t, &gap));
	tail_add(&t, x, sizeof x);
	ck_assert_pstr_eq(tail_reason(&t, &gap), "BError: two");
	ck_assert(gap);
	ck_assert_uint_eq(strlen(tail_lines(&t)), TAIL_BYTES);
	tail_free(&t);
}
END_TEST

/* Lines without an end, whole lines, reasons: what is kept does not grow. */
START_TEST(what_is_kept_is_bounded)
{
	static char x[65536];
	struct tail t = { 0 };

	memset(x, 'x', sizeof x);
	memcpy(x, "AError: ", 8);
	for (int i = 0; i < 200; i++) {
		tail_add(&t, x, sizeof x - (size_t)(i * 7));
		if (i % 3 == 0)
			add(&t, "\n");
		for (int k = 0; k < 100; k++)
			tail_add(&t, x, 100);
	}
	ck_assert_uint_le(t.bytes.cap + t.line.cap + t.reason.cap, 20 << 10);
	tail_free(&t);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("tail");
	TCase *c = tcase_create("tail");
	SRunner *r = srunner_create(s);
	int failed;

	tcase_add_loop_test(c, lines_of_exceptions, 0,
			    (int)(sizeof cases / sizeof *cases));
	tcase_add_test(c, a_reason_that_is_shown);
	tcase_add_test(c, a_reason_far_above);
	tcase_add_test(c, a_long_line);
	tcase_add_test(c, what_is_kept_is_bounded);
	suite_add_tcase(s, c);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed != 0;
}
