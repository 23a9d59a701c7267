/* agent/ranks/hung: what ranks have done, and the end of one that hangs.
 * takes_s: 3 */
#include <check.h>
#include <event2/event.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/ranks/hung.h"
#include "common/loop.h"

enum { RANKS = 3, SOON_MS = 5000 };

static struct ranks r;
static struct rank v[RANKS];
static struct buf out;
static struct hung_use use[RANKS];

/* ---- what a rank does ---- */

static void sleeps(void)
{
	for (;;)
		pause();
}

static void computes(void)
{
	static volatile unsigned turns;

	for (;;)
		turns++;
}

static void stops(void)
{
	raise(SIGSTOP);
	sleeps();
}

static void is_in_vfork(void)
{
	if (!vfork())
		sleeps();
}

static void on_abrt(int signo)
{
	(void)signo;
	if (write(1, "stacks\n", 7) < 0)
		_exit(1);
}

/* As Python's faulthandler, but it goes on. */
static void survives_abrt(void)
{
	signal(SIGABRT, on_abrt);
	sleeps();
}

/* It waits, its child computes, then reads and writes. */
static void has_a_child(void)
{
	static char bytes[1 << 16];
	int null;

	if (fork())
		sleeps();
	null = open("/dev/null", O_WRONLY | O_CLOEXEC);
	while (write(null, bytes, sizeof bytes) > 0)
		;
}

/* A shell, which waits for a program that is stopped. */
static void is_a_shell(void)
{
	execl("/bin/sh", "sh", "-c", "sh -c 'kill -STOP $$'; :", (char *)NULL);
}

/* ---- the rig ---- */

static void begin(size_t local, void (*does)(void))
{
	struct rank *one = &v[local];

	*one = (struct rank){ .state = RANK_RUNNING,
			      .rank = 10 + (uint32_t)local,
			      .life = 2 };
	one->pid = fork();
	ck_assert_int_ge(one->pid, 0);
	if (!one->pid) {
		setpgid(0, 0);
		does();
		_exit(9);
	}
	setpgid(one->pid, one->pid);
}

static void setup(void)
{
	r = (struct ranks){ .out = &out, .v = v, .n = RANKS };
	r.io.base = event_base_new();
	for (size_t i = 0; i < RANKS; i++)
		v[i] = (struct rank){ .rank = 10 + (uint32_t)i, .life = 2 };
}

static void teardown(void)
{
	for (size_t i = 0; i < RANKS; i++)
		if (v[i].pid) {
			kill(-v[i].pid, SIGKILL);
			waitpid(v[i].pid, NULL, 0);
		}
	if (r.hung)
		event_free(r.hung);
	event_base_free(r.io.base);
	buf_free(&out);
}

/* Local rank LOCAL gets into STATE. */
static void until_state(size_t local, char state)
{
	const uint64_t until = clock_ms() + SOON_MS;

	do {
		usleep(5000);
		hung_look(&r, use);
	} while (use[local].state != state && clock_ms() < until);
	ck_assert_int_eq(use[local].state, state);
}

/* The signal that ends local rank LOCAL, after MS at the earliest; 0: it goes on for
 * MS. */
static int signal_of(size_t local, uint64_t ms, bool ends)
{
	const uint64_t begun = clock_ms();
	int status = 0;

	while (clock_ms() < begun + (ends ? SOON_MS : ms)) {
		event_base_loop(r.io.base, EVLOOP_NONBLOCK);
		if (waitpid(v[local].pid, &status, WNOHANG)) {
			ck_assert_uint_ge(clock_ms(), begun + ms);
			kill(-v[local].pid, SIGKILL); /* its children */
			v[local].pid = 0;
			v[local].state = RANK_EXITED;
			ck_assert(WIFSIGNALED(status));
			return WTERMSIG(status);
		}
		usleep(2000);
	}
	return 0;
}

/* What the user hears, a line each. */
static size_t count_said(const char *text)
{
	const unsigned char *p = buf_head(&out);
	size_t left = out.len, n = 0;
	struct wire_frame f;
	struct wire_log m;
	long used;

	while ((used = wire_next_from(WIRE_AGENT, &f, p, left, NULL)) > 0) {
		ck_assert_uint_eq(f.type, WIRE_log);
		ck_assert(!wire_unpack_log(&m, f.payload, f.n, NULL));
		n += strstr(m.text, text) != NULL;
		wire_free_log(&m);
		p += used;
		left -= (size_t)used;
	}
	ck_assert_uint_eq(left, 0);
	return n;
}

/* ---- looks ---- */

START_TEST(states)
{
	begin(0, sleeps);
	begin(1, stops);
	begin(2, is_in_vfork);
	until_state(0, 'S');
	until_state(1, 'T');
	until_state(2, 'D');
	v[1].state = RANK_EXITED;
	hung_look(&r, use);
	ck_assert_int_eq(use[0].state, 'S');
	ck_assert_int_eq(use[1].state, 0);
	ck_assert_uint_eq(use[1].cpu_ms, 0);
}
END_TEST

/* A rank counts with all processes below it. */
START_TEST(work)
{
	const uint64_t until = clock_ms() + SOON_MS;

	begin(0, sleeps);
	begin(1, computes);
	begin(2, has_a_child);
	do {
		usleep(5000);
		hung_look(&r, use);
	} while ((use[1].cpu_ms < 50 || use[2].cpu_ms < 50 || use[2].bytes < 1 << 20) &&
		 clock_ms() < until);
	ck_assert_int_eq(use[1].state, 'R');
	ck_assert_int_eq(use[2].state, 'S'); /* its main process */
	ck_assert_uint_ge(use[1].cpu_ms, 50);
	ck_assert_uint_ge(use[2].cpu_ms, 50);
	ck_assert_uint_ge(use[2].bytes, 1 << 20);
	ck_assert_uint_le(use[0].cpu_ms, 20);
	ck_assert_uint_lt(use[0].bytes, 4096);
}
END_TEST

START_TEST(a_shell_is_in_the_state_of_its_child)
{
	begin(0, is_a_shell);
	until_state(0, 'T');
}
END_TEST

/* ---- ends ---- */

START_TEST(what_is_stopped_or_in_the_kernel_is_killed_at_once)
{
	begin(0, sleeps);
	begin(1, stops);
	begin(2, is_in_vfork);
	until_state(1, 'T');
	until_state(2, 'D');
	hung_end(&r, 11, 2);
	ck_assert_int_eq(signal_of(1, 0, true), SIGKILL);
	ck_assert(v[1].killed);
	ck_assert_uint_eq(count_said("rank 11, pid "), 1);
	ck_assert_uint_eq(count_said("hangs in state T"), 1);
	hung_end(&r, 12, 2);
	ck_assert_int_eq(signal_of(2, 0, true), SIGKILL);
	ck_assert_uint_eq(count_said("hangs in state D"), 1);
	ck_assert_int_eq(signal_of(0, 50, false), 0);
}
END_TEST

START_TEST(abrt_ends_one_that_sleeps_and_it_leaves_no_core)
{
	struct rlimit l;

	begin(0, sleeps);
	until_state(0, 'S');
	ck_assert(!prlimit(v[0].pid, RLIMIT_CORE, NULL, &l));
	hung_end(&r, 10, 2);
	ck_assert_int_eq(signal_of(0, 0, true), SIGABRT);
	ck_assert_uint_eq(count_said("hangs in state S"), 1);
	ck_assert_uint_eq(count_said(""), 1);
}
END_TEST

/* It gets ABRT, and KILL 2 s later; another order in between changes nothing. */
START_TEST(kill_follows_abrt)
{
	struct rlimit most, l;
	char said[64] = "";
	int p[2];
	ssize_t n;

	ck_assert(!pipe2(p, O_CLOEXEC));
	dup2(p[1], 1);
	ck_assert(!getrlimit(RLIMIT_CORE, &most));
	begin(0, survives_abrt);
	begin(1, sleeps);
	until_state(0, 'S');
	hung_end(&r, 10, 2);
	n = read(p[0], said, sizeof said - 1);
	ck_assert_int_eq((int)n, 7);
	ck_assert_str_eq(said, "stacks\n");
	ck_assert(!prlimit(v[0].pid, RLIMIT_CORE, NULL, &l));
	ck_assert_uint_eq(l.rlim_cur, most.rlim_max ? 1 : 0);
	ck_assert_int_eq(signal_of(0, 500, false), 0);
	hung_end(&r, 10, 2);
	ck_assert_int_eq(signal_of(0, 1000, true), SIGKILL);
	ck_assert_uint_eq(count_said(""), 1);
	ck_assert_int_eq(signal_of(1, 50, false), 0);
}
END_TEST

START_TEST(an_order_for_another_rank_or_life_ends_nobody)
{
	begin(0, stops);
	begin(1, sleeps);
	until_state(0, 'T');
	hung_end(&r, 10, 1); /* it came late */
	hung_end(&r, 10, 3);
	hung_end(&r, 12, 2); /* does not run */
	hung_end(&r, 9, 2);
	hung_end(&r, UINT32_MAX, 2);
	v[1].state = RANK_EXITED;
	hung_end(&r, 11, 2);
	v[1].state = RANK_RUNNING;
	ck_assert_int_eq(signal_of(0, 100, false), 0);
	ck_assert_int_eq(signal_of(1, 10, false), 0);
	ck_assert_uint_eq(out.len, 0);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("hung");
	TCase *c = tcase_create("hung");
	SRunner *runner;
	int failed;

	tcase_add_checked_fixture(c, setup, teardown);
	tcase_add_test(c, states);
	tcase_add_test(c, work);
	tcase_add_test(c, a_shell_is_in_the_state_of_its_child);
	tcase_add_test(c, what_is_stopped_or_in_the_kernel_is_killed_at_once);
	tcase_add_test(c, abrt_ends_one_that_sleeps_and_it_leaves_no_core);
	tcase_add_test(c, kill_follows_abrt);
	tcase_add_test(c, an_order_for_another_rank_or_life_ends_nobody);
	suite_add_tcase(s, c);
	runner = srunner_create(s);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
