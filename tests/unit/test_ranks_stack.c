/* Stacks of Python: what faulthandler wrote, to frames.
 * takes_s: 0 */
#include <check.h>
#include <stdlib.h>

#include "agent/ranks/stack.h"

static void picks(const char *text, const char *frames)
{
	struct str out = { 0 };

	stack_pick(text, &out);
	ck_assert_str_eq(str_text(&out), frames);
	str_free(&out);
}

START_TEST(the_main_thread)
{
	picks("Thread 0x00007f (most recent call first):\n"
	      "  File \"/a b/pool.py\", line 3 in work\n\n"
	      "Current thread 0x00008f [main] (most recent call first):\n"
	      "  File \"/a \", line 1/x.py\", line 88 in next\n"
	      "  File \"<string>\", line 1 in <module>\n",
	      "/a :1\n<string>:1 <module>\n");
	/* of a warm rank, without what has begun the program */
	picks("Current thread 0x1 (most recent call first):\n  File \"a.py\", line 2 "
	      "in a\n"
	      "  File \"<berth warm>\", line 200 in run\n",
	      "a.py:2 a\n");
	/* another thread took the signal: the first one that Python made is the last */
	picks("Thread 0x1 (most recent call first):\n  File \"b.py\", line 1 in b\n\n"
	      "Thread 0x2 (most recent call first):\n  File \"a.py\", line 2 in a\n",
	      "a.py:2 a\n");
}
END_TEST

START_TEST(what_is_no_stack)
{
	picks("", "");
	picks("Current thread 0x1", "");
	picks("Current thread 0x1 (most recent call first):\n  <no Python frame>\n",
	      "");
	picks("Current thread 0x1:\n  File \"a", "");
	picks("  File \"a.py\", line 2 in a\n", "");
	picks("Current thread 0x1:\n  File \"\", line \n", ":\n");
}
END_TEST

/* A rank may write anything: the answer is one frame of a message. */
START_TEST(bounded)
{
	struct str text = { 0 }, out = { 0 };

	str_add(&text, "Current thread 0x1 (most recent call first):\n");
	for (int i = 0; i < 100; i++)
		str_addf(&text, "  File \"%0900d.py\", line %d in f\n", 7, i);
	stack_pick(str_text(&text), &out);
	ck_assert_uint_gt(out.len, STACK_BYTES - 1000);
	ck_assert_uint_lt(out.len, STACK_BYTES + 1200);
	out.len = 0;
	text.len = 0;
	str_addf(&text, "Current thread 0x1:\n  File \"%0100000d\", line 1 in f\n", 7);
	stack_pick(str_text(&text), &out);
	ck_assert_uint_eq(out.len, 0);
	str_free(&text);
	str_free(&out);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("stack");
	TCase *t = tcase_create("stack");
	SRunner *r;
	int failed;

	tcase_add_test(t, the_main_thread);
	tcase_add_test(t, what_is_no_stack);
	tcase_add_test(t, bounded);
	suite_add_tcase(s, t);
	r = srunner_create(s);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed != 0;
}
