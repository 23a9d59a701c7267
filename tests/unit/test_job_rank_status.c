/* launcher/job/rank_status: what Ctrl-\ costs, and how much one host can make of it. */
#include <time.h>

#include "launcher/job/rank_status.h"
#include "tests/unit/job_rig.h"

/* ---- an epoch of many ranks, made by hand ---- */

/* Rank I is in operation 2 of one of two process sets, or still in the first one. */
static void take_op(struct rank_status *s, const struct host *h, uint32_t i,
		    bool behind)
{
	const uint32_t set = i % 2, seq = behind ? 1 : 2, runs = 1;

	ck_assert_ptr_null(
		rank_status_op(s, h,
			       &(struct wire_rank_op){ .rank = i,
						       .text = "allreduce",
						       .sets = { &set, 1 },
						       .seqs = { &seq, 1 },
						       .runs = { &runs, 1 } }));
}

/* CPU time of Ctrl-\ with NP ranks, of which a third of each set is behind. */
static clock_t status_of(uint32_t np)
{
	static const struct output_events none = { 0 };
	const struct request r = { .output.show.all = true };
	struct host host = { .name = (char[]){ "h0" } };
	const struct agents agents = { .host = &host, .n = 1 };
	uint32_t node = 0;
	const struct plan plan = { .np = np,
				   .rank = xcalloc(np, sizeof *plan.rank),
				   .node = &node };
	struct rank *rank = xcalloc(np, sizeof *rank);
	const struct epoch epoch = { event_base_new(), &agents,    &plan, rank, 1,
				     plan.np,          plan.nhosts };
	struct rank_status_uses uses = { 0 };
	struct rank_status *s;
	struct err e;
	clock_t begun;

	ck_assert(!output_open(&uses.output, epoch.base, &r, np, NULL, "c00kie", &none,
			       NULL, &e));
	s = rank_status_open(&epoch, &uses);
	for (uint32_t i = 0; i < np; i++) {
		rank[i].state = RANK_RUNNING;
		take_op(s, &host, i, i % 3 == 0);
	}
	begun = clock();
	rank_status_print(s);
	begun = clock() - begun;
	rank_status_free(s);
	output_free(uses.output);
	free(rank);
	free(plan.rank);
	event_base_free(epoch.base);
	return begun;
}

/* Each rank waits for a third of its set. (8 times the ranks take 8 times the time, and
 * took 64 times.) */
START_TEST(takes_linear_time)
{
	clock_t few, many;

	quiet();
	few = status_of(2500);
	many = status_of(20000);
	ck_assert_msg(many < 24 * few + CLOCKS_PER_SEC / 20, "%ld and %ld", (long)few,
		      (long)many);
}
END_TEST

/* ---- what one host can make of it ---- */

static FILE *said;

/* A job of two hosts runs; what runner says goes to SAID. */
static void run_two(void)
{
	said = tmpfile();
	fflush(NULL);
	dup2(fileno(said), 2);
	rig_open(2, "--stdin none -np 4");
	job_begin(&g.j);
	turn();
	deliver_all();
	ck_assert_int_eq(g.j.phase, JOB_RUN);
}

static size_t count_said(const char *text)
{
	char line[4096];
	size_t n = 0;

	event_base_loop(g.j.base, EVLOOP_NONBLOCK);
	fflush(NULL);
	rewind(said);
	while (fgets(line, sizeof line, said))
		n += strstr(line, text) != NULL;
	fseek(said, 0, SEEK_END);
	return n;
}

START_TEST(a_host_has_the_others_asked_once_in_a_second)
{
	run_two();
	for (int i = 0; i < 100; i++) {
		SAYS(0, missing_request, .epoch = 1, .rank = 0);
		for (size_t h = 0; h < 2; h++)
			SAYS(h, query_done, .epoch = 1);
	}
	ck_assert_uint_eq(g.queries, 2);
	ck_assert_uint_eq(g.missing, 1);
	now_ms += 1000;
	SAYS(0, missing_request, .epoch = 1, .rank = 1);
	for (size_t h = 0; h < 2; h++)
		SAYS(h, query_done, .epoch = 1);
	ck_assert_uint_eq(g.queries, 4);
	ck_assert_uint_eq(g.missing, 3); /* rank 0 had asked again */
	rig_close();
	fclose(said);
}
END_TEST

START_TEST(stalls_are_counted)
{
	run_two();
	for (int i = 0; i < 3000; i++) {
		SAYS(0, stall, .epoch = 1, .rank = 0, .text = "60 s in allreduce");
		for (size_t h = 0; h < 2; h++)
			SAYS(h, query_done, .epoch = 1);
		now_ms += 1000;
	}
	ck_assert_uint_eq(g.queries, 2 * 999);
	ck_assert_uint_eq(count_said("h0: further stalls are not shown"), 1);
	rig_close();
	fclose(said);
}
END_TEST

/* Rank RANK of host HOST is in operation SEQ of all ranks, and waits there if RUNS. */
static void says_op(size_t host, uint32_t rank, uint32_t seq, uint32_t runs)
{
	uint32_t set = 0;

	SAYS(host, rank_op, .epoch = 1, .rank = rank,
	     .text = runs ? "allgather of 5 u8, begun 3.0 s ago" : "barrier, done",
	     .sets = { &set, 1 }, .seqs = { &seq, 1 }, .runs = { &runs, 1 });
}

/* Rank 2 comes late; rank 3 thinks that rank 0 does so, too, as nothing of it comes. */
static void stall_of_two_hosts(void)
{
	uint32_t wrong[] = { 0, 2 }, right[] = { 2 };
	const size_t before = count_said("warning:");

	SAYS(1, stall, .epoch = 1, .rank = 3, .missing = { wrong, 2 },
	     .text = "3 s in allgather of u8, with counts");
	SAYS(0, stall, .epoch = 1, .rank = 0, .missing = { right, 1 },
	     .text = "3 s in allgather of 5 u8");
	says_op(0, 0, 2, 1);
	says_op(0, 1, 2, 1);
	says_op(1, 2, 1, 0);
	says_op(1, 3, 2, 1);
	for (size_t h = 0; h < 2; h++)
		SAYS(h, query_done, .epoch = 1);
	while (count_said("warning:") == before)
		event_base_loop(g.j.base, EVLOOP_ONCE);
}

START_TEST(one_cause_is_one_line)
{
	uint32_t right[] = { 2 };

	run_two();
	now_ms = 100000;
	stall_of_two_hosts();
	ck_assert_uint_eq(count_said("warning:"), 1);
	ck_assert_uint_eq(count_said("runner: warning: rank 2 on 'h1' keeps ranks "
				     "0-1,3 waiting, 3 s in allgather of u8, with "
				     "counts (its last operation: barrier, done)\n"),
			  1);
	/* rank 1 has been named already, and says it later by its own clock */
	now_ms += 1000;
	SAYS(0, stall, .epoch = 1, .rank = 1, .missing = { right, 1 },
	     .text = "3 s in allgather of 5 u8");
	ck_assert_uint_eq(g.queries, 2); /* nobody is asked again */
	/* the wait has doubled; stdin is no terminal: how to ask is said once */
	stall_of_two_hosts();
	ck_assert_uint_eq(count_said("warning:"), 2);
	ck_assert_uint_eq(count_said("hint: run 'kill -QUIT "), 1);
	ck_assert_uint_eq(count_said("hint:"), 1);
	rig_close();
	fclose(said);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("rank_status");
	TCase *c = tcase_create("rank_status");
	SRunner *r;
	int failed;

	tcase_add_checked_fixture(c, setup, teardown);
	tcase_add_test(c, takes_linear_time);
	tcase_add_test(c, a_host_has_the_others_asked_once_in_a_second);
	tcase_add_test(c, stalls_are_counted);
	tcase_add_test(c, one_cause_is_one_line);
	suite_add_tcase(s, c);
	r = srunner_create(s);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed != 0;
}
