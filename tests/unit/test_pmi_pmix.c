/* agent/pmi/pmix.c: a PMIx server is opened and started, and says what none says. */
#include "tests/unit/pmix_rig.h"

static const char *const lies = "it sent an invalid message",
			 *const ended = "its process has ended";

/* ---- open ---- */

START_TEST(opened)
{
	struct stat st;
	const char *library;

	open_child(1);
	state_is(SERVER_PMIX_OPENING, "");
	ck_assert_str_eq(server_pmix_version(server, &library), "");
	ck_assert_str_eq(library, "");
	ck_assert(is_folder(folders.files));
	ck_assert(!stat(folders.files, &st));
	ck_assert_uint_eq(st.st_mode & 0777, 0700);
	CHILD(pmix_opened, .library = "/two", .version = "5.0", .error = "");
	state_is(SERVER_PMIX_OPEN, "");
	ck_assert_str_eq(server_pmix_version(server, &library), "5.0");
	ck_assert_str_eq(library, "/two");
	ck_assert_uint_eq(server_pmix_environment(server, 0).n, 0);
	pass(60000); /* nothing is late */
	state_is(SERVER_PMIX_OPEN, "");
	close_server();
}
END_TEST

START_TEST(cannot_be_opened)
{
	open_child(1);
	CHILD(pmix_opened, .library = "/two", .version = "5", .error = "no such file");
	state_is(SERVER_PMIX_FAILED, "no such file");
	close_server();
}
END_TEST

START_TEST(ends_while_it_opens)
{
	open_child(1);
	hang_up_child();
	state_is(SERVER_PMIX_FAILED, ended);
	close_server();
}
END_TEST

START_TEST(does_not_answer)
{
	open_child(1);
	pass(19999);
	state_is(SERVER_PMIX_OPENING, "");
	pass(1);
	state_is(SERVER_PMIX_FAILED, "no answer in 20 seconds");
	close_server();
}
END_TEST

START_TEST(has_no_process)
{
	no_process = true;
	begin_open(1);
	state_is(SERVER_PMIX_FAILED, "the PMIx server: it is a test");
	server_pmix_start(server, &(struct server_pmix){ .oversubscribed = false });
	state_is(SERVER_PMIX_FAILED, "the PMIx server: it is a test");
	no_process = false;
	close_server();
}
END_TEST

START_TEST(has_no_folder)
{
	setenv("TMPDIR", "/proc", 1);
	begin_open(1);
	unsetenv("TMPDIR");
	ck_assert_uint_eq(starts, 1);
	ck_assert_uint_eq(living, 0);
	state_is(SERVER_PMIX_FAILED,
		 "cannot make a folder in '/proc': No such file or directory");
	close_server();
}
END_TEST

static const struct {
	uint16_t first, second;
	const char *error;
	enum server_pmix_state state;
	const char *why;
} early[] = {
	{ WIRE_pmix_opened, WIRE_pmix_ready, "", SERVER_PMIX_READY, "" },
	{ WIRE_pmix_opened, 0, "bad", SERVER_PMIX_FAILED, "bad" },
	{ WIRE_pmix_opened, 0, "", SERVER_PMIX_STARTING, "" },
	{ WIRE_pmix_ready, 0, "", SERVER_PMIX_FAILED, "it sent an invalid message" },
	{ WIRE_pmix_opened, WIRE_pmix_opened, "", SERVER_PMIX_FAILED,
	  "it sent an invalid message" },
};

/* In a job of one host, it is told of the ranks before it is open. */
START_TEST(starts_early)
{
	static const uint32_t counts[] = { 0, 0 };
	const uint16_t said[] = { early[_i].first, early[_i].second };

	open_child(1);
	begin_start();
	free(next_of_child());
	for (int i = 0; i < 2; i++) {
		if (said[i] == WIRE_pmix_opened)
			CHILD(pmix_opened, .library = "/two", .version = "5",
			      .error = early[_i].error);
		if (said[i] == WIRE_pmix_ready)
			CHILD(pmix_ready, .counts = { counts, 2 }, .error = "");
	}
	state_is(early[_i].state, early[_i].why);
	pass(20000);
	if (early[_i].state == SERVER_PMIX_STARTING)
		state_is(SERVER_PMIX_FAILED, "no answer in 20 seconds");
	else
		state_is(early[_i].state, early[_i].why);
	close_server();
}
END_TEST

/* A job whose ranks get no PMIx. */
START_TEST(not_wanted)
{
	size_t local;
	uint32_t stream;
	const char *text, *library;
	int code;

	open_server(2, 0);
	server_pmix_open(server, &(struct server_pmix){ .folders = &folders });
	server_pmix_start(server, &(struct server_pmix){ .folders = &folders });
	ck_assert_uint_eq(starts, 0);
	state_is(SERVER_PMIX_NONE, "");
	ck_assert_str_eq(server_pmix_version(server, &library), "");
	ck_assert_uint_eq(server_pmix_environment(server, 0).n, 0);
	ck_assert(!server_pmix_in_use(server));
	ck_assert_ptr_null(server_says(server, &local, &stream));
	ck_assert(!server_ends(server, &local));
	ck_assert(!server_aborted(server, 0, &code, &text));
	ck_assert_ptr_null(server_ended(server, 0, false));
	ck_assert_int_eq(LAUNCHER(exchange_data, .use = EXCHANGE_PMIX_FENCE), 0);
	ck_assert_int_eq(LAUNCHER(exchange_failed, .use = EXCHANGE_PMIX_FENCE), 0);
	ck_assert_int_eq(LAUNCHER(modex_request, .rank = 2), 0);
	ck_assert_int_eq(LAUNCHER(modex_data, .host = 1), 0);
	ck_assert_int_eq(LAUNCHER(found, .id = 1), 0);
	ck_assert_int_eq(LAUNCHER(event, .rank = 1), 0);
	close_server();
}
END_TEST

/* ---- start ---- */

START_TEST(what_it_is_told)
{
	struct wire_pmix_job m;

	open_child(3);
	start_child();
	child_hears("pmix_job np=6 node=1 hosts=[0,0,1,1,2,2] names=(3 strings) "
		    "ranks=[2,3] cpus=(2 strings) apps=[0,1] commands=(2 strings) "
		    "folders=(2 strings) oversubscribed=1 restarts=2");
	ck_assert(!wire_unpack_pmix_job(&m, buf_head(&last), last.len, NULL));
	ck_assert_str_eq(m.names.v[0], "A");
	ck_assert_str_eq(m.names.v[2], "C");
	ck_assert_str_eq(m.cpus.v[0], "0-3");
	ck_assert_str_eq(m.cpus.v[1], "");
	ck_assert_str_eq(m.commands.v[0], "a b");
	ck_assert_str_eq(m.folders.v[1], "/tmp");
	wire_free_pmix_job(&m);
	close_server();
}
END_TEST

/* Before the host map it does not begin. */
START_TEST(no_start_without_host_map)
{
	open_child(2);
	CHILD(pmix_opened, .library = "/two", .version = "5", .error = "");
	server_pmix_start(server, &(struct server_pmix){ .oversubscribed = false });
	state_is(SERVER_PMIX_OPEN, "");
	child_hears_nothing();
	close_server();
}
END_TEST

START_TEST(environment_of_each_rank)
{
	wire_strv v;

	ready_server(2);
	v = server_pmix_environment(server, 0);
	ck_assert_uint_eq(v.n, 2);
	ck_assert_str_eq(v.v[0], "A=1");
	ck_assert_str_eq(v.v[1], "B=2");
	v = server_pmix_environment(server, 1);
	ck_assert_uint_eq(v.n, 1);
	ck_assert_str_eq(v.v[0], "C=3");
	pass(60000);
	state_is(SERVER_PMIX_READY, "");
	hang_up_child();
	state_is(SERVER_PMIX_LOST, ended);
	ck_assert_uint_eq(server_pmix_environment(server, 0).n, 0);
	close_server();
}
END_TEST

static const struct {
	uint32_t n, counts[3];
	const char *error, *why;
} readies[] = {
	{ 1, { 3 }, "", "it sent an invalid message" },
	{ 3, { 1, 1, 1 }, "", "it sent an invalid message" },
	{ 2, { 1, 1 }, "", "it sent an invalid message" },
	{ 2, { 2, 2 }, "", "it sent an invalid message" },
	{ 2, { UINT32_MAX, 4 }, "", "it sent an invalid message" },
	{ 2, { 2, 1 }, "out of luck", "out of luck" },
};

START_TEST(cannot_be_started)
{
	static const char *const environment[] = { "A=1", "B=2", "C=3" };

	open_child(2);
	start_child();
	free(next_of_child());
	CHILD(pmix_ready, .environment = { environment, 3 },
	      .counts = { readies[_i].counts, readies[_i].n },
	      .error = readies[_i].error);
	state_is(SERVER_PMIX_FAILED, readies[_i].why);
	ck_assert_uint_eq(server_pmix_environment(server, 0).n, 0);
	close_server();
}
END_TEST

START_TEST(ends_while_it_starts)
{
	open_child(2);
	start_child();
	free(next_of_child());
	if (_i)
		hang_up_child();
	else
		pass(20000);
	state_is(SERVER_PMIX_FAILED, _i ? ended : "no answer in 20 seconds");
	close_server();
}
END_TEST

/* ---- frames that no server sends ---- */

static const enum server_pmix_state states[] = { SERVER_PMIX_OPENING, SERVER_PMIX_OPEN,
						 SERVER_PMIX_STARTING,
						 SERVER_PMIX_READY };

static void reach(enum server_pmix_state state)
{
	if (state == SERVER_PMIX_READY) {
		ready_server(2);
		return;
	}
	open_child(2);
	if (state == SERVER_PMIX_OPEN)
		CHILD(pmix_opened, .library = "", .version = "", .error = "");
	if (state == SERVER_PMIX_STARTING) {
		start_child();
		free(next_of_child());
	}
	state_is(state, "");
}

/* It was given up, and has said nothing to the launcher. */
static void was_given_up(enum server_pmix_state before)
{
	state_is(before == SERVER_PMIX_READY ? SERVER_PMIX_LOST : SERVER_PMIX_FAILED,
		 lies);
	launcher_hears_nothing();
	close_server();
}

/* One of each type, which would be sound when the server is ready. */
static void send_one(unsigned type)
{
	static const uint32_t counts[] = { 0, 0 };

	switch (type) {
	case WIRE_pmix_opened:
		CHILD(pmix_opened, .library = "", .version = "", .error = "");
		break;
	case WIRE_pmix_ready:
		CHILD(pmix_ready, .counts = { counts, 2 }, .error = "");
		break;
	case WIRE_pmix_collect:
		CHILD(pmix_collect, .id = 1, .use = EXCHANGE_PMIX_FENCE);
		break;
	case WIRE_modex_request:
		CHILD(modex_request, .id = 1, .rank = 0);
		break;
	case WIRE_modex_data:
		CHILD(modex_data, .id = 1);
		break;
	case WIRE_pmix_client:
		CHILD(pmix_client, .rank = 2, .present = 1);
		break;
	case WIRE_pmix_abort:
		CHILD(pmix_abort, .rank = 2, .status = 1, .text = "");
		break;
	case WIRE_pmix_log:
		CHILD(pmix_log, .rank = 2, .stream = 1, .text = "x");
		break;
	case WIRE_publish:
		CHILD(publish, .id = 1, .rank = 2);
		break;
	case WIRE_lookup:
		CHILD(lookup, .id = 1, .rank = 2);
		break;
	case WIRE_unpublish:
		CHILD(unpublish, .id = 1, .rank = 2);
		break;
	default:
		CHILD(event, .rank = 2, .code = 1);
	}
}

static const unsigned types[] = {
	WIRE_pmix_opened, WIRE_pmix_ready,  WIRE_pmix_collect, WIRE_modex_request,
	WIRE_modex_data,  WIRE_pmix_client, WIRE_pmix_abort,   WIRE_pmix_log,
	WIRE_publish,     WIRE_lookup,      WIRE_unpublish,    WIRE_event
};

START_TEST(out_of_turn)
{
	const unsigned type = types[_i / LEN(states)];
	const enum server_pmix_state state = states[_i % LEN(states)];

	reach(state);
	send_one(type);
	if (type == WIRE_pmix_opened  ? state == SERVER_PMIX_OPENING
	    : type == WIRE_pmix_ready ? state == SERVER_PMIX_STARTING
				      : state == SERVER_PMIX_READY) {
		ck_assert_uint_eq(living, 1);
		buf_free(&out);
		close_server();
	} else {
		was_given_up(state);
	}
}
END_TEST

/* Of these types there is none, or the other side sends it, or it has no end. */
static const struct {
	unsigned char bytes[8];
	size_t n;
} broken[] = {
	{ { 0, 0, 0, 0, 95 }, 5 },
	{ { 0, 0, 0, 0, 255 }, 5 },
	{ { 0, 0, 0, 0, WIRE_pmix_open }, 5 },
	{ { 0, 0, 0, 0, WIRE_shutdown }, 5 },
	{ { 0, 0, 0, 0, WIRE_host_map_request }, 5 },
	{ { 65, 0, 0, 0, WIRE_modex_request }, 5 },
	{ { 0, 0, 0, 0, WIRE_modex_request }, 5 },
	{ { 1, 0, 0, 0, WIRE_pmix_collect, 0 }, 6 },
	{ { 1, 0, 0, 0, WIRE_publish, 0 }, 6 },
	{ { 2, 0, 0, 0, WIRE_pmix_log, 0, 0 }, 7 },
};

START_TEST(malformed)
{
	const enum server_pmix_state state = states[_i % LEN(states)];
	struct buf frame = { 0 };

	reach(state);
	buf_add(&frame, broken[_i / LEN(states)].bytes, broken[_i / LEN(states)].n);
	child_sends(&frame);
	was_given_up(state);
}
END_TEST

/* What the launcher would not take. */
START_TEST(cannot_be)
{
	static const uint32_t far[] = { 2, 6 }, unsorted[] = { 3, 2 },
			      twice[] = { 2, 2 }, others[] = { 0, 1, 4 },
			      sizes[] = { 2, 2 };
	static const char *const keys[] = { "a", "b" };
	static char large[EXCHANGE_PMIX_BYTES / 3 + 1];

#define COLLECT(...) CHILD(pmix_collect, .id = 1, __VA_ARGS__)
	ready_server(3);
	switch (_i) {
	case 0:
		COLLECT(.use = EXCHANGE_INIT);
		break;
	case 1:
		COLLECT(.use = EXCHANGE_PMI1);
		break;
	case 2:
		COLLECT(.use = EXCHANGE_USES);
		break;
	case 3:
		COLLECT(.use = EXCHANGE_PMIX_FENCE, .ranks = { far, 2 });
		break;
	case 4:
		COLLECT(.use = EXCHANGE_PMIX_FENCE, .ranks = { unsorted, 2 });
		break;
	case 5:
		COLLECT(.use = EXCHANGE_PMIX_FENCE, .ranks = { twice, 2 });
		break;
	case 6:
		COLLECT(.use = EXCHANGE_PMIX_FENCE, .ranks = { others, 3 });
		break;
	case 7:
		COLLECT(.use = EXCHANGE_PMIX_FENCE, .data = { large, sizeof large });
		break;
	case 8:
		CHILD(publish, .rank = 1, .id = 1);
		break;
	case 9:
		CHILD(publish, .rank = 2, .id = 1, .keys = { keys, 2 },
		      .sizes = { sizes, 1 }, .values = { "xy", 2 });
		break;
	case 10:
		CHILD(publish, .rank = 2, .id = 1, .keys = { keys, 2 },
		      .sizes = { sizes, 2 }, .values = { "xyz", 3 });
		break;
	case 11:
		CHILD(lookup, .rank = 4, .id = 1, .keys = { keys, 2 });
		break;
	case 12:
		COLLECT(.use = EXCHANGE_PMIX_FENCE, .withheld = COLLECT_LACKS_RANK + 1);
		break;
	default:
		CHILD(unpublish, .rank = 6, .id = 1, .keys = { keys, 2 });
	}
	was_given_up(SERVER_PMIX_READY);
}
END_TEST

/* Frames come in pieces, and several at a time. */
START_TEST(pieces)
{
	struct buf frames = { 0 };

	open_child(1);
	start_child();
	free(next_of_child());
	wire_pack_pmix_ready(&frames,
			     &(struct wire_pmix_ready){
				     .counts = { (const uint32_t[]){ 0, 0 }, 2 } });
	wire_pack_pmix_log(&frames, &(struct wire_pmix_log){ 0, 1, "one" });
	wire_pack_pmix_collect(&frames, &(struct wire_pmix_collect){
						.id = 9, .use = EXCHANGE_PMIX_FENCE });
	for (; _i && frames.len > 1; buf_drop(&frames, 1)) {
		struct buf byte = { 0 };

		buf_add(&byte, buf_head(&frames), 1);
		child_hears_nothing();
		child_sends(&byte);
	}
	child_sends(&frames);
	child_hears("pmix_collected id=9 failed=0 serial=0 data=(0 bytes)");
	close_server();
}
END_TEST

int main(void)
{
	Suite *s = suite_create("pmix");
	TCase *c = tcase_create("pmix");

	tcase_add_test(c, opened);
	tcase_add_test(c, cannot_be_opened);
	tcase_add_test(c, ends_while_it_opens);
	tcase_add_test(c, does_not_answer);
	tcase_add_test(c, has_no_process);
	tcase_add_test(c, has_no_folder);
	tcase_add_loop_test(c, starts_early, 0, LEN(early));
	tcase_add_test(c, not_wanted);
	tcase_add_test(c, what_it_is_told);
	tcase_add_test(c, no_start_without_host_map);
	tcase_add_test(c, environment_of_each_rank);
	tcase_add_loop_test(c, cannot_be_started, 0, LEN(readies));
	tcase_add_loop_test(c, ends_while_it_starts, 0, 2);
	tcase_add_loop_test(c, out_of_turn, 0, LEN(types) * LEN(states));
	tcase_add_loop_test(c, malformed, 0, LEN(broken) * LEN(states));
	tcase_add_loop_test(c, cannot_be, 0, 14);
	tcase_add_loop_test(c, pieces, 0, 2);
	suite_add_tcase(s, c);
	return run_all(s);
}
