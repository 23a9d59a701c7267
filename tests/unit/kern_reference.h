/* kern_reference.h - what lib/base/kern.h says of one element, done in another way.
 *
 * Floats are doubles that are rounded after each step: f32 has less than half of a
 * double's bits, so that rounding twice gives what rounding once gives.  Integers
 * have 128 bits, and are cut off.  Narrow floats come from a list of all numbers that
 * their type has, made by the formula, and go to the nearest of those. */
#ifndef BERTH_TESTS_KERN_REFERENCE_H
#define BERTH_TESTS_KERN_REFERENCE_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "lib/base/kern.h"

/* ---- types ---- */

/* A float type's bits: the sign, the exponent, MANTISSA bits.  OVERFLOW is the first
 * code that is no number: infinity, or where there is none a NaN.  Of integers: 0. */
struct ref_format {
	unsigned mantissa;
	uint64_t overflow;
	bool infinite;
};

static const struct ref_format ref_formats[TYPE_COUNT] = {
	[BERTH_F8_E4M3] = { 3, 0x7f, false },
	[BERTH_F8_E5M2] = { 2, 0x7c, true },
	[BERTH_F16] = { 10, 0x7c00, true },
	[BERTH_BF16] = { 7, 0x7f80, true },
	[BERTH_F32] = { 23, 0xff << 23, true },
	[BERTH_F64] = { 52, 0x7ffull << 52, true },
};

static bool ref_is_float(berth_type t)
{
	return ref_formats[t].mantissa;
}

static bool ref_is_narrow(berth_type t)
{
	return kern_accumulator(t) != t;
}

/* What the elements of an array of FORM are. */
static berth_type ref_of(berth_type t, enum kern_form form)
{
	return form == KERN_PARTIAL ? kern_accumulator(t) : t;
}

static uint64_t ref_bits(berth_type t, const void *p, size_t i)
{
	uint64_t x = 0;

	memcpy(&x, (const char *)p + i * kern_size(t), kern_size(t));
	return x;
}

static void ref_put_bits(berth_type t, void *p, size_t i, uint64_t x)
{
	memcpy((char *)p + i * kern_size(t), &x, kern_size(t));
}

static bool ref_is_nan(berth_type t, uint64_t bits)
{
	const struct ref_format *f = &ref_formats[t];

	bits &= (1ull << (8 * kern_size(t) - 1)) - 1;
	return ref_is_float(t) && bits >= f->overflow + f->infinite;
}

/* The same, but for the bits of a NaN. */
static bool ref_same(berth_type t, uint64_t a, uint64_t b)
{
	return a == b || (ref_is_nan(t, a) && ref_is_nan(t, b));
}

/* ---- narrow floats ---- */

/* The number of a code without its sign, OVERFLOW as if it were one. */
static double ref_formula(berth_type t, unsigned code)
{
	const int mantissa = (int)ref_formats[t].mantissa,
		  exponents = (int)(8 * kern_size(t)) - 1 - mantissa,
		  bias = (1 << (exponents - 1)) - 1, e = (int)(code >> mantissa);
	const double m = ldexp(code & ((1u << mantissa) - 1), -mantissa);

	return e ? ldexp(1 + m, e - bias) : ldexp(m, 1 - bias);
}

static const double *ref_numbers(berth_type t)
{
	static double numbers[TYPE_COUNT][0x8000];
	double *all = numbers[t];

	if (!all[1])
		for (unsigned i = 0; i <= ref_formats[t].overflow; i++)
			all[i] = ref_formula(t, i);
	return all;
}

/* The nearest, and of two the even one; without infinities, the largest at most. */
static uint64_t ref_encode(berth_type t, double x)
{
	const double *all = ref_numbers(t), a = fabs(x);
	unsigned low = 0, high = (unsigned)ref_formats[t].overflow;
	const uint64_t sign = signbit(x) ? 1ull << (8 * kern_size(t) - 1) : 0;

	if (x != x)
		return sign | (high + ref_formats[t].infinite);
	if (!ref_formats[t].infinite && a >= all[high - 1])
		return sign | (high - 1);
	if (a >= all[high])
		return sign | high;
	while (high - low > 1) {
		unsigned middle = (low + high) / 2;

		if (a >= all[middle])
			low = middle;
		else
			high = middle;
	}
	if (a - all[low] == all[high] - a)
		return sign | (low & 1 ? high : low);
	return sign | (a - all[low] < all[high] - a ? low : high);
}

static double ref_decode(berth_type t, uint64_t bits)
{
	const uint64_t top = 1ull << (8 * kern_size(t) - 1), rest = bits & (top - 1);
	double x = (double)NAN;

	if (rest < ref_formats[t].overflow)
		x = ref_numbers(t)[rest];
	else if (!ref_is_nan(t, bits))
		x = (double)INFINITY;
	return bits & top ? -x : x;
}

/* ---- floats ---- */

static double ref_get(berth_type t, const void *p, size_t i)
{
	const uint64_t bits = ref_bits(t, p, i);
	double d;
	float f;

	if (ref_is_narrow(t))
		return ref_decode(t, bits);
	memcpy(&d, &bits, sizeof d);
	memcpy(&f, &bits, sizeof f);
	return t == BERTH_F64 ? d : (double)f;
}

static void ref_put(berth_type t, void *p, size_t i, double x)
{
	float f = (float)x;

	if (ref_is_narrow(t))
		ref_put_bits(t, p, i, ref_encode(t, x));
	else if (t == BERTH_F64)
		memcpy((double *)p + i, &x, sizeof x);
	else
		memcpy((float *)p + i, &f, sizeof f);
}

/* To the accumulator; X is volatile so that no product reaches a sum unrounded. */
static double ref_round(berth_type t, volatile double x)
{
	return t == BERTH_F64 ? x : (double)(float)x;
}

/* MAX is MIN, the other way round. */
static double ref_min(double a, double b)
{
	if (a != a || b != b)
		return (double)NAN;
	if (a == b)
		return signbit(a) ? a : b;
	return a < b ? a : b;
}

static double ref_combine(berth_op op, double a, double b)
{
	switch (op) {
	case BERTH_SUM:
		return a + b;
	case BERTH_PRODUCT:
		return a * b;
	case BERTH_MIN:
		return ref_min(a, b);
	default:
		return -ref_min(-a, -b);
	}
}

/* ---- integers ---- */

typedef __int128 ref_integer;
typedef unsigned __int128 ref_natural;

static bool ref_is_signed(berth_type t)
{
	return t == BERTH_I8 || t == BERTH_I16 || t == BERTH_I32 || t == BERTH_I64;
}

/* What the type keeps of X. */
static ref_integer ref_wrap(berth_type t, ref_natural x)
{
	const unsigned bits = 8 * (unsigned)kern_size(t);

	x &= ((ref_natural)1 << bits) - 1;
	if (ref_is_signed(t) && x >> (bits - 1))
		x -= (ref_natural)1 << bits;
	return (ref_integer)x;
}

static ref_integer ref_scale(berth_type t, ref_integer x, double factor)
{
	const unsigned bits = 8 * (unsigned)kern_size(t);
	const double enough = 0x1p80, y = trunc((double)x * factor);
	const ref_integer most = ((ref_integer)1 << (bits - ref_is_signed(t))) - 1,
			  least = ref_is_signed(t) ? -most - 1 : 0;

	if (factor == 1)
		return x;
	if (y != y)
		return 0;
	x = (ref_integer)fmin(fmax(y, -enough), enough);
	return x < least ? least : x > most ? most : x;
}

static ref_integer ref_combine_integers(berth_type t, berth_op op, ref_integer a,
					ref_integer b)
{
	switch (op) {
	case BERTH_SUM:
		return ref_wrap(t, (ref_natural)a + (ref_natural)b);
	case BERTH_PRODUCT:
		return ref_wrap(t, (ref_natural)a * (ref_natural)b);
	case BERTH_MIN:
		return a < b ? a : b;
	case BERTH_MAX:
		return a > b ? a : b;
	case BERTH_BAND:
		return a & b;
	case BERTH_BOR:
		return a | b;
	default:
		return a ^ b;
	}
}

/* ---- one element of a reduction ---- */

/* Its scale, with 1 for what it does not have. */
static struct kern_scale ref_whole(const struct kern_scale *s, enum kern_form in,
				   enum kern_form out)
{
	struct kern_scale whole = *s;

	if (!s->has_prescale || in == KERN_PARTIAL)
		whole.prescale = 1;
	if (!s->has_postscale || out == KERN_PARTIAL)
		whole.postscale = 1;
	if (!s->divide || out == KERN_PARTIAL)
		whole.divide = 1;
	return whole;
}

static double ref_float(berth_type t, berth_op op, const struct kern_scale *s,
			enum kern_form in, const void *const *src, unsigned nsrc,
			size_t i)
{
	const berth_type wide = kern_accumulator(t);
	double x = 0, y;

	for (unsigned k = 0; k < nsrc; k++) {
		y = ref_get(ref_of(t, in), src[k], i);
		y = ref_round(wide, y * ref_round(wide, s->prescale));
		x = k ? ref_round(wide, ref_combine(op, x, y)) : y;
	}
	x = ref_round(wide, x / ref_round(wide, s->divide));
	return ref_round(wide, x * ref_round(wide, s->postscale));
}

static ref_integer ref_int(berth_type t, berth_op op, const struct kern_scale *s,
			   const void *const *src, unsigned nsrc, size_t i)
{
	ref_integer x = 0, y;

	for (unsigned k = 0; k < nsrc; k++) {
		y = ref_scale(t, ref_wrap(t, ref_bits(t, src[k], i)), s->prescale);
		x = k ? ref_combine_integers(t, op, x, y) : y;
	}
	return ref_scale(t, x / (ref_integer)s->divide, s->postscale);
}

/* Zeros and ones. */
static bool ref_bool(berth_op op, const struct kern_scale *s, const void *const *src,
		     unsigned nsrc, size_t i)
{
	unsigned ones = 0;
	bool x;

	for (unsigned k = 0; k < nsrc; k++)
		ones += ((const unsigned char *)src[k])[i] && s->prescale != 0;
	if (op == BERTH_BXOR)
		x = ones % 2;
	else if (op == BERTH_SUM || op == BERTH_MAX || op == BERTH_BOR)
		x = ones;
	else
		x = ones == nsrc;
	return x && s->postscale != 0;
}

/* Element I of the reduction of TYPE by OP, to element I of TO. */
static inline void ref_reduce(berth_type t, berth_op op, const struct kern_scale *scale,
			      enum kern_form in, enum kern_form out, void *to,
			      const void *const *src, unsigned nsrc, size_t i)
{
	const struct kern_scale s = ref_whole(scale, in, out);

	if (ref_is_float(t))
		ref_put(ref_of(t, out), to, i, ref_float(t, op, &s, in, src, nsrc, i));
	else if (t == BERTH_BOOL)
		ref_put_bits(t, to, i, ref_bool(op, &s, src, nsrc, i));
	else
		ref_put_bits(t, to, i, (uint64_t)ref_int(t, op, &s, src, nsrc, i));
}

#endif
