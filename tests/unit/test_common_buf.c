/* buf.h: the queue against a plain array, the reader against its end. */
#include <check.h>

#include "common/buf.h"
#include "common/err.h"

enum { STEPS = 20000, MODEL_MAX = 1 << 20 };

static uint32_t seed;

static uint32_t roll(uint32_t n)
{
	seed = seed * 1664525u + 1013904223u;
	return (seed >> 8) % n;
}

/* What the queue should hold: model[0..len). */
static unsigned char model[MODEL_MAX];
static size_t model_len;

static void model_add(const unsigned char *p, size_t n)
{
	memcpy(model + model_len, p, n);
	model_len += n;
}

static void model_drop(size_t n)
{
	model_len -= n;
	memmove(model, model + n, model_len);
}

static void add_some(struct buf *b, size_t n)
{
	static unsigned char bytes[8192];

	for (size_t i = 0; i < n; i++)
		bytes[i] = (unsigned char)roll(256);
	buf_add(b, bytes, n);
	model_add(bytes, n);
}

/* Reserve more than is used, as the agent does around read(2). */
static void reserve_some(struct buf *b, size_t n)
{
	unsigned char *room = buf_reserve(b, n);
	size_t used = roll((uint32_t)n + 1);

	memset(room, 'r', n);
	b->len += used;
	memset(model + model_len, 'r', used);
	model_len += used;
}

static void add_numbers(struct buf *b)
{
	static const unsigned char four[] = { 4, 3, 2, 1 };
	static const unsigned char eight[] = { 8, 7, 6, 5, 4, 3, 2, 1 };

	buf_u32(b, 0x01020304);
	model_add(four, sizeof four);
	buf_u64(b, 0x0102030405060708);
	model_add(eight, sizeof eight);
}

static void step(struct buf *b)
{
	size_t n;

	switch (model_len < MODEL_MAX / 2 ? roll(6) : 4) {
	case 0:
		add_some(b, roll(64));
		break;
	case 1:
		add_some(b, roll(8192));
		break;
	case 2:
		reserve_some(b, roll(2048));
		break;
	case 3:
		add_numbers(b);
		break;
	case 4:
		n = roll((uint32_t)model_len + 1);
		buf_drop(b, n);
		model_drop(n);
		break;
	default:
		n = model_len < 100 ? model_len : 100;
		buf_drop(b, n);
		model_drop(n);
	}
}

static void same_as_model(const struct buf *b)
{
	ck_assert_uint_eq(b->len, model_len);
	ck_assert_uint_le(b->start + b->len, b->cap);
	ck_assert(!model_len || !memcmp(buf_head(b), model, model_len));
}

START_TEST(queue_is_the_model)
{
	struct buf b = { 0 };

	seed = (uint32_t)_i + 1;
	model_len = 0;
	for (int i = 0; i < STEPS; i++) {
		step(&b);
		if (i % 16 == 0)
			same_as_model(&b);
	}
	same_as_model(&b);
	buf_free(&b);
	ck_assert(!b.data && !b.start && !b.len && !b.cap);
}
END_TEST

START_TEST(queue_stays_small)
{
	struct buf b = { 0 };
	unsigned char bytes[1000] = { 0 };

	/* a queue that never gets empty must not grow for ever */
	buf_add(&b, bytes, sizeof bytes);
	for (int i = 0; i < 100000; i++) {
		buf_add(&b, bytes, sizeof bytes);
		buf_drop(&b, sizeof bytes);
	}
	ck_assert_uint_eq(b.len, sizeof bytes);
	ck_assert_uint_le(b.cap, 16 * sizeof bytes);
	buf_free(&b);
}
END_TEST

START_TEST(queue_empty)
{
	struct buf b = { 0 };

	ck_assert_ptr_null(buf_head(&b));
	buf_drop(&b, 0);
	buf_add(&b, NULL, 0);
	ck_assert_uint_eq(b.len, 0);
	buf_add(&b, "ab", 2);
	buf_drop(&b, 2);
	ck_assert_uint_eq(b.start, 0);
	buf_free(&b);
	buf_free(&b);
}
END_TEST

START_TEST(view_reads_in_order)
{
	static const unsigned char bytes[] = { 4, 3, 2, 1, 8,    7,  6,
					       5, 4, 3, 2, 0xf1, 'x' };
	struct view v = { bytes, sizeof bytes, false };
	const char *x;

	ck_assert_uint_eq(view_u32(&v), 0x01020304);
	ck_assert(view_u64(&v) == 0xf102030405060708);
	x = view_bytes(&v, 1);
	ck_assert(x && *x == 'x');
	ck_assert(!v.failed && !v.left);
	ck_assert_ptr_eq(view_bytes(&v, 0), bytes + sizeof bytes);
	ck_assert(!v.failed);
}
END_TEST

/* Every read of more than is left fails, takes nothing, and fails what follows. */
START_TEST(view_failure_is_sticky)
{
	unsigned char *p = malloc((size_t)_i + 1); /* its end is the sanitizer's */
	struct view v = { p, (size_t)_i, false };

	memset(p, 0xff, (size_t)_i + 1);
	ck_assert(_i >= 8 || view_u64(&v) != UINT64_MAX);
	ck_assert_int_eq(v.failed, _i < 8);
	if (_i < 8) {
		ck_assert_uint_eq(view_u32(&v), 0);
		ck_assert_uint_eq(view_u64(&v), 0);
		ck_assert_ptr_null(view_bytes(&v, 0));
		ck_assert_ptr_null(view_bytes(&v, 1));
	}
	ck_assert(v.failed == (_i < 8));
	free(p);
}
END_TEST

START_TEST(view_sizes)
{
	struct view v = { (const unsigned char *)"abc", 3, false };

	ck_assert_ptr_null(view_bytes(&v, SIZE_MAX));
	ck_assert(v.failed && v.left == 3);
	v.failed = false;
	ck_assert_ptr_nonnull(view_bytes(&v, 3));
	ck_assert_ptr_null(view_bytes(&v, 1));
	ck_assert(v.failed);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("buf");
	TCase *c = tcase_create("buf");
	SRunner *r = srunner_create(s);
	int failed;

	tcase_set_timeout(c, 60);
	tcase_add_loop_test(c, queue_is_the_model, 0, 8);
	tcase_add_test(c, queue_stays_small);
	tcase_add_test(c, queue_empty);
	tcase_add_test(c, view_reads_in_order);
	tcase_add_loop_test(c, view_failure_is_sticky, 0, 10);
	tcase_add_test(c, view_sizes);
	suite_add_tcase(s, c);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed != 0;
}
