/* large.h - arrays of large.c: patterns that are repeated, and their comparison. */
#ifndef BERTH_TESTS_LARGE_H
#define BERTH_TESTS_LARGE_H

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "lib/base/kern.h"

enum {
	LARGE_RANKS = 4,
	LARGE_PAGE = 4096,
	LARGE_PAGES = 509,
	LARGE_PERIOD = LARGE_PAGES * LARGE_PAGE,
	LARGE_BEHIND = 64 /* zeros, behind each array that is written */
};

static int large_rank, large_ranks = 2;
static const char *large_name = "";
static uint64_t large_elements; /* of the largest array of this rank */

__attribute__((format(printf, 1, 2), noreturn)) static void
large_fail(const char *format, ...)
{
	va_list args;

	fprintf(stderr, "%s: rank %d: ", large_name, large_rank);
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fprintf(stderr, "\n");
	_exit(1);
}

/* Of an array of COUNT elements; that of the largest is printed. */
static size_t large_bytes(berth_type type, uint64_t count)
{
	if (count > large_elements)
		large_elements = count;
	return count * kern_size(type);
}

static void large_print(berth_type type)
{
	printf("%s: %llu elements of %s, %llu bytes: right\n", large_name,
	       (unsigned long long)large_elements, kern_type_name(type),
	       (unsigned long long)(large_elements * kern_size(type)));
	fflush(stdout);
}

/* ---- patterns ---- */

static uint64_t large_random(uint64_t x)
{
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
	x = (x ^ x >> 27) * 0x94d049bb133111ebu;
	return x ^ x >> 31;
}

static uint16_t large_bf16(float x)
{
	uint32_t bits;

	memcpy(&bits, &x, sizeof bits);
	return (uint16_t)(bits >> 16);
}

static unsigned char *large_new_period(void)
{
	unsigned char *p = malloc(LARGE_PERIOD);

	if (!p)
		large_fail("out of memory");
	return p;
}

/* Element I of what rank R gives.  Of bf16: so small that sums are exact. */
static unsigned large_element(int r, berth_type type, size_t i)
{
	const unsigned x = (unsigned)(large_random((uint64_t)(r + 1) << 32 | i) >> 20);

	return type == BERTH_BF16 ? x % 64 : type == BERTH_U8 ? x % 256 : x % 65536;
}

static void large_set(unsigned char *p, berth_type type, size_t i, unsigned x)
{
	const uint16_t wide = type == BERTH_BF16 ? large_bf16((float)x) : (uint16_t)x;

	if (type == BERTH_U8)
		p[i] = (unsigned char)x;
	else
		memcpy(p + i * sizeof wide, &wide, sizeof wide);
}

/* The elements of ranks FIRST to END, added. */
static unsigned char *large_sum_of(int first, int end, berth_type type)
{
	unsigned char *p = large_new_period();

	for (size_t i = 0; i < LARGE_PERIOD / kern_size(type); i++) {
		unsigned x = 0;

		for (int r = first; r < end; r++)
			x += large_element(r, type, i);
		large_set(p, type, i, x);
	}
	return p;
}

static const unsigned char *large_period(int r, berth_type type)
{
	static const unsigned char *made[LARGE_RANKS];

	if (!made[r])
		made[r] = large_sum_of(r, r + 1, type);
	return made[r];
}

static const unsigned char *large_sum(int ranks, berth_type type)
{
	return large_sum_of(0, ranks, type);
}

/* Bf16, divided by BY: rank R has the elements whose numbers are R modulo the ranks;
 * the others are 0.  R is the number of ranks: their sum. */
static const unsigned char *large_orthogonal(int r, unsigned by)
{
	unsigned char *p = large_new_period();

	for (size_t i = 0; i < LARGE_PERIOD / 2; i++) {
		/* the same in each period: an even number of elements */
		const int of = (int)(i % (unsigned)large_ranks);
		const float x = (float)large_element(of, BERTH_BF16, i) / (float)by;
		const uint16_t bits = of == r || r == large_ranks ? large_bf16(x) : 0;

		memcpy(p + 2 * i, &bits, 2);
	}
	return p;
}

/* ---- arrays ---- */

/* BYTES to read, of PERIOD again and again: they take no memory. */
static unsigned char *large_repeat(const unsigned char *period, size_t bytes)
{
	const int fd = memfd_create("pattern", MFD_CLOEXEC);
	unsigned char *p;

	if (fd < 0 || ftruncate(fd, LARGE_PERIOD) ||
	    pwrite(fd, period, LARGE_PERIOD, 0) != LARGE_PERIOD)
		large_fail("memfd: %m");
	p = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
		 -1, 0);
	if (p == MAP_FAILED)
		large_fail("mmap: %m");
	for (size_t at = 0; at < bytes; at += LARGE_PERIOD) {
		const size_t n = bytes - at < LARGE_PERIOD ? bytes - at : LARGE_PERIOD;

		if (mmap(p + at, n, PROT_READ, MAP_SHARED | MAP_FIXED, fd, 0) ==
		    MAP_FAILED)
			large_fail("mmap: %m");
	}
	close(fd);
	return p;
}

/* The page at P becomes one of its own, with ELEMENT everywhere. */
static void large_own_page(unsigned char *p, uint16_t element)
{
	if (mmap(p, LARGE_PAGE, PROT_READ | PROT_WRITE,
		 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED)
		large_fail("mmap: %m");
	for (size_t i = 0; i < LARGE_PAGE; i += 2)
		memcpy(p + i, &element, 2);
}

/* Zeros, and LARGE_BEHIND bytes more. */
static unsigned char *large_room(size_t bytes)
{
	unsigned char *p = mmap(NULL, bytes + LARGE_BEHIND, PROT_READ | PROT_WRITE,
				MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (p == MAP_FAILED)
		large_fail("mmap: %m");
	madvise(p, bytes + LARGE_BEHIND, MADV_HUGEPAGE); /* half the time */
	return p;
}

static void large_fill(unsigned char *p, const unsigned char *period, size_t bytes)
{
	for (size_t n; bytes; bytes -= n, p += n) {
		n = bytes < LARGE_PERIOD ? bytes : LARGE_PERIOD;
		memcpy(p, period, n);
	}
}

/* ---- the comparison ---- */

/* BYTES at P are what PERIOD has from byte AT on, again and again. */
static void large_expect(const unsigned char *p, const unsigned char *period,
			 uint64_t at, size_t bytes)
{
	size_t from = at % LARGE_PERIOD;
	uint64_t before = 0;

	for (size_t n; before < bytes; before += n, from = 0) {
		n = LARGE_PERIOD - from;
		n = bytes - before < n ? bytes - before : n;
		if (!memcmp(p + before, period + from, n))
			continue;
		for (size_t i = 0; i < n; i++)
			if (p[before + i] != period[from + i])
				large_fail("byte %llu of %zu is %u, not %u",
					   (unsigned long long)(before + i), bytes,
					   p[before + i], period[from + i]);
	}
}

static void large_expect_nothing(const unsigned char *p)
{
	for (int i = 0; i < LARGE_BEHIND; i++)
		if (p[i])
			large_fail("byte %d behind the end was written", i);
}

#endif
