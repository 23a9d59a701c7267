/* launcher/job/phase.h: the whole table, and what the record decides.
 *
 * The table here stands by event, as runner(1) tells of them; the one of phase.c stands
 * by phase. */
#include <check.h>
#include <signal.h>

#include "launcher/job/job.h"
#include "launcher/job/phase.h"

#define STAY(act)                                                                      \
	{                                                                              \
		JOB_STAY, act                                                          \
	}
#define NOTHING                                                                        \
	{                                                                              \
		JOB_STAY, ACT_NONE                                                     \
	}
#define TO(phase, act)                                                                 \
	{                                                                              \
		JOB_##phase, act                                                       \
	}

/* By event: LAUNCH, PLACE, CHECK, RUN, FAIL, STOP, DRAIN, WAIT, CLOSE. */
static const struct phase_step expected[EV_COUNT][JOB_DONE - JOB_LAUNCH] = {
	[EV_NONE] = { NOTHING },
	[EV_ALL] = { TO(PLACE, ACT_PLACE), TO(RUN, ACT_START), TO(CLOSE, ACT_SAY_CHECK),
		     TO(STOP, ACT_STOP_ENDED), TO(STOP, ACT_SAY_CAUSE),
		     TO(DRAIN, ACT_DRAIN), TO(CLOSE, ACT_SHUTDOWN),
		     TO(LAUNCH, ACT_RESTART), TO(DONE, ACT_NONE) },
	/* a host is missing when all others are there (3) */
	[EV_SHORT] = { TO(DRAIN, ACT_SAY_LOST), TO(STOP, ACT_SAY_LOST_STOP) },
	[EV_PLANNED] = { NOTHING, TO(CLOSE, ACT_PRINT_PLAN) },
	[EV_CHECK] = { NOTHING, TO(CHECK, ACT_CHECK) },
	[EV_AGAIN] = { NOTHING, NOTHING, NOTHING, NOTHING, NOTHING, NOTHING,
		       TO(WAIT, ACT_AWAIT_HOSTS) },
	[EV_LATE] = { STAY(ACT_GIVE_UP_LATE), STAY(ACT_GIVE_UP_LATE),
		      STAY(ACT_GIVE_UP_LATE), TO(STOP, ACT_STOP_AFTER_SIGNAL),
		      TO(STOP, ACT_SAY_CAUSE), STAY(ACT_GIVE_UP_SILENT), NOTHING,
		      TO(CLOSE, ACT_SAY_FEW), TO(DONE, ACT_NONE) },
	[EV_FAILED] = { NOTHING, NOTHING, NOTHING, TO(FAIL, ACT_STOP) },
	[EV_RESIZE] = { NOTHING, NOTHING, NOTHING, TO(STOP, ACT_SAY_RESIZE_STOP) },
	[EV_ERROR] = { TO(CLOSE, ACT_SAY_ERROR), TO(CLOSE, ACT_SAY_ERROR),
		       TO(CLOSE, ACT_SAY_ERROR), TO(STOP, ACT_SAY_ERROR_STOP), NOTHING,
		       NOTHING, TO(CLOSE, ACT_SAY_ERROR), TO(CLOSE, ACT_SAY_ERROR) },
	[EV_LIMIT] = { TO(CLOSE, ACT_SAY_LIMIT), TO(CLOSE, ACT_SAY_LIMIT),
		       TO(CLOSE, ACT_SAY_LIMIT), TO(STOP, ACT_SAY_LIMIT_STOP),
		       STAY(ACT_SAY_LIMIT_ONLY), STAY(ACT_SAY_LIMIT_ONLY),
		       STAY(ACT_SAY_LIMIT_ONLY), TO(CLOSE, ACT_SAY_LIMIT) },
	[EV_UNREAD] = { TO(CLOSE, ACT_SHUTDOWN), TO(CLOSE, ACT_SHUTDOWN),
			TO(CLOSE, ACT_SHUTDOWN), TO(STOP, ACT_STOP), NOTHING, NOTHING,
			TO(CLOSE, ACT_SHUTDOWN), TO(CLOSE, ACT_SHUTDOWN) },
	[EV_INT1] = { TO(CLOSE, ACT_SHUTDOWN), TO(CLOSE, ACT_SHUTDOWN),
		      TO(CLOSE, ACT_SHUTDOWN), STAY(ACT_INTERRUPT),
		      TO(STOP, ACT_SAY_CAUSE_KILL), TO(STOP, ACT_KILL_SAID), NOTHING,
		      TO(CLOSE, ACT_SHUTDOWN) },
	[EV_INT2] = { NOTHING, NOTHING, NOTHING, TO(STOP, ACT_KILL_SAID), NOTHING,
		      TO(STOP, ACT_KILL_SAID), NOTHING, TO(CLOSE, ACT_SHUTDOWN) },
	[EV_INT3] = { TO(CLOSE, ACT_GIVE_UP_ALL), TO(CLOSE, ACT_GIVE_UP_ALL),
		      TO(CLOSE, ACT_GIVE_UP_ALL), TO(CLOSE, ACT_GIVE_UP_ALL),
		      TO(CLOSE, ACT_GIVE_UP_ALL), TO(CLOSE, ACT_GIVE_UP_ALL),
		      TO(CLOSE, ACT_GIVE_UP_ALL), TO(CLOSE, ACT_GIVE_UP_ALL),
		      TO(DONE, ACT_NONE) },
	[EV_TERM] = { TO(CLOSE, ACT_SHUTDOWN), TO(CLOSE, ACT_SHUTDOWN),
		      TO(CLOSE, ACT_SHUTDOWN), STAY(ACT_TERMINATE), STAY(ACT_FORWARD),
		      STAY(ACT_FORWARD), NOTHING, TO(CLOSE, ACT_SHUTDOWN) },
};

START_TEST(each_cell)
{
	const enum job_event ev = (enum job_event)_i;

	for (enum job_phase p = JOB_LAUNCH; p < JOB_DONE; p++) {
		const struct phase_step got = phase_step(p, ev);
		const struct phase_step want = expected[ev][p - JOB_LAUNCH];

		ck_assert_msg(got.next == want.next && got.act == want.act,
			      "phase %d, event %d: phase %d, act %d, not %d, %d",
			      (int)p, _i, (int)got.next, (int)got.act, (int)want.next,
			      (int)want.act);
	}
	ck_assert_int_eq(phase_step(JOB_DONE, ev).next, JOB_STAY);
	ck_assert_int_eq(phase_step(JOB_DONE, ev).act, ACT_NONE);
}
END_TEST

/* ---- a record of two hosts with two ranks each ---- */

static struct request r;
static struct job j;
static struct rank ranks[4];
static struct plan_rank plan_ranks[4] = { [2] = { .host = 1 }, [3] = { .host = 1 } };

static void setup(void)
{
	r = (struct request){ .reach.start_timeout_ms = 30000,
			      .kill_grace_ms = 10000,
			      .growing.timeout_ms = 600000 };
	memset(ranks, 0, sizeof ranks);
	j = (struct job){ .request = &r, .epoch = 1, .ran = true, .rank = ranks };
	j.plan.np = 4;
	j.plan.rank = plan_ranks;
	j.phase = JOB_RUN;
	j.awaited = 4;
}

static void fails(uint32_t rank, int64_t at_ns, int code)
{
	ranks[rank].state = RANK_ENDED;
	ranks[rank].ending = (struct ending){ FATE_EXIT, at_ns, 0, code, 0 };
	j.ended++;
	j.failed++;
}

/* It ends once the others have. */
START_TEST(a_ps_is_not_awaited)
{
	struct app apps[2] = { { .tf_role = TF_WORKER }, { .tf_role = TF_PS } };

	r.app = apps;
	r.env.tf_config = true;
	plan_ranks[3].app = 1;
	phase_await(&j);
	ck_assert_uint_eq(j.awaited, 3);
	ranks[3].state = RANK_ENDED;
	j.ended = 1;
	phase_await(&j);
	ck_assert_uint_eq(j.awaited, 3);
	plan_ranks[3].app = 0;
}
END_TEST

#define DUE(ev) ck_assert_int_eq(phase_due(&j, 1000), (ev))

START_TEST(nothing_is_due_while_something_is_awaited)
{
	for (j.phase = JOB_LAUNCH; j.phase < JOB_DONE; j.phase++)
		DUE(EV_NONE);
}
END_TEST

START_TEST(deadlines)
{
	for (j.phase = JOB_LAUNCH; j.phase < JOB_DONE; j.phase++) {
		j.deadline_ms = 1001;
		DUE(EV_NONE);
		j.deadline_ms = 1000;
		DUE(EV_LATE);
		j.awaited = 0;
		DUE(EV_ALL); /* what is there is not late */
		j.awaited = 4;
	}
	j.limit_ms = 1000;
	DUE(EV_LIMIT);
	j.limit_ms = 1001;
	DUE(EV_LATE);
}
END_TEST

/* A lost host is missed when all others have answered. */
START_TEST(lost_before_the_ranks_run)
{
	j.lost = true;
	for (j.phase = JOB_LAUNCH; j.phase < JOB_RUN; j.phase++) {
		j.awaited = 1;
		DUE(EV_NONE);
		j.awaited = 0;
		DUE(EV_SHORT);
		r.plan = PLAN_TEXT;
		DUE(EV_SHORT);
		r.plan = PLAN_OFF;
	}
}
END_TEST

START_TEST(a_plan_ends_after_place)
{
	r.plan = PLAN_JSON;
	j.awaited = 0;
	j.phase = JOB_LAUNCH;
	DUE(EV_ALL);
	j.phase = JOB_PLACE;
	DUE(EV_PLANNED);
}
END_TEST

/* A lost host does not end it: it gets a line. */
START_TEST(a_check_follows_place)
{
	r.check = true;
	j.awaited = 0;
	for (int lost = 0; lost < 2; lost++) {
		j.lost = lost;
		j.phase = JOB_LAUNCH;
		DUE(EV_ALL);
		j.phase = JOB_PLACE;
		DUE(EV_CHECK);
		j.phase = JOB_CHECK;
		DUE(EV_ALL);
	}
	j.ran = false;
	j.lost = false;
	ck_assert_int_eq(phase_status(&j), 0);
	j.checks.failed = true;
	ck_assert_int_eq(phase_status(&j), 240);
	j.signo = SIGTERM;
	ck_assert_int_eq(phase_status(&j), 143);
}
END_TEST

START_TEST(failures_end_the_job)
{
	fails(1, 5, 3);
	DUE(EV_FAILED);
	j.signo = SIGTERM;
	DUE(EV_NONE);
	j.signo = 0;
	j.timed_out = true;
	DUE(EV_NONE);
	j.timed_out = false;
	j.unread = true;
	DUE(EV_NONE);
	j.unread = false;
	for (j.phase = JOB_FAIL; j.phase < JOB_DONE; j.phase++)
		DUE(EV_NONE);
}
END_TEST

/* All ranks of the lost host may have ended well. */
START_TEST(keep_going)
{
	r.lives.keep_going = true;
	fails(1, 5, 3);
	DUE(EV_NONE);
	j.lost = true;
	DUE(EV_FAILED);
	j.failed = 0;
	DUE(EV_FAILED);
	j.lost = false;
	j.failed = 1;
	j.awaited = 0;
	DUE(EV_ALL);
}
END_TEST

/* An act that failed is said where the job can say it: later, if its ranks are being
 * stopped. */
START_TEST(refused)
{
	static const bool says[] = {
		[JOB_LAUNCH] = true, [JOB_PLACE] = true, [JOB_CHECK] = true,
		[JOB_RUN] = true,    [JOB_FAIL] = false, [JOB_STOP] = false,
		[JOB_DRAIN] = true,  [JOB_WAIT] = true,  [JOB_CLOSE] = false
	};

	j.refused = true;
	for (j.phase = JOB_LAUNCH; j.phase < JOB_DONE; j.phase++)
		DUE(says[j.phase] ? EV_ERROR : EV_NONE);
}
END_TEST

START_TEST(no_reader_comes_first)
{
	j.refused = j.unread = j.unread_new = true;
	fails(0, 5, 3);
	DUE(EV_UNREAD);
	j.unread_new = j.refused = false;
	DUE(EV_NONE);
}
END_TEST

/* Of the restarts those of the last span count. */
START_TEST(restarts_in_a_span)
{
	uint64_t at_ms[] = { 100, 900 };

	j.phase = JOB_DRAIN;
	j.awaited = 0;
	r.lives.restarts = 2;
	r.lives.span_ms = 500;
	j.account.restarts.all = 7;
	j.account.restarts.at_ms = at_ms;
	j.account.restarts.n = 2;
	fails(2, 5, 3);
	DUE(EV_AGAIN); /* at 1000 the first one is long over */
	at_ms[0] = 501;
	DUE(EV_ALL);
	at_ms[0] = 500;
	DUE(EV_AGAIN);
	j.account.restarts.at_ms = NULL;
}
END_TEST

/* Other hosts are there: no restart is taken for it, and a failure comes first. */
START_TEST(resizes)
{
	j.growth.resizes = true;
	DUE(EV_RESIZE);
	j.grace_signo = SIGTERM;
	DUE(EV_NONE);
	j.grace_signo = 0;
	fails(2, 5, 3);
	DUE(EV_FAILED);
	j.phase = JOB_DRAIN;
	j.awaited = 0;
	DUE(EV_AGAIN);
	j.signo = SIGTERM;
	DUE(EV_ALL);
	j.signo = 0;
	j.phase = JOB_WAIT;
	DUE(EV_ALL);
	j.growth.lacks_hosts = true;
	phase_await(&j);
	DUE(EV_NONE);
	j.deadline_ms = 1000;
	DUE(EV_LATE);
}
END_TEST

START_TEST(one_starts_again)
{
	fails(2, 5, 3);
	j.phase = JOB_RUN;
	j.failed = 0;
	r.lives.restarts = 1;
	ck_assert(!phase_replace_wanted(&j, 2, 1000));
	r.lives.replace = REPLACE_ALONE;
	ck_assert(phase_replace_wanted(&j, 2, 1000));
	ck_assert(!phase_replace_wanted(&j, 1, 1000)); /* it has not failed */
	j.account.restarts.all = 1;
	ck_assert(!phase_replace_wanted(&j, 2, 1000));
	j.account.restarts.all = 0;
	j.grace_signo = SIGINT;
	ck_assert(!phase_replace_wanted(&j, 2, 1000));
	j.grace_signo = 0;
	ranks[2].ending.fate = FATE_EXEC;
	ck_assert(!phase_replace_wanted(&j, 2, 1000));
	ranks[2].ending.fate = FATE_LOST;
	ck_assert(!phase_replace_wanted(&j, 2, 1000));
}
END_TEST

START_TEST(restarts)
{
	j.phase = JOB_DRAIN;
	j.awaited = 0;
	r.lives.restarts = 1;
	DUE(EV_ALL); /* nothing failed */
	fails(2, 5, 3);
	DUE(EV_AGAIN);
	j.account.restarts.all = 1;
	DUE(EV_ALL);
	j.account.restarts.all = 0;
	j.signo = SIGTERM;
	DUE(EV_ALL);
	j.signo = 0;
	j.timed_out = true;
	DUE(EV_ALL);
	j.timed_out = false;
	j.unread = true;
	DUE(EV_ALL);
	j.unread = false;
	j.err.id = E_SLOTS;
	DUE(EV_ALL);
	j.err = (struct err){ 0 };
	ranks[2].ending.fate = FATE_EXEC; /* it would not be there the next time */
	DUE(EV_ALL);
	ranks[2].ending.fate = FATE_EXIT;
	j.awaited = 1; /* output */
	DUE(EV_NONE);
}
END_TEST

START_TEST(phases_last)
{
	static const struct {
		enum job_phase phase;
		uint64_t ms; /* 0: for ever */
	} rows[] = { { JOB_LAUNCH, 32000 }, { JOB_PLACE, 32000 }, { JOB_CHECK, 32000 },
		     { JOB_RUN, 0 },        { JOB_FAIL, 800 },    { JOB_STOP, 12000 },
		     { JOB_DRAIN, 0 },      { JOB_WAIT, 600000 }, { JOB_CLOSE, 3000 } };

	j.grace_ms = 5000;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		uint64_t want = rows[i].ms ? rows[i].ms + 100 : 0;

		j.phase = rows[i].phase;
		ck_assert_uint_eq(phase_deadline_ms(&j, 100), want);
	}
	ck_assert_uint_eq(phase_close_ms(&j), 3000);
	j.cleanup.until_ms = 6100;
	ck_assert_uint_eq(phase_deadline_ms(&j, 100), 6100);
	j.signals.interrupts = 3; /* all was given up */
	ck_assert_uint_eq(phase_deadline_ms(&j, 100), 600);
	ck_assert_uint_eq(phase_close_ms(&j), 500);
	j.signals.interrupts = 0;
	j.cleanup.until_ms = 0;
	j.ran = false;
	ck_assert_uint_eq(phase_deadline_ms(&j, 100), 600);
}
END_TEST

/* ---- the phases of hosts ---- */

enum { HOSTS = 3, WALK = 200000 };

static struct host_run runs[HOSTS];
static uint32_t node[HOSTS];

/* Ranks on the first two; none on the last. */
static void with_hosts(void)
{
	memset(runs, 0, sizeof runs);
	node[0] = 0;
	node[1] = 1;
	node[2] = PLAN_UNUSED;
	j.agents.n = HOSTS;
	j.run = runs;
	j.plan.node = node;
	j.plan.nhosts = HOSTS;
}

START_TEST(phases_await)
{
	/* the phase of hosts that it awaits: the first, and the one behind the last */
	static const enum host_phase rows[JOB_DONE][2] = {
		[JOB_LAUNCH] = { RUN_STARTING, RUN_PLACING },
		[JOB_PLACE] = { RUN_PLACING, RUN_PLACED },
		[JOB_CHECK] = { RUN_PLACING, RUN_CHECKED },
		[JOB_FAIL] = { RUN_PLACING, RUN_STOPPED },
		[JOB_STOP] = { RUN_PLACING, RUN_CLEARED },
		[JOB_CLOSE] = { RUN_LEAVING, RUN_LEFT },
	};

	with_hosts();
	for (j.phase = JOB_LAUNCH; j.phase < JOB_DONE; j.phase++)
		for (enum host_phase at = RUN_NONE; at < RUN_PHASES; at++) {
			const bool want =
				at >= rows[j.phase][0] && at < rows[j.phase][1];
			const bool ends = j.phase == JOB_LAUNCH || j.phase == JOB_CLOSE;

			for (size_t i = 0; i < HOSTS; i++)
				runs[i].phase = at;
			phase_await(&j);
			if (j.phase == JOB_RUN)
				ck_assert_uint_eq(j.awaited, 4);
			else
				ck_assert_uint_eq(j.awaited, want ? ends ? 3 : 2 : 0);
		}
	j.ended = 3;
	j.phase = JOB_RUN;
	phase_await(&j);
	ck_assert_uint_eq(j.awaited, 1);
	runs[0].phase = RUN_LEAVING;
	j.cleanup.running = 2;
	j.phase = JOB_CLOSE;
	phase_await(&j);
	ck_assert_uint_eq(j.awaited, 3);
}
END_TEST

/* By event; the table of phase.c stands by phase. */
static const enum host_phase host_steps[RUN_EVENTS][RUN_PHASES] = {
	[RUN_EV_START] = { [RUN_NONE] = RUN_STARTING,
			   [RUN_LEAVING] = RUN_STARTING,
			   [RUN_LEFT] = RUN_STARTING },
	[RUN_EV_HELLO] = { [RUN_STARTING] = RUN_TRYING },
	[RUN_EV_HEALTHY] = { [RUN_TRYING] = RUN_PLACING },
	[RUN_EV_PLACED] = { [RUN_PLACING] = RUN_PLACED, [RUN_LEAVING] = RUN_LEAVING },
	[RUN_EV_CHECKED] = { [RUN_PLACED] = RUN_CHECKED },
	[RUN_EV_STOP_ACK] = { [RUN_PLACING] = RUN_STOPPED,
			      [RUN_PLACED] = RUN_STOPPED,
			      [RUN_STOPPED] = RUN_STOPPED,
			      [RUN_CLEARED] = RUN_CLEARED,
			      [RUN_LEAVING] = RUN_LEAVING },
	[RUN_EV_CLEARED] = { [RUN_STOPPED] = RUN_CLEARED },
	[RUN_EV_LEAVE] = { [RUN_TRYING] = RUN_LEAVING,
			   [RUN_PLACING] = RUN_LEAVING,
			   [RUN_PLACED] = RUN_LEAVING,
			   [RUN_CHECKED] = RUN_LEAVING,
			   [RUN_STOPPED] = RUN_LEAVING,
			   [RUN_CLEARED] = RUN_LEAVING },
	[RUN_EV_CLOSED] = { [RUN_LEAVING] = RUN_LEFT },
	[RUN_EV_LOST] = { [RUN_STARTING] = RUN_GONE,
			  [RUN_TRYING] = RUN_GONE,
			  [RUN_PLACING] = RUN_GONE,
			  [RUN_PLACED] = RUN_GONE,
			  [RUN_CHECKED] = RUN_GONE,
			  [RUN_STOPPED] = RUN_GONE,
			  [RUN_CLEARED] = RUN_GONE,
			  [RUN_LEAVING] = RUN_GONE },
	[RUN_EV_EPOCH] = { [RUN_TRYING] = RUN_TRYING,
			   [RUN_PLACING] = RUN_PLACING,
			   [RUN_CLEARED] = RUN_TRYING,
			   [RUN_GONE] = RUN_DROPPED },
	[RUN_EV_RETRY] = { [RUN_GONE] = RUN_LEFT, [RUN_DROPPED] = RUN_LEFT },
};

/* Anything comes at any time.  What is awaited stays counted, and an event that cannot
 * be changes nothing. */
START_TEST(hosts_walk)
{
	unsigned seen[RUN_PHASES] = { 0 };

	srand(20261127);
	with_hosts();
	j.phase = JOB_LAUNCH;
	phase_await(&j);
	for (int k = 0; k < WALK; k++) {
		const size_t i = (size_t)rand() % HOSTS;
		const enum host_event ev = (enum host_event)(rand() % RUN_EVENTS);
		const enum host_phase at = runs[i].phase, want = host_steps[ev][at];
		size_t awaited;

		if (rand() % 10 == 0) {
			j.phase = JOB_LAUNCH + rand() % (JOB_DONE - JOB_LAUNCH);
			phase_await(&j);
		}
		ck_assert(phase_host(&j, i, ev) == (want != RUN_NONE));
		ck_assert_int_eq(runs[i].phase, want ? want : at);
		seen[runs[i].phase]++;
		awaited = j.awaited;
		phase_await(&j);
		ck_assert_uint_eq(awaited, j.awaited);
	}
	for (enum host_phase at = RUN_NONE; at < RUN_PHASES; at++)
		ck_assert_uint_gt(seen[at], 0);
	for (enum host_event ev = 0; ev < RUN_EVENTS; ev++) {
		runs[0].phase = RUN_DROPPED;
		ck_assert(phase_host(&j, 0, ev) == (ev == RUN_EV_RETRY));
	}
}
END_TEST

#define STATUS(status) ck_assert_int_eq(phase_status(&j), (status))

/* From the last that counts to the first. */
START_TEST(statuses)
{
	STATUS(0);
	j.disk_failed = true;
	STATUS(125);
	j.lost = true;
	STATUS(241);
	j.ran = false;
	STATUS(240);
	j.ran = true;
	fails(3, 9, 7);
	STATUS(7);
	fails(2, 5, 6);
	STATUS(6);
	ranks[2].late = true; /* its agent had been told to stop */
	STATUS(7);
	j.signo = SIGTERM;
	STATUS(143);
	j.failed = 0;
	STATUS(143); /* not all have ended */
	j.ended = 4;
	STATUS(0);
	j.signo = SIGHUP;
	STATUS(129);
	j.timed_out = true;
	STATUS(124);
	j.err.id = E_AGENT_LOST;
	STATUS(241);
	j.ran = false;
	STATUS(240);
	j.err.id = E_NO_GPUS;
	STATUS(2);
}
END_TEST

/* TERM came before it was known how many ranks there are. */
START_TEST(a_signal_before_there_is_a_plan)
{
	j.signo = SIGTERM;
	j.ran = false;
	j.plan.np = 0;
	STATUS(143);
}
END_TEST

START_TEST(deaths)
{
	ck_assert_int_eq(phase_death(&j), 0);
	j.signo = SIGTERM;
	ck_assert_int_eq(phase_death(&j), 0);
	j.unread = true;
	ck_assert_int_eq(phase_death(&j), SIGPIPE);
	j.err.id = E_OUTPUT;
	ck_assert_int_eq(phase_death(&j), 0);
	j.signo = SIGINT;
	ck_assert_int_eq(phase_death(&j), SIGINT);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("job phase");
	TCase *t = tcase_create("phase");
	SRunner *run;
	int failed;

	tcase_add_checked_fixture(t, setup, NULL);
	tcase_add_loop_test(t, each_cell, 0, EV_COUNT);
	tcase_add_test(t, a_ps_is_not_awaited);
	tcase_add_test(t, nothing_is_due_while_something_is_awaited);
	tcase_add_test(t, deadlines);
	tcase_add_test(t, lost_before_the_ranks_run);
	tcase_add_test(t, a_plan_ends_after_place);
	tcase_add_test(t, a_check_follows_place);
	tcase_add_test(t, failures_end_the_job);
	tcase_add_test(t, keep_going);
	tcase_add_test(t, refused);
	tcase_add_test(t, no_reader_comes_first);
	tcase_add_test(t, restarts);
	tcase_add_test(t, restarts_in_a_span);
	tcase_add_test(t, resizes);
	tcase_add_test(t, one_starts_again);
	tcase_add_test(t, phases_last);
	tcase_add_test(t, phases_await);
	tcase_add_test(t, hosts_walk);
	tcase_add_test(t, statuses);
	tcase_add_test(t, a_signal_before_there_is_a_plan);
	tcase_add_test(t, deaths);
	suite_add_tcase(s, t);
	run = srunner_create(s);
	srunner_run_all(run, CK_ENV);
	failed = srunner_ntests_failed(run);
	srunner_free(run);
	return failed != 0;
}
