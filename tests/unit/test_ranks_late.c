/* agent/ranks/late: the time in which a rank could run and had no CPU.
 * takes_s: 1 */
#include <check.h>
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/ranks/late.h"
#include "common/str.h"

enum { MS = 1000000, LOOK_MS = 100 };

static struct late l;
static uint64_t at_ns;

/* ---- numbers ---- */

static void thread_of(size_t local, pid_t id, uint64_t used_ms, uint64_t waited_ms)
{
	late_thread(&l, local,
		    &(struct late_thread){ id, used_ms * MS, waited_ms * MS });
}

static void end(uint64_t stolen_ms, uint64_t own_ms)
{
	at_ns += LOOK_MS * MS;
	late_host(&l, stolen_ms * MS, own_ms * MS, at_ns);
}

static uint64_t late_ms(size_t local)
{
	return l.rank[local].late_ns / MS;
}

/* What threads did before the first look is not known to be late. */
START_TEST(the_first_look_says_nothing)
{
	late_begin(&l, 2);
	thread_of(0, 10, 500, 700);
	end(300, 400);
	ck_assert_uint_eq(late_ms(0), 0);
	ck_assert_uint_eq(late_ms(1), 0);
}
END_TEST

START_TEST(the_thread_that_waited_longest)
{
	late_begin(&l, 2);
	thread_of(0, 12, 0, 700);
	thread_of(0, 10, 0, 500);
	thread_of(1, 11, 0, 900);
	end(0, 0);
	late_begin(&l, 2);
	thread_of(0, 10, 0, 530);
	thread_of(0, 12, 0, 720);
	thread_of(1, 11, 0, 900);
	end(0, 0);
	ck_assert_uint_eq(late_ms(0), 30);
	ck_assert_uint_eq(late_ms(1), 0);
	/* one that has begun; another that has the number of one that ended */
	late_begin(&l, 2);
	thread_of(0, 13, 0, 40);
	thread_of(1, 11, 0, 7);
	end(0, 0);
	ck_assert_uint_eq(late_ms(0), 70);
	ck_assert_uint_eq(late_ms(1), 7);
}
END_TEST

/* A wait that is longer than the look ended in it. */
START_TEST(a_wait_is_told_whole)
{
	late_begin(&l, 1);
	thread_of(0, 10, 0, 0);
	end(0, 0);
	late_begin(&l, 1);
	thread_of(0, 10, 0, 3 * LOOK_MS);
	end(20, 0);
	ck_assert_uint_eq(late_ms(0), 3 * LOOK_MS);
}
END_TEST

/* N threads that always run, on CPUS of the rank, each with that part of a CPU.
 * Others take OTHERS percent of these. */
static const struct {
	unsigned n, cpus, others, least_ms, most_ms;
} shares[] = { { 8, 1, 0, 0, 1 },     { 4, 2, 0, 0, 1 },    { 1, 1, 50, 49, 51 },
	       { 1, 1, 90, 89, 91 },  { 8, 1, 50, 49, 53 }, { 8, 2, 50, 24, 51 },
	       { 20, 2, 45, 35, 46 }, { 2, 64, 50, 48, 51 } };

START_TEST(what_its_own_threads_used)
{
	const double of = (double)shares[_i].cpus / shares[_i].n, all = of < 1 ? of : 1,
		     part = all * (100 - shares[_i].others) / 100;

	for (int look = 0; look < 2; look++) {
		const double ms = look * LOOK_MS;

		late_begin(&l, 1);
		l.rank[0].cpus = shares[_i].cpus;
		for (unsigned k = 0; k < shares[_i].n; k++)
			thread_of(0, 10 + (pid_t)k, (uint64_t)(ms * part + 0.5),
				  (uint64_t)(ms * (1 - part) + 0.5));
		end(0, 0);
	}
	ck_assert_uint_ge(late_ms(0), shares[_i].least_ms);
	ck_assert_uint_le(late_ms(0), shares[_i].most_ms);
}
END_TEST

START_TEST(what_the_host_lacked)
{
	for (unsigned look = 0; look < 2; look++) {
		late_begin(&l, 2);
		thread_of(0, 10, 0, look * 60);
		thread_of(1, 11, 0, look * 20);
		end(1000 + look * 50, 77 + look * 40);
	}
	ck_assert_uint_eq(late_ms(0), 60 + 40 / 2);
	ck_assert_uint_eq(late_ms(1), 40 + 60 / 2);
}
END_TEST

/* In another epoch there may be more ranks. */
START_TEST(another_number_of_ranks)
{
	late_begin(&l, 1);
	thread_of(0, 10, 0, 0);
	end(0, 0);
	late_begin(&l, 3);
	thread_of(2, 12, 0, 5);
	end(0, 0);
	ck_assert_uint_eq(late_ms(0), 0);
	ck_assert_uint_eq(late_ms(2), 5);
}
END_TEST

/* ---- /proc ---- */

static pid_t begin_loop(size_t cpu)
{
	const pid_t pid = fork();
	cpu_set_t set;

	ck_assert_int_ge(pid, 0);
	if (pid)
		return pid;
	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	sched_setaffinity(0, sizeof set, &set);
	for (;;)
		;
}

static void look(pid_t pid)
{
	late_begin(&l, 1);
	late_cpus(&l, 0, pid);
	late_process(&l, 0, pid);
	late_end(&l);
}

/* Two processes share a CPU. */
START_TEST(one_beside_another)
{
	const uint64_t until = clock_ms() + 5000;
	pid_t pid[2];
	cpu_set_t set;
	size_t cpu = 0;

	ck_assert(!sched_getaffinity(0, sizeof set, &set));
	while (!CPU_ISSET(cpu, &set))
		cpu++;
	if (access("/proc/self/schedstat", R_OK))
		return; /* a kernel without it */
	for (int i = 0; i < 2; i++)
		pid[i] = begin_loop(cpu);
	look(pid[0]);
	while ((!l.rank[0].late_ns || late_ms(0) < 50) && clock_ms() < until) {
		usleep(10000);
		look(pid[0]);
	}
	ck_assert_uint_eq(l.rank[0].cpus, 1);
	for (int i = 0; i < 2; i++) {
		kill(pid[i], SIGKILL);
		waitpid(pid[i], NULL, 0);
	}
	ck_assert_uint_ge(late_ms(0), 50);
	look(pid[0]); /* it is gone */
	ck_assert_uint_ge(late_ms(0), 50);
}
END_TEST

/* Looks take a part of the time only. */
START_TEST(the_next_look_waits)
{
	ck_assert(late_is_due(&l));
	for (int i = 0; i < 3; i++)
		look(getpid());
	ck_assert_uint_gt(l.due_ns, l.at_ns);
	l.due_ns = clock_ns() + (uint64_t)3600 * 1000 * MS;
	ck_assert(!late_is_due(&l));
	l.due_ns = clock_ns();
	ck_assert(late_is_due(&l));
}
END_TEST

static void setup(void)
{
	at_ns = LOOK_MS * MS;
}

static void teardown(void)
{
	late_free(&l);
}

int main(void)
{
	Suite *s = suite_create("late");
	TCase *c = tcase_create("late");
	SRunner *runner;
	int failed;

	tcase_add_checked_fixture(c, setup, teardown);
	tcase_add_test(c, the_first_look_says_nothing);
	tcase_add_test(c, the_thread_that_waited_longest);
	tcase_add_test(c, a_wait_is_told_whole);
	tcase_add_loop_test(c, what_its_own_threads_used, 0,
			    sizeof shares / sizeof *shares);
	tcase_add_test(c, what_the_host_lacked);
	tcase_add_test(c, another_number_of_ranks);
	tcase_add_test(c, one_beside_another);
	tcase_add_test(c, the_next_look_waits);
	suite_add_tcase(s, c);
	runner = srunner_create(s);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
