/* child.h: what a child starts with, its bytes, its stderr and its end. */
#include <check.h>
#include <errno.h>
#include <event2/event.h>
#include <signal.h>
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
static bool kill_at_first_byte;

static void on_bytes(void *ctx, const void *data, size_t n)
{
	(void)ctx;
	str_addn(&out, data, n);
	if (kill_at_first_byte) {
		child_kill(child);
		child = NULL;
		event_base_loopbreak(base);
	}
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
	kill_at_first_byte = false;
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

	child = child_start(base, "sh", argv, &(struct child_how){ 0 }, &events, NULL);
	ck_assert_ptr_nonnull(child);
	event_base_dispatch(base);
}

/* What runner ignores or blocks the child does not, and the terminal is not its own. */
START_TEST(starts_clean)
{
	sigset_t all;

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

		child = child_start(base, "true", argv, &(struct child_how){ 0 },
				    &events, NULL);
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
	run("head -c 3000000 /dev/zero; exit 7");
	ck_assert_uint_eq(out.len, 3000000);
	ck_assert_int_eq(status, 7);
	ck_assert_str_eq(said, "");
}
END_TEST

START_TEST(a_signal_is_its_status)
{
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
} exec_cases[] = {
	{ "echo no interpreter\n", 0700, ENOEXEC }, /* /bin/sh is not tried */
	{ "#!/nowhere/sh\n", 0700, ENOENT },
	{ "#!/bin/sh\n", 0600, EACCES },
	{ NULL, 0, ENOENT },
};

START_TEST(cannot_be_executed)
{
	const struct exec_case *k = &exec_cases[_i];
	char path[] = "/tmp/berth-child.XXXXXX", *argv[] = { path, NULL };
	int fd = mkstemp(path);

	ck_assert_int_ge(fd, 0);
	if (k->text)
		ck_assert_int_gt(write(fd, k->text, strlen(k->text)), 0);
	ck_assert(!fchmod(fd, k->mode));
	close(fd);
	if (!k->text)
		unlink(path);
	ck_assert_ptr_null(
		child_start(base, path, argv, &(struct child_how){ 0 }, &events, NULL));
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

	child = child_start(base, "cat", argv + 3, &(struct child_how){ 0 }, &events,
			    NULL);
	child_close(child);
	child = child_start(base, "sh", argv, &(struct child_how){ 0 }, &events, NULL);
	child_close(child);
	child = NULL;
	child_wait_all(300);
	ck_assert_uint_ge(clock_ms() - begin, 300);
	ck_assert_uint_lt(clock_ms() - begin, 10000);
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
	tcase_add_test(c, starts_clean);
	tcase_add_test(c, an_unknown_status_is_said);
	tcase_add_test(c, no_handler_of_ours_runs_in_a_child);
	tcase_add_test(c, all_bytes_come_before_the_end);
	tcase_add_test(c, a_signal_is_its_status);
	tcase_add_test(c, keeps_the_last_of_stderr);
	tcase_add_test(c, what_it_leaves_behind_does_not_hold_it);
	tcase_add_test(c, may_be_killed_from_its_own_call_back);
	tcase_add_test(c, sends_to_one_that_ended);
	tcase_add_loop_test(c, cannot_be_executed, 0,
			    sizeof exec_cases / sizeof *exec_cases);
	tcase_add_test(c, waits_for_the_closed_ones);
	suite_add_tcase(s, c);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed != 0;
}
