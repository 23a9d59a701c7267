#include "launcher/job/hang_judge.h"

#include <stdlib.h>
#include <string.h>

enum {
	PATIENCE = 5, /* limits, for a rank that works */
	PAUSES = 20   /* longest pauses, that are the limit which is learnt */
};

/* The ranks together. */
struct sum {
	uint32_t lives, unknown;
	uint32_t held;                  /* by a debugger: others wait for its user */
	uint32_t waiting, waiting_long; /* for the limit, for PATIENCE times that */
	uint32_t stopped, blocked;      /* for the limit */
	uint32_t silent;                /* has done nothing for it */
	uint32_t leaving_works;         /* it leaves, and has done something */
	uint32_t roots, idle_roots;
	uint32_t late_roots; /* awaited for less than PATIENCE times that */
	uint32_t first_stopped, first_blocked, first_root; /* the first of these */
	uint32_t loose; /* waiting, and none of the others is known to be behind */
};

static bool is_waiting(const struct hang_rank *r, uint64_t ms)
{
	return r->lives && r->waits && r->still_ms >= ms;
}

/* One that came into T or D less than MS ago will hang as that: a look may have seen
 * its last work before. */
static bool is_silent(const struct hang_rank *r, uint64_t ms)
{
	if ((r->state == 'T' || r->state == 'D') && r->state_ms < ms)
		return false;
	return r->idle_ms >= ms && r->still_ms >= ms;
}

static void count_rank(struct sum *s, const struct hang_rank *r, uint32_t i,
		       uint64_t limit)
{
	if (r->leaves) {
		s->unknown += r->behind != 0; /* it may yet come */
		s->leaving_works += !is_silent(r, limit);
	}
	if (!r->lives)
		return;
	s->lives++;
	s->unknown += !r->known;
	s->held += r->state == 't';
	s->waiting += is_waiting(r, limit);
	s->waiting_long += is_waiting(r, PATIENCE * limit);
	s->silent += is_silent(r, limit);
	if (r->state == 'T' && r->state_ms >= limit && !s->stopped++)
		s->first_stopped = i;
	if (r->state == 'D' && r->state_ms >= limit && is_silent(r, limit) &&
	    !s->blocked++)
		s->first_blocked = i;
}

static struct sum sum_up(const struct hang_rank *v, uint32_t np, uint64_t limit)
{
	struct sum s = { 0 };
	bool behind = false;

	for (uint32_t i = 0; i < np; i++) {
		count_rank(&s, &v[i], i, limit);
		behind |= v[i].lives && v[i].behind && !v[i].waits;
	}
	s.loose = behind ? 0 : s.waiting;
	/* A root: ranks wait for it.  If these know only that not all have submitted
	 * their operation, each that has submitted none is meant. */
	for (uint32_t i = 0; i < np; i++) {
		const struct hang_rank *r = &v[i];

		if (!r->lives || r->waits || (!r->behind && !(s.loose && r->joined)))
			continue;
		if (!s.roots++)
			s.first_root = i;
		s.idle_roots += is_silent(r, limit);
		s.late_roots += r->awaited_ms < PATIENCE * limit;
	}
	return s;
}

static struct hang_verdict judge_sum(const struct sum *s)
{
	struct hang_verdict is = { .waiting = s->waiting };
	const bool all_wait = s->waiting + s->roots == s->lives,
		   silent = s->silent == s->lives && !s->leaving_works,
		   /* others of which nothing is known may do something */
		long_all = s->waiting_long && !s->late_roots &&
			   s->waiting_long + s->roots == s->lives;

	if (s->held)
		return is;
	if (s->stopped && (s->stopped < s->lives || s->lives == 1)) {
		is.why = HANG_STOPPED;
		is.rank = s->first_stopped;
	} else if (s->unknown || s->stopped) {
		is.why = HANG_NOT;
	} else if (s->blocked == 1 && (s->waiting || silent)) {
		is.why = HANG_BLOCKED;
		is.rank = s->first_blocked;
	} else if (s->roots == 1 && s->idle_roots && (!s->loose || all_wait)) {
		is.why = HANG_IDLE;
		is.rank = s->first_root;
	} else if (s->roots == 1 && !s->idle_roots && long_all) {
		is.why = HANG_BUSY;
		is.rank = s->first_root;
	} else if (s->roots > 1 && (s->idle_roots == s->roots || long_all) &&
		   (!s->loose || all_wait)) {
		is.why = HANG_MANY;
	} else if (s->waiting && !s->roots && s->waiting_long == s->lives) {
		is.why = HANG_CIRCLE;
	} else if (s->lives && silent) {
		is.why = HANG_SILENT;
	}
	return is;
}

struct hang_verdict hang_judge(const struct hang_rank *v, uint32_t np,
			       uint64_t limit_ms)
{
	const struct sum s = sum_up(v, np, limit_ms);
	struct hang_verdict is = judge_sum(&s);

	if (is.why == HANG_STOPPED || is.why == HANG_BLOCKED)
		is.ms = v[is.rank].state_ms;
	else if (is.why == HANG_IDLE)
		is.ms = v[is.rank].idle_ms;
	else if (is.why == HANG_BUSY)
		is.ms = v[is.rank].awaited_ms;
	else if (is.why)
		is.ms = is.why == HANG_CIRCLE ? PATIENCE * limit_ms : limit_ms;
	return is;
}

bool hang_holds(const struct hang_rank *v, uint32_t np, uint64_t limit_ms,
		struct hang_verdict was)
{
	struct hang_rank *all = xcalloc(np + 1, sizeof *all);
	struct hang_verdict is;

	memcpy(all, v, np * sizeof *all);
	for (uint32_t i = 0; i < np; i++)
		all[i].known = true;
	is = hang_judge(all, np, limit_ms);
	free(all);
	if (!is.why || is.why > HANG_BUSY || was.why > HANG_BUSY)
		return is.why > HANG_BUSY && was.why > HANG_BUSY;
	return is.rank == was.rank;
}

enum hang_act hang_act(const struct hang_limit *limit, enum hang_why why,
		       struct hang_can can)
{
	enum on_hang on = limit->on;

	if (!why)
		return HANG_LEAVE;
	if (on == ON_HANG_NOT_GIVEN)
		on = limit->given ? ON_HANG_REPLACE : ON_HANG_REPORT;
	if (on == ON_HANG_REPORT)
		return HANG_REPORT;
	if (on == ON_HANG_REPLACE && why <= HANG_BUSY && can.replace && can.restart)
		return HANG_REPLACE;
	return on != ON_HANG_KILL && can.restart ? HANG_RESTART : HANG_KILL;
}

uint64_t hang_limit_ms(const struct hang_limit *limit, uint64_t pause_ms)
{
	const uint64_t least = (uint64_t)limit->ms;

	return limit->learns && PAUSES * pause_ms > least ? PAUSES * pause_ms : least;
}

uint64_t hang_interval_ms(const struct hang_limit *limit, uint32_t np)
{
	enum { LEAST = 20, MOST = 30000, LEARNS = 1000, RANKS = 10 };
	uint64_t ms = (uint64_t)limit->ms / 10;

	if (limit->learns) /* as exactly as pauses are to be known */
		ms = LEARNS;
	ms = ms > MOST ? MOST : ms < LEAST ? LEAST : ms;
	return ms < np / RANKS ? np / RANKS : ms; /* a tenth of a millisecond each */
}
