/* agent/pmi/pmix.c: what ranks exchange in PMIx, with those of other hosts and with one
 * of them.
 * takes_s: 3 */
#include "tests/unit/pmix_rig.h"

enum { FENCE = EXCHANGE_PMIX_FENCE, GROUP = EXCHANGE_PMIX_GROUP };

/* ---- records ---- */

static void add_record(struct buf *b, uint32_t withheld, const char *text)
{
	buf_u32(b, withheld);
	buf_u32(b, (uint32_t)strlen(text));
	buf_add(b, text, strlen(text));
}

/* The launcher gets what this host gives. */
static void given_last(uint32_t use, const char *ranks, uint64_t number, uint32_t how,
		       uint32_t withheld, const char *text)
{
	struct buf record = { 0 };
	char *want;

	add_record(&record, withheld, text);
	want = xasprintf("exchange epoch=3 use=%u ranks=[%s] number=%llu last=%u "
			 "data=(%zu bytes)",
			 use, ranks, (unsigned long long)number, how, record.len);
	launcher_hears(want);
	with(buf_head(&record), record.len);
	free(want);
	buf_free(&record);
}

static void given(uint32_t use, const char *ranks, uint64_t number, uint32_t withheld,
		  const char *text)
{
	given_last(use, ranks, number, EXCHANGE_WHOLE, withheld, text);
}

/* ... and what all gave; freed. */
static int all_gave(uint32_t use, wire_u32v ranks, uint64_t number, struct buf *b)
{
	int rc = LAUNCHER(exchange_data, .use = use, .ranks = ranks, .number = number,
			  .last = 1, .serial = 70 + number,
			  .data = { buf_head(b), b->len });

	buf_free(b);
	return rc;
}

static void ends(uint32_t use, wire_u32v ranks, uint64_t number, const char *text)
{
	struct buf b = { 0 };

	add_record(&b, 0, text);
	ck_assert_int_eq(all_gave(use, ranks, number, &b), 0);
}

static void collected(uint32_t id, bool failed, uint64_t serial, const char *text)
{
	char *want = xasprintf("pmix_collected id=%u failed=%u serial=%llu "
			       "data=(%zu bytes)",
			       id, failed, (unsigned long long)serial, strlen(text));

	child_hears(want);
	with(text, strlen(text));
	free(want);
}

#define COLLECT(number, ...) CHILD(pmix_collect, .id = (number), __VA_ARGS__)

static const uint32_t both[] = { 2, 3 }, one[] = { 3 }, far[] = { 2, 4 },
		      more[] = { 2, 3, 4 };
static const wire_u32v all = { NULL, 0 };

/* ---- on one host ---- */

START_TEST(of_one_host)
{
	ready_server(1);
	COLLECT(5, .use = FENCE, .data = { "abc", 3 });
	collected(5, false, 0, "abc");
	COLLECT(6, .use = EXCHANGE_PMIX_CONNECT);
	collected(6, false, 0, "");
	COLLECT(7, .use = FENCE, .withheld = 1, .data = { "abc", 3 });
	collected(7, false, 0, "");
	launcher_hears_nothing();
	close_server();
}
END_TEST

START_TEST(of_local_ranks)
{
	ready_server(2);
	COLLECT(5, .use = FENCE, .ranks = { both, 2 }, .data = { "abc", 3 });
	collected(5, false, 0, "abc");
	COLLECT(6, .use = EXCHANGE_PMIX_DISCONNECT, .ranks = { one, 1 });
	collected(6, false, 0, "");
	launcher_hears_nothing();
	close_server();
}
END_TEST

/* Only the launcher gives numbers that no other group has. */
START_TEST(group_of_local_ranks)
{
	const wire_u32v ranks = { both, 2 };

	ready_server(2);
	COLLECT(5, .use = GROUP, .ranks = ranks, .name = 1000);
	given(GROUP, "2,3", 1000, 0, "");
	child_hears_nothing();
	ends(GROUP, ranks, 1000, "");
	collected(5, false, 1070, "");
	COLLECT(6, .use = GROUP, .ranks = ranks, .name = 1000, .data = { "e", 1 });
	given(GROUP, "2,3", 1001, 0, "e");
	ends(GROUP, ranks, 1001, "e");
	collected(6, false, 1071, "e");
	close_server();
}
END_TEST

/* ---- of several hosts ---- */

/* The records of hosts are joined, wherever parts of them end. */
START_TEST(of_three_hosts)
{
	struct buf b = { 0 };
	const size_t at = (size_t)_i;

	ready_server(3);
	COLLECT(5, .use = FENCE, .data = { "mine", 4 });
	given(FENCE, "", 0, 0, "mine");
	add_record(&b, 0, "first");
	add_record(&b, 0, "");
	add_record(&b, 0, "mine");
	ck_assert_int_eq(
		LAUNCHER(exchange_data, .use = FENCE, .data = { buf_head(&b), at }), 0);
	buf_drop(&b, at);
	child_hears_nothing();
	ck_assert_int_eq(all_gave(FENCE, all, 0, &b), 0);
	collected(5, false, 70, "firstmine");
	close_server();
}
END_TEST

/* Each use, name and list of ranks has its own. */
START_TEST(numbers)
{
	ready_server(3);
	COLLECT(1, .use = FENCE);
	given(FENCE, "", 0, 0, "");
	COLLECT(2, .use = FENCE);
	given(FENCE, "", 1, 0, "");
	COLLECT(3, .use = FENCE, .ranks = { far, 2 });
	given(FENCE, "2,4", 0, 0, "");
	COLLECT(4, .use = FENCE, .ranks = { more, 3 });
	given(FENCE, "2,3,4", 0, 0, "");
	COLLECT(5, .use = EXCHANGE_PMIX_CONNECT, .ranks = { far, 2 });
	given(EXCHANGE_PMIX_CONNECT, "2,4", 0, 0, "");
	COLLECT(6, .use = FENCE, .ranks = { far, 2 });
	given(FENCE, "2,4", 1, 0, "");
	COLLECT(7, .use = GROUP, .ranks = { far, 2 }, .name = 500);
	given(GROUP, "2,4", 500, 0, "");
	COLLECT(8, .use = GROUP, .ranks = { far, 2 }, .name = 900);
	given(GROUP, "2,4", 900, 0, "");
	COLLECT(9, .use = EXCHANGE_PMIX_UNGROUP, .ranks = { far, 2 }, .name = 500);
	given(EXCHANGE_PMIX_UNGROUP, "2,4", 500, 0, "");
	/* in another order */
	ends(FENCE, (wire_u32v){ far, 2 }, 1, "six");
	collected(6, false, 71, "six");
	ends(GROUP, (wire_u32v){ far, 2 }, 900, "eight");
	collected(8, false, 970, "eight");
	ends(FENCE, all, 1, "two");
	collected(2, false, 71, "two");
	ends(FENCE, (wire_u32v){ more, 3 }, 0, "four");
	collected(4, false, 70, "four");
	ends(EXCHANGE_PMIX_CONNECT, (wire_u32v){ far, 2 }, 0, "");
	collected(5, false, 70, "");
	ends(FENCE, all, 0, "one");
	collected(1, false, 70, "one");
	ends(FENCE, (wire_u32v){ far, 2 }, 0, "three");
	collected(3, false, 70, "three");
	COLLECT(10, .use = FENCE);
	given(FENCE, "", 2, 0, "");
	close_server();
}
END_TEST

/* One host's data is too long: nobody gets any. */
START_TEST(withheld)
{
	struct buf b = { 0 };

	ready_server(2);
	COLLECT(5, .use = FENCE, .withheld = (uint32_t)_i, .data = { "x", 1 });
	given(FENCE, "", 0, (uint32_t)_i, "x");
	add_record(&b, !_i, "y");
	add_record(&b, (uint32_t)_i, "x");
	ck_assert_int_eq(all_gave(FENCE, all, 0, &b), 0);
	collected(5, false, 70, "");
	close_server();
}
END_TEST

/* All that one host may give goes in two parts; all of all hosts comes so. */
START_TEST(longest)
{
	char *data = xcalloc(1, EXCHANGE_PMIX_BYTES + 1);
	struct buf b = { 0 };

	memset(data, 'x', EXCHANGE_PMIX_BYTES);
	ready_server(1);
	COLLECT(5, .use = GROUP, .data = { data, EXCHANGE_PMIX_BYTES });
	launcher_hears("exchange epoch=3 use=5 ranks=[] number=0 last=0 "
		       "data=(1048576 bytes)");
	with("xxxxxxxx", 8);
	launcher_hears("exchange epoch=3 use=5 ranks=[] number=0 last=1 "
		       "data=(8 bytes)");
	add_record(&b, 0, data);
	ck_assert_int_eq(LAUNCHER(exchange_data, .use = GROUP,
				  .data = { buf_head(&b), WIRE_PART_MAX }),
			 0);
	buf_drop(&b, WIRE_PART_MAX);
	ck_assert_int_eq(all_gave(GROUP, all, 0, &b), 0);
	collected(5, false, 70, data);
	free(data);
	close_server();
}
END_TEST

/* What is no record, or of no exchange. */
static const struct {
	const char *bytes;
	size_t n;
	uint32_t use;
	uint64_t number;
} wrong[] = {
	{ "\0\0\0\0\0\0\0", 7, FENCE, 0 },
	{ "\0\0\0\0\1\0\0\0", 8, FENCE, 0 },
	{ "\0\0\0\0\2\0\0\0x", 9, FENCE, 0 },
	{ "\0\0\0\0\1\0\0\0xy", 10, FENCE, 0 },
	{ "\0\0\0\0\xff\xff\xff\xff\x78", 9, FENCE, 0 },
	{ "\0\0\0\0\0\0\0\0", 8, FENCE, 1 },
	{ "\0\0\0\0\0\0\0\0", 8, GROUP, 0 },
	{ "\0\0\0\0\0\0\0\0", 8, EXCHANGE_USES, 0 },
};

START_TEST(malformed_data)
{
	struct buf b = { 0 };

	ready_server(2);
	COLLECT(5, .use = FENCE);
	given(FENCE, "", 0, 0, "");
	buf_add(&b, wrong[_i].bytes, wrong[_i].n);
	ck_assert_int_eq(all_gave(wrong[_i].use, all, wrong[_i].number, &b), -1);
	child_hears_nothing();
	close_server();
}
END_TEST

START_TEST(data_that_is_too_long)
{
	const size_t most = EXCHANGE_PMIX_BYTES + 2 * EXCHANGE_PMIX_HEAD;
	char *large = xcalloc(1, most);

	ready_server(2);
	COLLECT(5, .use = FENCE);
	given(FENCE, "", 0, 0, "");
	ck_assert_int_eq(LAUNCHER(exchange_data, .use = FENCE, .data = { large, most }),
			 0);
	ck_assert_int_eq(LAUNCHER(exchange_data, .use = FENCE, .data = { large, 1 }),
			 -1);
	child_hears_nothing();
	free(large);
	close_server();
}
END_TEST

/* ---- that are never complete ---- */

START_TEST(fails)
{
	ready_server(2);
	COLLECT(5, .use = FENCE);
	COLLECT(6, .use = FENCE, .ranks = { far, 1 });
	collected(6, false, 0, "");
	COLLECT(7, .use = FENCE);
	COLLECT(8, .use = FENCE);
	given(FENCE, "", 0, 0, "");
	given(FENCE, "", 1, 0, "");
	given(FENCE, "", 2, 0, "");
	LAUNCHER(exchange_failed, .use = GROUP, .number = 0);
	LAUNCHER(exchange_failed, .use = FENCE, .number = 9);
	LAUNCHER(exchange_failed, .use = FENCE, .ranks = { far, 2 });
	pass(60000);
	child_hears_nothing();
	LAUNCHER(exchange_failed, .use = FENCE, .number = 2);
	collected(8, true, 0, "");
	LAUNCHER(exchange_failed, .use = FENCE, .number = 0);
	collected(5, true, 0, "");
	child_hears_nothing();
	ends(FENCE, all, 1, "seven"); /* that one goes on */
	collected(7, false, 71, "seven");
	LAUNCHER(exchange_failed, .use = FENCE, .number = 2);
	pass(60000);
	child_hears_nothing();
	close_server();
}
END_TEST

/* A rank of this host has ended: the launcher is to fail the exchange. */
START_TEST(lacks_a_rank)
{
	const wire_u32v lists[] = { all, { far, 2 }, { both, 2 } };
	static const char *const texts[] = { "", "2,4", "2,3" };

	ready_server(3);
	COLLECT(5, .use = FENCE, .ranks = lists[_i], .withheld = COLLECT_LACKS_RANK);
	given_last(FENCE, texts[_i], 0, EXCHANGE_LACKS_RANK, 1, "");
	pass(60000);
	child_hears_nothing();
	LAUNCHER(exchange_failed, .use = FENCE, .ranks = lists[_i]);
	collected(5, true, 0, "");
	COLLECT(6, .use = FENCE);
	given(FENCE, "", _i == 0, 0, ""); /* it had a number */
	close_server();
}
END_TEST

/* It died, and libpmix has forgotten it: others may not have heard of it. */
START_TEST(of_local_ranks_with_a_dead_one)
{
	const wire_u32v list = { both, 2 };

	ready_server(3);
	CHILD(pmix_client, .rank = 2, .present = 1);
	server_ended(server, 0, true);
	child_hears("event epoch=3 rank=2 code=4294967096 range=3 info=(0 bytes)");
	launcher_hears("event epoch=3 rank=2 code=4294967096 range=3 info=(0 bytes)");
	COLLECT(5, .use = FENCE, .ranks = list, .data = { "abc", 3 });
	given_last(FENCE, "2,3", 0, EXCHANGE_LACKS_RANK, 1, "");
	LAUNCHER(exchange_failed, .use = FENCE, .ranks = list);
	collected(5, true, 0, "");
	close_server();
}
END_TEST

START_TEST(fails_and_server_is_lost)
{
	ready_server(2);
	COLLECT(5, .use = FENCE);
	given(FENCE, "", 0, 0, "");
	hang_up_child();
	state_is(SERVER_PMIX_LOST, "its process has ended");
	ck_assert_int_eq(LAUNCHER(exchange_data, .use = FENCE, .last = 1), 0);
	LAUNCHER(exchange_failed, .use = FENCE, .number = 0);
	close_server();
}
END_TEST

/* ---- too many ---- */

/* The launcher takes EXCHANGES_MOST of a host, of all kinds. */
START_TEST(too_many_at_once)
{
	const size_t most = EXCHANGES_MOST - EXCHANGES_MOST / 8;

	ready_server(2);
	for (uint32_t i = 0; i < most; i++) {
		COLLECT(i, .use = FENCE);
		given(FENCE, "", i, 0, "");
	}
	child_hears_nothing();
	COLLECT(7777, .use = FENCE);
	collected(7777, true, 0, "");
	COLLECT(7778, .use = FENCE, .ranks = { both, 2 }); /* needs no launcher */
	collected(7778, false, 0, "");
	ends(FENCE, all, 3, "");
	collected(3, false, 73, "");
	COLLECT(7779, .use = FENCE);
	given(FENCE, "", most, 0, "");
	close_server();
}
END_TEST

/* Lists of ranks, and names. */
START_TEST(too_many_names)
{
	enum { MOST = 65536 };
	struct buf frames = { 0 };
	size_t answers = 0;
	char *text;

	ready_server(1);
	for (uint32_t i = 0; i < MOST; i++)
		wire_pack_pmix_collect(&frames,
				       &(struct wire_pmix_collect){
					       .id = i, .use = FENCE, .name = i });
	while (frames.len) {
		struct buf some = { 0 };
		const size_t n = frames.len < 8000 ? frames.len : 8000;

		buf_add(&some, buf_head(&frames), n);
		buf_drop(&frames, n);
		child_sends(&some);
		while ((text = next_of_child())) {
			answers += !!strstr(text, " failed=0 ");
			free(text);
		}
	}
	buf_free(&frames);
	ck_assert_uint_eq(answers, MOST);
	COLLECT(1, .use = FENCE, .name = MOST);
	collected(1, true, 0, "");
	COLLECT(2, .use = FENCE, .name = 77);
	collected(2, false, 0, "");
	close_server();
}
END_TEST

/* A child that does not read its answers gets all of them later. */
START_TEST(reads_late)
{
	enum { N = 8 };
	char *data = xcalloc(1, EXCHANGE_PMIX_BYTES + 1);

	memset(data, 'x', EXCHANGE_PMIX_BYTES);
	ready_server(1);
	for (uint32_t i = 0; i < N; i++) {
		data[EXCHANGE_PMIX_BYTES - 1] = (char)('0' + i);
		COLLECT(i, .use = FENCE, .data = { data, EXCHANGE_PMIX_BYTES });
	}
	for (uint32_t i = 0; i < N; i++) {
		data[EXCHANGE_PMIX_BYTES - 1] = (char)('0' + i);
		collected(i, false, 0, data);
	}
	free(data);
	close_server();
}
END_TEST

int main(void)
{
	Suite *s = suite_create("pmix_collect");
	TCase *c = tcase_create("pmix_collect");

	tcase_add_test(c, of_one_host);
	tcase_add_test(c, of_local_ranks);
	tcase_add_test(c, group_of_local_ranks);
	tcase_add_loop_test(c, of_three_hosts, 0, 33);
	tcase_add_test(c, numbers);
	tcase_add_loop_test(c, withheld, 0, 2);
	tcase_add_test(c, longest);
	tcase_add_loop_test(c, malformed_data, 0, LEN(wrong));
	tcase_add_test(c, data_that_is_too_long);
	tcase_add_test(c, fails);
	tcase_add_loop_test(c, lacks_a_rank, 0, 3);
	tcase_add_test(c, of_local_ranks_with_a_dead_one);
	tcase_add_test(c, fails_and_server_is_lost);
	tcase_add_test(c, too_many_at_once);
	tcase_add_test(c, too_many_names);
	tcase_add_test(c, reads_late);
	suite_add_tcase(s, c);
	return run_all(s);
}
