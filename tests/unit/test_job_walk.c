/* launcher/job: random sequences of what hosts, ranks, signals, a reader and the clock
 * do. Where each order is answered or its deadline passes, the job ends, no rank is
 * left without an order to stop, and the status is the one that this file works out by
 * itself. limit_s: 300 */
#include "tests/unit/job_rig.h"

enum { WALKS = 2500, STEPS = 60 };

/* What happened, as the walk's own list of statuses needs it. */
static struct seen {
	bool ran, limit, unread, lost, short_start, error, no_program;
	enum job_phase phase; /* after the turn before */
	int signo, interrupts;
	uint32_t epoch;
	uint64_t first_ms; /* the first failure that counts; 0: none */
	int first_status;
	uint64_t lost_ms; /* the first loss that counts; 0: none */
	bool failed;      /* a rank, whenever */
	bool ended_badly[RANKS_MOST], ended[RANKS_MOST];
} seen;

static void after_turn(void)
{
	seen.ran = g.j.ran;
	/* all hosts placed their ranks, and one of them has no program */
	for (size_t i = 0; i < g.nhosts; i++)
		seen.no_program |= seen.phase == JOB_PLACE && g.j.phase == JOB_STOP &&
				   !seen.short_start && job_needs(&g.j, i) &&
				   g.cannot[i];
	seen.phase = g.j.phase;
	/* a host was missing when the others were there */
	if (seen.short_start && !g.j.ran && g.j.phase > JOB_RUN && !seen.signo)
		seen.error = true;
	if (seen.epoch == g.j.epoch)
		return;
	seen.epoch = g.j.epoch;
	seen.first_ms = seen.lost_ms = 0;
	seen.lost = seen.failed = seen.short_start = false;
	memset(seen.ended, 0, sizeof seen.ended);
}

static void saw_end(uint32_t rank, uint64_t at_ms, int status, bool late)
{
	if (seen.ended[rank])
		return;
	seen.ended[rank] = true;
	seen.ended_badly[rank] = status != 0;
	seen.failed |= status != 0;
	if (!status || late)
		return;
	if (status == EXIT_LOST && (!seen.lost_ms || at_ms < seen.lost_ms))
		seen.lost_ms = at_ms;
	if (seen.first_ms && at_ms >= seen.first_ms)
		return;
	seen.first_ms = at_ms;
	seen.first_status = status;
}

static bool may_restart(void)
{
	bool failed = seen.failed || (seen.short_start && seen.ran);

	return failed && g.j.phase < JOB_CLOSE &&
	       g.j.epoch <= (uint32_t)g.r.lives.restarts && !seen.signo &&
	       !seen.limit && !seen.unread;
}

/* The status that runner(1) promises, of what happened. */
static int expected_status(void)
{
	bool well = seen.ran;

	for (uint32_t i = 0; i < g.j.plan.np; i++)
		well &= seen.ended[i] && !seen.ended_badly[i];
	if (seen.error)
		return 240;
	if (seen.no_program)
		return 127;
	if (seen.limit)
		return 124;
	if (seen.signo)
		return seen.signo == SIGTERM && well ? 0 : 128 + seen.signo;
	/* ranks may exit before the loss of their peers' host is noticed */
	if (seen.lost_ms && seen.lost_ms <= seen.first_ms + EXIT_LASTS_MS)
		return EXIT_LOST;
	if (seen.first_ms)
		return seen.first_status;
	return seen.lost || seen.short_start ? EXIT_LOST : 0;
}

/* Deliver C's next answer, and note what it tells of. */
static void hear(struct conn *c)
{
	struct wire_frame f;
	struct wire_exited m;
	struct buf *b = &c->answer[c->first];

	if (!c->cleans &&
	    wire_next_from(WIRE_AGENT, &f, buf_head(b), b->len, NULL) > 0 &&
	    f.type == WIRE_exited) {
		bool late = g.j.run[c->host].phase >= RUN_STOPPED;

		ck_assert(!wire_unpack_exited(&m, f.payload, f.n, NULL));
		if (m.epoch == g.j.epoch)
			saw_end(m.rank, m.began_ns / 1000000, (int)(m.status >> 8),
				late);
	}
	deliver(c);
}

static void see_loss(struct conn *c)
{
	const enum job_phase phase = g.j.phase;

	if (!c || !c->open || c->cleans)
		return;
	if (job_needs(&g.j, c->host) && phase < JOB_RUN)
		seen.short_start = true;
	if (job_needs(&g.j, c->host) && phase != JOB_CLOSE)
		seen.lost = true;
	if (phase < JOB_RUN || phase == JOB_CLOSE)
		return;
	for (uint32_t i = 0; i < g.j.plan.local_size[c->host]; i++)
		saw_end(g.j.plan.ranks[c->host][i], now_ms, EXIT_LOST,
			g.j.run[c->host].phase >= RUN_STOPPED);
}

/* Time passes.  Hosts that a deadline gives up are lost, too. */
static void advance(uint64_t ms)
{
	const struct job *j = &g.j;
	bool limit = j->limit_ms && now_ms + ms >= j->limit_ms;

	now_ms += ms;
	if (limit && (j->phase <= JOB_RUN || may_restart()))
		seen.limit = true;
	if (j->deadline_ms && now_ms >= j->deadline_ms &&
	    !(limit && j->phase <= JOB_RUN) &&
	    (j->phase <= JOB_PLACE || j->phase == JOB_STOP))
		for (size_t i = 0; i < g.nhosts; i++)
			if (phase_awaits(j, i))
				see_loss(g.agent[i]);
	turn();
	after_turn();
}

static void send_signal(int signo)
{
	bool ends = signo == SIGTERM || signo == SIGHUP;

	if (!seen.signo &&
	    (signo == SIGINT || (ends && (g.j.phase <= JOB_RUN || may_restart()))))
		seen.signo = signo;
	seen.interrupts += signo == SIGINT;
	if (seen.interrupts == 3 && signo == SIGINT)
		for (size_t i = 0; i < g.nhosts; i++)
			if (g.agent[i] && g.j.run[i].phase < RUN_CLEARED &&
			    g.j.agents.host[i].state == HOST_UP)
				see_loss(g.agent[i]);
	job_signal(&g.j, signo);
}

/* The reader of stdout leaves, and a rank that runs writes. */
static void lose_reader(struct conn *c)
{
	for (uint32_t i = 0; c && c->open && !c->mute && i < c->nranks; i++) {
		if (!c->running[i] || c->first < c->n || g.j.phase != JOB_RUN)
			continue;
		dup2(g.broken, 1);
		ANSWER(c, output, c->epoch, c->rank[i], 1, { "x\n", 2 });
		seen.unread = true;
		deliver(c);
		for (int k = 0; k < 3; k++)
			event_base_loop(g.j.base, EVLOOP_NONBLOCK);
		ck_assert(g.j.unread);
		return;
	}
}

static void random_step(void)
{
	static const int signals[] = { SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGCONT };
	struct conn *c = g.nconns ? g.conn[any((uint32_t)g.nconns)] : NULL;
	uint32_t what = any(100);

	advance(1);
	if (g.j.phase == JOB_DONE)
		return;
	if (what < 60 && has_answer(c)) {
		hear(c);
	} else if (what < 75 && c && c->open && !c->mute && !c->cleans && c->nranks) {
		uint32_t local = any(c->nranks);

		if (c->running[local])
			exits(c, local, any(3) ? 0 : 1 + any(5));
	} else if (what < 82) {
		advance(any(3) ? any(500) : any(40000));
	} else if (what < 86) {
		see_loss(c);
		lose(c);
	} else if (what < 88 && c) {
		c->mute = true;
	} else if (what < 90) {
		send_signal(signals[any(5)]);
	} else if (what < 91) {
		lose_reader(c);
	}
}

/* Every order is answered from now on, or its deadline passes. */
static bool settle_step(void)
{
	const struct job *j = &g.j;

	for (size_t i = 0; i < g.nconns; i++)
		if (has_answer(g.conn[i])) {
			hear(g.conn[i]);
			return true;
		}
	if (j->deadline_ms || j->limit_ms) {
		uint64_t at = j->deadline_ms;

		if (!at || (j->limit_ms && j->limit_ms < at))
			at = j->limit_ms;
		if (j->phase != JOB_RUN || any(2)) {
			advance(at > now_ms ? at - now_ms : 0);
			return true;
		}
	}
	advance(1);
	for (size_t i = 0; j->phase == JOB_RUN && i < g.nhosts; i++) {
		struct conn *c = g.agent[i];

		if (!c || !c->open || !c->nranks)
			continue;
		if (c->mute) { /* as --host-timeout finds out */
			see_loss(c);
			lose(c);
			return true;
		}
		for (uint32_t k = 0; k < c->nranks; k++)
			if (c->running[k]) {
				exits(c, k, 0);
				return true;
			}
	}
	return false;
}

/* No rank that was started goes without an order, nor without a look at its host. */
static void check_orders(uint32_t seed)
{
	for (size_t i = 0; i < g.nconns; i++) {
		const struct conn *c = g.conn[i];
		bool running = false;

		if (c->cleans || seen.interrupts > 2 || !c->started)
			continue;
		for (uint32_t k = 0; k < c->nranks; k++)
			running |= c->running[k];
		ck_assert_msg(!running || c->told_stop || g.cleaned[c->host],
			      "seed %u: ranks of h%zu were not told to stop", seed,
			      c->host);
	}
}

static void walk(uint32_t seed, size_t nhosts)
{
	static const char *const keep[] = { "", "--keep-going" };
	static const char *const limit[] = { "", "", "--timeout 20" };
	char options[256];
	uint32_t np;
	int status;

	g.random = seed * 2654435761u + 1;
	seen = (struct seen){ .epoch = 1 };
	np = 1 + any((uint32_t)nhosts * 2);
	snprintf(options, sizeof options,
		 "-np %u --stdin none --restarts %u --kill-grace %u %s %s", np, any(3),
		 any(2) * 3, keep[any(2)], limit[any(3)]);
	quiet();
	rig_open(nhosts, options);
	g.j.spec.managed = any(2);
	if (!any(4)) /* their slots are what they say of themselves */
		for (size_t i = 0; i < nhosts; i++)
			g.j.agents.host[i].slots = SLOTS_AUTO;
	for (size_t i = 0; i < nhosts; i++)
		g.cannot[i] = !any(10);
	job_begin(&g.j);
	turn();
	for (int i = 0; i < STEPS && g.j.phase != JOB_DONE; i++, turn(), after_turn())
		random_step();
	for (int i = 0; i < 2000 && g.j.phase != JOB_DONE; i++, turn(), after_turn())
		ck_assert_msg(settle_step(), "seed %u (%s): idle in phase %d", seed,
			      options, (int)g.j.phase);
	ck_assert_msg(g.j.phase == JOB_DONE, "seed %u (%s): no end in phase %d", seed,
		      options, (int)g.j.phase);
	check_orders(seed);
	status = job_finish(&g.j);
	ck_assert_msg(status == expected_status(), "seed %u (%s): status %d, not %d",
		      seed, options, status, expected_status());
	rig_close();
}

/* JOB_SEED=N runs that one alone. */
START_TEST(random_sequences)
{
	const char *one = getenv("JOB_SEED");
	uint32_t seed = one ? (uint32_t)strtoul(one, NULL, 10) : 0;

	if (one && seed % HOSTS_MOST != (uint32_t)_i)
		return;
	for (uint32_t i = 0; i < (one ? 1 : WALKS); i++)
		walk(one ? seed : i * HOSTS_MOST + (uint32_t)_i, (size_t)_i + 1);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("job walk");
	TCase *t = tcase_create("walk");
	SRunner *r;
	int failed;

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_set_timeout(t, 240);
	tcase_add_loop_test(t, random_sequences, 0, HOSTS_MOST);
	suite_add_tcase(s, t);
	r = srunner_create(s);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed != 0;
}
