/* lib/kern: every type, operation and set of instructions against plain loops. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/kern_half.h"
#include "lib/base/kern_set.h"

enum { MOST = 300, GUARD = 64, SRC = 5, DST = 3 };

static const struct kern_set *const sets[] = {
	&kern_base,
#if defined(__x86_64__)
	&kern_avx2,
	&kern_avx512,
#endif
};

static bool can_run(const struct kern_set *s)
{
#if defined(__x86_64__)
	if (s == &kern_avx512)
		return __builtin_cpu_supports("avx512bw") &&
		       __builtin_cpu_supports("avx512dq") &&
		       __builtin_cpu_supports("avx512vl");
	if (s == &kern_avx2)
		return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c");
#endif
	return s == &kern_base;
}

/* ---- one element, by what C says ---- */

static float bf16(uint16_t x)
{
	uint32_t bits = (uint32_t)x << 16;
	float f;

	memcpy(&f, &bits, sizeof f);
	return f;
}

/* To nearest even, by trying the three candidates. */
static uint16_t to_bf16(float f)
{
	uint32_t bits;
	uint16_t best;

	memcpy(&bits, &f, sizeof bits);
	best = (uint16_t)(bits >> 16);
	for (int i = 1; i < 2; i++) {
		uint16_t up = (uint16_t)(best + 1);
		double a = (double)f - (double)bf16(best),
		       b = (double)bf16(up) - (double)f;

		a = a < 0 ? -a : a;
		b = b < 0 ? -b : b;
		if (b < a || (b == a && !(up & 1)))
			best = up;
	}
	return best;
}

#define COMBINE(a, b)                                                                  \
	(op == BERTH_SUM       ? (a) + (b)                                             \
	 : op == BERTH_PRODUCT ? (a) * (b)                                             \
	 : op == BERTH_MIN     ? ((b) < (a) ? (b) : (a))                               \
			       : ((b) > (a) ? (b) : (a)))
#define BITWISE(a, b)                                                                  \
	(op == BERTH_BAND ? (a) & (b) : op == BERTH_BOR ? (a) | (b) : (a) ^ (b))

#define FLOATS(T)                                                                      \
	do {                                                                           \
		T x = ((const T *)src[0])[i];                                          \
		for (unsigned k = 1; k < nsrc; k++)                                    \
			x = (T)COMBINE(x, ((const T *)src[k])[i]);                     \
		memcpy(out, &x, sizeof x);                                             \
	} while (0)
#define INTEGERS(T, U)                                                                 \
	do {                                                                           \
		T x = ((const T *)src[0])[i];                                          \
		for (unsigned k = 1; k < nsrc; k++) {                                  \
			T y = ((const T *)src[k])[i];                                  \
			if (op == BERTH_SUM || op == BERTH_PRODUCT)                    \
				x = (T)COMBINE((U)x, (U)y);                            \
			else if (op >= BERTH_BAND)                                     \
				x = (T)BITWISE(x, y);                                  \
			else                                                           \
				x = COMBINE(x, y);                                     \
		}                                                                      \
		memcpy(out, &x, sizeof x);                                             \
	} while (0)

static void expect(berth_type type, berth_op op, const void *const *src, unsigned nsrc,
		   size_t i, void *out)
{
	float f;

	switch (type) {
	case BERTH_U8:
		INTEGERS(uint8_t, unsigned);
		return;
	case BERTH_I8:
		INTEGERS(int8_t, unsigned);
		return;
	case BERTH_U16:
		INTEGERS(uint16_t, unsigned);
		return;
	case BERTH_I16:
		INTEGERS(int16_t, unsigned);
		return;
	case BERTH_U32:
		INTEGERS(uint32_t, uint32_t);
		return;
	case BERTH_I32:
		INTEGERS(int32_t, uint32_t);
		return;
	case BERTH_U64:
		INTEGERS(uint64_t, uint64_t);
		return;
	case BERTH_I64:
		INTEGERS(int64_t, uint64_t);
		return;
	case BERTH_F32:
		FLOATS(float);
		return;
	case BERTH_F64:
		FLOATS(double);
		return;
	case BERTH_F16:
		f = (float)((const _Float16 *)src[0])[i];
		for (unsigned k = 1; k < nsrc; k++)
			f = COMBINE(f, (float)((const _Float16 *)src[k])[i]);
		memcpy(out, &(_Float16){ (_Float16)f }, 2);
		return;
	case BERTH_BF16:
		f = bf16(((const uint16_t *)src[0])[i]);
		for (unsigned k = 1; k < nsrc; k++)
			f = COMBINE(f, bf16(((const uint16_t *)src[k])[i]));
		memcpy(out, &(uint16_t){ to_bf16(f) }, 2);
		return;
	default: {
		unsigned char x = ((const unsigned char *)src[0])[i];

		for (unsigned k = 1; k < nsrc; k++) {
			unsigned char y = ((const unsigned char *)src[k])[i];

			x = op == BERTH_BXOR ? x ^ y
			    : op == BERTH_SUM || op == BERTH_MAX || op == BERTH_BOR
				    ? x | y
				    : x & y;
		}
		memcpy(out, &x, 1);
	}
	}
}

/* ---- the arrays ---- */

static _Alignas(64) unsigned char in[SRC][MOST * 8 + GUARD], out[DST][MOST * 8 + GUARD];

/* Numbers of about one, so that no product is out of range; all bits for integers. */
static void fill(berth_type type, void *p, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		double x = ((double)(rand() % 2001) - 1000) / 617;

		if (type == BERTH_F32)
			((float *)p)[i] = (float)x;
		else if (type == BERTH_F64)
			((double *)p)[i] = x;
		else if (type == BERTH_F16)
			((_Float16 *)p)[i] = (_Float16)x;
		else if (type == BERTH_BF16)
			((uint16_t *)p)[i] = to_bf16((float)x);
		else
			for (size_t k = 0; k < kern_size(type); k++)
				((unsigned char *)p)[i * kern_size(type) + k] =
					(unsigned char)(type == BERTH_BOOL ? rand() & 1
									   : rand());
	}
}

static bool all_a5(const unsigned char *p, size_t n)
{
	return !n || (*p == 0xa5 && !memcmp(p, p + 1, n - 1));
}

static void one(const struct kern_set *s, berth_type type, berth_op op, size_t n,
		unsigned nsrc, unsigned ndst, size_t shift, bool stream)
{
	size_t size = kern_size(type), off = shift * size;
	unsigned char want[MOST * 8];
	const void *src[SRC];
	void *dst[DST];

	for (unsigned k = 0; k < nsrc; k++) {
		src[k] = in[k] + (k ? off : 0);
		fill(type, in[k] + (k ? off : 0), n);
	}
	memset(out, 0xa5, sizeof out);
	for (unsigned j = 0; j < ndst; j++)
		dst[j] = out[j] + (j == 2 ? 0 : off);
	s->reduce[type][op](dst, ndst, src, nsrc, n, stream);
	kern_fence();
	for (size_t i = 0; i < n; i++)
		expect(type, op, src, nsrc, i, want + i * size);
	for (unsigned j = 0; j < ndst; j++) {
		size_t at = j == 2 ? 0 : off, end = at + n * size;

		ck_assert_msg(!memcmp(out[j] + at, want, n * size) &&
				      all_a5(out[j], at) &&
				      all_a5(out[j] + end, sizeof out[j] - end),
			      "%s %s %s n %zu of %u to %u shift %zu stream %d", s->name,
			      kern_type_name(type), kern_op_name(op), n, nsrc, ndst,
			      shift, stream);
	}
}

START_TEST(reductions)
{
	static const size_t counts[] = { 0, 1, 2, 7, 15, 16, 31, 64, 97, 257 };
	const struct kern_set *s = sets[_i];

	if (!can_run(s)) {
		printf("skipped: this processor has no %s\n", s->name);
		return;
	}
	for (berth_type t = 0; t < BERTH_TYPES; t++)
		for (berth_op op = 0; op < (berth_op)KERN_OPS; op++) {
			if (!s->reduce[t][op])
				continue;
			for (size_t c = 0; c < sizeof counts / sizeof *counts; c++)
				for (unsigned k = 0; k < 8; k++)
					one(s, t, op, counts[c], 1 + k % SRC,
					    1 + k % DST, k % 4, k & 1);
		}
}
END_TEST

/* Where a sum of bf16 lies half way between two, or is no number. */
START_TEST(bf16_rounds_to_even)
{
	const struct kern_set *s = sets[_i];
	/* 1 + 2^-8 is half way between 1 and its successor; 1.0078125 + 2^-8 above
	 * it */
	const uint16_t a[4] = { 0x3f80, 0x3f81, 0x7fc0, 0x7f80 };
	const uint16_t b[4] = { 0x3b80, 0x3b80, 0x3f80, 0xff80 };
	uint16_t sum[4];

	if (!can_run(s))
		return;
	s->reduce[BERTH_BF16][BERTH_SUM]((void *[]){ sum }, 1, (const void *[]){ a, b },
					 2, 4, false);
	ck_assert_uint_eq(sum[0], 0x3f80);
	ck_assert_uint_eq(sum[1], 0x3f82);
	ck_assert(bf16(sum[2]) != bf16(sum[2]));
	ck_assert(bf16(sum[3]) != bf16(sum[3]));
}
END_TEST

/* All f16 there are, and what lies between two of them. */
START_TEST(f16_as_the_compiler_has_it)
{
	for (uint32_t i = 0; i <= 0xffff; i++) {
		uint16_t h = (uint16_t)i, back;
		_Float16 want;
		float f = f16_float(h);

		memcpy(&want, &h, 2);
		if (want != want) {
			ck_assert(f != f);
			continue;
		}
		ck_assert_msg(f == (float)want, "%#x", i);
		ck_assert_uint_eq(float_f16(f), h);
		for (int k = -2; k <= 2; k++) {
			float g = f * (1 + (float)k * 0x1p-12F);

			want = (_Float16)g;
			memcpy(&back, &want, 2);
			ck_assert_msg(float_f16(g) == back, "%#x %d", i, k);
		}
	}
	ck_assert_uint_eq(float_f16(65520), 0x7c00);
	ck_assert_uint_eq(float_f16(65519), 0x7bff);
	ck_assert_uint_eq(float_f16(0x1p-26F), 0);
}
END_TEST

START_TEST(not_defined)
{
	for (berth_op op = BERTH_BAND; op <= BERTH_BXOR; op++)
		for (berth_type t = BERTH_F16; t <= BERTH_F64; t++)
			ck_assert_ptr_null(kern_reduce_of(t, op));
	ck_assert_ptr_null(kern_reduce_of(BERTH_F32, BERTH_AVG));
	ck_assert_ptr_null(kern_reduce_of(BERTH_F32, BERTH_ADASUM));
	ck_assert_ptr_null(kern_reduce_of(BERTH_TYPES, BERTH_SUM));
	ck_assert_uint_eq(kern_size(BERTH_TYPES), 0);
}
END_TEST

START_TEST(copies_that_stream)
{
	for (size_t n = 0; n < 300; n += 7)
		for (size_t from = 0; from < 3; from++) {
			fill(BERTH_U8, in[0], n + 8);
			memset(out[0], 0xa5, 400);
			kern_copy(out[0] + from * 5, in[0] + from, n, true);
			kern_fence();
			ck_assert(!memcmp(out[0] + from * 5, in[0] + from, n));
			ck_assert_uint_eq(out[0][from * 5 + n], 0xa5);
		}
}
END_TEST

START_TEST(scales)
{
	int32_t i[3] = { 7, -7, 9 };
	uint16_t b[1] = { 0x3f80 }, h[1] = { 0x3c00 };
	float f[2] = { 3, -0.5F };
	uint64_t u[1] = { UINT64_MAX };
	int8_t c[2] = { -128, 127 };

	kern_divide(i, i, 3, BERTH_I32, 4);
	ck_assert(i[0] == 1 && i[1] == -1 && i[2] == 2);
	kern_divide(u, u, 1, BERTH_U64, 3);
	ck_assert(u[0] == UINT64_MAX / 3);
	kern_divide(c, c, 2, BERTH_I8, 200);
	ck_assert(c[0] == 0 && c[1] == 0);
	kern_scale(f, f, 2, BERTH_F32, 0.5);
	ck_assert(f[0] == 1.5F && f[1] == -0.25F);
	kern_scale(b, b, 1, BERTH_BF16, 2);
	ck_assert_uint_eq(b[0], 0x4000);
	kern_scale(h, h, 1, BERTH_F16, 3);
	ck_assert_uint_eq(h[0], 0x4200);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("kern");
	TCase *t = tcase_create("kern");
	SRunner *r = srunner_create(s);
	int failed;

	suite_add_tcase(s, t);
	tcase_set_timeout(t, 60);
	tcase_add_loop_test(t, reductions, 0, (int)(sizeof sets / sizeof *sets));
	tcase_add_loop_test(t, bf16_rounds_to_even, 0,
			    (int)(sizeof sets / sizeof *sets));
	tcase_add_test(t, f16_as_the_compiler_has_it);
	tcase_add_test(t, not_defined);
	tcase_add_test(t, copies_that_stream);
	tcase_add_test(t, scales);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed != 0;
}
