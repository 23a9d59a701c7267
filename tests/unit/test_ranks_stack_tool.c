/* Stacks by tools: what eu-stack and py-spy print, to frames.
 * takes_s: 0 */
#include <check.h>
#include <stdlib.h>
#include <unistd.h>

#include "agent/ranks/stack.h"
#include "agent/ranks/stack_tool.h"

static const struct {
	bool is_py_spy;
	const char *text, *frames;
} cases[] = {
	{ false,
	  "TID 1:\n#0  0x00007f read\n    ../io/read.c:26:10\n#1  0x0000 f\n"
	  "    /a b/x.c:2:102\n#2  0x01 main\n#3  0x02\n",
	  "../io/read.c:26 read\n/a b/x.c:2 f\n?? main\n??\n" },
	{ false, "", "" },
	{ false, "#", "??\n" },
	{ false, "#0  ", "??\n" },
	{ false, "TID 1:\neu-stack: no\n", "" },
	{ false, "#0  0x1 f\n    nocolon\n", "?? f\n" },
	{ true,
	  "Process 1: python3\nPython v3\n\nThread 2 (idle): \"worker\"\n"
	  "    work (/a.py:1)\n\nThread 1 (idle): \"MainThread\"\n"
	  "    next (the one) (/a (b)/x.py:3)\n    <module> (x.py:9)\nThread 3\n"
	  "    g (y.py:1)\n",
	  "b)/x.py:3 next (the one) (/a\nx.py:9 <module>\n" },
	{ true, "P\n\nThread 2 (idle)\n    work (/a.py:1)\n", "/a.py:1 work\n" },
	{ true, "", "" },
	{ true, "\nThread 1 \"MainThread\"", "" },
	{ true, "\nThread 1 \"MainThread\"\n    f\n", "" },
	{ true, "\nThread 1 \"MainThread\"\n    )\n", "" },
};

START_TEST(frames)
{
	struct str out = { 0 };

	stack_tool_pick(cases[_i].text, cases[_i].is_py_spy, &out);
	ck_assert_str_eq(str_text(&out), cases[_i].frames);
	str_free(&out);
}
END_TEST

/* A tool may print anything. */
START_TEST(bounded)
{
	struct str text = { 0 }, out = { 0 };

	str_add(&text, "\nThread 1 \"MainThread\"\n");
	for (int i = 0; i < 100; i++)
		str_addf(&text, _i ? "    f (%0900d.py:3)\n" : "#1 0x1 %0900d\n", i);
	stack_tool_pick(str_text(&text), _i, &out);
	ck_assert_uint_gt(out.len, STACK_BYTES - 1000);
	ck_assert_uint_lt(out.len, STACK_BYTES + 1200);
	out.len = text.len = 0;
	str_addf(&text, "\nThread 1\n    f (%0100000d:1)\n#1 0x1 %0100000d\n", 7, 7);
	stack_tool_pick(str_text(&text), _i, &out);
	ck_assert_uint_eq(out.len, 0);
	str_free(&text);
	str_free(&out);
}
END_TEST

/* A process of another user, one that is none, one that has no PATH. */
START_TEST(no_tool)
{
	struct stack_tool t;
	struct str none = { 0 };

	ck_assert(!stack_tool_start(&t, geteuid() ? 1 : 0));
	ck_assert(!stack_tool_start(&t, 0x7fffffff));
	stack_tool_take(&t, &none);
	ck_assert_uint_eq(none.len, 0);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("stack_tool");
	TCase *t = tcase_create("stack_tool");
	SRunner *r;
	int failed;

	tcase_add_loop_test(t, frames, 0, sizeof cases / sizeof *cases);
	tcase_add_loop_test(t, bounded, 0, 2);
	tcase_add_test(t, no_tool);
	suite_add_tcase(s, t);
	r = srunner_create(s);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed != 0;
}
