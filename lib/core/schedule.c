#include "lib/core/schedule.h"

enum {
	AGAIN_NS = 100000000, /* from a round in vain to the next: for stalls and
				      deadlines */
	UNHEARD_NS_MOST =
		5000000,    /* the same, if news of others do not wake this rank */
	QUIET_NS = 50000000 /* from the last submission to the first visit */
};

/* Each event in each state; after a round that was not in vain all is PLAN. */
/* clang-format off */
static const enum schedule_state next[SCHEDULE_STATES][SCHEDULE_EVENTS] = {
#define ROW(expected, beside, asked, bucket, idle, waited)                     \
	{ SCHEDULE_##expected, SCHEDULE_##beside, SCHEDULE_##asked,            \
	  SCHEDULE_##bucket, SCHEDULE_VAIN, SCHEDULE_PLAN, SCHEDULE_##idle,    \
	  SCHEDULE_##waited }
	/*                           EXPECTED    BESIDE      ASKED       BUCKET IDLE  WAITED */
	[SCHEDULE_PLAN]       = ROW(PLAN,       PLAN,       PLAN,       PLAN,  VAIN, VAIN_WAITS),
	[SCHEDULE_VAIN]       = ROW(MORE,       NEWS,       ASKS,       VAIN,  VAIN, VAIN_WAITS),
	[SCHEDULE_MORE]       = ROW(MORE,       NEWS,       NEWS,       MORE,  MORE, NEWS_WAITS),
	[SCHEDULE_ASKS]       = ROW(NEWS,       NEWS,       ASKS,       ASKS,  ASKS, ASKS_WAITS),
	[SCHEDULE_NEWS]       = ROW(NEWS,       NEWS,       NEWS,       NEWS,  NEWS, NEWS_WAITS),
	[SCHEDULE_VAIN_WAITS] = ROW(NEWS_WAITS, NEWS_WAITS, ASKS_WAITS, VAIN,  VAIN, VAIN_WAITS),
	[SCHEDULE_ASKS_WAITS] = ROW(NEWS_WAITS, NEWS_WAITS, ASKS_WAITS, ASKS,  ASKS, ASKS_WAITS),
	[SCHEDULE_NEWS_WAITS] = ROW(NEWS_WAITS, NEWS_WAITS, NEWS_WAITS, NEWS,  NEWS, NEWS_WAITS),
#undef ROW
};
/* clang-format on */

const char *schedule_state_name(enum schedule_state state)
{
	static const char *const name[SCHEDULE_STATES] = {
		"plan", "vain",        "more",        "asks",
		"news", "vain, waits", "asks, waits", "news, waits"
	};

	return name[state];
}

/* ---- what comes ---- */

void schedule_event(struct schedule *s, enum schedule_event ev)
{
	s->state = next[s->state][ev];
	if (ev == SCHEDULE_DONE)
		s->idle = 0;
}

void schedule_submitted(struct schedule *s, uint64_t now, bool expected)
{
	s->entered_ns = now;
	s->visits = 0;
	schedule_event(s, expected ? SCHEDULE_EXPECTED : SCHEDULE_BESIDE);
}

void schedule_idle(struct schedule *s, uint64_t now, bool waits, bool hears,
		   uint64_t deadline)
{
	uint64_t pause_ns = AGAIN_NS;

	schedule_event(s, waits ? SCHEDULE_WAITED : SCHEDULE_IDLE);
	s->idle++;
	s->idle_ns = now;
	if (!hears) /* it doubles with each round in vain */
		pause_ns = (uint64_t)SCHEDULE_PAUSE_NS << (s->idle < 7 ? s->idle : 7);
	if (!hears && pause_ns > UNHEARD_NS_MOST)
		pause_ns = UNHEARD_NS_MOST;
	s->again_ns = now + pause_ns;
	if (deadline && deadline < s->again_ns)
		s->again_ns = deadline;
}

/* ---- what is due ---- */

/* The meaning of each state.  TOLD: the others know all that they need.  NEWS:
 * operations were submitted since.  WAITS: a thread waited in vain. */
static const struct {
	bool told, news, waits;
} is[SCHEDULE_STATES] = {
	[SCHEDULE_VAIN] = { .told = true },
	[SCHEDULE_MORE] = { .told = true, .news = true },
	[SCHEDULE_NEWS] = { .news = true },
	[SCHEDULE_VAIN_WAITS] = { .told = true, .waits = true },
	[SCHEDULE_ASKS_WAITS] = { .waits = true },
	[SCHEDULE_NEWS_WAITS] = { .news = true, .waits = true },
};

/* A thread, of any rank, waits for what this rank has not told. */
static bool schedule_is_awaited(const struct schedule *s)
{
	return is[s->state].waits && !is[s->state].told && s->pending;
}

static struct schedule_due schedule_sooner(struct schedule_due due, uint64_t at)
{
	if (!due.until || at < due.until)
		due.until = at;
	return due;
}

/* Does this rank not repeat what was in vain?  DUE: until when. */
static bool schedule_rests(const struct schedule *s, const struct schedule_look *look,
			   struct schedule_due *due)
{
	if (!s->idle)
		return false;
	if (look->now < s->idle_ns + SCHEDULE_PAUSE_NS) {
		*due = schedule_sooner(*due, s->idle_ns + SCHEDULE_PAUSE_NS);
		return true;
	}
	if (!is[s->state].told || look->now >= s->again_ns || look->heard)
		return false;
	*due = schedule_sooner(*due, s->again_ns);
	due->hears = true;
	return true;
}

/* Nothing was submitted for a while, and what is here waits for more: a rank that does
 * not wait comes to a round now and then, since others may wait there. */
static struct schedule_due schedule_visit(const struct schedule *s, uint64_t now,
					  struct schedule_due due)
{
	uint64_t at =
		s->entered_ns + ((uint64_t)QUIET_NS << (s->visits < 8 ? s->visits : 8));

	if (!s->pending)
		return due;
	if (now >= at)
		return (struct schedule_due){ .what = SCHEDULE_VISIT };
	return schedule_sooner(due, at);
}

struct schedule_due schedule_due(const struct schedule *s,
				 const struct schedule_look *look)
{
	const uint64_t hold = look->waits + SCHEDULE_HOLD_NS;
	const bool waits = look->waits && look->now >= hold;
	struct schedule_due due = { .what = SCHEDULE_REST };

	if (look->ends)
		return (struct schedule_due){ .what = SCHEDULE_END };
	if (look->called)
		return (struct schedule_due){ .what = SCHEDULE_ROUND };
	/* a bucket that was told in vain would meet ranks that do not have it, again
	 * and again */
	if (look->bucket && (is[s->state].news || !schedule_rests(s, look, &due)))
		return (struct schedule_due){ .what = SCHEDULE_FOLLOW };
	if (look->waits && !waits)
		due = schedule_sooner(due, hold);
	if (!s->beside && !s->joined && !waits && !schedule_is_awaited(s))
		return look->bucket ? due : schedule_visit(s, look->now, due);
	if ((waits && !is[s->state].waits) || !schedule_rests(s, look, &due))
		return (struct schedule_due){ .what = SCHEDULE_ROUND };
	return due;
}
