/* memory_rig.h - for tests of lib/boot/memory: the memory of a host, and processes that
 * are its ranks. */
#ifndef BERTH_TESTS_MEMORY_RIG_H
#define BERTH_TESTS_MEMORY_RIG_H

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/boot/memory.h"
#include "lib/backend/shm.h"

enum { SIZE = 6, LOCAL = 4 };

static int make(void)
{
	int fd = memfd_create("berth", MFD_ALLOW_SEALING | MFD_CLOEXEC);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(
		ftruncate(fd, (off_t)memory_bytes(SIZE, LOCAL, shm_bytes(LOCAL))), 0);
	ck_assert_int_eq(
		fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL), 0);
	return fd;
}

/* Local rank LOCAL of that memory is rank LOCAL + 1 of the job. */
static int join_as(struct memory *m, int fd, unsigned local)
{
	struct boot_world w = { .rank = local + 1,
				.size = SIZE,
				.local_rank = local,
				.local_size = LOCAL,
				.memory = dup(fd) };
	int rc = memory_map(m, &w, shm_bytes(LOCAL));
	int why = errno;

	if (rc)
		close(w.memory);
	else
		ck_assert_int_eq(w.memory, -1);
	errno = why;
	return rc;
}

/* A process that does RUN, says a byte of its own when it comes to that, and ends after
 * it was told to. */
struct child {
	pid_t pid;
	int said, told;
};

static struct child start(void (*run)(int fd, int say, int told), int fd)
{
	struct child c;
	int said[2], told[2];

	ck_assert_int_eq(pipe(said), 0);
	ck_assert_int_eq(pipe(told), 0);
	c.pid = fork();
	ck_assert_int_ge(c.pid, 0);
	if (!c.pid) {
		close(said[0]);
		close(told[1]);
		run(fd, said[1], told[0]);
		_exit(0);
	}
	close(said[1]);
	close(told[0]);
	c.said = said[0];
	c.told = told[1];
	return c;
}

static void hear(int fd)
{
	char c;

	(void)!read(fd, &c, 1);
}

static int ended(struct child c)
{
	int status;

	ck_assert_int_eq(waitpid(c.pid, &status, 0), c.pid);
	close(c.said);
	close(c.told);
	return status;
}

#endif
