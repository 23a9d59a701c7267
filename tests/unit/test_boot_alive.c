/* lib/boot/alive: what a host's agent sees of a process in its mutex. */
#include "lib/boot/alive.h"

#include <check.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "lib/boot/boot.def"

enum { DIED = BOOT_DIED, MIB = 512, TRIES = 5 };

static _Atomic uint32_t *word; /* as the agent maps it */
static int fd;

static void make_word(void)
{
	fd = memfd_create("alive", MFD_CLOEXEC);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(ftruncate(fd, BOOT_ALIVE_BYTES), 0);
	word = mmap(NULL, BOOT_ALIVE_BYTES, PROT_READ, MAP_SHARED, fd, 0);
	ck_assert_ptr_ne(word, MAP_FAILED);
}

static void hold(void)
{
	alive_hold(dup(fd));
	ck_assert(alive_is_held());
	ck_assert_uint_ne(*word, 0);
	ck_assert_uint_eq(*word & DIED, 0);
}

/* A child that holds the mutex, then says so and runs ACT. */
static pid_t holder(void (*act)(void))
{
	int ready[2];
	pid_t pid;
	char c;

	ck_assert_int_eq(pipe(ready), 0);
	pid = fork();
	if (!pid) {
		close(ready[0]);
		alive_hold(dup(fd));
		if (!alive_is_held() || write(ready[1], "x", 1) != 1)
			_exit(99);
		close(ready[1]);
		act();
		_exit(0);
	}
	close(ready[1]);
	ck_assert_int_eq(read(ready[0], &c, 1), 1);
	close(ready[0]);
	return pid;
}

static void await_death(void)
{
	const struct timespec pause = { 0, 1000000 };

	while (!(*word & DIED))
		nanosleep(&pause, NULL);
}

static void rest(void)
{
	pause();
}

START_TEST(held_and_let_go)
{
	make_word();
	ck_assert_uint_eq(*word, 0);
	for (int i = 0; i < 100; i++) {
		hold();
		alive_let_go();
		ck_assert(!alive_is_held());
		ck_assert_uint_eq(*word, 0);
	}
	alive_let_go();
	alive_hold(-1);
	ck_assert(!alive_is_held());
}
END_TEST

START_TEST(a_process_that_is_killed)
{
	pid_t pid;
	int status;

	make_word();
	pid = holder(rest);
	ck_assert_uint_eq(*word & DIED, 0);
	kill(pid, SIGKILL);
	await_death();
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_uint_ne(*word & DIED, 0);
	hold(); /* as its next life does */
	alive_let_go();
}
END_TEST

static void *end_thread(void *unused)
{
	return unused;
}

static void lose_a_child_and_a_thread(void)
{
	pthread_t thread;
	pid_t child = fork();
	int status;

	if (!child) {
		alive_in_child();
		if (alive_is_held())
			pause();
		raise(SIGKILL);
	}
	waitpid(child, &status, 0);
	if (!WIFSIGNALED(status) || *word & DIED ||
	    pthread_create(&thread, NULL, end_thread, NULL))
		_exit(1);
	pthread_join(thread, NULL);
	if (*word & DIED || !*word)
		_exit(2);
	child = fork();
	if (!child)
		execl("/bin/true", "true", (char *)NULL);
	waitpid(child, &status, 0);
	_exit(*word & DIED || !*word ? 3 : 0);
}

START_TEST(children_and_other_threads)
{
	pid_t pid;
	int status;

	make_word();
	pid = holder(lose_a_child_and_a_thread);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
	ck_assert_uint_ne(*word & DIED, 0); /* by its own end */
}
END_TEST

static void take_memory(void)
{
	const size_t bytes = (size_t)MIB << 20;
	char *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
		       -1, 0);

	if (p == MAP_FAILED || madvise(p, bytes, MADV_NOHUGEPAGE))
		_exit(1);
	for (size_t i = 0; i < bytes; i += 4096)
		p[i] = 1;
	kill(getpid(), SIGKILL);
	pause();
}

/* In one of some tries: this process may get no turn while the kernel frees it. */
START_TEST(it_is_seen_before_the_memory_is_freed)
{
	bool seen = false;
	int status;

	for (int i = 0; i < TRIES && !seen; i++) {
		pid_t pid, ended;

		make_word();
		pid = holder(take_memory);
		while (!(*word & DIED))
			sched_yield();
		ended = waitpid(pid, &status, WNOHANG);
		seen = !ended;
		if (!ended)
			waitpid(pid, &status, 0);
		ck_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
	}
	ck_assert(seen);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("alive");
	TCase *t = tcase_create("a mutex that is held");
	SRunner *r;
	int failed;

	tcase_add_test(t, held_and_let_go);
	tcase_add_test(t, a_process_that_is_killed);
	tcase_add_test(t, children_and_other_threads);
	tcase_add_test(t, it_is_seen_before_the_memory_is_freed);
	suite_add_tcase(s, t);
	r = srunner_create(s);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? 1 : 0;
}
