/* key.h: two sides of one key agree; whatever was changed on the way is refused. */
#include <check.h>

#include "common/key.h"
#include "common/str.h"

static unsigned char key[KEY_BYTES], call[KEY_CALL_BYTES], answer[KEY_ANSWER_BYTES];
static struct key_side agent, runner;
static struct buf wire, plain;

static void setup(void)
{
	ck_assert_int_eq(key_init(), 0);
	key_random(key);
	wire = plain = (struct buf){ 0 };
}

static void teardown(void)
{
	key_forget(&agent);
	key_forget(&runner);
	buf_free(&wire);
	buf_free(&plain);
}

/* The agent calls, runner answers. */
static void agree(void)
{
	key_call(&agent, key, call);
	ck_assert(key_answer(&runner, key, call, answer));
	ck_assert(key_answered(&agent, answer));
}

/* N bytes of which none is like its neighbours. */
static unsigned char *pattern(size_t n)
{
	unsigned char *p = xmalloc(n ? n : 1);

	for (size_t i = 0; i < n; i++)
		p[i] = (unsigned char)(i * 31 + (i >> 8));
	return p;
}

/* What is in PLAIN is the pattern of N bytes; then PLAIN is empty. */
static void is_pattern(size_t n)
{
	unsigned char *want = pattern(n);

	ck_assert_uint_eq(plain.len, n);
	ck_assert(!n || !memcmp(buf_head(&plain), want, n));
	buf_drop(&plain, n);
	free(want);
}

static void seal(struct key_side *from, struct buf *out, size_t n)
{
	unsigned char *p = pattern(n);

	key_seal(from, out, p, n);
	free(p);
}

static const size_t sizes[] = { 0,
				1,
				16,
				17,
				4096,
				KEY_CHUNK_BYTES - 1,
				KEY_CHUNK_BYTES,
				KEY_CHUNK_BYTES + 1,
				3 * KEY_CHUNK_BYTES + 5 };

START_TEST(both_sides_agree)
{
	agree();
	for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
		seal(&agent, &wire, sizes[i]);
		ck_assert_int_eq(key_open(&runner, &wire, &plain), 0);
		is_pattern(sizes[i]);
		seal(&runner, &wire, sizes[i]);
		ck_assert_int_eq(key_open(&agent, &wire, &plain), 0);
		is_pattern(sizes[i]);
		ck_assert_uint_eq(wire.len, 0);
	}
}
END_TEST

/* Nobody on the way reads it, and equal bytes are never equal on the way. */
START_TEST(nothing_is_in_clear)
{
	static const char word[] = "a variable of the user's";
	struct buf first = { 0 };

	agree();
	key_seal(&agent, &first, word, sizeof word);
	key_seal(&agent, &wire, word, sizeof word);
	ck_assert_ptr_null(memmem(buf_head(&first), first.len, word, 8));
	ck_assert_ptr_null(memmem(buf_head(&wire), wire.len, word, 8));
	ck_assert_ptr_null(memmem(call, sizeof call, key, 8));
	ck_assert_ptr_null(memmem(answer, sizeof answer, key, 8));
	ck_assert(memcmp(buf_head(&first) + first.len - sizeof word,
			 buf_head(&wire) + wire.len - sizeof word, sizeof word) != 0);
	buf_free(&first);
}
END_TEST

/* The stream arrives STEP bytes at a time. */
static void arrives_by(size_t step, size_t n)
{
	struct buf in = { 0 };

	seal(&agent, &wire, n);
	while (wire.len) {
		const size_t part = step < wire.len ? step : wire.len;

		buf_add(&in, buf_head(&wire), part);
		buf_drop(&wire, part);
		ck_assert_int_eq(key_open(&runner, &in, &plain), 0);
		ck_assert_uint_le(in.len, KEY_CHUNK_BYTES + 64);
	}
	is_pattern(n);
	ck_assert_uint_eq(in.len, 0);
	buf_free(&in);
}

START_TEST(any_split_opens)
{
	agree();
	for (size_t step = 1; step < 70; step++)
		arrives_by(step, 100);
	arrives_by(1, KEY_CHUNK_BYTES + 1);
	arrives_by(4099, 5 * KEY_CHUNK_BYTES);
}
END_TEST

/* ---- what is refused ---- */

START_TEST(another_key_is_refused)
{
	unsigned char other[KEY_BYTES];

	memcpy(other, key, sizeof other);
	other[KEY_BYTES - 1] ^= 1;
	key_call(&agent, key, call);
	ck_assert(!key_answer(&runner, other, call, answer));
	key_call(&agent, other, call);
	ck_assert(key_answer(&runner, other, call, answer));
	key_call(&agent, key, call);
	ck_assert(!key_answered(&agent, answer));
}
END_TEST

START_TEST(a_changed_call_is_refused)
{
	key_call(&agent, key, call);
	for (size_t bit = 0; bit < 8 * sizeof call; bit++) {
		call[bit / 8] ^= (unsigned char)(1 << bit % 8);
		ck_assert(!key_answer(&runner, key, call, answer));
		call[bit / 8] ^= (unsigned char)(1 << bit % 8);
	}
	ck_assert(key_answer(&runner, key, call, answer));
}
END_TEST

START_TEST(a_changed_answer_is_refused)
{
	key_call(&agent, key, call);
	ck_assert(key_answer(&runner, key, call, answer));
	for (size_t bit = 0; bit < 8 * sizeof answer; bit++) {
		answer[bit / 8] ^= (unsigned char)(1 << bit % 8);
		ck_assert(!key_answered(&agent, answer));
		answer[bit / 8] ^= (unsigned char)(1 << bit % 8);
	}
	ck_assert(key_answered(&agent, answer));
}
END_TEST

/* An answer to another call, as one that was recorded. */
START_TEST(an_old_answer_is_refused)
{
	agree();
	key_call(&agent, key, call);
	ck_assert(!key_answered(&agent, answer));
	memcpy(answer, call + 8, sizeof answer); /* the call itself, sent back */
	ck_assert(!key_answered(&agent, answer));
}
END_TEST

/* One flipped bit anywhere in what was sealed: its chunk is not opened, and it is not
 * taken for a longer one that may still come, unless the length itself was changed. */
START_TEST(a_changed_stream_is_refused)
{
	enum { HEADER = 24, LENGTH = 4 };
	struct buf sealed = { 0 };

	agree();
	seal(&agent, &sealed, 40);
	for (size_t bit = 0; bit < 8 * sealed.len; bit++) {
		const size_t at = bit / 8;
		struct key_side s = runner;
		int rc;

		buf_add(&wire, buf_head(&sealed), sealed.len);
		buf_head(&wire)[at] ^= (unsigned char)(1 << bit % 8);
		rc = key_open(&s, &wire, &plain);
		if (at < HEADER || at >= HEADER + LENGTH)
			ck_assert_int_eq(rc, -1);
		ck_assert_uint_eq(plain.len, 0);
		buf_drop(&wire, wire.len);
	}
	ck_assert_int_eq(key_open(&runner, &sealed, &plain), 0);
	is_pattern(40);
	buf_free(&sealed);
}
END_TEST

/* A call that was recorded gets an answer, but no secret: what was recorded after it
 * cannot be opened. */
START_TEST(a_replayed_stream_is_refused)
{
	struct buf again = { 0 };

	agree();
	seal(&agent, &wire, 100);
	buf_add(&again, buf_head(&wire), wire.len);
	ck_assert_int_eq(key_open(&runner, &wire, &plain), 0);
	is_pattern(100);
	ck_assert(key_answer(&runner, key, call, answer));
	ck_assert_int_eq(key_open(&runner, &again, &plain), -1);
	ck_assert_uint_eq(plain.len, 0);
	buf_free(&again);
}
END_TEST

START_TEST(a_repeated_chunk_is_refused)
{
	struct buf chunk = { 0 };

	agree();
	seal(&agent, &wire, 5);
	ck_assert_int_eq(key_open(&runner, &wire, &plain), 0);
	is_pattern(5);
	seal(&agent, &chunk, 7);
	buf_add(&wire, buf_head(&chunk), chunk.len);
	ck_assert_int_eq(key_open(&runner, &wire, &plain), 0);
	is_pattern(7);
	ck_assert_int_eq(key_open(&runner, &chunk, &plain), -1);
	buf_free(&chunk);
}
END_TEST

START_TEST(a_left_out_chunk_is_noticed)
{
	agree();
	seal(&agent, &wire, 5);
	ck_assert_int_eq(key_open(&runner, &wire, &plain), 0);
	is_pattern(5);
	seal(&agent, &wire, 6);
	buf_drop(&wire, wire.len);
	seal(&agent, &wire, 7);
	ck_assert_int_eq(key_open(&runner, &wire, &plain), -1);
	ck_assert_uint_eq(plain.len, 0);
}
END_TEST

/* Each side's own bytes, sent back to it. */
START_TEST(a_reflected_stream_is_refused)
{
	agree();
	seal(&agent, &wire, 100);
	ck_assert_int_eq(key_open(&agent, &wire, &plain), -1);
	buf_drop(&wire, wire.len);
	seal(&runner, &wire, 100);
	ck_assert_int_eq(key_open(&runner, &wire, &plain), -1);
	ck_assert_uint_eq(plain.len, 0);
}
END_TEST

/* The length of a chunk comes before its proof: no other than these is waited for. */
static const struct length_case {
	uint32_t length;
	int rc;
} lengths[] = {
	{ 0, -1 },
	{ 1, -1 },
	{ 16, -1 },
	{ 17, -1 }, /* it would be empty */
	{ 18, 0 },
	{ KEY_CHUNK_BYTES + 17, 0 },
	{ KEY_CHUNK_BYTES + 18, -1 },
	{ UINT32_MAX, -1 },
};

START_TEST(a_wrong_length_is_refused_at_once)
{
	const struct length_case *k = &lengths[_i];

	agree();
	seal(&agent, &wire, 1);
	ck_assert_int_eq(key_open(&runner, &wire, &plain), 0);
	buf_drop(&plain, 1);
	buf_u32(&wire, k->length);
	ck_assert_int_eq(key_open(&runner, &wire, &plain), k->rc);
	ck_assert_uint_eq(wire.len, 4);
	buf_add(&wire, (const unsigned char[18]){ 0 }, 18);
	ck_assert_int_eq(key_open(&runner, &wire, &plain),
			 k->length <= 18 ? -1 : k->rc);
	ck_assert_uint_eq(plain.len, 0);
}
END_TEST

START_TEST(forgets_all)
{
	static const struct key_side none;

	agree();
	key_forget(&agent);
	ck_assert(!memcmp(&agent, &none, sizeof none));
}
END_TEST

int main(void)
{
	Suite *s = suite_create("key");
	TCase *c = tcase_create("key");
	SRunner *r = srunner_create(s);
	int failed;

	tcase_set_timeout(c, 60);
	tcase_add_checked_fixture(c, setup, teardown);
	tcase_add_test(c, both_sides_agree);
	tcase_add_test(c, nothing_is_in_clear);
	tcase_add_test(c, any_split_opens);
	tcase_add_test(c, another_key_is_refused);
	tcase_add_test(c, a_changed_call_is_refused);
	tcase_add_test(c, a_changed_answer_is_refused);
	tcase_add_test(c, an_old_answer_is_refused);
	tcase_add_test(c, a_changed_stream_is_refused);
	tcase_add_test(c, a_replayed_stream_is_refused);
	tcase_add_test(c, a_repeated_chunk_is_refused);
	tcase_add_test(c, a_left_out_chunk_is_noticed);
	tcase_add_test(c, a_reflected_stream_is_refused);
	tcase_add_loop_test(c, a_wrong_length_is_refused_at_once, 0,
			    sizeof lengths / sizeof *lengths);
	tcase_add_test(c, forgets_all);
	suite_add_tcase(s, c);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed != 0;
}
