/* agent/pmi/dying: is a process about to end, or has it only lost threads? */
#include <check.h>
#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "agent/pmi/server_internal.h"

enum { EXECS = 30 };

static int ready[2]; /* a child says that it is there */

static pid_t start(void (*act)(void))
{
	pid_t pid;
	char c;

	ck_assert_int_eq(pipe(ready), 0);
	pid = fork();
	if (!pid) {
		close(ready[0]);
		act();
		_exit(0);
	}
	close(ready[1]);
	ck_assert_int_eq(read(ready[0], &c, 1), 1);
	close(ready[0]);
	return pid;
}

static void is_there(void)
{
	if (write(ready[1], "x", 1) != 1)
		_exit(99);
}

static void end_now(pid_t pid)
{
	int status;

	kill(pid, SIGKILL);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
}

static void *rest(void *unused)
{
	for (;;)
		pause();
	return unused;
}

static void add_thread(void *(*run)(void *unused))
{
	pthread_t thread;

	if (pthread_create(&thread, NULL, run, NULL))
		_exit(98);
}

static void with_threads(void)
{
	for (int i = 0; i < 8; i++)
		add_thread(rest);
	is_there();
	rest(NULL);
}

START_TEST(a_process_that_is_killed)
{
	const struct timespec pause = { 0, 1000000 };
	const pid_t pid = start(with_threads);
	siginfo_t info;

	ck_assert(!dying_exits(pid));
	kill(pid, SIGSTOP);
	ck_assert(!dying_exits(pid));
	kill(pid, SIGKILL);
	while (!dying_exits(pid))
		nanosleep(&pause, NULL);
	ck_assert_int_eq(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT), 0);
	ck_assert(dying_exits(pid)); /* nobody has reaped it */
	end_now(pid);
	ck_assert(!dying_exits(pid)); /* the number may be another's */
	ck_assert(!dying_exits(0));
}
END_TEST

static void end_badly(void)
{
	is_there();
	_exit(3);
}

static void end_well(void)
{
	is_there();
}

START_TEST(a_process_that_exits)
{
	const pid_t fails = start(end_badly), ends = start(end_well);
	siginfo_t info;

	ck_assert_int_eq(waitid(P_PID, (id_t)fails, &info, WEXITED | WNOWAIT), 0);
	ck_assert_int_eq(waitid(P_PID, (id_t)ends, &info, WEXITED | WNOWAIT), 0);
	ck_assert(dying_exits(fails));
	ck_assert(!dying_exits(ends));
	end_now(fails);
	end_now(ends);
}
END_TEST

static void *say_later(void *unused)
{
	const struct timespec pause = { 0, 20000000 };

	nanosleep(&pause, NULL);
	is_there();
	return rest(unused);
}

static void without_first_thread(void)
{
	add_thread(say_later);
	pthread_exit(NULL);
}

START_TEST(its_first_thread_has_ended)
{
	const pid_t pid = start(without_first_thread);

	ck_assert(!dying_exits(pid));
	end_now(pid);
}
END_TEST

/* Each program that follows is this one. */
static void *exec_again(void *program)
{
	execl("/proc/self/exe", "test_pmi_dying", program, (char *)NULL);
	_exit(97);
}

/* With threads, of which another than the first goes on as the next program. */
static int go_on(int left)
{
	char text[16];
	pthread_t thread;

	if (!left)
		rest(NULL);
	snprintf(text, sizeof text, "%d", left - 1);
	for (int i = 0; i < 4; i++)
		add_thread(rest);
	if (pthread_create(&thread, NULL, exec_again, text))
		return 1;
	rest(NULL);
	return 0;
}

static void exec_often(void)
{
	char text[16];

	snprintf(text, sizeof text, "%d", EXECS);
	is_there();
	exec_again(text);
}

static bool runs_its_last(pid_t pid)
{
	char path[64], text[64] = "";
	ssize_t n;
	FILE *f;

	snprintf(path, sizeof path, "/proc/%d/cmdline", (int)pid);
	f = fopen(path, "r");
	n = f ? (ssize_t)fread(text, 1, sizeof text - 1, f) : 0;
	if (f)
		fclose(f);
	return n > 2 && text[n - 2] == '0' && text[n - 3] == '\0';
}

START_TEST(exec_by_any_thread)
{
	const pid_t pid = start(exec_often);
	unsigned looks = 0;
	int status = 0;

	while (!runs_its_last(pid)) {
		ck_assert_int_eq(waitpid(pid, &status, WNOHANG), 0);
		for (int i = 0; i < 20; i++, looks++)
			ck_assert_msg(!dying_exits(pid), "in look %u", looks);
	}
	ck_assert(!dying_exits(pid));
	end_now(pid);
}
END_TEST

int main(int argc, char **argv)
{
	Suite *s = suite_create("dying");
	TCase *t = tcase_create("processes");
	SRunner *r;
	int failed;

	if (argc > 1)
		return go_on((int)strtol(argv[1], NULL, 10));
	tcase_add_test(t, a_process_that_is_killed);
	tcase_add_test(t, a_process_that_exits);
	tcase_add_test(t, its_first_thread_has_ended);
	tcase_add_test(t, exec_by_any_thread);
	suite_add_tcase(s, t);
	r = srunner_create(s);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? 1 : 0;
}
