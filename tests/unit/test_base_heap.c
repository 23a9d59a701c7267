/* lib/boot/memory and lib/base/heap: what ranks take of the memory of their host. */
#include "memory_rig.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static unsigned seed = 1;

static unsigned at_random(void)
{
	static uint64_t x;

	if (!x)
		x = seed;
	x = x * 6364136223846793005u + 1442695040888963407u;
	return (unsigned)(x >> 33);
}

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
	Suite *s = suite_create("heap");
	TCase *t = tcase_create("heap");
	SRunner *r = srunner_create(s);
	int failed;

	if (getenv("SEED"))
		seed = (unsigned)strtoul(getenv("SEED"), NULL, 10);
	printf("SEED=%u\n", seed);
	fflush(stdout);
	suite_add_tcase(s, t);
	tcase_set_timeout(t, 60);
	tcase_add_test(t, shared);
	tcase_add_test(t, given_back);
	tcase_add_test(t, at_any_time);
	tcase_add_test(t, threads);
	tcase_add_test(t, places_of_others);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed != 0;
}
