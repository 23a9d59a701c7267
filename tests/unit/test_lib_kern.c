/* lib/kern: every type, operation, form, scale and set of instructions against what
 * kern_reference.h says. */
#include <check.h>
#include <fenv.h>
#include <stdio.h>
#include <stdlib.h>

#include "lib/base/kern_set.h"
#include "tests/unit/kern_reference.h"

enum { MOST = 300, GUARD = 64, SRC = 5, DST = 3, BYTES = MOST * 8 + 2 * GUARD };

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

static const berth_type float_types[] = { BERTH_F16, BERTH_BF16,    BERTH_F32,
					  BERTH_F64, BERTH_F8_E4M3, BERTH_F8_E5M2 };
static const berth_type narrow_types[] = { BERTH_F16, BERTH_BF16, BERTH_F8_E4M3,
					   BERTH_F8_E5M2 };

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

/* ---- a reduction of arrays between guards ---- */

struct run {
	const struct kern_set *set;
	berth_type type;
	berth_op op;
	enum kern_form in, out;
	struct kern_scale scale;
	enum filling filling;
	size_t n,
		shift; /* SHIFT: elements that some arrays begin after a vector does */
	unsigned nsrc, ndst;
	bool stream, in_place;
};

static _Alignas(64) unsigned char source[SRC][BYTES], kept[SRC][BYTES],
	result[DST][BYTES], want[BYTES];

static const char *words(const struct run *r)
{
	static char text[256];

	snprintf(text, sizeof text,
		 "%s: %s %s, %s to %s, %zu of %u to %u, shift %zu, stream %d, in place "
		 "%d, scales %g %u %g",
		 r->set->name, kern_type_name(r->type), kern_op_name(r->op),
		 r->in ? "partial" : "elements", r->out ? "partial" : "elements", r->n,
		 r->nsrc, r->ndst, r->shift, r->stream, r->in_place,
		 r->scale.has_prescale ? r->scale.prescale : 1, r->scale.divide,
		 r->scale.has_postscale ? r->scale.postscale : 1);
	return text;
}

static bool is_guard(const unsigned char *p, size_t n)
{
	return !n || (*p == 0xa5 && !memcmp(p, p + 1, n - 1));
}

/* ARRAY, of which WANT is to stand at AT. */
static void compare(const struct run *r, const unsigned char *array, size_t at)
{
	const berth_type t = ref_of(r->type, r->out);
	const size_t end = at + r->n * kern_size(t);

	for (size_t i = 0; i < r->n; i++) {
		const uint64_t w = ref_bits(t, want, i), g = ref_bits(t, array + at, i);

		EXPECT(ref_same(t, w, g), "%s: %zu: %#llx, not %#llx", words(r), i,
		       (unsigned long long)g, (unsigned long long)w);
	}
	EXPECT(is_guard(array, at) && is_guard(array + end, BYTES - end), "%s: outside",
	       words(r));
}

/* Where source K, or result K, begins. */
static size_t begins(const struct run *r, berth_type t, unsigned k)
{
	return GUARD + (k == 1 ? 0 : r->shift * kern_size(t));
}

static void set_out(const struct run *r, void **dst, const void **src)
{
	const berth_type in = ref_of(r->type, r->in), out = ref_of(r->type, r->out);

	memset(source, 0xa5, sizeof source);
	memset(result, 0xa5, sizeof result);
	for (unsigned k = 0; k < r->nsrc; k++) {
		src[k] = source[k] + begins(r, in, k);
		fill(in, source[k] + begins(r, in, k), r->n, r->filling);
	}
	memcpy(kept, source, sizeof kept);
	for (size_t i = 0; i < r->n; i++)
		ref_reduce(r->type, r->op, &r->scale, r->in, r->out, want, src, r->nsrc,
			   i);
	for (unsigned j = 0; j < r->ndst; j++)
		dst[j] = result[j] + begins(r, out, j);
	if (r->in_place)
		dst[0] = source[r->nsrc - 1] + begins(r, in, r->nsrc - 1);
}

static void one(const struct run *r)
{
	const berth_type out = ref_of(r->type, r->out);
	const unsigned last = r->nsrc - 1;
	const void *src[SRC];
	void *dst[DST];
	struct kern k;

	bool made, stays;

	set_out(r, dst, src);
	enter();
	made = make_of(r->set, &k, r->type, r->op, &r->scale, r->in, r->out);
	if (made)
		kern_reduce(&k, dst, r->ndst, src, r->nsrc, r->n, r->stream);
	stays = is_entered();
	leave();
	kern_fence();
	EXPECT(made && stays, "%s: made %d, mode stays %d", words(r), made, stays);
	for (unsigned j = r->in_place; j < r->ndst; j++)
		compare(r, result[j], begins(r, out, j));
	if (r->in_place) {
		compare(r, source[last], begins(r, out, last));
		memcpy(source[last], kept[last], sizeof kept[last]);
	}
	EXPECT(!memcmp(source, kept, sizeof kept), "%s: a source", words(r));
}

/* Each type, operation and pair of forms that differ from others. */
static void each(const struct kern_set *s, void (*test)(struct run *r))
{
	for (berth_type t = 0; t < BERTH_TYPES; t++)
		for (berth_op op = 0; op < BERTH_OPS; op++)
			for (int forms = 0; forms < 4; forms++) {
				struct run r = { .set = s, .type = t, .op = op };

				r.in = forms & 1;
				r.out = forms >> 1;
				if (kern_is_defined(t, op))
					test(&r);
			}
}

static void one_of_many(struct run *r)
{
	static const size_t counts[] = { 0,  1,  2,  3,  7,  15, 16,  17,
					 31, 33, 63, 64, 65, 97, 130, 257 };
	const bool same_size =
		kern_size(ref_of(r->type, r->in)) == kern_size(ref_of(r->type, r->out));

	for (unsigned k = 0; k < COUNT(counts) * 7; k++) {
		r->n = counts[k % COUNT(counts)];
		r->nsrc = 1 + k % SRC;
		r->ndst = 1 + k % DST;
		r->shift = k / 3 % 4;
		r->stream = k & 1;
		r->in_place = same_size && k % 4 < 2;
		r->filling = k % 3;
		one(r);
	}
}

START_TEST(reductions)
{
	if (can_run(sets[_i]))
		each(sets[_i], one_of_many);
}
END_TEST

/* ---- scales ---- */

static const double factors[] = { 1,          0.5,  -0.7,     3,
				  0,          1e30, 0x1p-140, (double)INFINITY,
				  (double)NAN };
static const uint32_t divisors[] = { 0, 1, 2, 3, 4, 5, 7, 200, 1u << 20 };

static void all_scales(struct run *r)
{
	unsigned k = 0;

	if (r->op >= BERTH_BAND)
		return;
	r->ndst = 1;
	for (size_t a = 0; a < COUNT(factors); a++)
		for (size_t b = 0; b < COUNT(factors); b++)
			for (size_t d = 0; d < COUNT(divisors); d++, k++) {
				r->scale.has_prescale = a;
				r->scale.prescale = a ? factors[a] : 0;
				r->scale.has_postscale = b;
				r->scale.postscale = b ? factors[b] : 0;
				r->scale.divide = divisors[d];
				if (r->type == BERTH_BOOL)
					r->scale.divide = 0;
				r->nsrc = 1 + k % 3;
				r->n = k % 7 ? 9 : 75;
				r->filling = k % 3;
				one(r);
			}
}

START_TEST(scales)
{
	if (can_run(sets[_i]))
		each(sets[_i], all_scales);
}
END_TEST

/* Two elements of I32 by SCALE. */
static void scaled_integers(const struct kern_set *s, struct kern_scale scale,
			    int32_t a, int32_t b, int32_t sum)
{
	int32_t got;

	reduce(s, BERTH_I32, BERTH_SUM, &scale, KERN_ELEMENTS, KERN_ELEMENTS, &got,
	       (const void *[]){ &a, &b }, 2, 1);
	ck_assert_int_eq(got, sum);
}

/* What one knows without a reference. */
START_TEST(integers_by_hand)
{
	const struct kern_set *s = sets[_i];
	const struct kern_scale third = { .divide = 3 },
				half = { .has_prescale = true, .prescale = 0.5 },
				huge = { .has_postscale = true, .postscale = -1e300 },
				nan = { .has_postscale = true,
					.postscale = (double)NAN };

	if (!can_run(s))
		return;
	scaled_integers(s, third, 4, 4, 2);
	scaled_integers(s, third, -4, -4, -2);
	scaled_integers(s, third, INT32_MAX, 1, INT32_MIN / 3);
	scaled_integers(s, half, 7, -7, 0);
	scaled_integers(s, half, 7, 7, 6);
	scaled_integers(s, huge, 1, 0, INT32_MIN);
	scaled_integers(s, huge, -1, 0, INT32_MAX);
	scaled_integers(s, huge, -1, 1, 0);
	scaled_integers(s, nan, 5, 1, 0);
}
END_TEST

/* X times a third is not exact, and a fused product and sum would leave the error. */
static void not_fused(const struct kern_set *s, berth_type t, enum kern_form out)
{
	const struct kern_scale third = { .has_prescale = true, .prescale = 1.0 / 3 };
	const berth_type to = ref_of(t, out);
	unsigned char a[MOST * 8], b[MOST * 8], c[MOST * 8];

	fill(t, a, MOST, NEAR_ONE);
	for (size_t i = 0; i < MOST; i++)
		ref_put(t, b, i, -ref_get(t, a, i));
	reduce(s, t, BERTH_SUM, &third, KERN_ELEMENTS, out, c, (const void *[]){ a, b },
	       2, MOST);
	for (size_t i = 0; i < MOST; i++)
		EXPECT(ref_bits(to, c, i) == 0, "%s %s %g", s->name, kern_type_name(t),
		       ref_get(to, c, i));
}

START_TEST(products_are_rounded)
{
	for (size_t i = 0; can_run(sets[_i]) && i < COUNT(float_types); i++) {
		not_fused(sets[_i], float_types[i], KERN_ELEMENTS);
		not_fused(sets[_i], float_types[i], KERN_PARTIAL);
	}
}
END_TEST

/* ---- narrow floats ---- */

static void load_all(const struct kern_set *s, berth_type t)
{
	const size_t n = 1u << (8 * kern_size(t));
	unsigned char *p = malloc(n * kern_size(t));
	float *f = malloc(n * sizeof *f);

	for (size_t i = 0; i < n; i++)
		ref_put_bits(t, p, i, i);
	reduce(s, t, BERTH_SUM, NULL, KERN_ELEMENTS, KERN_PARTIAL, f,
	       (const void *[]){ p }, 1, n);
	for (size_t i = 0; i < n; i++) {
		const double x = ref_decode(t, i);

		EXPECT(x == x ? (double)f[i] == x && !signbit(f[i]) == !signbit(x)
			      : f[i] != f[i],
		       "%s %s %#zx", s->name, kern_type_name(t), i);
	}
	free(f);
	free(p);
}

static void store(const struct kern_set *s, berth_type t, const float *f, size_t n)
{
	unsigned char *p = malloc(n * kern_size(t));

	reduce(s, t, BERTH_SUM, NULL, KERN_PARTIAL, KERN_ELEMENTS, p,
	       (const void *[]){ f }, 1, n);
	for (size_t i = 0; i < n; i++)
		EXPECT(ref_same(t, ref_bits(t, p, i), ref_encode(t, (double)f[i])),
		       "%s %s %a: %#llx", s->name, kern_type_name(t), (double)f[i],
		       (unsigned long long)ref_bits(t, p, i));
	free(p);
}

/* Each number, what lies half way to the next, and their neighbours in f32. */
static void store_all(const struct kern_set *s, berth_type t)
{
	const size_t n = ref_formats[t].overflow;
	float *f = malloc(n * 12 * sizeof *f), *p = f;

	for (unsigned i = 0; i < n; i++)
		for (int half = 0; half < 2; half++) {
			const double x = ref_formula(t, i), y = ref_formula(t, i + 1);
			const float at = (float)(half ? (x + y) / 2 : x);

			for (int sign = -1; sign <= 1; sign += 2) {
				*p++ = (float)sign * at;
				*p++ = (float)sign * nextafterf(at, -1);
				*p++ = (float)sign * nextafterf(at, INFINITY);
			}
		}
	store(s, t, f, n * 12);
	for (size_t i = 0; i < n; i++) {
		const uint32_t bits = (uint32_t)random_bits();

		memcpy(&f[i], &bits, sizeof bits);
	}
	store(s, t, f, n);
	free(f);
}

START_TEST(narrow_floats)
{
	for (size_t i = 0; can_run(sets[_i]) && i < COUNT(narrow_types); i++) {
		load_all(sets[_i], narrow_types[i]);
		store_all(sets[_i], narrow_types[i]);
	}
}
END_TEST

static uint64_t stored(const struct kern_set *s, berth_type t, float f)
{
	unsigned char to[2];

	reduce(s, t, BERTH_SUM, NULL, KERN_PARTIAL, KERN_ELEMENTS, to,
	       (const void *[]){ &f }, 1, 1);
	return ref_bits(t, to, 0);
}

/* What one knows without a reference: torch 2.13 has the same, but that an E4M3 that is
 * too large ends at 448 there. */
START_TEST(fp8_by_hand)
{
	const struct kern_set *s = sets[_i];

	if (!can_run(s))
		return;
	ck_assert_uint_eq(stored(s, BERTH_F8_E4M3, 1), 0x38);
	ck_assert_uint_eq(stored(s, BERTH_F8_E4M3, -1.0625F), 0xb8);
	ck_assert_uint_eq(stored(s, BERTH_F8_E4M3, 0x1p-9F), 1);
	ck_assert_uint_eq(stored(s, BERTH_F8_E4M3, 0x1p-10F), 0);
	ck_assert_uint_eq(stored(s, BERTH_F8_E4M3, 464), 0x7e);
	ck_assert_uint_eq(stored(s, BERTH_F8_E4M3, 464.0001F), 0x7f);
	ck_assert_uint_eq(stored(s, BERTH_F8_E4M3, -INFINITY), 0xff);
	ck_assert_uint_eq(stored(s, BERTH_F8_E5M2, 1), 0x3c);
	ck_assert_uint_eq(stored(s, BERTH_F8_E5M2, 0x1p-17F), 0);
	ck_assert_uint_eq(stored(s, BERTH_F8_E5M2, 61439), 0x7b);
	ck_assert_uint_eq(stored(s, BERTH_F8_E5M2, 61440), 0x7c);
	ck_assert_uint_eq(stored(s, BERTH_F8_E5M2, -INFINITY), 0xfc);
}
END_TEST

/* SUM of A, B and C, divided by DIVIDE, is WANT. */
static void sum_of(const struct kern_set *s, berth_type t, double a, double b, double c,
		   uint32_t divide, double sum)
{
	const struct kern_scale scale = { .divide = divide };
	unsigned char x[3][2], to[2];

	ref_put(t, x, 0, a);
	ref_put(t, x[1], 0, b);
	ref_put(t, x[2], 0, c);
	reduce(s, t, BERTH_SUM, &scale, KERN_ELEMENTS, KERN_ELEMENTS, to,
	       (const void *[]){ x[0], x[1], x[2] }, 3, 1);
	ck_assert_double_eq(ref_get(t, to, 0), sum);
}

START_TEST(sums_that_only_fit_in_f32)
{
	const struct kern_set *s = sets[_i];

	if (!can_run(s))
		return;
	sum_of(s, BERTH_F16, 32768, 32768, 0, 2, 32768);
	sum_of(s, BERTH_F16, 60000, 60000, -60000, 0, 60000);
	sum_of(s, BERTH_F16, 2048, 1, 1, 0, 2050);
	sum_of(s, BERTH_BF16, 256, 1, 1, 0, 258);
	sum_of(s, BERTH_F8_E4M3, 448, 448, 448, 3, 448);
	sum_of(s, BERTH_F8_E4M3, 16, 1, 1, 0, 18);
	sum_of(s, BERTH_F8_E5M2, 57344, 57344, 57344, 3, 57344);
}
END_TEST

/* ---- least and greatest ---- */

enum { AT_ONCE = 70 }; /* more than a vector, and some */

/* MIN or MAX of N arrays full of one number each, of bits; all its elements are WANT. */
static void of_constants(const struct kern_set *s, berth_type t, berth_op op,
			 const uint64_t *bits, unsigned n, uint64_t bits_wanted)
{
	unsigned char a[SRC][AT_ONCE * 8], to[AT_ONCE * 8];
	const void *src[SRC];

	for (unsigned k = 0; k < n; k++) {
		src[k] = a[k];
		for (size_t i = 0; i < AT_ONCE; i++)
			ref_put_bits(t, a[k], i, bits[k]);
	}
	reduce(s, t, op, NULL, KERN_ELEMENTS, KERN_ELEMENTS, to, src, n, AT_ONCE);
	for (size_t i = 0; i < AT_ONCE; i++)
		EXPECT(ref_same(t, ref_bits(t, to, i), bits_wanted),
		       "%s %s %s: %#llx is not %#llx", s->name, kern_type_name(t),
		       kern_op_name(op), (unsigned long long)ref_bits(t, to, i),
		       (unsigned long long)bits_wanted);
}

static void nan_comes_out(const struct kern_set *s, berth_type t, berth_op op)
{
	const struct ref_format *f = &ref_formats[t];
	const uint64_t top = 1ull << (8 * kern_size(t) - 1), one = f->overflow / 2,
		       nans[] = { f->overflow + f->infinite, top - 1, 2 * top - 1 };
	uint64_t bits[SRC];

	for (unsigned n = 1; n <= SRC; n++)
		for (unsigned at = 0; at < n; at++)
			for (size_t i = 0; i < COUNT(nans); i++) {
				const uint64_t rest[] = { 0, top, one, f->overflow - 1,
							  top | (f->overflow - 1) };

				memcpy(bits, rest, sizeof rest);
				bits[at] = nans[i];
				of_constants(s, t, op, bits, n, nans[i]);
			}
}

static void order(const struct kern_set *s, berth_type t)
{
	const uint64_t top = 1ull << (8 * kern_size(t) - 1),
		       most = ref_formats[t].overflow - !ref_formats[t].infinite;
	const uint64_t up[] = { top | most, top | 1, top, 0, 1, most };

	for (unsigned i = 0; i < COUNT(up); i++)
		for (unsigned j = 0; j < COUNT(up); j++) {
			const uint64_t two[] = { up[i], up[j] };

			of_constants(s, t, BERTH_MIN, two, 2, up[i < j ? i : j]);
			of_constants(s, t, BERTH_MAX, two, 2, up[i > j ? i : j]);
		}
}

START_TEST(least_and_greatest)
{
	for (size_t i = 0; can_run(sets[_i]) && i < COUNT(float_types); i++) {
		order(sets[_i], float_types[i]);
		nan_comes_out(sets[_i], float_types[i], BERTH_MIN);
		nan_comes_out(sets[_i], float_types[i], BERTH_MAX);
	}
}
END_TEST

/* ---- for Adasum ---- */

static void check_dots(const struct kern_set *s, berth_type t, size_t n)
{
	unsigned char a[MOST * 8], b[MOST * 8];
	double lane[3][16] = { 0 }, sum[3] = { 0 }, got[3];

	fill(t, a, n, NEAR_ONE);
	fill(t, b, n, NEAR_ONE);
	for (size_t i = 0; i < n; i++) {
		const double x = ref_get(t, a, i), y = ref_get(t, b, i);

		lane[0][i % 16] += ref_round(BERTH_F64, x * x);
		lane[1][i % 16] += ref_round(BERTH_F64, y * y);
		lane[2][i % 16] += ref_round(BERTH_F64, x * y);
	}
	s->dots[t == BERTH_F64](got, a, b, n);
	for (int d = 0; d < 3; d++) {
		for (int k = 0; k < 16; k++)
			sum[d] += lane[d][k];
		EXPECT(!memcmp(&sum[d], &got[d], sizeof sum[d]),
		       "%s %s %zu: dot %d is %a, not %a", s->name, kern_type_name(t), n,
		       d, got[d], sum[d]);
	}
	kern_dots(got, t, a, b, n);
	ck_assert(!memcmp(sum, got, sizeof sum));
}

/* INTO: 0, of other arrays; 1, of A; 2, of B. */
static void check_combine(const struct kern_set *s, berth_type t, size_t n, int into)
{
	static const double factor[2] = { 1.0 / 3, -0.7 };
	unsigned char a[BYTES], b[BYTES], c[BYTES];
	unsigned char *const dst = into == 1 ? a : into == 2 ? b : c;
	const double p = ref_round(t, factor[0]), q = ref_round(t, factor[1]);

	memset(dst, 0xa5, BYTES);
	fill(t, a, n, NEAR_ONE);
	fill(t, b, n, NEAR_ONE);
	for (size_t i = 0; i < n; i++)
		ref_put(t, want, i,
			ref_round(t, ref_get(t, a, i) * p) +
				ref_round(t, ref_get(t, b, i) * q));
	s->combine[t == BERTH_F64](dst, a, factor[0], b, factor[1], n);
	EXPECT(!memcmp(dst, want, n * kern_size(t)), "%s %s %zu into %d", s->name,
	       kern_type_name(t), n, into);
	ck_assert(is_guard(dst + n * kern_size(t), BYTES - n * kern_size(t)));
	fill(t, a, n, NEAR_ONE);
	kern_combine(dst, t, a, 0.3, a, -0.3, n);
	for (size_t i = 0; i < n; i++)
		EXPECT(ref_get(t, dst, i) == 0, "%s: fused", s->name);
}

START_TEST(dots_and_combine)
{
	if (!can_run(sets[_i]))
		return;
	for (size_t n = 0; n <= MOST; n += n < 70 ? 1 : 23)
		for (int t = 0; t < 2; t++) {
			check_dots(sets[_i], t ? BERTH_F64 : BERTH_F32, n);
			for (int into = 0; into < 3; into++)
				check_combine(sets[_i], t ? BERTH_F64 : BERTH_F32, n,
					      into);
		}
}
END_TEST

/* ---- the thread's mode, the instructions, what there is ---- */

static void any_numbers(struct run *r)
{
	r->ndst = 1;
	r->filling = ANY;
	for (unsigned k = 0; k < 5; k++) {
		r->scale.has_prescale = k == 1;
		r->scale.prescale = 0x1p-20;
		r->scale.divide = k == 2 ? 3 : k == 3 ? 8 : 0;
		r->scale.has_postscale = k == 4;
		r->scale.postscale = 0.1;
		if (r->op < BERTH_BAND && (r->type != BERTH_BOOL || !r->scale.divide)) {
			r->nsrc = 1 + k % 3;
			r->n = 140;
			one(r);
		}
	}
}

START_TEST(any_mode_of_the_thread)
{
	for (mode = 0; can_run(sets[_i]) && mode < COUNT(modes); mode++)
		each(sets[_i], any_numbers);
}
END_TEST

/* Of numbers that are flushed to zero, and whose sum is not exact. */
static void dots_in_mode(double dot[6], float *c, double *d)
{
	static const float a[3] = { 0x1p-140F, 1, 0x1.1p-30F };
	static const double e[3] = { 0x1p-1040, 1, 0x1.1p-60 };

	enter();
	kern_dots(dot, BERTH_F32, a, a, 3);
	kern_dots(dot + 3, BERTH_F64, e, e, 3);
	kern_combine(c, BERTH_F32, a, 1.0 / 3, a, 0x1p-5, 3);
	kern_combine(d, BERTH_F64, e, 1.0 / 3, e, 0x1p-5, 3);
	leave();
}

START_TEST(any_mode_for_adasum)
{
	double dot[6], want_dot[6], d[3], want_d[3];
	float c[3], want_c[3];

	mode = 0;
	dots_in_mode(want_dot, want_c, want_d);
	ck_assert(want_c[0] != 0 && want_d[0] != 0);
	for (mode = 1; mode < COUNT(modes); mode++) {
		dots_in_mode(dot, c, d);
		ck_assert(!memcmp(dot, want_dot, sizeof dot) &&
			  !memcmp(c, want_c, sizeof c) && !memcmp(d, want_d, sizeof d));
	}
}
END_TEST

/* Bits, those of NaNs too, which only come of infinities here. */
static void same_in_all(struct run *r)
{
	const struct kern_scale scale = { .has_prescale = true,
					  .prescale = 1.7,
					  .has_postscale = true,
					  .postscale = 0.3,
					  .divide = 3 };
	const void *src[SRC];
	void *dst[DST];
	struct kern k;

	r->nsrc = 3;
	r->n = MOST;
	r->filling = NO_NAN;
	if (random_bits() & 1 && r->op < BERTH_BAND)
		r->scale = scale;
	set_out(r, dst, src);
	reduce(&kern_base, r->type, r->op, &r->scale, r->in, r->out, result[0], src, 3,
	       MOST);
	EXPECT(make_of(r->set, &k, r->type, r->op, &r->scale, r->in, r->out), "%s",
	       words(r));
	kern_reduce(&k, &(void *){ result[1] }, 1, src, 3, MOST, false);
	EXPECT(!memcmp(result[0], result[1], MOST * kern_size(ref_of(r->type, r->out))),
	       "%s", words(r));
}

START_TEST(same_bits_in_all_sets)
{
	for (int i = 0; can_run(sets[_i]) && i < 10; i++)
		each(sets[_i], same_in_all);
}
END_TEST

START_TEST(chosen_by_environment)
{
	const char *name = kern_chosen();

	if (getenv("BERTH_NO_AVX512"))
		ck_assert_str_ne(name, "avx512");
	if (getenv("BERTH_NO_AVX2"))
		ck_assert_str_ne(name, "avx2");
#if defined(__x86_64__)
	if (!getenv("BERTH_NO_AVX512") && can_run(&kern_avx512))
		ck_assert_str_eq(name, "avx512");
#endif
}
END_TEST

START_TEST(what_is_defined)
{
	for (berth_type t = 0; t < BERTH_TYPES; t++)
		for (berth_op op = 0; op < BERTH_OPS; op++) {
			bool is = op != BERTH_AVG && op != BERTH_ADASUM &&
				  (op < BERTH_BAND || !ref_is_float(t));
			struct kern k;

			ck_assert_int_eq(kern_is_defined(t, op), is);
			for (int forms = 0; forms < 4; forms++)
				ck_assert_int_eq(kern_make(&k, t, op, NULL, forms & 1,
							   forms >> 1),
						 is);
		}
	ck_assert(!kern_is_defined(BERTH_TYPES, BERTH_SUM));
	ck_assert(!kern_is_defined(BERTH_F32, BERTH_OPS));
}
END_TEST

START_TEST(what_types_are)
{
	struct kern k;

	ck_assert_uint_eq(kern_size(BERTH_BOOL), 1);
	ck_assert_uint_eq(kern_size(BERTH_F8_E4M3), 1);
	ck_assert_uint_eq(kern_size(BERTH_BF16), 2);
	ck_assert_uint_eq(kern_size(BERTH_I32), 4);
	ck_assert_uint_eq(kern_size(BERTH_F64), 8);
	ck_assert_uint_eq(kern_size(BERTH_TYPES), 0);
	ck_assert_int_eq(kern_accumulator(BERTH_F8_E5M2), BERTH_F32);
	ck_assert_int_eq(kern_accumulator(BERTH_F16), BERTH_F32);
	ck_assert_int_eq(kern_accumulator(BERTH_F64), BERTH_F64);
	ck_assert_int_eq(kern_accumulator(BERTH_I8), BERTH_I8);
	ck_assert_str_eq(kern_type_name(BERTH_BF16), "bf16");
	ck_assert_str_eq(kern_type_name(BERTH_TYPES), "?");
	ck_assert_str_eq(kern_op_name(BERTH_MAX), "max");
	ck_assert_str_eq(kern_op_name(BERTH_OPS), "?");
	ck_assert(
		kern_make(&k, BERTH_F16, BERTH_SUM, NULL, KERN_ELEMENTS, KERN_PARTIAL));
	ck_assert(k.in_bytes == 2 && k.out_bytes == 4);
	ck_assert(kern_make(&k, BERTH_F8_E4M3, BERTH_SUM, NULL, KERN_PARTIAL,
			    KERN_ELEMENTS));
	ck_assert(k.in_bytes == 4 && k.out_bytes == 1);
}
END_TEST

START_TEST(copies_that_stream)
{
	for (size_t n = 0; can_run(sets[_i]) && n < 300; n += 7)
		for (size_t from = 0; from < 3; from++) {
			fill(BERTH_U8, source[0], n + 8, ANY);
			memset(result[0], 0xa5, sizeof result[0]);
			sets[_i]->copy(result[0] + from * 5, source[0] + from, n);
			kern_fence();
			ck_assert(!memcmp(result[0] + from * 5, source[0] + from, n));
			ck_assert(is_guard(result[0], from * 5));
			ck_assert(is_guard(result[0] + from * 5 + n,
					   BYTES - from * 5 - n));
		}
}
END_TEST

int main(void)
{
	Suite *s = suite_create("kern");
	TCase *all = tcase_create("all"), *each_set = tcase_create("each set");
	SRunner *r = srunner_create(s);
	const int n = COUNT(sets);
	int failed;

	suite_add_tcase(s, each_set);
	suite_add_tcase(s, all);
	tcase_set_timeout(each_set, 120);
	tcase_add_loop_test(each_set, reductions, 0, n);
	tcase_add_loop_test(each_set, scales, 0, n);
	tcase_add_loop_test(each_set, integers_by_hand, 0, n);
	tcase_add_loop_test(each_set, products_are_rounded, 0, n);
	tcase_add_loop_test(each_set, narrow_floats, 0, n);
	tcase_add_loop_test(each_set, fp8_by_hand, 0, n);
	tcase_add_loop_test(each_set, sums_that_only_fit_in_f32, 0, n);
	tcase_add_loop_test(each_set, least_and_greatest, 0, n);
	tcase_add_loop_test(each_set, dots_and_combine, 0, n);
	tcase_add_loop_test(each_set, any_mode_of_the_thread, 0, n);
	tcase_add_loop_test(each_set, same_bits_in_all_sets, 0, n);
	tcase_add_loop_test(each_set, copies_that_stream, 0, n);
	tcase_add_test(all, any_mode_for_adasum);
	tcase_add_test(all, chosen_by_environment);
	tcase_add_test(all, what_is_defined);
	tcase_add_test(all, what_types_are);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed != 0;
}
