/* reference.h - what ranks give to a reduction, and what has to come of it: plain
 * loops, one element at a time. */
#ifndef BERTH_TESTS_REFERENCE_H
#define BERTH_TESTS_REFERENCE_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "lib/base/names.def"
#include "lib/berth.h"

enum { REFERENCE_RANKS = 64 };

static int rank, size;
/* Of each rank: the number of its host, which count from 0 in the order of ranks. */
static int host_of[REFERENCE_RANKS];
static unsigned long seed = 1;

static uint64_t noise(uint64_t x)
{
	x = (x + seed) * 0x9e3779b97f4a7c15u;
	x ^= x >> 31;
	x *= 0xbf58476d1ce4e5b9u;
	return x ^ x >> 29;
}

static const size_t type_bytes[TYPE_COUNT] = { 1, 1, 2, 2, 4, 4, 8, 8,
					       2, 2, 4, 8, 1, 1, 1 };

static float from_bf16(uint16_t h)
{
	uint32_t bits = (uint32_t)h << 16;
	float f;

	memcpy(&f, &bits, 4);
	return f;
}

static uint16_t to_bf16(float f)
{
	uint32_t bits;

	memcpy(&bits, &f, 4);
	if (f != f)
		return 0x7fc0;
	return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static bool is_float(berth_type t)
{
	return (t >= BERTH_F16 && t <= BERTH_F64) || t == BERTH_F8_E4M3 ||
	       t == BERTH_F8_E5M2;
}

/* Four bits of exponent and three of mantissa, or five and two. */
static float from_fp8(uint8_t x, berth_type t)
{
	const int mantissa = t == BERTH_F8_E4M3 ? 3 : 2;
	const int bias = t == BERTH_F8_E4M3 ? 7 : 15;
	const int rest = x & 0x7f, e = rest >> mantissa,
		  m = rest & ((1 << mantissa) - 1);
	float f = e ? ldexpf((float)(m + (1 << mantissa)), e - bias - mantissa)
		    : ldexpf((float)m, 1 - bias - mantissa);

	if (t == BERTH_F8_E4M3 ? rest == 0x7f : rest > 0x7c)
		f = NAN;
	else if (t == BERTH_F8_E5M2 && rest == 0x7c)
		f = INFINITY;
	return x & 0x80 ? -f : f;
}

/* The nearest of those there are, by trying them; of two the one that is even. */
static uint8_t to_fp8(float f, berth_type t)
{
	const double most = t == BERTH_F8_E4M3 ? 448 : 61440;
	const uint8_t over = t == BERTH_F8_E4M3 ? 0x7e : 0x7c;
	const double x = fabs((double)f);
	uint8_t best = 0, sign = signbit(f) ? 0x80 : 0;

	if (f != f)
		return 0x7f;
	if (x >= most)
		return sign | over;
	for (int k = 0; k <= over; k++) {
		double d = fabs((double)from_fp8((uint8_t)k, t) - x),
		       least = fabs((double)from_fp8(best, t) - x);

		if (d < least || (d == least && !(k & 1)))
			best = (uint8_t)k;
	}
	return sign | best;
}

/* X as type T has it. */
static void write_float(void *p, berth_type t, double x)
{
	const float f = (float)x;

	switch (t) {
	case BERTH_F16:
		memcpy(p, &(_Float16){ (_Float16)f }, 2);
		break;
	case BERTH_BF16:
		memcpy(p, &(uint16_t){ to_bf16(f) }, 2);
		break;
	case BERTH_F32:
		memcpy(p, &f, 4);
		break;
	case BERTH_F64:
		memcpy(p, &x, 8);
		break;
	default:
		*(uint8_t *)p = to_fp8(f, t);
	}
}

/* Element I that rank R gives to operation N. */
static void give(void *p, berth_type t, uint64_t i, int r, unsigned n)
{
	uint64_t x = noise(i * 64 + (uint64_t)r * 7919 + n * 104729u);
	double d = ((double)(x % 2001) - 1000) / 617;

	if (is_float(t))
		write_float(p, t, t == BERTH_F64 ? d : (double)(float)d);
	else if (t == BERTH_BOOL)
		*(unsigned char *)p = x & 1;
	else
		memcpy(p, &x, type_bytes[t]);
}

static double combine(double a, double b, berth_op op)
{
	switch (op) {
	case BERTH_MIN:
		return a < b ? a : b;
	case BERTH_MAX:
		return a > b ? a : b;
	case BERTH_PRODUCT:
		return a * b;
	default:
		return a + b;
	}
}

static double read_float(const void *p, berth_type t)
{
	_Float16 h;
	uint16_t b;
	float f;
	double d;

	switch (t) {
	case BERTH_F16:
		memcpy(&h, p, 2);
		return (double)h;
	case BERTH_BF16:
		memcpy(&b, p, 2);
		return (double)from_bf16(b);
	case BERTH_F32:
		memcpy(&f, p, 4);
		return (double)f;
	case BERTH_F64:
		memcpy(&d, p, 8);
		return d;
	default:
		return (double)from_fp8(*(const uint8_t *)p, t);
	}
}

/* As the accumulator of T has it. */
static double accumulated(double x, berth_type t)
{
	return t == BERTH_F64 ? x : (double)(float)x;
}

/* One element of a reduction. */
struct element {
	uint64_t i;
	berth_type t;
	berth_op op;
	unsigned n;
	double prescale, postscale;
};

/* Of the ranks of one host, in their order. */
static double host_result(const struct element *e, int host)
{
	unsigned char own[8];
	double all = 0;
	bool is_first = true;

	for (int r = 0; r < size; r++) {
		double x;

		if (host_of[r] != host)
			continue;
		give(own, e->t, e->i, r, e->n);
		x = read_float(own, e->t);
		if (e->prescale != 1)
			x = accumulated(x * accumulated(e->prescale, e->t), e->t);
		all = is_first ? x : accumulated(combine(all, x, e->op), e->t);
		is_first = false;
	}
	return all;
}

/* Of the hosts I, I + STEP, I + 2 STEP, ... */
static double hosts_result(const struct element *e, int i, int step, int hosts)
{
	if (i + step >= hosts)
		return host_result(e, i);
	return accumulated(combine(hosts_result(e, i, 2 * step, hosts),
				   hosts_result(e, i + step, 2 * step, hosts), e->op),
			   e->t);
}

static void float_result(const struct element *e, void *p)
{
	int hosts = 0;
	double all;

	for (int r = 0; r < size; r++)
		hosts = host_of[r] >= hosts ? host_of[r] + 1 : hosts;
	all = hosts_result(e, 0, 1, hosts);
	if (e->op == BERTH_AVG)
		all = accumulated(all / size, e->t);
	if (e->postscale != 1)
		all = accumulated(all * accumulated(e->postscale, e->t), e->t);
	write_float(p, e->t, all);
}

static uint64_t integer_result(uint64_t i, berth_type t, berth_op op, unsigned n)
{
	bool has_sign =
		t == BERTH_I8 || t == BERTH_I16 || t == BERTH_I32 || t == BERTH_I64;
	unsigned shift = (unsigned)(64 - 8 * type_bytes[t]);
	uint64_t all = 0;

	for (int r = 0; r < size; r++) {
		uint64_t x = 0;
		bool less;

		give(&x, t, i, r, n);
		if (has_sign)
			x = (uint64_t)((int64_t)(x << shift) >> shift);
		less = has_sign ? (int64_t)x < (int64_t)all : x < all;
		if (!r)
			all = x;
		else if (op == BERTH_MIN)
			all = less ? x : all;
		else if (op == BERTH_MAX)
			all = less ? all : x;
		else if (op == BERTH_PRODUCT)
			all *= x;
		else if (op == BERTH_BAND)
			all &= x;
		else if (op == BERTH_BOR)
			all |= x;
		else if (op == BERTH_BXOR)
			all ^= x;
		else
			all += x;
	}
	if (t == BERTH_BOOL && op == BERTH_SUM)
		return all != 0;
	if (has_sign)
		all = (uint64_t)((int64_t)(all << shift) >> shift);
	else
		all = all << shift >> shift;
	if (op == BERTH_AVG)
		all = has_sign ? (uint64_t)((int64_t)all / size) : all / (unsigned)size;
	return all;
}

#endif
