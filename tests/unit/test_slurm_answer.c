/* contrib/slurm/answer.h */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "common/str.h"
#include "contrib/slurm/answer.h"

#define HEAD "berth-step 1\n"
#define TWO "task 0\nset A=1\ntask 1\n"

START_TEST(whole_answer)
{
	char text[] = HEAD "print\nmasks\nvisible\nwarning careful\ntask 0\ncpus "
			   "0-2,64\ngpu 3\nset A=b=c\n"
			   "default B=\nunset C\nreport r 0\ntask 1\nend\n";
	struct answer a;

	ck_assert(answer_read(&a, text, 2));
	ck_assert(a.print && a.masks && a.visible && !a.off && !a.error);
	ck_assert_str_eq(a.warning[0], "careful");
	ck_assert_uint_eq(a.tasks, 2);
	ck_assert(a.task[0].bound && a.task[0].cpus[0] == 7 && a.task[0].cpus[1] == 1);
	ck_assert_int_eq(a.task[0].gpu, 3);
	ck_assert_uint_eq(a.task[0].n, 3);
	ck_assert_str_eq(a.task[0].v[0].value, "b=c");
	ck_assert(a.task[0].v[1].if_unset && !*a.task[0].v[1].value);
	ck_assert_ptr_null(a.task[0].v[2].value);
	ck_assert_str_eq(a.task[0].report, "r 0");
	ck_assert(!a.task[1].bound && a.task[1].gpu == -1);
	free(a.task);
}
END_TEST

START_TEST(off_and_error)
{
	char off[] = HEAD "off\nend\n", error[] = HEAD "error no\nhint do\nend\n";
	struct answer a;

	ck_assert(answer_read(&a, off, 2) && a.off);
	ck_assert(!a.print && !a.masks && !a.visible);
	free(a.task);
	ck_assert(answer_read(&a, error, 2));
	ck_assert_str_eq(a.error, "no");
	ck_assert_str_eq(a.hint, "do");
	free(a.task);
}
END_TEST

static const char *const wrong[] = {
	"",
	"berth-step 2\n" TWO "end\n",
	HEAD TWO,
	HEAD TWO "end",
	HEAD TWO "end\nmore\n",
	HEAD "task 0\nend\n",
	HEAD TWO "task 2\nend\n",
	HEAD "task 1\ntask 0\nend\n",
	HEAD "set A=1\nend\n",
	HEAD TWO "cpus \nend\n",
	HEAD TWO "cpus 3-1\nend\n",
	HEAD TWO "cpus 8192\nend\n",
	HEAD TWO "cpus 0-99999999999999999999\nend\n",
	HEAD TWO "cpus 0,\nend\n",
	HEAD TWO "cpus 0\ncpus 1\nend\n",
	HEAD TWO "gpu -1\nend\n",
	HEAD TWO "gpu 99999\nend\n",
	HEAD TWO "set A\nend\n",
	HEAD TWO "set =1\nend\n",
	HEAD TWO "set 1A=1\nend\n",
	HEAD TWO "set A B=1\nend\n",
	HEAD TWO "set LD_PRELOAD=x\nend\n",
	HEAD TWO "unset SLURM_JOB_ID\nend\n",
	HEAD TWO "report \033[2J\nend\n",
	HEAD TWO "colour red\nend\n",
	HEAD "error\nend\n",
};

START_TEST(not_an_answer)
{
	char *text = xstrdup(wrong[_i]);
	struct answer a;

	ck_assert_msg(!answer_read(&a, text, 2), "%s", wrong[_i]);
	ck_assert_ptr_null(a.task);
	free(text);
}
END_TEST

START_TEST(too_much)
{
	struct str s = { 0 };
	struct answer a;

	str_add(&s, HEAD "task 0\n");
	for (int i = 0; i <= ANSWER_VARIABLES; i++)
		str_addf(&s, "set A%d=1\n", i);
	str_add(&s, "end\n");
	ck_assert(!answer_read(&a, s.s, 1));
	str_free(&s);
	str_add(&s, HEAD "task 0\nset A=");
	for (int i = 0; i < ANSWER_LINE_BYTES; i++)
		str_add(&s, "a");
	str_add(&s, "\nend\n");
	ck_assert(!answer_read(&a, s.s, 1));
	str_free(&s);
	ck_assert(!answer_read(&a, (char[]){ HEAD "end\n" }, 0));
	ck_assert(!answer_read(&a, (char[]){ HEAD "off\nend\n" }, ANSWER_TASKS + 1));
}
END_TEST

int main(void)
{
	Suite *s = suite_create("spank_answer");
	TCase *c = tcase_create("answer");
	SRunner *r;
	int failed;

	tcase_add_test(c, whole_answer);
	tcase_add_test(c, off_and_error);
	tcase_add_loop_test(c, not_an_answer, 0, sizeof wrong / sizeof *wrong);
	tcase_add_test(c, too_much);
	suite_add_tcase(s, c);
	r = srunner_create(s);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? 1 : 0;
}
