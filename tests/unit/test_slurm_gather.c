/* contrib/slurm/gather.h, among processes. */
#include <check.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "contrib/slurm/gather.h"

enum { TASKS = 8, LONG_MS = 20000 };

/* The exit status of a task: 1 if it was the last and all had written theirs. */
static int task(struct gather *g, uint32_t local)
{
	g->task[local].cpus[0] = local + 1;
	if (gather_arrive(g)) {
		for (uint32_t i = 0; i < TASKS; i++)
			if (g->task[i].cpus[0] != i + 1)
				return 9;
		memcpy(g->text, "text", sizeof "text");
		if (!gather_decide(g, GATHER_TEXT))
			return 8;
		return gather_wait(g, LONG_MS) == GATHER_TEXT ? 1 : 7;
	}
	return gather_wait(g, LONG_MS) == GATHER_TEXT && !strcmp(g->text, "text") ? 0
										  : 6;
}

START_TEST(last_one_decides)
{
	struct gather *g = gather_new(TASKS);
	int last = 0;

	ck_assert_ptr_nonnull(g);
	for (uint32_t i = 0; i < TASKS; i++) {
		const pid_t pid = fork();

		ck_assert_int_ge(pid, 0);
		if (!pid)
			_exit(task(g, i));
	}
	for (int i = 0; i < TASKS; i++) {
		int status;

		ck_assert_int_gt(wait(&status), 0);
		ck_assert(WIFEXITED(status));
		ck_assert_int_le(WEXITSTATUS(status), 1);
		last += WEXITSTATUS(status);
	}
	ck_assert_int_eq(last, 1);
}
END_TEST

START_TEST(first_end_holds)
{
	struct gather *g = gather_new(2);

	ck_assert(!gather_arrive(g));
	ck_assert_int_eq(gather_wait(g, 10), GATHER_OPEN);
	ck_assert(gather_decide(g, GATHER_NONE));
	ck_assert(gather_arrive(g));
	ck_assert(!gather_decide(g, GATHER_TEXT));
	ck_assert_int_eq(gather_wait(g, LONG_MS), GATHER_NONE);
	ck_assert(!gather_arrive(g)); /* one that does not count */
}
END_TEST

int main(void)
{
	Suite *s = suite_create("spank_gather");
	TCase *c = tcase_create("gather");
	SRunner *r;
	int failed;

	tcase_set_timeout(c, 60);
	tcase_add_test(c, last_one_decides);
	tcase_add_test(c, first_end_holds);
	suite_add_tcase(s, c);
	r = srunner_create(s);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? 1 : 0;
}
