/* verify.h - what a rank that tests berth.h checks: the first thing that is wrong ends
 * it, with the line and the last error. */
#ifndef BERTH_TESTS_VERIFY_H
#define BERTH_TESTS_VERIFY_H

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "tests/helpers/reference.h"
#include "tests/helpers/calls.h"

static const double half = 0.5, two = 2, four = 4;
static unsigned long checks;

__attribute__((format(printf, 3, 4))) static void verify(bool fine, int line,
							 const char *fmt, ...)
{
	va_list ap;

	__atomic_fetch_add(&checks, 1, __ATOMIC_RELAXED);
	if (fine)
		return;
	fprintf(stderr, "rank %d, line %d: ", rank, line);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fprintf(stderr, "; last error: %s\n", berth_last_error()->text);
	_exit(1);
}
#define CHECK(fine, ...) verify((fine), __LINE__, __VA_ARGS__)
#define FINE(call) verify((call) == BERTH_OK, __LINE__, "%s", #call)

static void check_element(const void *got, uint64_t i, const struct berth_desc *d,
			  unsigned n, const char *what)
{
	const struct element e = { i,
				   d->type,
				   d->op,
				   n,
				   d->prescale ? *d->prescale : 1,
				   d->postscale ? *d->postscale : 1 };
	const size_t bytes = type_bytes[d->type];
	uint64_t want = 0, is = 0;

	if (is_float(d->type))
		float_result(&e, &want);
	else
		want = integer_result(i, d->type, d->op, n);
	memcpy(&is, got, bytes);
	CHECK(!memcmp(&is, &want, bytes),
	      "%s: type %d op %d scales %g %g [%llu]: %llx (%g), not %llx (%g)", what,
	      d->type, d->op, e.prescale, e.postscale, (unsigned long long)i,
	      (unsigned long long)is, is_float(d->type) ? read_float(&is, d->type) : 0,
	      (unsigned long long)want,
	      is_float(d->type) ? read_float(&want, d->type) : 0);
}

/* Ranks of one host follow each other. */
static void find_hosts(void)
{
	int first = rank - call_world().local_rank, all[REFERENCE_RANKS];

	FINE(call_allgather(&(struct berth_desc)BERTH_DESC(.in = &first, .out = all,
							   .count = 1,
							   .type = BERTH_I32)));
	for (int r = 1; r < size; r++)
		host_of[r] = host_of[r - 1] + (all[r] != all[r - 1]);
}

static uint64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

/* All ranks have the same bytes. */
static void check_same(const void *p, size_t bytes)
{
	uint64_t h[2] = { 1469598103934665603u, 0 }, most[2], least[2];

	for (size_t i = 0; i < bytes; i++)
		h[0] = (h[0] ^ ((const unsigned char *)p)[i]) * 1099511628211u;
	FINE(call_allreduce(
		&(struct berth_desc)BERTH_DESC(.in = h, .out = most, .count = 2,
					       .type = BERTH_U64, .op = BERTH_MAX)));
	FINE(call_allreduce(
		&(struct berth_desc)BERTH_DESC(.in = h, .out = least, .count = 2,
					       .type = BERTH_U64, .op = BERTH_MIN)));
	CHECK(most[0] == least[0], "ranks have other bits");
}

static int sum_in(berth_set *set, int x)
{
	int32_t in = x, out = 0;

	FINE(call_allreduce(&(struct berth_desc)BERTH_DESC(.set = set, .in = &in,
							   .out = &out, .count = 1,
							   .type = BERTH_I32)));
	return out;
}

#endif
