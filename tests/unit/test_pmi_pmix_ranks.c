/* agent/pmi/pmix.c: ranks that ask for what another has put, come and go, abort, speak
 * and end; names and events on their way to the launcher.
 * takes_s: 3 */
#include "tests/unit/pmix_rig.h"

static const char *const between = "exited with status 0 between MPI_Init and "
				   "MPI_Finalize";

static void comes(uint32_t rank)
{
	CHILD(pmix_client, .rank = rank, .present = 1);
}

static void leaves(uint32_t rank)
{
	CHILD(pmix_client, .rank = rank, .present = 0);
}

/* ---- what a rank has put ---- */

START_TEST(asked_of_another_host)
{
	ready_server(2);
	CHILD(modex_request, .id = 7, .rank = 0);
	launcher_hears("modex_request epoch=3 rank=0 host=0 id=7");
	CHILD(modex_request, .id = 8, .rank = 1);
	launcher_hears("modex_request epoch=3 rank=1 host=0 id=8");
	child_hears_nothing();
	LAUNCHER(modex_data, .host = 1, .id = 8, .data = { "abc", 3 });
	child_hears("modex_data epoch=3 host=1 id=8 failed=0 data=(3 bytes)");
	with("abc", 3);
	LAUNCHER(modex_data, .host = 1, .id = 7, .failed = 1);
	child_hears("modex_data epoch=3 host=1 id=7 failed=1 data=(0 bytes)");
	close_server();
}
END_TEST

/* There is no such rank elsewhere. */
START_TEST(asked_of_nobody)
{
	static const uint32_t ranks[] = { 2, 3, 4, UINT32_MAX };

	ready_server(2);
	for (int i = 0; i < LEN(ranks); i++) {
		CHILD(modex_request, .id = 7, .rank = ranks[i]);
		child_hears("modex_data epoch=0 host=0 id=7 failed=1 data=(0 bytes)");
	}
	launcher_hears_nothing();
	close_server();
}
END_TEST

START_TEST(asked_by_others)
{
	ready_server(3);
	LAUNCHER(modex_request, .rank = 3, .host = 2, .id = 40);
	child_hears("modex_request epoch=0 rank=3 host=0 id=1");
	LAUNCHER(modex_request, .rank = 2, .host = 0, .id = 40);
	child_hears("modex_request epoch=0 rank=2 host=0 id=2");
	LAUNCHER(modex_request, .rank = 3, .host = 0, .id = 41);
	child_hears("modex_request epoch=0 rank=3 host=0 id=3");
	CHILD(modex_data, .id = 2, .data = { "two", 3 });
	launcher_hears("modex_data epoch=3 host=0 id=40 failed=0 data=(3 bytes)");
	with("two", 3);
	CHILD(modex_data, .id = 2, .data = { "two", 3 }); /* once more */
	CHILD(modex_data, .id = 9);
	launcher_hears_nothing();
	CHILD(modex_data, .id = 1, .failed = 1);
	launcher_hears("modex_data epoch=3 host=2 id=40 failed=1 data=(0 bytes)");
	CHILD(modex_data, .id = 3, .data = { "x", 1 });
	launcher_hears("modex_data epoch=3 host=0 id=41 failed=0 data=(1 bytes)");
	close_server();
}
END_TEST

START_TEST(asked_in_vain)
{
	const char *none = "modex_data epoch=3 host=0 id=4 failed=1 data=(0 bytes)";

	open_child(2);
	LAUNCHER(modex_request, .rank = 2, .id = 4); /* it is not ready */
	launcher_hears(none);
	start_child();
	free(next_of_child());
	LAUNCHER(modex_request, .rank = 2, .id = 4);
	LAUNCHER(modex_data, .host = 1, .id = 4);
	launcher_hears(none);
	CHILD(pmix_ready, .counts = { (const uint32_t[]){ 0, 0 }, 2 });
	LAUNCHER(modex_request, .rank = 1, .id = 4); /* another host's */
	launcher_hears(none);
	LAUNCHER(modex_request, .rank = 99, .id = 4);
	launcher_hears(none);
	child_hears_nothing();
	hang_up_child();
	LAUNCHER(modex_request, .rank = 2, .id = 4);
	launcher_hears(none);
	LAUNCHER(modex_data, .host = 1, .id = 4);
	close_server();
}
END_TEST

/* A rank has ended, and others ask for what it has put. */
START_TEST(asked_of_one_that_ended)
{
	ready_server(2);
	comes(3);
	leaves(3);
	LAUNCHER(modex_request, .rank = 2, .host = 0, .id = 4);
	LAUNCHER(modex_request, .rank = 3, .host = 0, .id = 5);
	LAUNCHER(modex_request, .rank = 2, .host = 0, .id = 6);
	child_hears("modex_request epoch=0 rank=2 host=0 id=1");
	child_hears("modex_request epoch=0 rank=3 host=0 id=2");
	child_hears("modex_request epoch=0 rank=2 host=0 id=3");
	ck_assert_ptr_null(server_ended(server, 0, true)); /* rank 2 never came */
	launcher_hears("modex_data epoch=3 host=0 id=6 failed=1 data=(0 bytes)");
	launcher_hears("modex_data epoch=3 host=0 id=4 failed=1 data=(0 bytes)");
	launcher_hears_nothing();
	CHILD(modex_data, .id = 1, .data = { "x", 1 }); /* too late */
	launcher_hears_nothing();
	CHILD(modex_data, .id = 2, .data = { "x", 1 });
	launcher_hears("modex_data epoch=3 host=0 id=5 failed=0 data=(1 bytes)");
	LAUNCHER(modex_request, .rank = 2, .host = 0, .id = 7);
	launcher_hears("modex_data epoch=3 host=0 id=7 failed=1 data=(0 bytes)");
	ck_assert_ptr_null(server_ended(server, 1, false));
	LAUNCHER(modex_request, .rank = 3, .host = 0,
		 .id = 8); /* what it put is there */
	child_hears("modex_request epoch=0 rank=3 host=0 id=4");
	close_server();
}
END_TEST

/* It has put nothing, or not all: libpmix waits for it on and on. */
START_TEST(asked_of_one_that_never_put)
{
	ready_server(2);
	comes(3);
	leaves(3);
	server_ended(server, 1, false);                         /* rank 3 */
	LAUNCHER(modex_request, .rank = 2, .host = 0, .id = 3); /* it runs */
	child_hears("modex_request epoch=0 rank=2 host=0 id=1");
	LAUNCHER(modex_request, .rank = 3, .host = 0, .id = 4);
	LAUNCHER(modex_request, .rank = 3, .host = 0, .id = 5);
	child_hears("modex_request epoch=0 rank=3 host=0 id=2");
	child_hears("modex_request epoch=0 rank=3 host=0 id=3");
	CHILD(modex_data, .id = 3, .data = { "x", 1 });
	launcher_hears("modex_data epoch=3 host=0 id=5 failed=0 data=(1 bytes)");
	pass(2000);
	LAUNCHER(modex_request, .rank = 3, .host = 0, .id = 6);
	child_hears("modex_request epoch=0 rank=3 host=0 id=4");
	launcher_hears_nothing();
	pass(1999);
	launcher_hears_nothing();
	pass(1);
	launcher_hears("modex_data epoch=3 host=0 id=4 failed=1 data=(0 bytes)");
	launcher_hears_nothing();
	pass(2000);
	launcher_hears("modex_data epoch=3 host=0 id=6 failed=1 data=(0 bytes)");
	pass(60000);
	launcher_hears_nothing();
	close_server();
}
END_TEST

/* libpmix has forgotten it. */
START_TEST(asked_of_one_that_died)
{
	ready_server(2);
	comes(3);
	server_ended(server, 1, true); /* rank 3 */
	child_hears("event epoch=3 rank=3 code=4294967096 range=3 info=(0 bytes)");
	launcher_hears("event epoch=3 rank=3 code=4294967096 range=3 info=(0 bytes)");
	LAUNCHER(modex_request, .rank = 3, .host = 0, .id = 4);
	launcher_hears("modex_data epoch=3 host=0 id=4 failed=1 data=(0 bytes)");
	child_hears_nothing();
	close_server();
}
END_TEST

/* 65536 wait at a time. */
START_TEST(asked_too_often)
{
	enum { MOST = 65536 };
	char *text;
	size_t n = 0;

	ready_server(2);
	for (uint32_t i = 0; i < MOST; i++) {
		struct buf b = { 0 };
		struct wire_frame f;

		wire_pack_modex_request(&b, &(struct wire_modex_request){ 3, 2, 0, i });
		wire_next_from(WIRE_LAUNCHER, &f, buf_head(&b), b.len, NULL);
		ck_assert_int_eq(server_frame(server, &f, NULL), 0);
		buf_free(&b);
	}
	while ((text = next_of_child())) {
		n++;
		free(text);
	}
	ck_assert_uint_eq(n, MOST);
	launcher_hears_nothing();
	LAUNCHER(modex_request, .rank = 2, .id = 5);
	launcher_hears("modex_data epoch=3 host=0 id=5 failed=1 data=(0 bytes)");
	CHILD(modex_data, .id = 77);
	launcher_hears("modex_data epoch=3 host=0 id=76 failed=0 data=(0 bytes)");
	LAUNCHER(modex_request, .rank = 2, .id = 5);
	child_hears("modex_request epoch=0 rank=2 host=0 id=65537");
	close_server();
}
END_TEST

/* ---- ranks come and go ---- */

START_TEST(who_is_present)
{
	ready_server(2);
	ck_assert(!server_pmix_in_use(server));
	comes(99);
	comes(0);
	ck_assert(!server_pmix_in_use(server));
	comes(2);
	ck_assert(server_pmix_in_use(server));
	comes(3);
	leaves(2);
	ck_assert(server_pmix_in_use(server));
	leaves(3);
	ck_assert(!server_pmix_in_use(server));
	comes(3);
	ck_assert(server_pmix_in_use(server));
	ck_assert_str_eq(server_ended(server, 1, true), between);
	ck_assert(!server_pmix_in_use(server));
	child_hears("event epoch=3 rank=3 code=4294967096 range=3 info=(0 bytes)");
	launcher_hears("event epoch=3 rank=3 code=4294967096 range=3 info=(0 bytes)");
	close_server();
}
END_TEST

/* What rank 2 does before it ends: c: it comes, l: it leaves. */
static const struct {
	const char *does;
	bool failed, dies;
} deaths[] = {
	{ "", false, false },   { "", true, false },      { "c", false, true },
	{ "c", true, true },    { "cl", false, false },   { "cl", true, false },
	{ "clc", false, true }, { "clcl", false, false },
};

/* Its last words are read though the loop has not turned. */
START_TEST(deaths_are_told)
{
	const uint32_t nodes = 1 + (_i & 1), rank = nodes > 1 ? 2 : 0;
	struct buf frames = { 0 };
	const char *why;
	char *want;

	_i /= 2;
	ready_server(nodes);
	for (const char *p = deaths[_i].does; *p; p++)
		wire_pack_pmix_client(&frames,
				      &(struct wire_pmix_client){ rank, *p == 'c' });
	ck_assert_int_eq(send(child_fd, buf_head(&frames), frames.len, 0),
			 (ssize_t)frames.len);
	buf_free(&frames);
	why = server_ended(server, 0, deaths[_i].failed);
	ck_assert_pstr_eq(why, deaths[_i].dies ? between : NULL);
	if (deaths[_i].dies) {
		want = xasprintf("event epoch=3 rank=%u code=4294967096 range=3 "
				 "info=(0 bytes)",
				 rank);
		child_hears(want);
		free(want);
	}
	if (deaths[_i].dies && nodes > 1)
		launcher_hears("event epoch=3 rank=2 code=4294967096 range=3 "
			       "info=(0 bytes)");
	launcher_hears_nothing();
	child_hears_nothing();
	close_server();
}
END_TEST

START_TEST(lost_while_in_use)
{
	size_t local;
	int code;
	const char *text;

	ready_server(2);
	comes(2);
	CHILD(pmix_abort, .rank = 3, .status = 4, .text = "");
	hang_up_child();
	state_is(SERVER_PMIX_LOST, "its process has ended");
	ck_assert(server_pmix_in_use(server));
	ck_assert(server_ends(server, &local));
	ck_assert(server_aborted(server, 1, &code, &text));
	ck_assert_str_eq(server_ended(server, 0, false), between);
	ck_assert(!server_pmix_in_use(server));
	launcher_hears_nothing();
	pass(60000);
	close_server();
}
END_TEST

/* ---- ranks that never come ---- */

static void launcher_is_told(uint32_t rank, int waiting)
{
	char *want =
		xasprintf("absent epoch=3 use=2 rank=%u waiting=%d", rank, waiting);

	settle_all();
	launcher_hears(want);
	free(want);
}

/* The other waits, from before it ended or since: the launcher is told at once, and
 * decides. */
START_TEST(absent)
{
	size_t local = 9;

	ready_server(_i & 1 ? 2 : 1);
	if (_i & 2)
		comes(job.ranks.v[0]);
	launcher_hears_nothing();
	ck_assert_ptr_null(server_ended(server, 1, false));
	if (!(_i & 2)) {
		launcher_hears_nothing();
		comes(job.ranks.v[0]);
	}
	launcher_is_told(job.ranks.v[1], 1);
	pass(60000);
	ck_assert(!server_ends(server, &local));
	LAUNCHER(exchange_failed, .use = EXCHANGE_PMIX_FENCE, .number = 0);
	ck_assert(server_ends(server, &local));
	ck_assert_uint_eq(local, 0);
	ck_assert(!server_ends(server, &local));
	launcher_hears_nothing();
	child_hears_nothing();
	close_server();
}
END_TEST

/* Nobody waits for it any more: those who are there have had a fence, have left, have
 * ended, or the server has. */
START_TEST(absent_and_not_missed)
{
	size_t local;

	ready_server(1);
	comes(0);
	ck_assert_ptr_null(server_ended(server, 1, false));
	launcher_is_told(1, 1);
	switch (_i) {
	case 0:
		CHILD(pmix_collect, .id = 1, .use = EXCHANGE_PMIX_FENCE,
		      .ranks = { (const uint32_t[]){ 0 }, 1 });
		child_hears("pmix_collected id=1 failed=0 serial=0 data=(0 bytes)");
		break;
	case 1:
		leaves(0);
		break;
	case 2:
		ck_assert_ptr_nonnull(server_ended(server, 0, false));
		child_hears("event epoch=3 rank=0 code=4294967096 range=3 "
			    "info=(0 bytes)");
		break;
	default:
		hang_up_child();
	}
	launcher_is_told(1, 0);
	LAUNCHER(exchange_failed, .use = EXCHANGE_PMIX_FENCE, .number = 0);
	ck_assert(!server_ends(server, &local));
	launcher_hears_nothing();
	close_server();
}
END_TEST

/* A fence of others does not count; an exchange that ended does. */
START_TEST(absent_after_an_exchange)
{
	static const uint32_t far[] = { 2, 4 };
	struct buf none = { 0 };

	ready_server(3);
	comes(2);
	buf_u64(&none, 0);
	CHILD(pmix_collect, .id = 1, .use = EXCHANGE_PMIX_FENCE, .ranks = { far, 2 });
	launcher_hears("exchange epoch=3 use=2 ranks=[2,4] number=0 last=1 "
		       "data=(8 bytes)");
	ck_assert_ptr_null(server_ended(server, 1, false));
	launcher_is_told(3, 1);
	ck_assert_int_eq(LAUNCHER(exchange_data, .use = EXCHANGE_PMIX_FENCE,
				  .ranks = { far, 2 }, .last = 1,
				  .data = { buf_head(&none), none.len }),
			 0);
	buf_free(&none);
	child_hears("pmix_collected id=1 failed=0 serial=0 data=(0 bytes)");
	launcher_is_told(3, 0);
	comes(2); /* in MPI_Init once more */
	launcher_is_told(3, 1);
	close_server();
}
END_TEST

/* ---- abort ---- */

START_TEST(aborts)
{
	size_t local = 9;
	const char *text;
	uint64_t before_ns, first_ns;
	int code = 9;

	ready_server(2);
	ck_assert(!server_ends(server, &local));
	before_ns = clock_ns();
	CHILD(pmix_abort, .rank = 3, .status = 7, .text = "N/A");
	first_ns = server_aborted(server, 1, &code, &text);
	ck_assert_uint_ge(first_ns, before_ns);
	ck_assert_uint_le(first_ns, clock_ns());
	CHILD(pmix_abort, .rank = 3, .status = 8, .text = "second");
	CHILD(pmix_abort, .rank = 0, .status = 8, .text = "another host's");
	CHILD(pmix_abort, .rank = 99, .status = 8, .text = "nobody's");
	ck_assert(server_ends(server, &local));
	ck_assert_uint_eq(local, 1);
	ck_assert(!server_ends(server, &local));
	CHILD(pmix_abort, .rank = 3, .status = 9, .text = "third");
	ck_assert(!server_ends(server, &local));
	CHILD(pmix_abort, .rank = 2, .status = UINT32_MAX, .text = "a\nb\033[1mc");
	ck_assert(server_ends(server, &local));
	ck_assert_uint_eq(local, 0);
	ck_assert(!server_ends(server, &local));
	ck_assert_uint_eq(server_aborted(server, 1, &code, &text), first_ns);
	ck_assert_int_eq(code, 7);
	ck_assert_str_eq(text, "");
	ck_assert(server_aborted(server, 0, &code, &text));
	ck_assert_int_eq(code, -1);
	ck_assert_ptr_null(strpbrk(text, "\n\033"));
	ck_assert_int_eq(*text, 'a');
	close_server();
}
END_TEST

/* Two at once, of whom nobody has asked yet; one is read when its rank has ended. */
START_TEST(aborts_at_the_end)
{
	struct buf frame = { 0 };
	size_t local;
	const char *text;
	int code = 9;

	ready_server(1);
	CHILD(pmix_abort, .rank = 1, .status = 1, .text = "one");
	wire_pack_pmix_abort(&frame, &(struct wire_pmix_abort){ 0, 5, "zero" });
	ck_assert_int_eq(send(child_fd, buf_head(&frame), frame.len, 0),
			 (ssize_t)frame.len);
	buf_free(&frame);
	ck_assert(!server_aborted(server, 0, &code, &text));
	ck_assert_str_eq(text, "");
	ck_assert_ptr_null(server_ended(server, 0, true));
	ck_assert(server_aborted(server, 0, &code, &text));
	ck_assert_int_eq(code, 5);
	ck_assert_str_eq(text, "zero");
	ck_assert(server_ends(server, &local) && local == 0);
	ck_assert(server_ends(server, &local) && local == 1);
	ck_assert(!server_ends(server, &local));
	close_server();
}
END_TEST

/* ---- log ---- */

static void says(const char *text, size_t local, uint32_t stream)
{
	size_t who = 9;
	uint32_t where = 9;

	ck_assert_pstr_eq(server_says(server, &who, &where), text);
	if (!text)
		return;
	ck_assert_uint_eq(who, local);
	ck_assert_uint_eq(where, stream);
	server_said(server);
}

START_TEST(logs)
{
	ready_server(2);
	says(NULL, 0, 0);
	CHILD(pmix_log, .rank = 3, .stream = 1, .text = "one\n");
	CHILD(pmix_log, .rank = 2, .stream = 2, .text = "two");
	CHILD(pmix_log, .rank = 0, .stream = 1, .text = "another host's");
	CHILD(pmix_log, .rank = 2, .stream = 0, .text = "nowhere");
	CHILD(pmix_log, .rank = 2, .stream = 3, .text = "nowhere");
	CHILD(pmix_log, .rank = 2, .stream = 1, .text = "three");
	says("one\n", 1, 1);
	says("two", 0, 2);
	CHILD(pmix_log, .rank = 2, .stream = 1, .text = "four");
	says("three", 0, 1);
	says("four", 0, 1);
	says(NULL, 0, 0);
	CHILD(pmix_log, .rank = 2, .stream = 1, .text = "five");
	says("five", 0, 1);
	CHILD(pmix_log, .rank = 2, .stream = 1, .text = "not shown");
	close_server();
}
END_TEST

START_TEST(logs_too_much)
{
	enum { MOST = 256 };
	char text[16];

	ready_server(1);
	for (int i = 0; i < MOST + 9; i++) {
		snprintf(text, sizeof text, "%d", i);
		CHILD(pmix_log, .rank = 0, .stream = 1, .text = text);
	}
	says("0", 0, 1);
	CHILD(pmix_log, .rank = 1, .stream = 1, .text = "last");
	for (int i = 1; i < MOST; i++) {
		snprintf(text, sizeof text, "%d", i);
		says(text, 0, 1);
	}
	says("last", 1, 1);
	says(NULL, 0, 0);
	close_server();
}
END_TEST

/* ---- names and events ---- */

START_TEST(names)
{
	static const char *const keys[] = { "a", "b" };
	static const uint32_t sizes[] = { 2, 1 }, owners[] = { 0, 5 };

	ready_server(2);
	CHILD(publish, .id = 4, .rank = 3, .once = 1, .keys = { keys, 2 },
	      .sizes = { sizes, 2 }, .values = { "xyz", 3 });
	launcher_hears(
		"publish epoch=3 rank=3 id=4 once=1 keys=(2 strings) sizes=[2,1] "
		"values=(3 bytes)");
	with("\1\0\0\0b\0\2\0\0\0\2\0\0\0\1\0\0\0\3\0\0\0xyz", 25);
	CHILD(lookup, .id = 5, .rank = 2, .wait = 1, .timeout_s = 60,
	      .keys = { keys, 2 });
	launcher_hears("lookup epoch=3 rank=2 id=5 wait=1 timeout_s=60 "
		       "keys=(2 strings)");
	CHILD(unpublish, .id = 6, .rank = 2, .keys = { keys, 1 });
	launcher_hears("unpublish epoch=3 rank=2 id=6 keys=(1 strings)");
	with("a", 2);
	CHILD(unpublish, .id = 7, .rank = 2);
	launcher_hears("unpublish epoch=3 rank=2 id=7 keys=(0 strings)");
	child_hears_nothing();
	LAUNCHER(found, .id = 5, .status = FOUND_SOME, .keys = { keys, 2 },
		 .owners = { owners, 2 }, .sizes = { sizes, 2 },
		 .values = { "xyz", 3 });
	child_hears(
		"found epoch=3 id=5 status=1 keys=(2 strings) owners=[0,5] sizes=[2,1] "
		"values=(3 bytes)");
	with("xyz", 3);
	hang_up_child();
	LAUNCHER(found, .id = 5);
	close_server();
}
END_TEST

START_TEST(events)
{
	ready_server(_i ? 2 : 1);
	CHILD(event, .rank = 9, .code = 5, .range = 4, .info = { "abc", 3 });
	CHILD(event, .rank = job.ranks.v[0], .code = 5, .range = 4,
	      .info = { "abc", 3 });
	if (_i) {
		launcher_hears("event epoch=3 rank=2 code=5 range=4 info=(3 bytes)");
		with("abc", 3);
	}
	launcher_hears_nothing();
	LAUNCHER(event, .rank = 0, .code = 6, .range = 7, .info = { "de", 2 });
	child_hears("event epoch=3 rank=0 code=6 range=7 info=(2 bytes)");
	with("de", 2);
	hang_up_child();
	LAUNCHER(event, .rank = 0, .code = 6, .range = 7);
	launcher_hears_nothing();
	close_server();
}
END_TEST

/* Of another epoch. */
START_TEST(old_messages)
{
	ready_server(2);
	CHILD(pmix_collect, .id = 1, .use = EXCHANGE_PMIX_FENCE);
	buf_free(&out);
	epoch = 2;
	ck_assert_int_eq(LAUNCHER(exchange_data, .use = EXCHANGE_PMIX_FENCE, .last = 1),
			 0);
	LAUNCHER(exchange_failed, .use = EXCHANGE_PMIX_FENCE);
	LAUNCHER(modex_request, .rank = 2);
	LAUNCHER(modex_data, .id = 1);
	LAUNCHER(found, .id = 1);
	LAUNCHER(event, .rank = 1);
	epoch = 3;
	pass(60000);
	child_hears_nothing();
	launcher_hears_nothing();
	close_server();
}
END_TEST

int main(void)
{
	Suite *s = suite_create("pmix_ranks");
	TCase *c = tcase_create("pmix_ranks");

	tcase_add_test(c, asked_of_another_host);
	tcase_add_test(c, asked_of_nobody);
	tcase_add_test(c, asked_by_others);
	tcase_add_test(c, asked_in_vain);
	tcase_add_test(c, asked_of_one_that_ended);
	tcase_add_test(c, asked_of_one_that_never_put);
	tcase_add_test(c, asked_of_one_that_died);
	tcase_add_test(c, asked_too_often);
	tcase_add_test(c, who_is_present);
	tcase_add_loop_test(c, deaths_are_told, 0, 2 * LEN(deaths));
	tcase_add_test(c, lost_while_in_use);
	tcase_add_loop_test(c, absent, 0, 4);
	tcase_add_loop_test(c, absent_and_not_missed, 0, 4);
	tcase_add_test(c, absent_after_an_exchange);
	tcase_add_test(c, aborts);
	tcase_add_test(c, aborts_at_the_end);
	tcase_add_test(c, logs);
	tcase_add_test(c, logs_too_much);
	tcase_add_test(c, names);
	tcase_add_loop_test(c, events, 0, 2);
	tcase_add_test(c, old_messages);
	suite_add_tcase(s, c);
	return run_all(s);
}
