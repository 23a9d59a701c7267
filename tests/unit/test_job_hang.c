/* launcher/job/hang: what agents say of their ranks, and the end of one that hangs.
 * hang_judge.h, which decides, has a table of its own.
 * takes_s: 2 */
#include "launcher/job/dump.h"
#include "launcher/job/hang.h"
#include "launcher/job/rank_status.h"
#include "tests/unit/job_rig.h"

enum { RANKS = 4, LIMIT_MS = 10000, LOOK_MS = LIMIT_MS / 10 };

/* The message hung, as the agents got it. */
static struct wire_hung told[RANKS_MOST];
static size_t ntold;
static uint32_t started;                            /* lives after the first */
static bool uses_library, is_asked, answers = true; /* dump; its answers come */

/* What the agents say at the next look. */
static struct one {
	char state;
	uint32_t life, cpu_ms, kib, number, late_ms;
	bool waits; /* in operation 2 of all ranks; else its last one was 1 */
} rank[RANKS];

static void hears(struct conn *c, const struct wire_frame *f)
{
	(void)c;
	if (f->type == WIRE_hung) {
		ck_assert_uint_lt(ntold, RANKS_MOST);
		ck_assert(!wire_unpack_hung(&told[ntold++], f->payload, f->n, NULL));
	}
	started += f->type == WIRE_start;
	is_asked |= f->type == WIRE_dump;
}

static void run_four(const char *options)
{
	char *all = xasprintf("--stdin none -np 4 %s", options);

	quiet();
	ntold = started = 0;
	uses_library = answers = true;
	is_asked = false;
	rig_open(2, all);
	free(all);
	job_begin(&g.j);
	turn();
	deliver_all();
	ck_assert_int_eq(g.j.phase, JOB_RUN);
	g.heard = hears;
	for (uint32_t i = 0; i < RANKS; i++)
		rank[i] = (struct one){ 'S', 1, 100, 100, 1, 0, true };
}

static void say_op(size_t host, uint32_t i)
{
	uint32_t set = 0, seq = 1 + rank[i].waits, runs = rank[i].waits;

	if (!uses_library)
		return;
	SAYS(host, rank_op, .epoch = g.j.epoch, .rank = i, .text = "allreduce",
	     .sets = { &set, 1 }, .seqs = { &seq, 1 }, .runs = { &runs, 1 });
}

/* LACKS: its lists are one rank short. */
static void say_looked(size_t host, uint32_t epoch, size_t lacks)
{
	uint32_t life[2], state[2], cpu_ms[2], kib[2], number[2], pending[2];
	uint32_t late_ms[2];

	for (uint32_t i = 0; i < 2; i++) {
		const struct one *r = &rank[2 * host + i];

		life[i] = r->life;
		state[i] = (unsigned char)r->state;
		cpu_ms[i] = r->cpu_ms;
		kib[i] = r->kib;
		number[i] = r->number;
		pending[i] = r->waits;
		late_ms[i] = r->late_ms;
	}
	SAYS(host, looked, .epoch = epoch, .lives = { life, 2 - (lacks == 1) },
	     .states = { state, 2 - (lacks == 2) },
	     .cpu_ms = { cpu_ms, 2 - (lacks == 3) }, .kib = { kib, 2 - (lacks == 4) },
	     .numbers = { number, 2 - (lacks == 5) },
	     .pending = { pending, 2 - (lacks == 6) },
	     .late_ms = { late_ms, 2 - (lacks == 7) });
}

static void say_all(size_t host)
{
	say_looked(host, g.j.epoch, 0);
	say_op(host, 2 * (uint32_t)host);
	say_op(host, 2 * (uint32_t)host + 1);
	SAYS(host, query_done, .epoch = g.j.epoch);
}

/* Where ranks are. */
static void say_dumped_of(uint32_t first)
{
	is_asked = false;
	for (uint32_t i = first; i < RANKS; i++)
		SAYS(i / 2, dumped, .epoch = g.j.epoch, .rank = i, .pid = 7,
		     .state = (unsigned char)rank[i].state, .wchan = "", .stack = "",
		     .why = "");
	turn();
}

/* Where all are; and the look that follows if one is to be ended. */
static void say_dumped(void)
{
	say_dumped_of(0);
	say_all(0);
	say_all(1);
	turn();
}

/* N looks, at which both agents answer. */
static void looks(int n)
{
	while (n--) {
		now_ms += LOOK_MS;
		rank_status_look(g.j.serves.status);
		say_all(0);
		say_all(1);
		turn();
		if (is_asked && answers)
			say_dumped();
	}
}

static void is_told(size_t n, uint32_t which, uint32_t life)
{
	ck_assert_uint_eq(ntold, n);
	if (!n)
		return;
	ck_assert_uint_eq(told[n - 1].rank, which);
	ck_assert_uint_eq(told[n - 1].life, life);
	ck_assert_uint_eq(told[n - 1].epoch, g.j.epoch);
}

/* ---- who hangs ---- */

START_TEST(a_stopped_rank_is_told_to_end_once)
{
	run_four("--hang-timeout 10");
	rank[3].state = 'T';
	looks(10);
	is_told(0, 0, 0);
	looks(1);
	is_told(1, 3, 1);
	looks(1);
	is_told(1, 3, 1);
	rig_close();
}
END_TEST

/* Others wait for rank 1: less than a hundredth of a CPU is nothing. */
START_TEST(one_that_does_nothing)
{
	run_four("--hang-timeout 10");
	rank[1].waits = false;
	for (int i = 0; i < 10; i++) {
		looks(1);
		rank[1].cpu_ms += LOOK_MS / 100 - 1;
	}
	is_told(0, 0, 0);
	looks(1);
	is_told(1, 1, 1);
	rig_close();
}
END_TEST

/* A process that ends below it takes its CPU time along: that is work, too. */
static const struct {
	uint32_t cpu_ms, kib; /* is added at each look */
} works[] = { { LOOK_MS / 50, 0 },
	      { (uint32_t)-LOOK_MS / 50, 0 },
	      { 0, 4 },
	      { 0, (uint32_t)-4 } };

START_TEST(one_that_works)
{
	run_four("--hang-timeout 10");
	rank[1].waits = false;
	for (int i = 0; i < 40; i++) {
		looks(1);
		rank[1].cpu_ms += works[_i].cpu_ms;
		rank[1].kib += works[_i].kib;
	}
	is_told(0, 0, 0);
	looks(15); /* the others have waited for 5 limits, or it has done nothing */
	is_told(1, 1, 1);
	rig_close();
}
END_TEST

/* It had no CPU for a part of the time, of which only a tenth counts then.  The first
 * two looks say what it was before. */
static const struct {
	bool works;
	uint32_t late_ms; /* at each look */
	int looks;
} lates[] = { { true, 0, 50 },
	      { true, LOOK_MS / 2, 99 },
	      { true, LOOK_MS, 491 },
	      { true, 7 * LOOK_MS, 491 },
	      { true, (uint32_t)-LOOK_MS, 491 },
	      { false, LOOK_MS / 2, 19 },
	      { false, LOOK_MS, 91 } };

START_TEST(one_without_a_cpu)
{
	run_four("--hang-timeout 10");
	rank[1].late_ms = 77 * LOOK_MS; /* of other times */
	rank[1].waits = false;
	for (int i = 0; i < lates[_i].looks; i++) {
		looks(1);
		rank[1].late_ms += lates[_i].late_ms;
		rank[1].cpu_ms += lates[_i].works ? LOOK_MS / 50 : 0;
	}
	is_told(0, 0, 0);
	looks(1);
	is_told(1, 1, 1);
	rig_close();
}
END_TEST

/* Each wait for a CPU is of 3 looks, and told at its end. */
START_TEST(a_wait_is_told_late)
{
	run_four("--hang-timeout 10");
	rank[1].waits = false;
	for (int i = 0; i < 480; i++) {
		looks(1);
		rank[1].cpu_ms += LOOK_MS / 50;
		if (i % 3 == 2)
			rank[1].late_ms += 3 * LOOK_MS;
	}
	is_told(0, 0, 0);
	looks(20);
	is_told(1, 1, 1);
	rig_close();
}
END_TEST

/* One that is stopped has no use for a CPU. */
START_TEST(one_stopped_beside_load)
{
	run_four("--hang-timeout 10");
	rank[3].state = 'T';
	for (int i = 0; i < 10; i++) {
		looks(1);
		for (int k = 0; k < RANKS; k++)
			rank[k].late_ms += LOOK_MS;
	}
	is_told(0, 0, 0);
	looks(1);
	is_told(1, 3, 1);
	rig_close();
}
END_TEST

/* Those that have waited for it nearly 5 limits long do not hang when it has ended. */
START_TEST(one_that_ends_while_others_wait)
{
	run_four("--hang-timeout 10");
	rank[1].waits = false;
	for (int i = 0; i < 48; i++) {
		looks(1);
		rank[1].cpu_ms += LOOK_MS / 50;
	}
	exits(g.agent[0], 1, 0);
	deliver_all();
	rank[1].state = '\0';
	looks(10);
	is_told(0, 0, 0);
	ck_assert_int_eq(g.j.phase, JOB_RUN);
	looks(1); /* nobody has done anything since */
	ck_assert_uint_eq(ntold, 3);
	rig_close();
}
END_TEST

START_TEST(a_pause_of_runner_is_no_time)
{
	run_four("--hang-timeout 10");
	rank[3].state = 'T';
	for (int i = 0; i < 4; i++) {
		looks(1);
		now_ms += 10 * LIMIT_MS;
	}
	is_told(0, 0, 0);
	looks(7);
	is_told(1, 3, 1);
	rig_close();
}
END_TEST

/* ---- where they are, before one is ended ---- */

/* RANK goes on in some way while agents are asked: it is left alone, and so are the
 * others.  0: it does not. */
static const struct {
	char state;
	bool waits;
	uint32_t cpu_ms, kib;
	bool ends;
} meanwhile[] = { { 'S', false, 0, 0, true },
		  { 'S', false, 1000, 0, false },
		  { 'S', false, 0, 64, false },
		  { 'S', true, 0, 0, false },
		  { 'R', false, 0, 0, false } };

START_TEST(one_that_goes_on_meanwhile)
{
	run_four("--hang-timeout 10");
	rank[3].waits = false;
	looks(10);
	answers = false;
	looks(1);
	ck_assert(is_asked);
	is_told(0, 0, 0);
	rank[3].state = meanwhile[_i].state;
	rank[3].waits = meanwhile[_i].waits;
	rank[3].number += rank[3].waits;
	rank[3].cpu_ms += meanwhile[_i].cpu_ms;
	rank[3].kib += meanwhile[_i].kib;
	now_ms += 100;
	say_dumped();
	is_told(meanwhile[_i].ends, 3, 1);
	looks(1);
	is_told(meanwhile[_i].ends, 3, 1);
	rig_close();
}
END_TEST

/* Stopped when agents were asked; 1: it goes on. */
START_TEST(one_that_was_stopped)
{
	run_four("--hang-timeout 10");
	rank[3].state = 'T';
	looks(10);
	answers = false;
	looks(1);
	is_told(0, 0, 0);
	rank[3].state = _i ? 'S' : 'T';
	say_dumped();
	is_told(!_i, 3, 1);
	rig_close();
}
END_TEST

/* Agents do not say where the ranks are, and then not how they are. */
START_TEST(no_dump_is_no_reprieve)
{
	const struct timespec nap = { 0, 10000000 };

	run_four("--hang-timeout 10");
	rank[3].state = 'T';
	looks(10);
	answers = false;
	looks(1);
	say_dumped_of(3);
	is_told(0, 0, 0);
	now_ms += DUMP_MS;
	for (int i = 0; i < 500 && !ntold; i++) {
		nanosleep(&nap, NULL);
		turn();
	}
	is_told(1, 3, 1);
	rig_close();
}
END_TEST

/* It ends by itself, and starts again: that life is not meant. */
START_TEST(one_that_ends_meanwhile)
{
	run_four("--hang-timeout 10 --restarts 2 --replace alone");
	uses_library = false;
	rank[3].state = 'T';
	looks(10);
	answers = false;
	looks(1);
	exits(g.agent[1], 1, 1);
	deliver_all();
	ck_assert_uint_eq(started, 1);
	say_dumped();
	is_told(0, 0, 0);
	ck_assert_int_eq(g.j.phase, JOB_RUN);
	rig_close();
}
END_TEST

/* ---- answers that are wrong ---- */

/* One of another life, whose number has come or is to come. */
START_TEST(of_another_life)
{
	run_four("--hang-timeout 10");
	rank[3].state = 'T';
	rank[3].life = (uint32_t)_i;
	looks(30);
	is_told(0, 0, 0);
	rank[3].life = 1;
	looks(11);
	is_told(1, 3, 1);
	rig_close();
}
END_TEST

/* The same look twice; one for which nobody asked; one of another epoch. */
START_TEST(twice_and_late)
{
	run_four("--hang-timeout 10");
	rank[3].state = 'T';
	for (int i = 0; i < 5; i++) {
		looks(1);
		say_looked(1, g.j.epoch, 0);
		say_all(1);
		say_all(1);
	}
	rank[3].state = 'S'; /* this is late: it counts at the next look */
	say_all(1);
	rank[3].state = 'T';

	say_looked(1, g.j.epoch - 1, 0);
	looks(5);
	is_told(0, 0, 0);
	looks(1);
	is_told(1, 3, 1);
	rig_close();
}
END_TEST

/* An agent that does not answer: nothing is known of its ranks. */
START_TEST(unanswered)
{
	run_four("--hang-timeout 10");
	rank[3].state = 'T';
	for (int i = 0; i < 30; i++) {
		now_ms += LOOK_MS;
		rank_status_look(g.j.serves.status);
		say_all(0);
		/* query_done alone does not say how the ranks are */
		SAYS(1, query_done, .epoch = g.j.epoch);
	}
	is_told(0, 0, 0);
	rig_close();
}
END_TEST

START_TEST(lists_of_another_length)
{
	run_four("--hang-timeout 10");
	say_looked(1, g.j.epoch, 1 + (size_t)_i);
	turn();
	ck_assert_int_eq(g.j.agents.host[1].state, HOST_LOST);
	ck_assert_ptr_nonnull(
		strstr(g.j.agents.host[1].err.text, "malformed 'looked' message"));
	rig_close();
}
END_TEST

START_TEST(nobody_looks_if_it_is_off)
{
	run_four("--hang-timeout off");
	ck_assert_ptr_null(g.j.serves.hang);
	say_looked(1, g.j.epoch, 1); /* for which nobody asked */
	turn();
	ck_assert_int_eq(g.j.phase, JOB_RUN);
	rig_close();
}
END_TEST

/* ---- what follows ---- */

/* Rank I, and what its agent says then. */
static void ends(uint32_t i)
{
	struct conn *c = g.agent[i / 2];

	c->running[i % 2] = false;
	ANSWER(c, exited, .epoch = g.j.epoch, .rank = i, .pid = 7, .status = SIGKILL,
	       .began_ns = now_ms * 1000000, .text = "", .hint = "");
	deliver_all();
}

/* Its next life hangs as well: the order is of that one. */
START_TEST(a_rank_alone_starts_again)
{
	run_four("--hang-timeout 10 --restarts 2 --replace alone");
	uses_library = false;
	rank[3].state = 'T';
	looks(11);
	is_told(1, 3, 1);
	looks(3);
	ends(3);
	ck_assert_uint_eq(started, 1);
	ck_assert_int_eq(g.j.phase, JOB_RUN);
	ck_assert_int_eq(g.j.rank[3].state, RANK_RUNNING);
	looks(12); /* of the first life: too late */
	is_told(1, 3, 1);
	rank[3].life = 2;
	looks(11);
	is_told(2, 3, 2);
	rig_close();
}
END_TEST

static const struct {
	const char *options;
	uint32_t told; /* ranks */
	bool again;    /* all start again once these have ended */
} follows[] = { { "--on-hang report --restarts 1", 0, false },
		{ "--on-hang kill --restarts 1", 1, false },
		{ "--on-hang restart", 1, false },
		{ "--on-hang restart --restarts 1", 1, true },
		{ "--on-hang replace --restarts 1", 1, true } };

START_TEST(what_follows)
{
	char *options =
		xasprintf("--hang-timeout 10 --replace all %s", follows[_i].options);

	run_four(options);
	free(options);
	rank[3].state = 'T';
	looks(20);
	ck_assert_uint_eq(ntold, follows[_i].told);
	if (!follows[_i].told)
		ck_assert_int_eq(g.j.phase, JOB_RUN);
	if (follows[_i].told)
		ends(3);
	ck_assert_int_eq(g.j.phase,
			 follows[_i].again || !follows[_i].told ? JOB_RUN : JOB_DONE);
	ck_assert_uint_eq(g.j.epoch, 1 + follows[_i].again);
	if (g.j.phase == JOB_DONE)
		ck_assert_int_eq(job_finish(&g.j), 128 + SIGKILL);
	rig_close();
}
END_TEST

/* It waits in the kernel: the job is not to wait, too. */
START_TEST(one_that_does_not_end_ends_the_job)
{
	run_four("--hang-timeout 10 --restarts 1");
	rank[3].state = 'D';
	rank[3].waits = false;
	looks(11);
	is_told(1, 3, 1);
	looks(11);
	ck_assert_int_eq(g.j.phase, JOB_RUN);
	looks(1);
	ck_assert_int_eq(g.j.phase, JOB_STOP);
	ck_assert_int_eq(g.j.err.id, E_RANK_HUNG);
	ck_assert_ptr_nonnull(strstr(g.j.err.text, "it does not end"));
	deliver_all();
	ck_assert_int_eq(g.j.phase, JOB_DONE);
	rig_close();
}
END_TEST

int main(void)
{
	Suite *s = suite_create("hang");
	TCase *c = tcase_create("hang");
	SRunner *r;
	int failed;

	tcase_add_checked_fixture(c, setup, teardown);
	tcase_add_test(c, a_stopped_rank_is_told_to_end_once);
	tcase_add_test(c, one_that_does_nothing);
	tcase_add_loop_test(c, one_that_works, 0, sizeof works / sizeof *works);
	tcase_add_loop_test(c, one_without_a_cpu, 0, sizeof lates / sizeof *lates);
	tcase_add_test(c, a_wait_is_told_late);
	tcase_add_test(c, one_stopped_beside_load);
	tcase_add_test(c, one_that_ends_while_others_wait);
	tcase_add_loop_test(c, one_that_goes_on_meanwhile, 0,
			    sizeof meanwhile / sizeof *meanwhile);
	tcase_add_loop_test(c, one_that_was_stopped, 0, 2);
	tcase_add_test(c, no_dump_is_no_reprieve);
	tcase_add_test(c, one_that_ends_meanwhile);
	tcase_add_test(c, a_pause_of_runner_is_no_time);
	tcase_add_loop_test(c, of_another_life, 2, 4);
	tcase_add_test(c, twice_and_late);
	tcase_add_test(c, unanswered);
	tcase_add_loop_test(c, lists_of_another_length, 0, 7);
	tcase_add_test(c, nobody_looks_if_it_is_off);
	tcase_add_test(c, a_rank_alone_starts_again);
	tcase_add_loop_test(c, what_follows, 0, sizeof follows / sizeof *follows);
	tcase_add_test(c, one_that_does_not_end_ends_the_job);
	suite_add_tcase(s, c);
	r = srunner_create(s);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed != 0;
}
