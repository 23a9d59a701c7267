/* lib/kern: every type, operation, form, scale and set of instructions against what
 * kern_reference.h says.
 * takes_s: 4 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/unit/kern_rig.h"

enum { GUARD = 64, DST = 3, BYTES = MOST * 8 + 2 * GUARD };

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
	for (berth_type t = 0; t < TYPE_COUNT; t++)
		for (berth_op op = 0; op < OP_COUNT; op++)
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

/* Known without a reference. */
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

/* In a process that has not chosen yet, as that of each test is. */
START_TEST(left_out)
{
	setenv("BERTH_NO_AVX512", "1", 1);
	if (_i)
		setenv("BERTH_NO_AVX2", "1", 1);
	ck_assert_str_ne(kern_chosen(), "avx512");
	if (_i)
		ck_assert_str_eq(kern_chosen(), "base");
}
END_TEST

START_TEST(what_is_defined)
{
	struct kern k;

	for (berth_type t = 0; t < TYPE_COUNT; t++)
		for (berth_op op = 0; op < OP_COUNT; op++) {
			bool is = op != BERTH_AVG && op != BERTH_ADASUM &&
				  (op < BERTH_BAND || !ref_is_float(t));

			ck_assert_int_eq(kern_is_defined(t, op), is);
			for (int forms = 0; forms < 4; forms++)
				ck_assert_int_eq(kern_make(&k, t, op, NULL, forms & 1,
							   forms >> 1),
						 is);
		}
	ck_assert(!kern_make(&k, TYPE_COUNT, BERTH_SUM, NULL, KERN_ELEMENTS,
			     KERN_ELEMENTS));
	ck_assert(!kern_make(&k, BERTH_F32, OP_COUNT, NULL, KERN_ELEMENTS,
			     KERN_ELEMENTS));
	ck_assert(!kern_is_defined(TYPE_COUNT, BERTH_SUM));
	ck_assert(!kern_is_defined(BERTH_F32, OP_COUNT));
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
	ck_assert_uint_eq(kern_size(TYPE_COUNT), 0);
	ck_assert_int_eq(kern_accumulator(BERTH_F8_E5M2), BERTH_F32);
	ck_assert_int_eq(kern_accumulator(BERTH_F16), BERTH_F32);
	ck_assert_int_eq(kern_accumulator(BERTH_F64), BERTH_F64);
	ck_assert_int_eq(kern_accumulator(BERTH_I8), BERTH_I8);
	ck_assert_str_eq(kern_type_name(BERTH_BF16), "bf16");
	ck_assert_str_eq(kern_type_name(TYPE_COUNT), "?");
	ck_assert_str_eq(kern_op_name(BERTH_MAX), "max");
	ck_assert_str_eq(kern_op_name(OP_COUNT), "?");
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
	tcase_add_loop_test(each_set, any_mode_of_the_thread, 0, n);
	tcase_add_loop_test(each_set, same_bits_in_all_sets, 0, n);
	tcase_add_loop_test(each_set, copies_that_stream, 0, n);
	tcase_add_test(all, chosen_by_environment);
	tcase_add_loop_test(all, left_out, 0, 2);
	tcase_add_test(all, what_is_defined);
	tcase_add_test(all, what_types_are);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed != 0;
}
