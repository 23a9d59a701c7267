/* lib/handoff: one rank gives a host's memory to the others; who dies meanwhile, who is
 * not of this user, what is not that memory. */
#include <check.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "lib/boot/boot.h"
#include "lib/boot/handoff.h"

enum { BYTES = 8192, OTHERS = 3, NOBODY = 65534, PATIENCE_MS = 30000 };

static char why[BOOT_WHY_BYTES];

static uint64_t in_ms(unsigned ms)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec +
	       ms * (uint64_t)1000000;
}

static int descriptors(void)
{
	int n = 0;

	for (int fd = 0; fd < 256; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

/* Takes the memory of NAME, counts in it, and ends with what came of it.  Were LISTENER
 * open here too, its end would not be one. */
static pid_t taker(const char *name, int listener)
{
	pid_t pid = fork();
	berth_result rc;
	int fd;

	if (pid)
		return pid;
	close(listener);
	rc = handoff_take(name, BYTES, in_ms(PATIENCE_MS), &fd, why, sizeof why);
	if (!rc) {
		_Atomic int *n =
			mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

		if (n == MAP_FAILED || !(fcntl(fd, F_GETFD) & FD_CLOEXEC))
			_exit(99);
		atomic_fetch_add(n, 1);
	}
	_exit((int)rc);
}

/* Until somebody waits in LISTENER's queue. */
static void await_taker(int listener)
{
	struct pollfd p = { .fd = listener, .events = POLLIN };

	ck_assert_int_eq(poll(&p, 1, PATIENCE_MS), 1);
}

static int ended(pid_t pid)
{
	int status;

	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

START_TEST(all_get_one_memory)
{
	int before = descriptors();
	char name[HANDOFF_NAME_BYTES];
	int listener = handoff_listen(name), memory = boot_memfd(BYTES, why);
	pid_t other[OTHERS];
	const int *n;

	ck_assert_int_ge(listener, 0);
	ck_assert_int_ge(memory, 0);
	ck_assert_uint_eq(strlen(name), 32);
	for (int i = 0; i < OTHERS; i++)
		other[i] = taker(name, listener);
	ck_assert_int_eq(handoff_give(listener, OTHERS, memory, in_ms(PATIENCE_MS), why,
				      sizeof why),
			 BERTH_OK);
	for (int i = 0; i < OTHERS; i++)
		ck_assert_int_eq(ended(other[i]), BERTH_OK);
	n = mmap(NULL, BYTES, PROT_READ, MAP_SHARED, memory, 0);
	ck_assert_int_eq(*n, OTHERS);
	close(listener);
	close(memory);
	ck_assert_int_eq(descriptors(), before);
}
END_TEST

/* The maker does something else meanwhile. */
START_TEST(in_a_thread)
{
	int before = descriptors();
	char name[HANDOFF_NAME_BYTES];
	int listener = handoff_listen(name), memory = boot_memfd(BYTES, why);
	struct handoff h;
	pid_t other[OTHERS];

	ck_assert_int_eq(handoff_begin(&h, listener, OTHERS, memory, why, sizeof why),
			 BERTH_OK);
	for (int i = 0; i < OTHERS; i++)
		other[i] = taker(name, listener);
	for (int i = 0; i < OTHERS; i++)
		ck_assert_int_eq(ended(other[i]), BERTH_OK);
	ck_assert_int_eq(handoff_end(&h, in_ms(PATIENCE_MS), why, sizeof why),
			 BERTH_OK);
	close(listener);
	close(memory);
	ck_assert_int_eq(descriptors(), before);
}
END_TEST

/* It waits for nobody any more. */
START_TEST(in_a_thread_that_ends)
{
	char name[HANDOFF_NAME_BYTES];
	int listener = handoff_listen(name), memory = boot_memfd(BYTES, why);
	struct handoff h;

	ck_assert_int_eq(handoff_begin(&h, listener, OTHERS, memory, why, sizeof why),
			 BERTH_OK);
	ck_assert_int_eq(handoff_end(&h, _i ? in_ms(20) : 0, why, sizeof why),
			 BERTH_PEER_LOST);
	ck_assert_str_eq(why,
			 "only 0 of this host's 3 other ranks came for its memory");
	ck_assert_int_eq(handoff_come(name, in_ms(PATIENCE_MS)), -1);
	close(listener);
	close(memory);
}
END_TEST

START_TEST(who_does_not_come_is_missed)
{
	char name[HANDOFF_NAME_BYTES];
	int listener = handoff_listen(name), memory = boot_memfd(BYTES, why);
	uint64_t end = in_ms(PATIENCE_MS);
	pid_t other = taker(name, listener);

	await_taker(listener);
	ck_assert_int_eq(
		handoff_give(listener, OTHERS, memory, in_ms(300), why, sizeof why),
		BERTH_PEER_LOST);
	ck_assert_str_eq(why,
			 "only 1 of this host's 3 other ranks came for its memory");
	ck_assert_uint_lt(in_ms(0), end);
	ck_assert_int_eq(ended(other), BERTH_OK);
	close(listener);
	close(memory);
}
END_TEST

/* It came before the memory was given; nobody waits for another in its place. */
START_TEST(one_that_came_and_ended_counts)
{
	char name[HANDOFF_NAME_BYTES];
	int listener = handoff_listen(name), memory = boot_memfd(BYTES, why), got;
	int fd = handoff_come(name, in_ms(PATIENCE_MS));
	uint64_t end = in_ms(PATIENCE_MS);

	ck_assert_int_ge(fd, 0);
	close(fd);
	fd = handoff_come(name, in_ms(PATIENCE_MS));
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(
		handoff_give(listener, 2, memory, in_ms(PATIENCE_MS), why, sizeof why),
		BERTH_OK);
	ck_assert_uint_lt(in_ms(0), end);
	ck_assert_int_eq(handoff_receive(fd, BYTES, &got, why, sizeof why), BERTH_OK);
	ck_assert_int_eq(fcntl(fd, F_GETFD), -1);
	close(got);
	close(listener);
	close(memory);
}
END_TEST

START_TEST(the_maker_is_gone)
{
	char name[HANDOFF_NAME_BYTES];
	int listener = handoff_listen(name), memory, before;
	uint64_t end = in_ms(PATIENCE_MS);
	pid_t other;

	other = taker(name, listener);
	await_taker(listener);
	close(listener);
	ck_assert_int_eq(ended(other), BERTH_PEER_LOST);
	ck_assert_uint_lt(in_ms(0), end); /* not because its time was over */
	before = descriptors();
	ck_assert_int_eq(
		handoff_take(name, BYTES, in_ms(PATIENCE_MS), &memory, why, sizeof why),
		BERTH_PEER_LOST);
	ck_assert_int_eq(memory, -1);
	ck_assert_int_eq(descriptors(), before);
}
END_TEST

/* Alive, but it gives nothing. */
START_TEST(the_maker_is_silent)
{
	char name[HANDOFF_NAME_BYTES];
	int listener = handoff_listen(name), memory;
	uint64_t end = in_ms(PATIENCE_MS);

	ck_assert_int_eq(
		handoff_take(name, BYTES, in_ms(200), &memory, why, sizeof why),
		BERTH_PEER_LOST);
	ck_assert_uint_lt(in_ms(0), end);
	close(listener);
}
END_TEST

static pid_t taker_of_nobody(const char *name, int listener)
{
	pid_t pid = fork();

	if (!pid) {
		if (setgid(NOBODY) || setuid(NOBODY))
			_exit(98);
		_exit(ended(taker(name, listener)));
	}
	return pid;
}

START_TEST(another_user_gets_nothing)
{
	char name[HANDOFF_NAME_BYTES];
	int listener = handoff_listen(name), memory = boot_memfd(BYTES, why);
	pid_t stranger, other;

	if (geteuid() != 0)
		return;
	stranger = taker_of_nobody(name, listener);
	await_taker(listener);
	other = taker(name, listener);
	ck_assert_int_eq(
		handoff_give(listener, 1, memory, in_ms(PATIENCE_MS), why, sizeof why),
		BERTH_OK);
	ck_assert_int_eq(ended(other), BERTH_OK);
	ck_assert_int_eq(ended(stranger), BERTH_PEER_LOST);
	close(listener);
	close(memory);
}
END_TEST

/* What a taker of BYTES says to MEMORY. */
static int said_to(int memory)
{
	char name[HANDOFF_NAME_BYTES];
	int listener = handoff_listen(name);
	pid_t other = taker(name, listener);

	handoff_give(listener, 1, memory, in_ms(PATIENCE_MS), why, sizeof why);
	close(listener);
	close(memory);
	return ended(other);
}

START_TEST(another_memory_is_refused)
{
	int loose = memfd_create("loose", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	ck_assert_int_eq(ftruncate(loose, BYTES), 0);
	ck_assert_int_eq(said_to(loose), BERTH_SYSTEM);
	ck_assert_int_eq(said_to(boot_memfd(BYTES / 2, why)), BERTH_SYSTEM);
	ck_assert_int_eq(said_to(boot_memfd(BYTES, why)), BERTH_OK);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("handoff");
	TCase *c = tcase_create("handoff");
	SRunner *r = srunner_create(s);
	int failed;

	suite_add_tcase(s, c);
	tcase_add_test(c, all_get_one_memory);
	tcase_add_test(c, in_a_thread);
	tcase_add_loop_test(c, in_a_thread_that_ends, 0, 2);
	tcase_add_test(c, who_does_not_come_is_missed);
	tcase_add_test(c, one_that_came_and_ended_counts);
	tcase_add_test(c, the_maker_is_gone);
	tcase_add_test(c, the_maker_is_silent);
	tcase_add_test(c, another_user_gets_nothing);
	tcase_add_test(c, another_memory_is_refused);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed != 0;
}
