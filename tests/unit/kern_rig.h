/* kern_rig.h - reductions by a chosen set of instructions, of numbers that are hard. */
#ifndef BERTH_TESTS_KERN_RIG_H
#define BERTH_TESTS_KERN_RIG_H

#include <check.h>
#include <fenv.h>
#include <stdio.h>
#include <stdlib.h>

#include "lib/base/kern_set.h"
#include "tests/unit/kern_reference.h"

enum { MOST = 300, SRC = 5 }; /* elements, sources */

#define COUNT(a) (sizeof(a) / sizeof *(a))

/* ck_assert() writes to a file each time, which takes longer than a reduction. */
#define EXPECT(condition, ...)                                                         \
	do {                                                                           \
		if (!(condition))                                                      \
			ck_abort_msg(__VA_ARGS__);                                     \
	} while (0)

static const struct kern_set *const sets[] = {
	&kern_base,
#if defined(__x86_64__)
	&kern_avx2,
	&kern_avx512,
#endif
};

static bool can_run(const struct kern_set *s)
{
	bool can = s == &kern_base;

#if defined(__x86_64__)
	if (s == &kern_avx512)
		can = __builtin_cpu_supports("avx512bw") &&
		      __builtin_cpu_supports("avx512dq") &&
		      __builtin_cpu_supports("avx512vl");
	else if (s == &kern_avx2)
		can = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c");
#endif
	if (!can)
		printf("skipped: this processor has no %s\n", s->name);
	return can;
}

/* ---- a reduction by one set of instructions ---- */

static const struct kern_set *chosen(void)
{
	for (size_t i = 0; i < COUNT(sets); i++)
		if (!strcmp(sets[i]->name, kern_chosen()))
			return sets[i];
	ck_abort_msg("%s?", kern_chosen());
}

/* What kern_make() makes, but of S: the function that has the place in S that the
 * other has in its own set. */
static bool make_of(const struct kern_set *s, struct kern *k, berth_type t, berth_op op,
		    const struct kern_scale *scale, enum kern_form in,
		    enum kern_form out)
{
	const struct kern_set *own = chosen();

	if (!kern_make(k, t, op, scale, in, out))
		return false;
	for (size_t i = 0; i < sizeof own->reduce / sizeof(kern_function *); i++)
		if ((&own->reduce[0][0][0][0])[i] == k->reduce) {
			k->reduce = (&s->reduce[0][0][0][0])[i];
			return true;
		}
	ck_abort_msg("%s %s is not in its table", kern_type_name(t), kern_op_name(op));
}

static void reduce(const struct kern_set *s, berth_type t, berth_op op,
		   const struct kern_scale *scale, enum kern_form in,
		   enum kern_form out, void *dst, const void *const *src, unsigned nsrc,
		   size_t n)
{
	struct kern k;

	EXPECT(make_of(s, &k, t, op, scale, in, out), "%s", kern_type_name(t));
	kern_reduce(&k, &dst, 1, src, nsrc, n, false);
}

/* ---- the thread's floating-point mode ---- */

static unsigned mode; /* in which reductions are called, one of modes[] */

#if defined(__x86_64__)
/* The masks of exceptions are in 0x1f80: all masked, all of them not, upward, downward,
 * toward zero, with results and arguments flushed to zero. */
static const unsigned modes[] = { 0x1f80, 0,      0x5f80, 0x3f80,
				  0x7f80, 0x9fc0, 0x1fc0, 0xe040 };

static void enter(void)
{
	__builtin_ia32_ldmxcsr(modes[mode]);
}

static bool is_entered(void)
{
	return (__builtin_ia32_stmxcsr() & ~0x3fu) == (modes[mode] & ~0x3fu);
}

static void leave(void)
{
	__builtin_ia32_ldmxcsr(0x1f80);
}
#else
static const int modes[] = { FE_TONEAREST, FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO };

static void enter(void)
{
	fesetround(modes[mode]);
}

static bool is_entered(void)
{
	return fegetround() == modes[mode];
}

static void leave(void)
{
	fesetround(FE_TONEAREST);
}
#endif

/* ---- numbers ---- */

static uint64_t state = 1;

/* splitmix64 */
static uint64_t random_bits(void)
{
	uint64_t x = state += 0x9e3779b97f4a7c15u;

	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
	return x ^ (x >> 31);
}

enum filling {
	NEAR_ONE, /* so that no product is out of range */
	NO_NAN,   /* all bits, with many zeros, infinities, ends of ranges */
	ANY
};

static uint64_t extreme(berth_type t)
{
	const struct ref_format *f = &ref_formats[t];
	const uint64_t least = 1ull << f->mantissa,
		       some[] = { 0,
				  1,
				  least - 1,
				  least,
				  least + 1,
				  f->overflow / 2,
				  f->overflow - 1,
				  f->overflow - !f->infinite };
	const uint64_t bits = random_bits();

	return some[bits % 8] | (bits >> 63) << (8 * kern_size(t) - 1);
}

/* An integer at an end of its range, or a small one. */
static uint64_t extreme_integer(berth_type t)
{
	const uint64_t bits = random_bits(), top = 1ull << (8 * kern_size(t) - 1);
	const uint64_t some[] = { 0, top, top - 1, 2 * top - 1 };

	return some[bits % 4] + (bits >> 60) - 8;
}

static void fill(berth_type t, void *p, size_t n, enum filling how)
{
	for (size_t i = 0; i < n; i++) {
		uint64_t bits = random_bits();
		const bool often = random_bits() % 4 == 0;

		if (t == BERTH_BOOL) {
			ref_put_bits(t, p, i, bits & 1);
		} else if (!ref_is_float(t)) {
			ref_put_bits(t, p, i, often ? extreme_integer(t) : bits);
		} else if (how == NEAR_ONE) {
			ref_put(t, p, i, ((double)(bits % 2001) - 1000) / 617);
		} else {
			bits = often ? extreme(t) : bits;
			ref_put_bits(t, p, i, bits);
			if (how == NO_NAN && ref_is_nan(t, ref_bits(t, p, i)))
				ref_put(t, p, i, -1);
		}
	}
}

static bool is_guard(const unsigned char *p, size_t n)
{
	return !n || (*p == 0xa5 && !memcmp(p, p + 1, n - 1));
}

#endif
