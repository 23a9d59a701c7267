/* sealed.h: bytes both ways, a side that does not read, handlers that close.
 * takes_s: 2 */
#include "sealed_rig.h"

static struct far far;
static struct sealed_key *door_key;
static struct sealed *stream;
static struct buf got;
static size_t writables, ends;
static bool close_at_bytes, close_at_writable, keep_ended;
static size_t descriptors;

static void close_stream(void)
{
	if (stream)
		sealed_close(stream);
	stream = NULL;
}

static void on_bytes(void *ctx, const void *data, size_t n)
{
	ck_assert_ptr_eq(ctx, &far);
	buf_add(&got, data, n);
	if (close_at_bytes)
		close_stream();
}

static void on_writable(void *ctx)
{
	ck_assert_ptr_eq(ctx, &far);
	writables++;
	if (close_at_writable)
		close_stream();
}

static void on_ended(void *ctx, const struct transport_end *end)
{
	ck_assert_ptr_eq(ctx, &far);
	ck_assert_int_eq(end->status, -1);
	ck_assert_str_eq(end->said, "");
	ends++;
	if (!keep_ended)
		close_stream();
}

static const struct transport_events events = { on_bytes, on_writable, on_ended };

static void setup(void)
{
	int pair[2];

	rig_open();
	descriptors = count_descriptors();
	ck_assert(!socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0,
			      pair));
	far = (struct far){ .fd = pair[1] };
	door_key = sealed_key_make(key);
	stream = sealed_accept(base, pair[0], door_key, &events, &far);
	writables = ends = 0;
	close_at_bytes = close_at_writable = keep_ended = false;
}

static void teardown(void)
{
	close_stream();
	sealed_key_free(door_key);
	far_free(&far);
	buf_free(&got);
	ck_assert_uint_eq(count_descriptors(), descriptors);
	event_base_free(base);
}

static void prove(void)
{
	far_call(&far);
	far_take_answer(&far);
}

static bool got_all(void *arg)
{
	return got.len >= *(size_t *)arg;
}

static bool has_ended(void *arg)
{
	(void)arg;
	return ends;
}

static bool is_closed(void *arg)
{
	(void)arg;
	return !stream;
}

START_TEST(bytes_go_both_ways)
{
	size_t n = 3;

	prove();
	far_say(&far, "abc", 3);
	rig_until(got_all, &n);
	ck_assert(!memcmp(buf_head(&got), "abc", 3));
	ck_assert_uint_eq(sealed_send(stream, "xyz", 3), 3);
	rig_turn();
	far_hear(&far);
	ck_assert_uint_eq(far.plain.len, 3);
	ck_assert(!memcmp(buf_head(&far.plain), "xyz", 3));
}
END_TEST

/* The call and the answer, one byte at a time; then what follows, too. */
START_TEST(any_split_is_taken)
{
	struct buf sealed = { 0 };
	size_t n = 5;

	key_call(&far.side, key, far.call);
	for (size_t i = 0; i < sizeof far.call; i++) {
		ck_assert_uint_eq(far.in.len, 0);
		far_write(&far, far.call + i, 1);
		rig_turn();
		far_read(&far);
	}
	far_take_answer(&far);
	key_seal(&far.side, &sealed, "hello", 5);
	for (size_t i = 0; i < sealed.len; i++) {
		ck_assert_uint_eq(got.len, 0);
		far_write(&far, buf_head(&sealed) + i, 1);
		rig_turn();
	}
	buf_free(&sealed);
	rig_until(got_all, &n);
}
END_TEST

/* The launcher waits for room, and is told once there is some; nothing is lost. */
START_TEST(a_side_that_does_not_read)
{
	enum { BLOCK = 100000, MOST = 8 << 20 };
	unsigned char *block = xmalloc(BLOCK);
	size_t sent = 0, n, heard = 0;

	for (size_t i = 0; i < BLOCK; i++)
		block[i] = (unsigned char)(i % 251);
	prove();
	do {
		n = sealed_send(stream, block, BLOCK);
		sent += n;
		rig_turn();
	} while (n == BLOCK && sent < MOST);
	ck_assert_uint_lt(n, BLOCK);
	ck_assert_uint_eq(sealed_send(stream, block, BLOCK), 0);
	rig_turn();
	writables = 0;
	for (const uint64_t late = clock_ms() + RIG_PATIENCE_MS; heard < sent;) {
		ck_assert_uint_lt(clock_ms(), late);
		rig_turn();
		far_hear(&far);
		for (size_t i = 0; i < far.plain.len; i++, heard++)
			ck_assert_uint_eq(buf_head(&far.plain)[i], heard % BLOCK % 251);
		buf_drop(&far.plain, far.plain.len);
	}
	ck_assert_uint_gt(writables, 0);
	ck_assert_uint_eq(sealed_send(stream, block, BLOCK), BLOCK);
	free(block);
}
END_TEST

START_TEST(the_end_is_told_once)
{
	prove();
	far_say(&far, "abc", 3);
	close(far.fd);
	far.fd = -1;
	rig_until(has_ended, NULL);
	rig_turn();
	ck_assert_uint_eq(ends, 1);
	ck_assert_uint_eq(got.len, 3); /* what came before comes first */
}
END_TEST

START_TEST(changed_bytes_end_it)
{
	struct buf sealed = { 0 };

	prove();
	key_seal(&far.side, &sealed, "abc", 3);
	buf_head(&sealed)[sealed.len - 1] ^= 1;
	far_write(&far, buf_head(&sealed), sealed.len);
	buf_free(&sealed);
	rig_until(has_ended, NULL);
	ck_assert_uint_eq(got.len, 0);
	rig_until(far_has_ended, &far);
}
END_TEST

/* Its bytes count as taken, and no writable() comes. */
START_TEST(sends_after_the_end)
{
	static const char zeros[4 << 20];

	prove();
	keep_ended = true;
	far_say(&far, "abc", 3);
	far_write(&far, zeros, 100); /* none of a chunk's */
	rig_until(has_ended, NULL);
	ck_assert_uint_eq(sealed_send(stream, zeros, sizeof zeros), sizeof zeros);
	far_read(&far);
	rig_turn();
	ck_assert_uint_eq(writables, 0);
	ck_assert_uint_eq(ends, 1);
}
END_TEST

/* A sender may not see at once that the other end has gone. */
START_TEST(sends_to_one_that_is_gone)
{
	static const char zeros[1 << 20];

	prove();
	close(far.fd);
	far.fd = -1;
	for (int i = 0; i < 10; i++)
		sealed_send(stream, zeros, sizeof zeros);
	rig_until(has_ended, NULL);
	ck_assert_uint_eq(ends, 1);
}
END_TEST

START_TEST(may_be_closed_from_bytes)
{
	prove();
	close_at_bytes = true;
	far_say(&far, "abc", 3);
	far_say(&far, "def", 3);
	rig_until(is_closed, NULL);
	rig_turn();
	ck_assert_uint_eq(ends, 0);
	rig_until(far_has_ended, &far);
}
END_TEST

START_TEST(may_be_closed_from_writable)
{
	static const char zeros[4 << 20];

	prove();
	close_at_writable = true;
	ck_assert_uint_lt(sealed_send(stream, zeros, sizeof zeros), sizeof zeros);
	for (const uint64_t late = clock_ms() + RIG_PATIENCE_MS; stream;) {
		ck_assert_uint_lt(clock_ms(), late);
		far_read(&far);
		rig_turn();
	}
	ck_assert_uint_eq(ends, 0);
}
END_TEST

/* Closed in the turn in which both bytes and room have come. */
START_TEST(may_be_closed_with_events_pending)
{
	static const char zeros[4 << 20];

	prove();
	sealed_send(stream, zeros, sizeof zeros);
	far_read(&far);
	far_say(&far, "abc", 3);
	close_at_bytes = close_at_writable = true;
	for (const uint64_t late = clock_ms() + RIG_PATIENCE_MS; stream;) {
		ck_assert_uint_lt(clock_ms(), late);
		far_read(&far);
		rig_turn();
	}
	rig_turn();
	ck_assert_uint_eq(ends, 0);
}
END_TEST

/* Before the proof nothing is passed on, nor answered. */
START_TEST(garbage_is_not_passed_on)
{
	unsigned char garbage[4096];

	memset(garbage, 'x', sizeof garbage);
	far_write(&far, garbage, KEY_CALL_BYTES - 1);
	rig_turn();
	rig_turn();
	ck_assert_uint_eq(ends, 0);
	far_write(&far, garbage, sizeof garbage);
	rig_until(has_ended, NULL);
	ck_assert_uint_eq(got.len, 0);
	ck_assert(far_has_ended(&far));
	ck_assert_uint_eq(far.in.len, 0);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("sealed");
	TCase *c = tcase_create("sealed");
	SRunner *r = srunner_create(s);
	int failed;

	tcase_set_timeout(c, 60);
	tcase_add_checked_fixture(c, setup, teardown);
	tcase_add_test(c, bytes_go_both_ways);
	tcase_add_test(c, any_split_is_taken);
	tcase_add_test(c, a_side_that_does_not_read);
	tcase_add_test(c, the_end_is_told_once);
	tcase_add_test(c, changed_bytes_end_it);
	tcase_add_test(c, sends_after_the_end);
	tcase_add_test(c, sends_to_one_that_is_gone);
	tcase_add_test(c, may_be_closed_from_bytes);
	tcase_add_test(c, may_be_closed_from_writable);
	tcase_add_test(c, may_be_closed_with_events_pending);
	tcase_add_test(c, garbage_is_not_passed_on);
	suite_add_tcase(s, c);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed != 0;
}
