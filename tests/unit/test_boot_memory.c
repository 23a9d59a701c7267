/* lib/boot/memory: what the ranks of a host share, and who of them lives. */
#include "memory_rig.h"

#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>

static void say(int fd)
{
	if (write(fd, "x", 1) != 1)
		_exit(99);
}

/* ---- the layout ---- */

START_TEST(layout)
{
	struct memory m;
	int fd = make();
	unsigned char *end;

	ck_assert_int_eq(join_as(&m, fd, 2), 0);
	ck_assert_uint_eq(m.head->magic, BOOT_MAGIC);
	ck_assert_uint_eq(m.head->version, BOOT_VERSION);
	ck_assert_uint_eq(m.head->size, SIZE);
	ck_assert_uint_eq(m.head->local_size, LOCAL);
	ck_assert_uint_eq(m.head->bytes, memory_bytes(SIZE, LOCAL, shm_bytes(LOCAL)));
	ck_assert_ptr_eq(m.at + m.head->rank_at, m.rank);
	ck_assert_ptr_eq(m.at + m.head->lost_at, m.lost);
	ck_assert_ptr_eq(m.at + m.head->record_at, memory_records(&m, 0));
	ck_assert_ptr_eq(memory_records(&m, 2), m.records);
	ck_assert_uint_eq(m.rank[2].rank, 3);
	ck_assert_uint_eq(m.rank[2].pid, (unsigned)getpid());
	ck_assert_uint_eq(m.rank[2].state, BOOT_JOINED);
	ck_assert_uint_eq(m.rank[1].state, BOOT_NOT_JOINED);
	/* one behind the other */
	end = (unsigned char *)(m.head + 1);
	ck_assert((void *)m.rank >= (void *)(end));
	ck_assert((void *)m.lost >= (void *)(m.rank + LOCAL));
	ck_assert((void *)memory_records(&m, 0) >= (void *)(m.lost + SIZE));
	ck_assert((void *)memory_region(&m) >= (void *)(memory_records(&m, LOCAL)));
	end = (unsigned char *)memory_region(&m) + shm_bytes(LOCAL);
	ck_assert((void *)m.heap >= (void *)(end));
	ck_assert_uint_eq(m.heap_bytes, LOCAL * m.part_bytes);
	ck_assert_ptr_eq((unsigned char *)m.heap + m.heap_bytes, m.at + m.bytes);
	ck_assert_uint_eq(m.part_bytes % (2 << 20), 0);
	ck_assert_uint_ge(m.part_bytes, 2 << 20);
	ck_assert_int_eq(fcntl(m.fd, F_GETFD), FD_CLOEXEC);
	memory_unmap(&m);
	ck_assert_ptr_null(m.at);
	memory_unmap(&m);
	close(fd);
}
END_TEST

START_TEST(many_ranks)
{
	for (unsigned n = 1; n <= 256; n *= 2) {
		size_t one = memory_bytes(1 << 20, n, shm_bytes(n));

		ck_assert_uint_ge(one, n * ((size_t)2 << 20));
		ck_assert_uint_lt(one, (size_t)17 << 40);
	}
}
END_TEST

/* Its sizes are those of the host, not of what one rank was put into. */
START_TEST(without_heap)
{
	size_t bytes = memory_bytes(SIZE, LOCAL, shm_bytes(LOCAL));
	struct rlimit l = { (size_t)2 << 30, (size_t)2 << 30 };
	struct memory m;
	int fd = make();

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
	close(fd); /* the sanitizers' own mappings are above any such limit */
	return;
#endif
	ck_assert_int_eq(setrlimit(RLIMIT_AS, &l), 0);
	ck_assert_uint_eq(memory_bytes(SIZE, LOCAL, shm_bytes(LOCAL)), bytes);
	ck_assert_int_eq(join_as(&m, fd, 0), 0);
	ck_assert_ptr_null(m.heap);
	ck_assert_uint_eq(m.heap_bytes, 0);
	ck_assert_ptr_null(memory_alloc(&m, 1));
	memset(memory_region(&m), 1, shm_bytes(LOCAL));
	memory_unmap(&m);
	close(fd);
}
END_TEST

START_TEST(refused)
{
	struct memory m, again;
	struct boot_world w = { .size = SIZE, .local_size = LOCAL };
	int fd = make();

	w.memory = memfd_create("small", 0);
	ck_assert_int_eq(memory_map(&m, &w, shm_bytes(LOCAL)), -1);
	ck_assert_int_eq(errno, EPROTO);
	ck_assert_int_eq(fcntl(w.memory, F_GETFD), 0); /* still the caller's */
	memory_unmap(&m);
	close(w.memory);
	ck_assert_int_eq(memory_map(&m, &w, shm_bytes(LOCAL)), -1);
	ck_assert_int_eq(errno, EBADF);
	ck_assert_int_eq(join_as(&m, fd, 0), 0);
	m.head->version++;
	ck_assert_int_eq(join_as(&again, fd, 1), -1);
	ck_assert_int_eq(errno, EPROTO);
	memory_unmap(&m);
	close(fd);
}
END_TEST

/* Programs that closed their stdin would read it, or dup2() over it. */
START_TEST(no_standard_descriptor)
{
	struct memory m, seen;
	int fd = make(), status;
	pid_t pid;

	close(0);
	ck_assert_int_eq(join_as(&m, fd, 0), 0);
	ck_assert_int_gt(m.fd, 2);
	ck_assert_int_eq(fcntl(0, F_GETFD), -1);
	ck_assert_int_eq(fcntl(m.fd, F_GETFD), FD_CLOEXEC);
	pid = fork();
	if (!pid) /* to whom this one lives */
		_exit(join_as(&seen, fd, 1) || memory_is_lost(&seen, 1, 0));
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
	memory_unmap(&m);
	close(fd);
}
END_TEST

static int descriptors(void)
{
	DIR *d = opendir("/proc/self/fd");
	int n = 0;

	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

/* Of our memory: the sanitizers have more and more of their own. */
static int mappings(void)
{
	FILE *f = fopen("/proc/self/maps", "r");
	char line[512];
	int n = 0;

	while (fgets(line, sizeof line, f))
		n += strstr(line, "memfd:berth") != NULL;
	fclose(f);
	return n;
}

START_TEST(leaks)
{
	struct memory m;
	int before = descriptors();
	int times = 1000;

#ifdef __SANITIZE_THREAD__
	times = 20; /* which takes 70 ms to forget each */
#endif
	for (int i = 0; i < times; i++) {
		int fd = make();

		ck_assert_int_eq(join_as(&m, fd, 0), 0);
		ck_assert_int_gt(mappings(), 0);
		ck_assert_ptr_nonnull(memory_alloc(&m, 5 << 20));
		memory_unmap(&m);
		close(fd);
	}
	ck_assert_int_eq(descriptors(), before);
	ck_assert_int_eq(mappings(), 0);
}
END_TEST

/* ---- who lives ---- */

static void stay(int fd, int said, int told)
{
	struct memory m;

	if (join_as(&m, fd, 1))
		_exit(1);
	say(said);
	hear(told);
}

static void leave_and_stay(int fd, int said, int told)
{
	struct memory m;

	if (join_as(&m, fd, 2))
		_exit(1);
	memory_unmap(&m);
	say(said);
	hear(told);
}

START_TEST(death)
{
	struct memory m;
	int fd = make();
	struct child c = start(stay, fd), d = start(leave_and_stay, fd);

	ck_assert_int_eq(join_as(&m, fd, 0), 0);
	hear(c.said);
	hear(d.said);
	ck_assert(!memory_is_lost(&m, 1, 0)); /* itself */
	ck_assert(!memory_is_lost(&m, 2, 1));
	ck_assert(!memory_is_lost(&m, 3, 2)); /* has left */
	ck_assert(!memory_is_lost(&m, 4, 3)); /* is not in yet */
	kill(d.pid, SIGKILL);
	ended(d);
	ck_assert(!memory_is_lost(&m, 3, 2));
	kill(c.pid, SIGKILL);
	ended(c);
	ck_assert(memory_is_lost(&m, 2, 1));
	/* of another host, or seen by the agent before it came in */
	ck_assert(!memory_is_lost(&m, 0, -1));
	m.lost[0] = m.lost[4] = 1;
	ck_assert(memory_is_lost(&m, 0, -1));
	ck_assert(memory_is_lost(&m, 4, 3));
	ck_assert(!memory_is_lost(&m, 5, -1));
	memory_unmap(&m);
	close(fd);
}
END_TEST

/* Ends without having left, though a child of its own, which has all its descriptors,
 * lives on. */
static void outlived(int fd, int said, int told)
{
	struct memory m;

	if (join_as(&m, fd, 1))
		_exit(1);
	if (!fork()) {
		hear(told);
		_exit(0);
	}
	say(said);
	_exit(0);
}

START_TEST(death_of_a_parent)
{
	struct memory m;
	int fd = make();
	struct child c = start(outlived, fd);

	ck_assert_int_eq(join_as(&m, fd, 0), 0);
	hear(c.said);
	ck_assert_int_eq(waitpid(c.pid, NULL, 0), c.pid);
	ck_assert(memory_is_lost(&m, 2, 1));
	close(c.said);
	close(c.told);
	memory_unmap(&m);
	close(fd);
}
END_TEST

START_TEST(in_already)
{
	struct memory m;
	int fd = make();
	struct child c = start(stay, fd);

	hear(c.said);
	ck_assert_int_eq(join_as(&m, fd, 1), -1);
	ck_assert_int_eq(errno, EBUSY);
	close(c.told);
	c.told = -1;
	ended(c);
	close(fd);
}
END_TEST

/* A child of a rank's, as a data loader is, may read, but disturbs nothing. */
START_TEST(child_of_a_rank)
{
	struct memory m, seen;
	int fd = make();
	unsigned char *p;
	struct child c;
	int status;
	pid_t pid;

	ck_assert_int_eq(join_as(&m, fd, 0), 0);
	p = memory_alloc(&m, 1 << 20);
	p[5] = 7;
	pthread_mutex_lock(&m.lock); /* as another thread may, at that moment */
	pid = fork();
	if (!pid) {
		bool fine = p[5] == 7 && !memory_alloc(&m, 1);

		memory_free(&m, p);
		memory_unmap(&m);
		_exit(fine ? 0 : 1);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	pthread_mutex_unlock(&m.lock);
	ck_assert_int_eq(status, 0);
	ck_assert_uint_eq(m.rank[0].state, BOOT_JOINED);
	ck_assert_int_eq(p[5], 7);
	ck_assert_ptr_ne(memory_alloc(&m, 1 << 20), p);
	/* and the lock is still there */
	c = start(stay, fd);
	hear(c.said);
	pid = fork();
	if (!pid)
		_exit(join_as(&seen, fd, 2) || memory_is_lost(&seen, 1, 0));
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
	close(c.told);
	c.told = -1;
	ended(c);
	memory_unmap(&m);
	close(fd);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("memory");
	TCase *t = tcase_create("memory");
	SRunner *r = srunner_create(s);
	int failed;

	suite_add_tcase(s, t);
	tcase_set_timeout(t, 60);
	tcase_add_test(t, layout);
	tcase_add_test(t, many_ranks);
	tcase_add_test(t, without_heap);
	tcase_add_test(t, refused);
	tcase_add_test(t, no_standard_descriptor);
	tcase_add_test(t, leaks);
	tcase_add_test(t, death);
	tcase_add_test(t, death_of_a_parent);
	tcase_add_test(t, in_already);
	tcase_add_test(t, child_of_a_rank);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed > 0;
}
