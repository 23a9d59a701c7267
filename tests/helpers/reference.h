/* reference.h - what ranks give to a reduction, and what has to come of it: plain
 * loops, one element at a time. */
#ifndef BERTH_TESTS_REFERENCE_H
#define BERTH_TESTS_REFERENCE_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "lib/berth.h"

static int rank, size;
static unsigned long seed = 1;

static uint64_t noise(uint64_t x)
{
	x = (x + seed) * 0x9e3779b97f4a7c15u;
	x ^= x >> 31;
	x *= 0xbf58476d1ce4e5b9u;
	return x ^ x >> 29;
}

static const size_t type_bytes[BERTH_TYPES] = { 1, 1, 2, 2, 4, 4, 8, 8, 2, 2, 4, 8, 1 };

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
	return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static bool is_float(berth_type t)
{
	return t >= BERTH_F16 && t <= BERTH_F64;
}

/* Element I that rank R gives to operation N. */
static void give(void *p, berth_type t, uint64_t i, int r, unsigned n)
{
	uint64_t x = noise(i * 64 + (uint64_t)r * 7919 + n * 104729u);
	float f = (float)((double)(x % 2001) - 1000) / 617;
	uint16_t half = to_bf16(f);
	_Float16 h = (_Float16)f;
	double d = (double)f;
	unsigned char b = x & 1;

	switch (t) {
	case BERTH_F16:
		memcpy(p, &h, 2);
		break;
	case BERTH_BF16:
		memcpy(p, &half, 2);
		break;
	case BERTH_F32:
		memcpy(p, &f, 4);
		break;
	case BERTH_F64:
		memcpy(p, &d, 8);
		break;
	case BERTH_BOOL:
		*(unsigned char *)p = b;
		break;
	default:
		memcpy(p, &x, type_bytes[t]);
	}
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
	default:
		memcpy(&d, p, 8);
		return d;
	}
}

/* In f32 all along but for f64, rounded once. */
static double float_result(uint64_t i, berth_type t, berth_op op, unsigned n)
{
	unsigned char e[8];
	double all = 0;

	for (int r = 0; r < size; r++) {
		double x;

		give(e, t, i, r, n);
		x = read_float(e, t);
		all = r ? combine(all, x, op) : x;
		if (t != BERTH_F64)
			all = (double)(float)all;
	}
	if (op == BERTH_AVG)
		all = t == BERTH_F64 ? all * (1.0 / size) : all; /* see near() */
	return all;
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

static bool near(double got, double want, berth_type t, berth_op op)
{
	double most = t == BERTH_F64 ? 1e-12 : t == BERTH_F32 ? 1e-5 : 0.05;

	if (op == BERTH_AVG && t != BERTH_F64)
		want /= size;
	return fabs(got - want) <= most * (1 + fabs(want));
}

#endif
