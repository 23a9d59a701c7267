/* lib/memory and lib/heap: what the ranks of a host share, who of them lives, and the
 * heap. */
#include <check.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/boot/memory.h"
#include "lib/backend/shm.h"

enum { SIZE = 6, LOCAL = 4 };

static unsigned seed = 1;

static unsigned at_random(void)
{
	static uint64_t x;

	if (!x)
		x = seed;
	x = x * 6364136223846793005u + 1442695040888963407u;
	return (unsigned)(x >> 33);
}

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

static void say(int fd)
{
	if (write(fd, "x", 1) != 1)
		_exit(99);
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

/* ---- the heap ---- */

static void write_offset(int fd, int said, int told)
{
	struct memory m;
	unsigned char *p;
	size_t at;

	if (join_as(&m, fd, 1))
		_exit(1);
	p = memory_alloc(&m, 3 << 20);
	p[12345] = 99;
	at = (size_t)(p - (unsigned char *)m.heap);
	if (write(said, &at, sizeof at) != sizeof at)
		_exit(2);
	hear(told);
	memory_unmap(&m);
}

START_TEST(shared)
{
	struct memory m;
	int fd = make();
	struct child c = start(write_offset, fd);
	size_t at;

	ck_assert_int_eq(read(c.said, &at, sizeof at), sizeof at);
	ck_assert_int_eq(join_as(&m, fd, 0), 0);
	ck_assert_uint_eq(at, m.part_bytes);
	ck_assert_int_eq(((unsigned char *)m.heap)[at + 12345], 99);
	close(c.told);
	c.told = -1;
	ck_assert_int_eq(ended(c), 0);
	memory_unmap(&m);
	close(fd);
}
END_TEST

static long blocks(int fd)
{
	struct stat s;

	ck_assert_int_eq(fstat(fd, &s), 0);
	return (long)s.st_blocks;
}

START_TEST(given_back)
{
	const size_t sizes[] = { 1, 64, 4095, 4096, 5000, 65536, 3 << 20 };
	struct memory m;
	int fd = make();

	ck_assert_int_eq(join_as(&m, fd, 3), 0);
	for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
		unsigned char *before = memory_alloc(&m, 64), *p, *after;
		long had = blocks(fd);

		p = memory_alloc(&m, sizes[i]);
		after = memory_alloc(&m, 64);
		*before = *after = 1;
		memset(p, 2, sizes[i]);
		if (sizes[i] >= 65536)
			ck_assert_int_ge(blocks(fd) - had,
					 (long)sizes[i] / 512 - 3 * 8);
		memory_free(&m, p);
		ck_assert_int_le(blocks(fd) - had, 3 * 8);
		ck_assert_ptr_eq(memory_alloc(&m, sizes[i]), p);
		ck_assert(!*p && !memcmp(p, p + 1, sizes[i] - 1)); /* all zero */
		ck_assert_int_eq(*before + *after, 2);
		memory_free(&m, p);
		memory_free(&m, before);
		memory_free(&m, after);
	}
	ck_assert_uint_eq(m.parts.n, 0);
	memory_free(&m, NULL);
	memory_free(&m, &m); /* nothing of ours */
	ck_assert_ptr_null(memory_alloc(&m, m.part_bytes + 1));
	ck_assert_ptr_null(memory_alloc(&m, SIZE_MAX));
	ck_assert_ptr_nonnull(memory_alloc(&m, m.part_bytes));
	ck_assert_ptr_null(memory_alloc(&m, 1));
	memory_unmap(&m);
	close(fd);
}
END_TEST

/* The first gap that is large enough. */
static bool reference(const unsigned char *taken, size_t lines, size_t bytes,
		      size_t *at)
{
	size_t align = bytes >= HEAP_LARGE ? HEAP_ALIGN_LARGE / 64 : 1;
	size_t need = (bytes + 63) / 64;

	for (size_t i = 0; i + need <= lines;) {
		const unsigned char *in_the_way = memrchr(taken + i, 1, need);

		if (!in_the_way) {
			*at = i * 64;
			return true;
		}
		i = ((size_t)(in_the_way - taken) + align) / align * align;
	}
	return false;
}

START_TEST(at_any_time)
{
	enum { LINES = 65536, MOST = 200 };
	static unsigned char taken[LINES];
	struct heap h = { .bytes = LINES * 64 };
	size_t at[MOST] = { 0 }, lines[MOST] = { 0 }, full = 0, n = 0;

	for (int step = 0; step < 20000; step++) {
		unsigned i = at_random() % MOST;
		size_t bytes = at_random() % 8 ? at_random() % 40000 + 1
					       : at_random() % (2 << 20) + 1;
		size_t want, got;

		if (lines[i]) {
			ck_assert_uint_eq(heap_find(&h, at[i])->bytes, lines[i] * 64);
			heap_give(&h, at[i]);
			memset(taken + at[i] / 64, 0, lines[i]);
			lines[i] = 0;
			n--;
		} else if (reference(taken, LINES, bytes, &want)) {
			ck_assert(heap_take(&h, bytes, &got));
			ck_assert_uint_eq(got, want);
			at[i] = got;
			lines[i] = (bytes + 63) / 64;
			memset(taken + got / 64, 1, lines[i]);
			n++;
		} else {
			ck_assert(!heap_take(&h, bytes, &got));
			full++;
		}
		ck_assert_uint_eq(h.n, n);
	}
	ck_assert_uint_gt(full, 0);
	heap_give(&h, 1); /* nobody's */
	ck_assert_ptr_null(heap_find(&h, 1));
	heap_free(&h);
}
END_TEST

static void *take_and_give(void *arg)
{
	struct memory *m = arg;
	unsigned x = (unsigned)(uintptr_t)&x;
	unsigned char *p[16] = { NULL };

	for (int i = 0; i < 3000; i++) {
		unsigned k = (unsigned)i % 16;
		size_t bytes = 1 + (x = x * 1103515245 + 12345) % 20000;

		if (p[k] && p[k][0] != (unsigned char)(k + 1))
			return "somebody else wrote";
		memory_free(m, p[k]);
		p[k] = memory_alloc(m, bytes);
		if (!p[k] || p[k][0] || p[k][bytes - 1])
			return "not zero";
		p[k][0] = p[k][bytes - 1] = (unsigned char)(k + 1);
	}
	for (int k = 0; k < 16; k++)
		memory_free(m, p[k]);
	return NULL;
}

START_TEST(threads)
{
	struct memory m;
	int fd = make();
	pthread_t t[4];
	void *why;

	ck_assert_int_eq(join_as(&m, fd, 0), 0);
	for (int i = 0; i < 4; i++)
		ck_assert_int_eq(pthread_create(&t[i], NULL, take_and_give, &m), 0);
	for (int i = 0; i < 4; i++) {
		pthread_join(t[i], &why);
		ck_assert_msg(!why, "%s", (char *)why);
	}
	ck_assert_uint_eq(m.parts.n, 0);
	memory_unmap(&m);
	close(fd);
}
END_TEST

/* ---- what other ranks say of the heap ---- */

START_TEST(places_of_others)
{
	enum { BYTES = 1 << 20, PART = 5000, ALIGN = 64 };
	const struct memory none = { .heap_bytes = BYTES };
	struct memory m = { .heap = malloc(BYTES), .heap_bytes = BYTES };
	uint64_t x = 88172645463325252u; /* xorshift64 */

	ck_assert_ptr_null(memory_at(&none, 0, 0, ALIGN));
	for (int i = 0; i < 100000; i++) {
		uint64_t at;
		char *p;

		x ^= x << 13;
		x ^= x >> 7;
		x ^= x << 17;
		at = i % 3 ? x >> i % 64 : UINT64_MAX - x % BYTES;
		p = memory_at(&m, at, PART, ALIGN);
		if (at % ALIGN == 0 && at <= BYTES - PART)
			ck_assert_ptr_eq(p, (char *)m.heap + at);
		else
			ck_assert_ptr_null(p);
	}
	ck_assert_ptr_nonnull(memory_at(&m, BYTES - ALIGN, ALIGN, ALIGN));
	ck_assert_ptr_null(memory_at(&m, BYTES - ALIGN, ALIGN + 1, ALIGN));
	ck_assert_ptr_null(memory_at(&m, 0, BYTES + 1, ALIGN));
	free(m.heap);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("memory");
	TCase *t = tcase_create("memory");
	SRunner *r = srunner_create(s);
	int failed;

	if (getenv("SEED"))
		seed = (unsigned)strtoul(getenv("SEED"), NULL, 10);
	printf("SEED=%u\n", seed);
	fflush(stdout);
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
	tcase_add_test(t, shared);
	tcase_add_test(t, given_back);
	tcase_add_test(t, at_any_time);
	tcase_add_test(t, threads);
	tcase_add_test(t, places_of_others);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed > 0;
}
