/* agent/pmi/pmi1.c and host_map.c: ranks that end, abort, do not read, or write too
 * much; on which hosts ranks are.  takes_s: 1 */
#include "tests/unit/pmi1_rig.h"

#include <sys/ioctl.h>

#include "agent/pmi/pmi1_line.h"

enum { HELD_BYTES = 64 << 10 }; /* about so much of its answers the server keeps */

/* ---- ranks that do not come ---- */

START_TEST(exchange_that_fails)
{
	open_server(2, 4, 2, JOB_PMI1);
	both_in();
	expect_exchange(0, NULL, 0);
	exchange_failed(1); /* another barrier */
	ck_assert_int_eq(exchange_data(0, NULL, 0, true), 0);
	both_out();
	both_in();
	expect_exchange(1, NULL, 0);
	exchange_failed(1);
	ck_assert_int_eq(exchange_data(1, NULL, 0, true), 0); /* too late */
	ck_assert_ptr_null(hear(0));
	ck_assert_ptr_null(hear(1));
	close_server();
}
END_TEST

/* A rank has ended, and those that are left come: the launcher is to say who does not.
 * A barrier after that fails, too, and others are served. */
START_TEST(barrier_after_a_failure)
{
	struct err e;

	open_server(3, 6, 2, JOB_PMI1);
	ck_assert_ptr_null(server_ended(server, 2, true));
	say(0, "cmd=barrier_in\n");
	hears_nothing(0);
	say(1, "cmd=barrier_in\n");
	settle_all();
	expect_exchange(0, NULL, 0);
	exchange_failed(0);
	ck_assert_ptr_null(hear(0));
	ck_assert_ptr_null(hear(1));
	close(rank_fd[0]);
	ck_assert_int_eq(server_pmi1(server, 0, &rank_fd[0], &e), 0);
	ask(0, "cmd=get key=a\n",
	    "cmd=get_result rc=-1 msg=key_a_not_found value=unknown");
	say(0, "cmd=barrier_in\n");
	ck_assert_ptr_null(hear(0));
	close_server();
}
END_TEST

/* What rank 1 says before it ends, what rank 0 does, and the reason then. */
static const struct {
	const char *said, *other, *why;
} ends[] = {
	{ "", "", NULL },
	{ "cmd=init\n", "", "exited with status 0 between MPI_Init and MPI_Finalize" },
	{ "cmd=init\ncmd=barrier_in\n", "cmd=barrier_in\n",
	  "exited with status 0 between MPI_Init and MPI_Finalize" },
	{ "cmd=init\ncmd=finalize\n", "", NULL },
	{ "cmd=init\ncmd=finalize\n", "cmd=init\n", NULL },
	{ "cmd=init\ncmd=finalize\n", "cmd=barrier_in\n", NULL },
	{ "", "cmd=barrier_in\n", NULL },
	{ "cmd=init\ncmd=finalize", "",
	  "exited with status 0 between MPI_Init and MPI_Finalize" },
	{ "cmd=init\ncmd=abort exitcode=3\n", "", NULL },
};

/* What it wrote last is read when it has ended. */
START_TEST(reasons)
{
	const char *why;

	open_server(2, 2, 1, JOB_PMI1);
	say(0, ends[_i].other);
	settle_all();
	say(1, ends[_i].said);
	close(rank_fd[1]);
	rank_fd[1] = -1;
	why = server_ended(server, 1, false);
	ck_assert_pstr_eq(why, ends[_i].why);
	if (out.len)
		expect_exchange(0, NULL, 0);
	close_server();
}
END_TEST

START_TEST(rank_that_ended)
{
	open_server(2, 2, 1, JOB_PMI1);
	say(0, "cmd=barrier_in\n");
	hears_nothing(0);
	ck_assert(!out.len);
	ck_assert_ptr_null(server_ended(server, 1, false));
	expect_exchange(0, NULL, 0);
	exchange_failed(0);
	ck_assert_ptr_null(hear(0));
	close_server();
}
END_TEST

/* All have come to the barrier: it ends, though a rank has ended since. */
START_TEST(rank_that_ended_in_a_barrier)
{
	open_server(2, 4, 2, JOB_PMI1);
	both_in();
	expect_exchange(0, NULL, 0);
	ck_assert_ptr_null(server_ended(server, 1, true));
	ck_assert_int_eq(exchange_data(0, NULL, 0, true), 0);
	hears(0, "cmd=barrier_out");
	close_server();
}
END_TEST

/* Rank 2 never comes to MPI_Init.  The launcher hears of the ranks that are in it, and
 * says when they are to be ended. */
START_TEST(rank_that_never_came)
{
	size_t local = 9;

	open_server(3, 3, 1, JOB_PMI1);
	say(0, "cmd=init\n");
	settle_all();
	ck_assert_ptr_null(server_ended(server, 2, false));
	expect_absent(2, 1);
	say(1, "cmd=init\n");
	expect_absent(2, 2);
	say(1, "cmd=finalize\n");
	expect_absent(2, 1);
	say(0, "cmd=barrier_in\n");
	settle_all();
	ck_assert_uint_eq(out.len, 0);
	ck_assert(!server_ends(server, &local));
	exchange_failed(0);
	ck_assert(server_ends(server, &local));
	ck_assert_uint_eq(local, 0);
	ck_assert(!server_ends(server, &local));
	hears(0, "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0");
	ck_assert_ptr_null(hear(0));
	ck_assert_ptr_nonnull(server_ended(server, 0, true));
	expect_absent(2, 0);
	close_server();
}
END_TEST

/* MPI has begun without it: nobody waits for it in MPI_Init. */
START_TEST(rank_that_never_came_and_is_not_missed)
{
	open_server(2, 2, 1, JOB_PMI1);
	say(0, "cmd=init\n");
	both_in();
	expect_exchange(0, NULL, 0);
	ck_assert_int_eq(exchange_data(0, NULL, 0, true), 0);
	ck_assert_ptr_null(server_ended(server, 1, false)); /* it did not say "init" */
	settle_all();
	close_server();
}
END_TEST

START_TEST(aborts)
{
	const char *said;
	size_t local = 9;
	int code = 9;

	open_server(3, 3, 1, JOB_PMI1);
	ck_assert(!server_ends(server, &local));
	say(2, "cmd=init\ncmd=abort exitcode=7\ncmd=abort exitcode=8\n");
	say(0, "cmd=abort exitcode=-1\n");
	hears(2, "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0");
	settle_all();
	ck_assert(server_ends(server, &local));
	ck_assert_uint_eq(local, 0);
	ck_assert(server_ends(server, &local));
	ck_assert_uint_eq(local, 2);
	ck_assert(!server_ends(server, &local));
	ck_assert(!server_aborted(server, 1, &code, &said));
	ck_assert_int_eq(code, 9);
	ck_assert(server_aborted(server, 0, &code, &said));
	ck_assert_int_eq(code, -1);
	ck_assert(server_aborted(server, 2, &code, &said));
	ck_assert_int_eq(code, 7); /* the first counts */
	hears_nothing(2);          /* it waits to be ended */
	close_server();
}
END_TEST

/* It wrote that, and the agent learns of its end first. */
START_TEST(abort_read_at_the_end)
{
	const char *said;
	int code;

	open_server(1, 1, 1, JOB_PMI1);
	say(0, "cmd=init\ncmd=abort exitcode=5\n");
	ck_assert(!server_aborted(server, 0, &code, &said));
	ck_assert_ptr_null(server_ended(server, 0, true));
	ck_assert(server_aborted(server, 0, &code, &said));
	ck_assert_int_eq(code, 5);
	close_server();
}
END_TEST

/* ---- ranks that do not read, or write too much ---- */

/* Rank 0 writes the pair of LINES again and again, numbered, until nothing more goes.
 * How many times. */
static size_t write_until_full(void)
{
	static char text[64];
	size_t n = 0, at = 0;

	for (int idle = 0; idle < 4;) {
		ssize_t sent;

		if (!at)
			snprintf(text, sizeof text,
				 "cmd=put key=%zu value=\ncmd=get key=v\n", n);
		sent = send(rank_fd[0], text + at, strlen(text + at),
			    MSG_DONTWAIT | MSG_NOSIGNAL);
		if (sent < 0) {
			idle++;
			settle_all();
			continue;
		}
		idle = 0;
		ck_assert_uint_lt(n, 1 << 17);
		at += (size_t)sent;
		if (!text[at]) {
			at = 0;
			n++;
		}
	}
	ck_assert_uint_eq(at, 0);
	return n;
}

/* How many of the N puts of rank 0 the server has done. */
static size_t count_puts(size_t n)
{
	for (size_t i = 0; i < n; i++) {
		char line[48];

		snprintf(line, sizeof line, "cmd=get key=%zu\n", i);
		say(1, line);
		if (!strstr(hear(1), " rc=0 "))
			return i;
	}
	return n;
}

/* Of what rank 0 has written only so much is read that HELD_BYTES of answers wait. */
START_TEST(answers_that_are_not_read)
{
	const char *done = "cmd=put_result rc=0 msg=success";
	const char *got = "cmd=get_result rc=0 msg=success value=vvv";
	size_t written, puts, held;
	int delivered;

	open_server(2, 2, 1, JOB_PMI1);
	ck_assert_str_eq(put_long(1, "v", 1000), done);
	written = write_until_full();
	puts = count_puts(written);
	ck_assert_uint_gt(puts, 10);
	ck_assert_uint_lt(puts, written);
	ck_assert_int_eq(ioctl(rank_fd[0], FIONREAD, &delivered), 0);
	held = puts * (strlen(done) + 1 + strlen(got) - 3 + 1000 + 1) -
	       (size_t)delivered;
	ck_assert_uint_ge(held, HELD_BYTES);
	ck_assert_uint_le(held, HELD_BYTES + 2 * 1100);
	for (size_t i = 0; i < written; i++) { /* none is forgotten */
		hears(0, done);
		ck_assert_int_eq(strncmp(hear(0), got, strlen(got)), 0);
	}
	hears_nothing(0);
	close_server();
}
END_TEST

START_TEST(line_without_end)
{
	char text[PMI1_LINE_BYTES];

	memset(text, 'x', sizeof text);
	open_server(2, 2, 1, JOB_PMI1);
	say_bytes(0, text, sizeof text);
	hears_nothing(0);
	ask(0, "\n", "cmd=unknown_result rc=-1 msg=unsupported");
	say_bytes(0, text, sizeof text);
	hears_nothing(0);
	say(0, "x");
	ck_assert_ptr_null(hear(0));
	hears_nothing(1);
	close_server();
}
END_TEST

/* ---- on which hosts ranks are ---- */

static const struct {
	uint32_t np, nodes, hosts[8];
	const char *want;
} maps[] = {
	{ 2, 2, { 0, 1 }, "(vector,(0,2,1))" },
	{ 4, 2, { 0, 0, 1, 1 }, "(vector,(0,2,2))" },
	{ 4, 2, { 0, 1, 0, 1 }, "(vector,(0,2,1),(0,2,1))" },
	{ 3, 2, { 0, 0, 1 }, "(vector,(0,1,2),(1,1,1))" },
	{ 3, 2, { 0, 1, 1 }, "(vector,(0,1,1),(1,1,2))" },
	{ 4, 2, { 1, 1, 0, 0 }, "(vector,(1,1,2),(0,1,2))" },
	{ 8, 4, { 0, 0, 1, 1, 2, 2, 3, 3 }, "(vector,(0,4,2))" },
	{ 8, 4, { 0, 0, 2, 2, 3, 3, 1, 1 }, "(vector,(0,1,2),(2,2,2),(1,1,2))" },
	{ 5, 3, { 0, 1, 2, 0, 1 }, "(vector,(0,3,1),(0,2,1))" },
};

static const char *const ask_map = "cmd=get kvsname=k key=PMI_process_mapping\n";

START_TEST(layouts)
{
	char *want =
		xasprintf("cmd=get_result rc=0 msg=success value=%s", maps[_i].want);

	open_server(1, maps[_i].np, maps[_i].nodes, JOB_PMI1);
	say(0, ask_map);
	hears_nothing(0);
	host_map_requested();
	ck_assert_int_eq(host_map(maps[_i].hosts, maps[_i].np, maps[_i].nodes), 0);
	hears(0, want);
	free(want);
	close_server();
}
END_TEST

START_TEST(layout_of_one_host)
{
	open_server(3, 3, 1, JOB_PMI1);
	ask(1, ask_map, "cmd=get_result rc=0 msg=success value=(vector,(0,1,3))");
	close_server();
}
END_TEST

/* 1023 bytes still go into a value. */
START_TEST(layout_that_is_too_long)
{
	static uint32_t hosts[400];

	for (size_t i = 0; i < 400; i++)
		hosts[i] = (uint32_t)(i % 2);
	open_server(1, 400, 2, JOB_PMI1);
	say(0, ask_map);
	hears_nothing(0);
	host_map_requested();
	ck_assert_int_eq(host_map(hosts, 400, 2), 0);
	hears(0, "cmd=get_result rc=-1 msg=too_long value=unknown");
	ask(0, "cmd=finalize\n", "cmd=finalize_ack");
	close_server();
}
END_TEST

/* It is asked for once; meanwhile a rank's next lines wait, and no other's. */
START_TEST(host_map_is_awaited)
{
	static const uint32_t hosts[] = { 0, 0, 0, 1 };
	const char *vector = "cmd=get_result rc=0 msg=success "
			     "value=(vector,(0,1,3),(1,1,1))";

	open_server(3, 4, 2, JOB_PMI1);
	say(0, ask_map);
	say(0, "cmd=finalize\n");
	say(1, ask_map);
	say(1, ask_map);
	hears_nothing(0);
	ask(2, "cmd=finalize\n", "cmd=finalize_ack");
	host_map_requested();
	hears_nothing(1);
	say(0, "cmd=get_appnum\n");
	hears_nothing(0);
	ck_assert_int_eq(host_map(hosts, 4, 2), 0);
	hears(0, vector);
	hears(0, "cmd=finalize_ack");
	hears(0, "cmd=appnum appnum=5");
	hears(1, vector);
	hears(1, vector);
	ask(2, ask_map, vector);
	close_server();
}
END_TEST

/* A rank that ends while it waits for the host map. */
START_TEST(host_map_for_nobody)
{
	static const uint32_t hosts[] = { 0, 1 };

	open_server(1, 2, 2, JOB_PMI1);
	say(0, ask_map);
	hears_nothing(0);
	host_map_requested();
	close(rank_fd[0]);
	rank_fd[0] = -1;
	ck_assert_ptr_null(server_ended(server, 0, true));
	ck_assert_int_eq(host_map(hosts, 2, 2), 0);
	settle_all();
	close_server();
}
END_TEST

START_TEST(malformed_host_map)
{
	static const uint32_t hosts[] = { 0, 0, 1, 1 }, far[] = { 0, 0, 1, 2 };

	open_server(2, 4, 2, JOB_PMI1);
	say(0, ask_map);
	hears_nothing(0);
	host_map_requested();
	ck_assert_int_eq(host_map(hosts, 3, 2), -1);
	ck_assert_int_eq(host_map(hosts, 4, 3), -1);
	ck_assert_int_eq(host_map(far, 4, 2), -1);
	hears_nothing(0);
	ck_assert_int_eq(host_map(hosts, 4, 2), 0);
	hears(0, "cmd=get_result rc=0 msg=success value=(vector,(0,2,2))");
	ck_assert_int_eq(host_map(hosts, 4, 2), 0); /* a host has come */
	hears_nothing(0);
	ck_assert_int_eq(host_map(hosts, 3, 2), -1);
	close_server();
}
END_TEST

static void add_ends(TCase *c)
{
	tcase_add_test(c, exchange_that_fails);
	tcase_add_test(c, barrier_after_a_failure);
	tcase_add_loop_test(c, reasons, 0, LEN(ends));
	tcase_add_test(c, rank_that_ended);
	tcase_add_test(c, rank_that_ended_in_a_barrier);
	tcase_add_test(c, rank_that_never_came);
	tcase_add_test(c, rank_that_never_came_and_is_not_missed);
	tcase_add_test(c, aborts);
	tcase_add_test(c, abort_read_at_the_end);
	tcase_add_test(c, answers_that_are_not_read);
	tcase_add_test(c, line_without_end);
}

int main(void)
{
	Suite *s = suite_create("pmi1_end");
	TCase *c = tcase_create("pmi1_end");

	tcase_set_timeout(c, 60);
	add_ends(c);
	tcase_add_loop_test(c, layouts, 0, LEN(maps));
	tcase_add_test(c, layout_of_one_host);
	tcase_add_test(c, layout_that_is_too_long);
	tcase_add_test(c, host_map_is_awaited);
	tcase_add_test(c, host_map_for_nobody);
	tcase_add_test(c, malformed_host_map);
	suite_add_tcase(s, c);
	return run_all(s);
}
