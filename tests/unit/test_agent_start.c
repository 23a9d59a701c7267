/* agent/start.h: the whole table, and random walks through it with a PMIx server that
 * opens, fails and ends when it likes. */
#include <check.h>
#include <stdlib.h>

#include "agent/start.h"

/* By event; the table of start.c stands by state. */
static const struct start_step expected[START_EVENTS][START_COUNT] = {
	[START_EV_PLACED] = { [START_NONE] = { START_PLACED, START_ACT_ANSWER } },
	[START_EV_OPENING] = { [START_NONE] = { START_OPENING, START_ACT_NONE } },
	[START_EV_START] = { [START_PLACED] = { START_OVER, START_ACT_RANKS } },
	[START_EV_PMIX] = { [START_PLACED] = { START_WAITING, START_ACT_NONE } },
	[START_EV_CHECK] = { [START_PLACED] = { START_OVER, START_ACT_NONE } },
	[START_EV_ABSENT] = { [START_OPENING] = { START_PLACED,
						  START_ACT_ANSWER_WITHOUT },
			      [START_WAITING] = { START_NONE, START_ACT_OPEN_SERVER } },
	[START_EV_OPEN] = { [START_OPENING] = { START_PLACED, START_ACT_ANSWER },
			    [START_WAITING] = { START_NONE, START_ACT_START_SERVER } },
	[START_EV_READY] = { [START_WAITING] = { START_OVER, START_ACT_RANKS } },
	[START_EV_FAILED] = { [START_OPENING] = { START_PLACED,
						  START_ACT_ANSWER_WITHOUT },
			      [START_WAITING] = { START_OVER,
						  START_ACT_RANKS_WITHOUT } },
	[START_EV_LOST] = { [START_OVER] = { START_LOST, START_ACT_SAY_LOST } },
};

START_TEST(each_cell)
{
	const enum start_event ev = (enum start_event)_i;

	for (enum start_state at = START_NONE; at < START_COUNT; at++) {
		const struct start_step got = start_step(at, ev);

		ck_assert_msg(got.next == expected[ev][at].next &&
				      got.act == expected[ev][at].act,
			      "state %d, event %d: state %d, act %d", (int)at, _i,
			      (int)got.next, (int)got.act);
	}
}
END_TEST

/* ---- walks ---- */

enum { WALKS = 2000, STEPS = 40 };

static enum start_state at;
static struct start_facts facts;
static int acts[START_ACTS];
static bool told, with_pmix; /* `start` or `check` counted; the ranks got PMIx */

static bool chance(int of)
{
	return rand() % of == 0;
}

static int answers(void)
{
	return acts[START_ACT_ANSWER] + acts[START_ACT_ANSWER_WITHOUT];
}

static int starts(void)
{
	return acts[START_ACT_RANKS] + acts[START_ACT_RANKS_WITHOUT];
}

static void take(enum start_event ev)
{
	const struct start_step step = start_step(at, ev);
	const enum start_state before = at;

	if (step.next != START_NONE) {
		ck_assert_int_gt(step.next, at); /* no state comes back */
		at = step.next;
	}
	acts[step.act]++;
	if (step.act == START_ACT_OPEN_SERVER) {
		ck_assert_int_eq(facts.pmix, SERVER_PMIX_NONE);
		ck_assert(facts.has_room);
		facts.pmix = chance(4) ? SERVER_PMIX_FAILED : SERVER_PMIX_OPENING;
	}
	if (step.act == START_ACT_START_SERVER) {
		ck_assert_int_eq(facts.pmix, SERVER_PMIX_OPEN);
		facts.pmix = SERVER_PMIX_STARTING;
	}
	if (before == START_WAITING && step.act == START_ACT_RANKS) {
		ck_assert_int_eq(facts.pmix, SERVER_PMIX_READY);
		with_pmix = true;
	}
	if (step.act == START_ACT_RANKS_WITHOUT)
		ck_assert(facts.pmix > SERVER_PMIX_READY || !facts.has_room);
	ck_assert_int_le(answers(), 1);
	ck_assert_int_le(starts(), 1);
	ck_assert_int_le(acts[START_ACT_SAY_LOST], 1);
	ck_assert(!starts() || (answers() && told));
	ck_assert(step.act != START_ACT_SAY_LOST || facts.pmix_in_use);
}

/* A server opens, starts, runs, or fails. */
static void server_moves(void)
{
	const enum server_pmix_state s = facts.pmix;

	if (s == SERVER_PMIX_OPENING || s == SERVER_PMIX_STARTING)
		facts.pmix = chance(5) ? SERVER_PMIX_FAILED : s + 1;
	else if (s == SERVER_PMIX_READY && chance(5))
		facts.pmix = SERVER_PMIX_LOST;
	facts.pmix_in_use = with_pmix && facts.ranks_run && !chance(3);
}

static void step_at_random(void)
{
	static const enum start_event orders[] = { START_EV_START, START_EV_PMIX,
						   START_EV_CHECK };

	if (chance(2))
		server_moves();
	if (chance(60))
		facts.ranks_run = false; /* `stop` */
	if (chance(4) && facts.ranks_run) {
		told |= at == START_PLACED;
		take(orders[rand() % 3]);
	}
	take(start_due(at, &facts));
}

static void begin(void)
{
	at = START_NONE;
	memset(acts, 0, sizeof acts);
	told = with_pmix = false;
	facts = (struct start_facts){ .has_room = !chance(8), .ranks_run = true };
	if (!facts.has_room || chance(2)) {
		take(START_EV_PLACED);
		return;
	}
	facts.pmix = chance(4) ? SERVER_PMIX_FAILED : SERVER_PMIX_OPENING;
	take(START_EV_OPENING);
}

START_TEST(walks)
{
	int seen[START_ACTS] = { 0 };

	srand(20261127);
	for (int i = 0; i < WALKS; i++) {
		begin();
		for (int k = 0; k < STEPS; k++)
			step_at_random();
		/* the server settles: so does the start, if it was told to stop too */
		for (int k = 0; k < STEPS; k++) {
			server_moves();
			take(start_due(at, &facts));
		}
		ck_assert_int_eq(answers(), 1);
		ck_assert_int_ne(at, START_OPENING);
		if (told && facts.ranks_run)
			ck_assert_int_ge(at, START_OVER);
		for (int k = 0; k < START_ACTS; k++)
			seen[k] += acts[k];
	}
	for (int k = 0; k < START_ACTS; k++)
		ck_assert_msg(seen[k] > 0, "act %d never came", k);
}
END_TEST

/* ---- the record decides ---- */

START_TEST(what_is_due)
{
	struct start_facts f = { SERVER_PMIX_OPENING, true, true, true };

	for (at = START_NONE; at < START_COUNT; at++) {
		f.pmix = SERVER_PMIX_OPENING;
		ck_assert_int_eq(start_due(at, &f), START_NOTHING);
		f.pmix = SERVER_PMIX_STARTING;
		ck_assert_int_eq(start_due(at, &f), START_NOTHING);
		f.pmix = SERVER_PMIX_LOST;
		ck_assert_int_eq(start_due(at, &f),
				 at == START_OVER ? START_EV_LOST : START_EV_FAILED);
	}
	f.pmix = SERVER_PMIX_NONE;
	ck_assert_int_eq(start_due(START_WAITING, &f), START_EV_ABSENT);
	f.has_room = false;
	ck_assert_int_eq(start_due(START_WAITING, &f), START_EV_FAILED);
	/* ranks that were told to stop start no more, but the answer is due */
	f = (struct start_facts){ SERVER_PMIX_READY, true, false, false };
	ck_assert_int_eq(start_due(START_WAITING, &f), START_NOTHING);
	f.pmix = SERVER_PMIX_OPEN;
	ck_assert_int_eq(start_due(START_OPENING, &f), START_EV_OPEN);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("start");
	TCase *c = tcase_create("start");
	SRunner *runner = srunner_create(s);
	int failed;

	tcase_add_loop_test(c, each_cell, 0, START_EVENTS);
	tcase_add_test(c, walks);
	tcase_add_test(c, what_is_due);
	suite_add_tcase(s, c);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
