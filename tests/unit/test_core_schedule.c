/* lib/core/schedule: what each state does with each event, and worlds of ranks that
 * follow it, walked at random: WORLDS of them (10,000), from SEED on.
 * limit_s: 60
 * takes_s: 1 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/core/schedule.h"

enum {
	RANKS = 4,
	UNITS = 10,
	DOZE_NS = 10000000, /* of the thread of all sets, while something is pending */
	/* After the last thing that comes, until all is done: where ranks hear each
	 * other, and where they do not. */
	END_NS = 1000000,
	END_UNHEARD_NS = 16000000
};

static const uint64_t NEVER = UINT64_MAX, T = 1000000000;

/* ---- a model of engines that run one plan ---- */

/* The place of a rank in its loop. */
enum at { LOOKS, RESTS, FOLLOWS, IN_ROUND };

struct rank {
	struct schedule s;
	enum at at;
	bool called, hears;
	uint64_t until;      /* of RESTS */
	bool pending[UNITS]; /* submitted, and not done */
	bool done[UNITS];
	uint64_t waits[UNITS]; /* since when a thread does; 0: none */
	bool told[UNITS];      /* in the round that it is in */
	bool tells_waits, tells_bucket;
	unsigned order[UNITS];       /* in which it submits */
	unsigned submitted, submits; /* of ORDER; all that it ever does */
	bool joins, has_joined;      /* after those */
	uint64_t next_ns;            /* when the next one is submitted */
};

/* Units below PLANNED are in the plan, in buckets of BUCKET; OPEN: of a unit that no
 * bucket or round has done yet. */
struct model {
	unsigned n, planned, bucket, seed;
	uint64_t now, last_ns; /* of what came from outside */
	uint64_t end_ns;       /* the set is aborted then; 0: it is not */
	bool ends;
	bool open[UNITS], hears;
	struct rank r[RANKS];
	unsigned vain; /* rounds since LAST_NS, or since anything was done */
	uint64_t vain_ns;
	unsigned looks; /* since NOW was another time */
};

static unsigned draw(struct model *m, unsigned n)
{
	return (unsigned)rand_r(&m->seed) % n;
}

static bool is_expected(const struct model *m, unsigned unit)
{
	return unit < m->planned && m->open[unit];
}

/* The units of the next bucket: from FROM to before TO.  False: all are done. */
static bool next_bucket(const struct model *m, unsigned *from, unsigned *to)
{
	unsigned first = 0;

	while (first < m->planned && !m->open[first])
		first++;
	*from = first / m->bucket * m->bucket;
	*to = *from + m->bucket < m->planned ? *from + m->bucket : m->planned;
	return first < m->planned;
}

static bool bucket_is_here(const struct model *m, const struct rank *r)
{
	unsigned from, to;

	if (!next_bucket(m, &from, &to))
		return false;
	for (unsigned u = from; u < to; u++)
		if (m->open[u] && !r->pending[u])
			return false;
	return true;
}

static uint64_t waits_since(const struct model *m, const struct rank *r)
{
	uint64_t first = 0;

	for (unsigned u = 0; u < UNITS; u++)
		if (r->pending[u] && r->waits[u] && is_expected(m, u) &&
		    (!first || r->waits[u] < first))
			first = r->waits[u];
	return first;
}

static bool hears_others(const struct model *m, const struct rank *r)
{
	for (unsigned i = 0; i < m->n; i++)
		if (&m->r[i] != r && m->r[i].at >= FOLLOWS)
			return true;
	return false;
}

static void begin_round(struct model *m, struct rank *r)
{
	uint64_t waits = waits_since(m, r);

	r->at = IN_ROUND;
	r->called = false;
	r->tells_waits = waits && m->now >= waits + SCHEDULE_HOLD_NS;
	r->tells_bucket = bucket_is_here(m, r);
	memcpy(r->told, r->pending, sizeof r->told);
	schedule_event(&r->s, SCHEDULE_TOLD);
}

static void finish(struct rank *r, unsigned u, bool beside)
{
	if (!r->pending[u] || r->done[u])
		ck_abort_msg("done twice");
	r->pending[u] = false;
	r->done[u] = true;
	r->s.pending--;
	r->s.beside -= beside;
}

/* The set is aborted: nothing is submitted any more. */
static void end_all_of(const struct model *m, struct rank *r)
{
	for (unsigned u = 0; u < UNITS; u++)
		if (r->pending[u])
			finish(r, u, !is_expected(m, u));
	r->submits = r->submitted;
	r->s.joined = r->joins = false;
	r->at = RESTS;
	r->hears = false;
	r->until = NEVER;
}

/* As progress_step() does. */
static void look(struct model *m, struct rank *r)
{
	enum { LOOKS_MOST = 1000 };
	struct schedule_look look = { .now = m->now,
				      .ends = m->ends,
				      .called = r->called,
				      .bucket = bucket_is_here(m, r),
				      .waits = waits_since(m, r) };
	struct schedule_due due = schedule_due(&r->s, &look);

	if (m->looks++ > LOOKS_MOST)
		ck_abort_msg("a rank looks, and time stands still");
	look.heard = m->hears && due.hears && hears_others(m, r);
	if (look.heard)
		due = schedule_due(&r->s, &look);
	r->s.visits += due.what == SCHEDULE_VISIT;
	if (due.what == SCHEDULE_END) {
		end_all_of(m, r);
	} else if (due.what == SCHEDULE_FOLLOW) {
		r->at = FOLLOWS;
	} else if (due.what != SCHEDULE_REST) {
		begin_round(m, r);
	} else {
		r->at = RESTS;
		r->hears = m->hears && due.hears;
		r->until = due.until      ? due.until
			   : r->s.pending ? m->now + DOZE_NS
					  : NEVER;
		if (r->until <= m->now)
			ck_abort_msg("a rest that is over");
	}
}

/* ---- what comes from outside ---- */

static void came(struct model *m)
{
	m->last_ns = m->vain_ns = m->now;
	m->vain = 0;
}

static void ring(struct rank *r)
{
	if (r->at == RESTS)
		r->at = LOOKS;
}

static void submit(struct model *m, struct rank *r)
{
	unsigned u = r->order[r->submitted++];
	bool expected = is_expected(m, u), dozes = !r->s.pending;

	came(m);
	r->pending[u] = true;
	r->s.pending++;
	r->s.beside += !expected;
	schedule_submitted(&r->s, m->now, expected);
	if (!expected || dozes || bucket_is_here(m, r))
		ring(r);
	r->next_ns = m->now + (draw(m, 3) ? draw(m, 200000) : draw(m, 60000000));
}

static void join(struct model *m, struct rank *r)
{
	came(m);
	r->has_joined = true;
	r->s.joined = true;
	schedule_event(&r->s, SCHEDULE_ASKED);
	ring(r);
}

/* A thread waits for a unit of R.  AT_ONCE: it is the one that submitted last. */
static void wait_for(struct model *m, struct rank *r, unsigned u, bool at_once)
{
	came(m);
	r->waits[u] = at_once ? 1 : m->now;
	if (at_once)
		schedule_event(&r->s, SCHEDULE_ASKED);
	ring(r);
}

/* ---- what ranks do together ---- */

static void done(struct model *m)
{
	m->vain = 0;
	m->vain_ns = m->now;
}

static void do_bucket(struct model *m)
{
	unsigned from, to;

	next_bucket(m, &from, &to);
	for (unsigned i = 0; i < m->n; i++) {
		for (unsigned u = from; u < to; u++)
			if (m->open[u])
				finish(&m->r[i], u, false);
		schedule_event(&m->r[i].s, SCHEDULE_BUCKET);
		m->r[i].at = LOOKS;
	}
	memset(m->open + from, 0, to - from);
	done(m);
}

static void differ(struct model *m)
{
	for (unsigned i = 0; i < m->n; i++) {
		m->r[i].called = true;
		m->r[i].at = LOOKS;
	}
}

/* Does each rank have U, or nothing more to give? */
static bool is_common(const struct model *m, unsigned u)
{
	bool any = false;

	for (unsigned i = 0; i < m->n; i++) {
		any |= m->r[i].told[u];
		if (!m->r[i].told[u] && !m->r[i].s.joined)
			return false;
	}
	return any;
}

static bool all_have_joined(struct model *m)
{
	for (unsigned i = 0; i < m->n; i++)
		for (unsigned u = 0; u < UNITS; u++)
			if (!m->r[i].s.joined || m->r[i].told[u])
				return false;
	for (unsigned i = 0; i < m->n; i++) {
		m->r[i].s.joined = false;
		schedule_event(&m->r[i].s, SCHEDULE_DONE);
		m->r[i].at = LOOKS;
	}
	done(m);
	return true;
}

/* What all have told, but for what the plan does anyway. */
static bool do_common(struct model *m, bool all)
{
	bool did = false;

	for (unsigned u = 0; u < UNITS; u++) {
		bool expected = is_expected(m, u);

		if (!is_common(m, u) || (expected && !all))
			continue;
		for (unsigned i = 0; i < m->n; i++)
			if (m->r[i].told[u])
				finish(&m->r[i], u, !expected);
		m->open[u] = false;
		did = true;
	}
	return did;
}

/* A unit that a rank lacks, which had joined: the plan does not expect it there any
 * more. */
static void look_again(struct model *m)
{
	for (unsigned i = 0; i < m->n; i++) {
		m->r[i].s.beside = 0;
		for (unsigned u = 0; u < UNITS; u++)
			m->r[i].s.beside += m->r[i].pending[u] && !is_expected(m, u);
	}
}

static void do_round(struct model *m)
{
	bool waits = false, joined = false, bucket = true, did;

	if (all_have_joined(m))
		return;
	for (unsigned i = 0; i < m->n; i++) {
		waits |= m->r[i].tells_waits;
		joined |= m->r[i].s.joined;
		bucket &= m->r[i].tells_bucket;
	}
	did = do_common(m, waits || joined) || bucket;
	look_again(m);
	for (unsigned i = 0; i < m->n; i++) {
		if (did)
			schedule_event(&m->r[i].s, SCHEDULE_DONE);
		else
			schedule_idle(&m->r[i].s, m->now, waits, m->hears, 0);
		m->r[i].at = LOOKS;
	}
	if (did)
		done(m);
	else
		m->vain++;
}

/* The end of the set reaches all ranks, in whatever they are. */
static void end_set(struct model *m)
{
	m->ends = true;
	came(m);
	for (unsigned i = 0; i < m->n; i++)
		m->r[i].at = LOOKS;
}

/* True: all ranks had come to a step, and have done it. */
static bool meet(struct model *m)
{
	unsigned follow = 0;

	if (m->end_ns && m->now >= m->end_ns && !m->ends) {
		end_set(m);
		return true;
	}
	for (unsigned i = 0; i < m->n; i++) {
		if (m->r[i].at < FOLLOWS)
			return false;
		follow += m->r[i].at == FOLLOWS;
	}
	m->looks = 0;
	m->now += 2000 + draw(m, 20000);
	if (follow == m->n)
		do_bucket(m);
	else if (follow)
		differ(m);
	else
		do_round(m);
	return true;
}

/* ---- walks ---- */

/* One thing at random of what can be now.  False: nothing can. */
static bool act(struct model *m)
{
	unsigned first = draw(m, m->n);

	for (unsigned k = 0; k < m->n; k++) {
		struct rank *r = &m->r[(first + k) % m->n];
		unsigned u = draw(m, UNITS);

		if (!m->ends && r->submitted < r->submits && r->next_ns <= m->now) {
			submit(m, r);
			return true;
		}
		if (r->submitted == r->submits && r->joins && !r->has_joined &&
		    r->next_ns <= m->now) {
			join(m, r);
			return true;
		}
		if (r->pending[u] && !r->waits[u] && draw(m, 20) == 0) {
			wait_for(m, r, u, draw(m, 2));
			return true;
		}
		if (r->at == RESTS &&
		    (r->until <= m->now || (r->hears && hears_others(m, r))))
			r->at = LOOKS;
		if (r->at == LOOKS) {
			look(m, r);
			return true;
		}
	}
	return false;
}

/* To the next time at which something can be.  False: there is none. */
static bool go_on(struct model *m)
{
	uint64_t next = m->end_ns && !m->ends ? m->end_ns : NEVER;

	for (unsigned i = 0; i < m->n; i++) {
		struct rank *r = &m->r[i];

		if ((r->submitted < r->submits || (r->joins && !r->has_joined)) &&
		    r->next_ns < next)
			next = r->next_ns;
		if (r->at == RESTS && r->until < next)
			next = r->until;
	}
	if (next == NEVER)
		return false;
	m->looks = 0;
	m->now = next > m->now ? next : m->now;
	return true;
}

/* Has all come that the others may wait for? */
static bool all_have_come(const struct model *m)
{
	for (unsigned i = 0; i < m->n; i++)
		if (m->r[i].submitted < m->r[i].submits ||
		    (m->r[i].joins && !m->r[i].has_joined))
			return false;
	return true;
}

static bool is_over(const struct model *m)
{
	for (unsigned i = 0; i < m->n; i++)
		if (m->r[i].s.pending || m->r[i].s.joined)
			return false;
	return all_have_come(m);
}

static void shuffle(struct model *m, struct rank *r)
{
	for (unsigned u = 0; u < UNITS; u++) {
		unsigned k = draw(m, u + 1);

		r->order[u] = r->order[k];
		r->order[k] = u;
	}
}

static void make(struct model *m, unsigned seed)
{
	bool joins, in_order;

	*m = (struct model){ .seed = seed };
	m->now = m->last_ns = m->vain_ns = T;
	m->n = 1 + draw(m, RANKS);
	m->planned = draw(m, UNITS + 1);
	m->bucket = 1 + draw(m, 4);
	m->hears = draw(m, 4);
	joins = draw(m, 4) == 0;
	in_order = draw(m, 3) == 0;
	if (draw(m, 8) == 0)
		m->end_ns = m->now + draw(m, 100000000);
	memset(m->open, true, sizeof m->open);
	for (unsigned i = 0; i < m->n; i++) {
		struct rank *r = &m->r[i];

		for (unsigned u = 0; u < UNITS; u++)
			r->order[u] = u;
		if (!in_order)
			shuffle(m, r);
		r->joins = joins;
		r->submits = joins ? draw(m, UNITS + 1) : UNITS;
		r->next_ns = m->now + draw(m, 3000000);
	}
}

/* A rank that has come once more, for nothing, knows so. */
static void check_vain(const struct model *m, unsigned seed)
{
	uint64_t ns = m->now - m->vain_ns;
	/* each rank once for itself, then for what it hears; all again after a while */
	uint64_t most =
		3 * m->n + 3 + ns / (m->hears ? 50000000 / m->n : 100000 / m->n);

	if (m->vain > most)
		ck_abort_msg("world %u: %u rounds in vain in %.3f ms", seed, m->vain,
			     (double)ns / 1e6);
}

static void walk(unsigned seed)
{
	struct model m;
	uint64_t most;

	make(&m, seed);
	most = m.hears ? END_NS : END_UNHEARD_NS;
	while (!is_over(&m)) {
		if (!meet(&m) && !act(&m) && !go_on(&m))
			ck_abort_msg("world %u: all wait for ever", seed);
		check_vain(&m, seed);
		if ((m.ends || all_have_come(&m)) && m.now - m.last_ns > most)
			ck_abort_msg("world %u: not done %.3f ms after all had come",
				     seed, (double)(m.now - m.last_ns) / 1e6);
	}
}

START_TEST(walks)
{
	const char *worlds = getenv("WORLDS"), *from = getenv("SEED");
	unsigned n = worlds ? (unsigned)atoi(worlds) : 10000;
	unsigned seed = from ? (unsigned)atoi(from) : (unsigned)getpid() * 100000;

	printf("worlds: SEED=%u\n", seed);
	fflush(stdout);
	for (unsigned i = 0; i < n; i++)
		walk(seed + i);
}
END_TEST

/* ---- one rank ---- */

/* The state after a round in which all was as PLAN, and EVENTS, a letter each. */
static struct schedule after(const char *events)
{
	struct schedule s = { .pending = 1 };

	for (; *events; events++)
		switch (*events) {
		case 'e':
		case 'b':
			s.beside += *events == 'b';
			schedule_submitted(&s, T, *events == 'e');
			break;
		case 'a':
			schedule_event(&s, SCHEDULE_ASKED);
			break;
		case 'k':
			schedule_event(&s, SCHEDULE_BUCKET);
			break;
		case 't':
			schedule_event(&s, SCHEDULE_TOLD);
			break;
		case 'd':
			schedule_event(&s, SCHEDULE_DONE);
			break;
		default: /* in vain; w: and a thread waited */
			schedule_idle(&s, T, *events == 'w', true, 0);
		}
	return s;
}

/* What is due NS after the last event. */
static struct schedule_due due_in(const char *events, uint64_t ns,
				  struct schedule_look look)
{
	struct schedule s = after(events);

	look.now = T + ns;
	return schedule_due(&s, &look);
}

START_TEST(states)
{
	static const struct {
		const char *events;
		enum schedule_state state;
	} is[] = {
		{ "", SCHEDULE_PLAN },
		{ "eba", SCHEDULE_PLAN },
		{ "ti", SCHEDULE_VAIN },
		{ "tie", SCHEDULE_MORE },
		{ "tib", SCHEDULE_NEWS },
		{ "tia", SCHEDULE_ASKS },
		{ "tieb", SCHEDULE_NEWS },
		{ "tiea", SCHEDULE_NEWS },
		{ "tiae", SCHEDULE_NEWS },
		{ "tw", SCHEDULE_VAIN_WAITS },
		{ "twe", SCHEDULE_NEWS_WAITS },
		{ "twb", SCHEDULE_NEWS_WAITS },
		{ "twa", SCHEDULE_ASKS_WAITS },
		{ "twae", SCHEDULE_NEWS_WAITS },
		/* it may have waited for that bucket */
		{ "twk", SCHEDULE_VAIN },
		{ "twke", SCHEDULE_MORE },
		{ "twek", SCHEDULE_NEWS },
		{ "twak", SCHEDULE_ASKS },
		/* what has come during a round */
		{ "tei", SCHEDULE_MORE },
		{ "tbi", SCHEDULE_NEWS },
		{ "tai", SCHEDULE_ASKS },
		{ "tew", SCHEDULE_NEWS_WAITS },
		{ "tbw", SCHEDULE_NEWS_WAITS },
		{ "taw", SCHEDULE_ASKS_WAITS },
		{ "tebad", SCHEDULE_PLAN },
		/* the next round tells all */
		{ "tibti", SCHEDULE_VAIN },
		{ "twetw", SCHEDULE_VAIN_WAITS },
		{ "tweti", SCHEDULE_VAIN },
		{ "twetd", SCHEDULE_PLAN },
	};

	for (size_t i = 0; i < sizeof is / sizeof *is; i++) {
		enum schedule_state state = after(is[i].events).state;

		ck_assert_msg(state == is[i].state, "'%s': %s, not %s", is[i].events,
			      schedule_state_name(state),
			      schedule_state_name(is[i].state));
	}
}
END_TEST

START_TEST(dues)
{
	const uint64_t pause = SCHEDULE_PAUSE_NS, again = 100000000, visit = 50000000;
	const struct schedule_look none = { 0 }, here = { .bucket = true },
				   waits = { .waits = 1 }, heard = { .heard = true },
				   called = { .called = true, .bucket = true },
				   ends = { .ends = true, .called = true };
	const struct {
		const char *events;
		uint64_t ns;
		const struct schedule_look *look;
		enum schedule_what what;
		uint64_t until; /* from the last event on */
		bool hears;
	} is[] = {
		{ "e", 0, &none, SCHEDULE_REST, visit, false },
		{ "e", visit, &none, SCHEDULE_VISIT, 0, false },
		{ "e", 0, &here, SCHEDULE_FOLLOW, 0, false },
		{ "e", 0, &waits, SCHEDULE_ROUND, 0, false },
		{ "b", 0, &none, SCHEDULE_ROUND, 0, false },
		{ "b", 0, &here, SCHEDULE_FOLLOW, 0, false },
		{ "e", 0, &called, SCHEDULE_ROUND, 0, false },
		{ "e", 0, &ends, SCHEDULE_END, 0, false },
		/* in vain: not at once again, and then only what is new */
		{ "bti", 0, &none, SCHEDULE_REST, pause, false },
		{ "btib", 0, &none, SCHEDULE_REST, pause, false },
		{ "btib", pause, &none, SCHEDULE_ROUND, 0, false },
		{ "btia", pause, &none, SCHEDULE_ROUND, 0, false },
		{ "btie", pause, &none, SCHEDULE_REST, again, true },
		{ "bti", pause, &none, SCHEDULE_REST, again, true },
		{ "bti", again, &none, SCHEDULE_ROUND, 0, false },
		{ "bti", pause, &heard, SCHEDULE_ROUND, 0, false },
		{ "bti", pause - 1, &heard, SCHEDULE_REST, pause, false },
		/* the plan's next bucket: the others may not have it */
		{ "bti", pause, &here, SCHEDULE_REST, again, true },
		{ "btie", 0, &here, SCHEDULE_FOLLOW, 0, false },
		{ "eti", visit, &here, SCHEDULE_REST, again, true },
		{ "eti", again, &here, SCHEDULE_FOLLOW, 0, false },
		/* a thread waits, here or elsewhere */
		{ "bti", 0, &waits, SCHEDULE_ROUND, 0, false },
		{ "btw", 0, &waits, SCHEDULE_REST, pause, false },
		{ "btw", pause, &waits, SCHEDULE_REST, again, true },
		{ "etwe", pause, &none, SCHEDULE_ROUND, 0, false },
		{ "etwa", pause, &none, SCHEDULE_ROUND, 0, false },
		{ "etw", pause, &none, SCHEDULE_REST, visit, false },
		{ "etwke", pause, &none, SCHEDULE_REST, visit, false },
		{ "bwtd", 0, &none, SCHEDULE_ROUND, 0, false },
	};

	for (size_t i = 0; i < sizeof is / sizeof *is; i++) {
		struct schedule_due due = due_in(is[i].events, is[i].ns, *is[i].look);

		ck_assert_msg(due.what == is[i].what, "%zu '%s': %d", i, is[i].events,
			      due.what);
		ck_assert_msg(due.until == (is[i].until ? T + is[i].until : 0),
			      "%zu '%s': until %.3f ms", i, is[i].events,
			      (double)(due.until - T) / 1e6);
		ck_assert_msg(due.hears == is[i].hears, "%zu '%s': hears %d", i,
			      is[i].events, due.hears);
	}
}
END_TEST

/* Where it hears nobody, a rank asks again, ever later. */
START_TEST(unheard)
{
	struct schedule s = { .pending = 1, .beside = 1 };
	const struct schedule_look look = { .now = T + SCHEDULE_PAUSE_NS };
	uint64_t last = 0;

	for (unsigned i = 0; i < 20; i++) {
		schedule_event(&s, SCHEDULE_TOLD);
		schedule_idle(&s, T, false, false, 0);
		ck_assert_uint_ge(s.again_ns, last);
		last = s.again_ns;
	}
	ck_assert_uint_eq(last, T + 5000000);
	schedule_event(&s, SCHEDULE_TOLD);
	schedule_event(&s, SCHEDULE_DONE);
	schedule_event(&s, SCHEDULE_TOLD);
	schedule_idle(&s, T, false, false, 0);
	ck_assert_uint_eq(s.again_ns, T + 2 * SCHEDULE_PAUSE_NS);
	/* the deadline of what is pending */
	schedule_event(&s, SCHEDULE_TOLD);
	schedule_idle(&s, T, false, true, T + 70000);
	ck_assert_uint_eq(schedule_due(&s, &look).until, T + 70000);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("schedule");
	TCase *t = tcase_create("schedule");
	SRunner *r = srunner_create(s);
	int failed;

	suite_add_tcase(s, t);
	tcase_set_timeout(t, 600);
	tcase_add_test(t, states);
	tcase_add_test(t, dues);
	tcase_add_test(t, unheard);
	tcase_add_test(t, walks);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed != 0;
}
