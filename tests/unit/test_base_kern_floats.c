/* lib/kern: what is particular about floats, and the arithmetic of Adasum. */
#include <check.h>
#include <stdlib.h>

#include "tests/unit/kern_rig.h"

enum { BYTES = MOST * 8 + 64 };

static const berth_type float_types[] = { BERTH_F16, BERTH_BF16,    BERTH_F32,
					  BERTH_F64, BERTH_F8_E4M3, BERTH_F8_E5M2 };
static const berth_type narrow_types[] = { BERTH_F16, BERTH_BF16, BERTH_F8_E4M3,
					   BERTH_F8_E5M2 };

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

/* Known without a reference; torch 2.13 has the same. */
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
	ck_assert_uint_eq(stored(s, BERTH_F8_E4M3, 464.0001F), 0x7e);
	ck_assert_uint_eq(stored(s, BERTH_F8_E4M3, -INFINITY), 0xfe);
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

/* MIN or MAX of N arrays, each full of one of BITS: all its elements are
 * BITS_WANTED. */
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
	unsigned char a[BYTES], b[BYTES], c[BYTES], want[BYTES];
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

/* Of numbers that are flushed to zero, and whose sum is not exact. */
static bool dots_in_mode(double dot[6], float *c, double *d)
{
	static const float a[3] = { 0x1p-140F, 1, 0x1.1p-30F };
	static const double e[3] = { 0x1p-1040, 1, 0x1.1p-60 };
	bool stays;

	enter();
	kern_dots(dot, BERTH_F32, a, a, 3);
	kern_dots(dot + 3, BERTH_F64, e, e, 3);
	kern_combine(c, BERTH_F32, a, 1.0 / 3, a, 0x1p-5, 3);
	kern_combine(d, BERTH_F64, e, 1.0 / 3, e, 0x1p-5, 3);
	stays = is_entered();
	leave();
	return stays;
}

START_TEST(any_mode_for_adasum)
{
	double dot[6], want_dot[6], d[3], want_d[3];
	float c[3], want_c[3];

	mode = 0;
	dots_in_mode(want_dot, want_c, want_d);
	ck_assert(want_c[0] != 0 && want_d[0] != 0);
	for (mode = 1; mode < COUNT(modes); mode++) {
		ck_assert(dots_in_mode(dot, c, d));
		ck_assert(!memcmp(dot, want_dot, sizeof dot) &&
			  !memcmp(c, want_c, sizeof c) && !memcmp(d, want_d, sizeof d));
	}
}
END_TEST

int main(void)
{
	Suite *s = suite_create("kern floats");
	TCase *all = tcase_create("all"), *each_set = tcase_create("each set");
	SRunner *r = srunner_create(s);
	const int n = COUNT(sets);
	int failed;

	suite_add_tcase(s, each_set);
	suite_add_tcase(s, all);
	tcase_set_timeout(each_set, 120);
	tcase_add_loop_test(each_set, products_are_rounded, 0, n);
	tcase_add_loop_test(each_set, narrow_floats, 0, n);
	tcase_add_loop_test(each_set, fp8_by_hand, 0, n);
	tcase_add_loop_test(each_set, sums_that_only_fit_in_f32, 0, n);
	tcase_add_loop_test(each_set, least_and_greatest, 0, n);
	tcase_add_loop_test(each_set, dots_and_combine, 0, n);
	tcase_add_test(all, any_mode_for_adasum);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed != 0;
}
