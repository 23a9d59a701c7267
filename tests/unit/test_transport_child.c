/* child.h: what a child starts with, its bytes, its stderr and its end.
 * takes_s: 3 */
#include <check.h>
#include <errno.h>
#include <event2/event.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "launcher/transport/child.h"

static struct event_base *base;
static struct child *child;
static struct str out;
static char *said;
static int status;
static bool kill_at_first_byte, stop_at_first_byte;
static struct child_how how;

/* A test of both kinds of children, by the number of its turn. */
static const struct child_how hows[] = { { 0 }, { .bound = true } };
enum { HOWS = sizeof hows / sizeof *hows };

static void on_bytes(void *ctx, const void *data, size_t n)
{
	(void)ctx;
	str_addn(&out, data, n);
	if (kill_at_first_byte)
		child_kill(child);
	else if (stop_at_first_byte)
		child_stop(child);
	else
		return;
	child = NULL;
	event_base_loopbreak(base);
}

static void on_writable(void *ctx)
{
	(void)ctx;
}

static void on_ended(void *ctx, const struct transport_end *end)
{
	(void)ctx;
	status = end->status;
	said = xstrdup(end->said);
	event_base_loopbreak(base);
}

static const struct transport_events events = { on_bytes, on_writable, on_ended };

static void setup(void)
{
	base = event_base_new();
	out = (struct str){ 0 };
	said = NULL;
	status = -1;
	kill_at_first_byte = stop_at_first_byte = false;
	how = hows[0];
}

static void teardown(void)
{
	if (child)
		child_close(child);
	child_wait_all(0);
	str_free(&out);
	free(said);
	event_base_free(base);
}

static void run(const char *script)
{
	char *argv[] = { (char *)"sh", (char *)"-c", (char *)script, NULL };

	child = child_start(base, "sh", argv, &how, &events, NULL);
	ck_assert_ptr_nonnull(child);
	event_base_dispatch(base);
}

/* What runner ignores or blocks the child does not, and the terminal is not its own. */
START_TEST(starts_clean)
{
	sigset_t all;

	how = hows[_i];
	signal(SIGPIPE, SIG_IGN);
	sigfillset(&all);
	sigprocmask(SIG_BLOCK, &all, NULL);
	run("grep -E 'SigBlk|SigIgn' /proc/self/status; set -- $(cat /proc/$$/stat);"
	    "[ $6 = $$ ] && echo own session");
	ck_assert_msg(strstr(out.s, "SigBlk:\t0000000000000000\n") &&
			      strstr(out.s, "own session\n"),
		      "%s", out.s);
	/* of 32 and 33, which are libc's own, posix_spawn() decides */
	ck_assert_uint_eq(strtoul(strstr(out.s, "SigIgn:") + 7, NULL, 16) & 0x7fffffff,
			  0);
}
END_TEST

/* What started runner may ignore SIGCHLD: then nobody knows the status, and none is
 * made up.  (runner itself does not ignore it.) */
START_TEST(an_unknown_status_is_said)
{
	how = hows[_i];
	signal(SIGCHLD, SIG_IGN);
	run("grep SigIgn /proc/self/status; exit 3");
	signal(SIGCHLD, SIG_DFL);
	ck_assert_int_eq(status, -1);
	ck_assert_uint_eq(strtoul(strstr(out.s, "SigIgn:") + 7, NULL, 16) &
				  (1UL << (SIGCHLD - 1)),
			  0);
}
END_TEST

static struct seen {
	pid_t parent;
	volatile sig_atomic_t here, in_child;
} * seen;

static void on_usr1(int signo)
{
	(void)signo;
	if (getpid() == seen->parent)
		seen->here++;
	else
		seen->in_child++;
}

/* Signals come without end while children start, to all processes of our group: no
 * handler of ours runs in a child. */
START_TEST(no_handler_of_ours_runs_in_a_child)
{
	pid_t storm;

	how = hows[_i];
	seen = mmap(NULL, sizeof *seen, PROT_READ | PROT_WRITE,
		    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	ck_assert(seen != MAP_FAILED);
	*seen = (struct seen){ .parent = getpid() };
	ck_assert_int_eq(setpgid(0, 0), 0);
	signal(SIGUSR1, on_usr1);
	storm = fork();
	if (!storm) {
		setpgid(0, 0);
		while (!kill(-seen->parent, SIGUSR1))
			;
		_exit(0);
	}
	while (!seen->here)
		;
	for (int i = 0; i < 300 && !seen->in_child; i++) {
		char *argv[] = { (char *)"true", NULL };

		child = child_start(base, "true", argv, &how, &events, NULL);
		ck_assert_ptr_nonnull(child);
		event_base_dispatch(base);
		child_close(child);
		child = NULL;
		free(said);
		said = NULL;
	}
	kill(storm, SIGKILL);
	waitpid(storm, NULL, 0);
	ck_assert_int_eq(seen->in_child, 0);
}
END_TEST

START_TEST(all_bytes_come_before_the_end)
{
	how = hows[_i];
	run("head -c 3000000 /dev/zero; exit 7");
	ck_assert_uint_eq(out.len, 3000000);
	ck_assert_int_eq(status, 7);
	ck_assert_str_eq(said, "");
}
END_TEST

START_TEST(a_signal_is_its_status)
{
	how = hows[_i];
	run("kill -9 $$");
	ck_assert_int_eq(status, 128 + SIGKILL);
}
END_TEST

START_TEST(keeps_the_last_of_stderr)
{
	run("i=0; while [ $i -lt 20000 ]; do echo $i; i=$((i+1)); done >&2;"
	    "echo last > /dev/stderr");
	ck_assert_uint_eq(strlen(said), 4096);
	ck_assert_str_eq(said + 4096 - 12, "\n19999\nlast\n");
}
END_TEST

/* As ssh's ControlPersist does: only the end of the process counts. */
START_TEST(what_it_leaves_behind_does_not_hold_it)
{
	run("sleep 20 & echo $!; exit 3");
	ck_assert_int_eq(status, 3);
	ck_assert_int_eq(kill((pid_t)strtol(out.s, NULL, 10), SIGKILL), 0);
}
END_TEST

START_TEST(may_be_killed_from_its_own_call_back)
{
	how = hows[_i];
	kill_at_first_byte = true;
	run("echo x; exec sleep 20");
	ck_assert_str_eq(str_text(&out), "x\n");
	ck_assert_int_eq(waitpid(-1, NULL, WNOHANG), -1);
}
END_TEST

/* No SIGPIPE, and the bytes count as taken. */
START_TEST(sends_to_one_that_ended)
{
	char zeros[1000] = { 0 };

	run("exit 0");
	ck_assert_uint_eq(child_send(child, zeros, sizeof zeros), sizeof zeros);
}
END_TEST

static const struct exec_case {
	const char *text;
	mode_t mode;
	int error;
	bool bound;
} exec_cases[] = {
	{ "echo no interpreter\n", 0700, ENOEXEC, false }, /* /bin/sh is not tried */
	{ "#!/nowhere/sh\n", 0700, ENOENT, false },
	{ "#!/bin/sh\n", 0600, EACCES, false },
	{ NULL, 0, ENOENT, false },
	{ "#!/nowhere/sh\n", 0700, ENOENT, true },
	{ "#!/bin/sh\n", 0600, EACCES, true },
	{ NULL, 0, ENOENT, true },
};

START_TEST(cannot_be_executed)
{
	const struct exec_case *k = &exec_cases[_i];
	char path[] = "/tmp/berth-child.XXXXXX", *argv[] = { path, NULL };
	int fd = mkstemp(path);

	how.bound = k->bound;
	ck_assert_int_ge(fd, 0);
	if (k->text)
		ck_assert_int_gt(write(fd, k->text, strlen(k->text)), 0);
	ck_assert(!fchmod(fd, k->mode));
	close(fd);
	if (!k->text)
		unlink(path);
	ck_assert_ptr_null(child_start(base, path, argv, &how, &events, NULL));
	ck_assert_int_eq(errno, k->error);
	unlink(path);
	ck_assert_int_eq(waitpid(-1, NULL, WNOHANG), -1);
}
END_TEST

/* A child that ends at EOF is waited for; one that does not is killed. */
START_TEST(waits_for_the_closed_ones)
{
	char *argv[] = { (char *)"sh", (char *)"-c", (char *)"cat; exec sleep 20",
			 NULL };
	uint64_t begin = clock_ms();

	child = child_start(base, "cat", argv + 3, &how, &events, NULL);
	child_close(child);
	child = child_start(base, "sh", argv, &how, &events, NULL);
	child_close(child);
	child = NULL;
	child_wait_all(300);
	ck_assert_uint_ge(clock_ms() - begin, 300);
	ck_assert_uint_lt(clock_ms() - begin, 10000);
	ck_assert_int_eq(waitpid(-1, NULL, WNOHANG), -1);
}
END_TEST

START_TEST(gets_the_environment_that_is_given)
{
	char *env[] = { (char *)"PATH=/usr/bin:/bin", (char *)"A=b c", NULL };

	how = hows[_i];
	how.env = env;
	setenv("SECRET", "x", 1);
	run("env | grep -E '^(A|SECRET)='");
	ck_assert_str_eq(str_text(&out), "A=b c\n");
}
END_TEST

/* The process between: it starts a child, writes its pid to FD, and stays. */
static void start_and_stay(int fd)
{
	char *argv[] = { (char *)"sleep", (char *)"1000", NULL };

	child = child_start(base, "sleep", argv, &how, &events, NULL);
	if (!child || write(fd, "x", 1) != 1)
		_exit(1);
	for (;;)
		pause();
}

/* We are the next parent of what it leaves, and learn how that ended. */
START_TEST(one_that_is_bound_dies_with_its_parent)
{
	int pipe_fd[2], st;
	pid_t between, left;
	char byte;

	how.bound = true;
	ck_assert(!prctl(PR_SET_CHILD_SUBREAPER, 1));
	ck_assert(!pipe(pipe_fd));
	between = fork();
	if (!between)
		start_and_stay(pipe_fd[1]);
	ck_assert_int_eq(read(pipe_fd[0], &byte, 1), 1);
	ck_assert_int_eq(kill(between, SIGKILL), 0);
	ck_assert_int_eq(waitpid(between, &st, 0), between);
	left = waitpid(-1, &st, 0);
	ck_assert_int_gt(left, 0);
	ck_assert(WIFSIGNALED(st) && WTERMSIG(st) == SIGKILL);
	close(pipe_fd[0]);
	close(pipe_fd[1]);
}
END_TEST

/* This one would not end at the end of its stdin. */
START_TEST(one_that_is_stopped_gets_term)
{
	char path[] = "/tmp/berth-child.XXXXXX";
	const uint64_t begin = clock_ms();
	struct stat st;
	char *script;
	int fd = mkstemp(path);

	how = hows[_i];
	ck_assert_int_ge(fd, 0);
	script = xasprintf("trap 'echo term > %s; exit' TERM; echo ready;"
			   " while :; do sleep 0.1; done",
			   path);
	stop_at_first_byte = true;
	run(script);
	free(script);
	child_wait_all(50000);
	ck_assert_uint_lt(clock_ms() - begin, 45000);
	ck_assert(!fstat(fd, &st) && st.st_size == 5);
	ck_assert_int_eq(waitpid(-1, NULL, WNOHANG), -1);
	close(fd);
	unlink(path);
}
END_TEST

/* It has ended before, and its pid may be another's by now. */
START_TEST(one_that_has_ended_is_stopped)
{
	run("exit 3");
	ck_assert_int_eq(status, 3);
	child_stop(child);
	child = NULL;
	ck_assert_int_eq(waitpid(-1, NULL, WNOHANG), -1);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("child");
	TCase *c = tcase_create("child");
	SRunner *r = srunner_create(s);
	int failed;

	tcase_set_timeout(c, 60);
	tcase_add_checked_fixture(c, setup, teardown);
	tcase_add_loop_test(c, starts_clean, 0, HOWS);
	tcase_add_loop_test(c, an_unknown_status_is_said, 0, HOWS);
	tcase_add_loop_test(c, no_handler_of_ours_runs_in_a_child, 0, HOWS);
	tcase_add_loop_test(c, all_bytes_come_before_the_end, 0, HOWS);
	tcase_add_loop_test(c, a_signal_is_its_status, 0, HOWS);
	tcase_add_test(c, keeps_the_last_of_stderr);
	tcase_add_test(c, what_it_leaves_behind_does_not_hold_it);
	tcase_add_loop_test(c, may_be_killed_from_its_own_call_back, 0, HOWS);
	tcase_add_test(c, sends_to_one_that_ended);
	tcase_add_loop_test(c, cannot_be_executed, 0,
			    sizeof exec_cases / sizeof *exec_cases);
	tcase_add_test(c, waits_for_the_closed_ones);
	tcase_add_loop_test(c, gets_the_environment_that_is_given, 0, HOWS);
	tcase_add_test(c, one_that_is_bound_dies_with_its_parent);
	tcase_add_loop_test(c, one_that_is_stopped_gets_term, 0, HOWS);
	tcase_add_test(c, one_that_has_ended_is_stopped);
	suite_add_tcase(s, c);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed != 0;
}
