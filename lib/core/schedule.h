/* schedule.h - decides what a set does next: the plan's next bucket, a
 * round (plan.h), or nothing until a time.  Pure: schedule.c reads no clock and calls
 * no other module.
 *
 * In a round this rank tells the others what it has.  A round after which nothing can
 * be done was in vain, and the rank does not repeat it while nothing is new.  The
 * state says what is new since the last round in vain:
 *
 *   PLAN   the last round was not in vain
 *   VAIN   nothing is new
 *   MORE   operations were submitted that the plan expects
 *   ASKS   no operation, but this rank joins, or a thread waits
 *   NEWS   operations were submitted that the plan does not expect
 *
 * VAIN_WAITS, ASKS_WAITS and NEWS_WAITS mean the same, and in addition that a thread,
 * of any rank, waited in that round for an operation that the plan holds back.  For
 * that thread each new operation is news. */
#ifndef BERTH_LIB_SCHEDULE_H
#define BERTH_LIB_SCHEDULE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum schedule_state {
	SCHEDULE_PLAN,
	SCHEDULE_VAIN,
	SCHEDULE_MORE,
	SCHEDULE_ASKS,
	SCHEDULE_NEWS,
	SCHEDULE_VAIN_WAITS,
	SCHEDULE_ASKS_WAITS,
	SCHEDULE_NEWS_WAITS,
	SCHEDULE_STATES
};

enum schedule_event {
	SCHEDULE_EXPECTED, /* submitted: an operation that the plan expects */
	SCHEDULE_BESIDE,   /* submitted: another one */
	SCHEDULE_ASKED,  /* this rank joins, or the thread that submitted last waits */
	SCHEDULE_BUCKET, /* the next bucket of the plan is done */
	SCHEDULE_TOLD,   /* a round has begun */
	SCHEDULE_DONE,   /* it has ended, and was not in vain */
	SCHEDULE_IDLE,   /* it was in vain */
	SCHEDULE_WAITED, /* the same, and a thread waited for what the plan holds
			    back */
	SCHEDULE_EVENTS
};

enum {
	SCHEDULE_PAUSE_NS = 50000, /* at least, after a round that was in vain */
	SCHEDULE_HOLD_NS = 1000000 /* for so long a thread waits for what the plan holds
				      back, then a round is called */
};

struct schedule {
	enum schedule_state state;
	unsigned idle;       /* rounds in a row that were in vain */
	uint64_t idle_ns;    /* the end of the last one */
	uint64_t again_ns;   /* when that is repeated, if nothing is new */
	uint64_t entered_ns; /* the last operation was submitted */
	unsigned visits; /* rounds since then that had no other reason than the time */
	size_t pending;  /* requests that are not done */
	size_t beside;   /* of them: the plan does not expect these */
	bool joined;     /* this rank has */
};

/* The facts at the time NOW. */
struct schedule_look {
	uint64_t now;
	bool ends;      /* the set does, for good */
	bool called;    /* ranks are at different operations: all come to a round */
	bool bucket;    /* the next bucket of the plan is here */
	uint64_t waits; /* since when a thread waits for what the plan holds back;
			    0: none does */
	bool heard;     /* another rank has begun an operation, or the set is aborted */
};

enum schedule_what {
	SCHEDULE_REST,   /* nothing */
	SCHEDULE_FOLLOW, /* the next bucket of the plan */
	SCHEDULE_ROUND,
	SCHEDULE_VISIT, /* a round, only since it is time */
	SCHEDULE_END    /* all that is pending */
};

struct schedule_due {
	enum schedule_what what;
	/* REST ends at this time, by the clock of NOW; 0: not by itself. */
	uint64_t until;
	/* REST also ends when another rank is heard: the caller looks for that, and
	 * asks again with HEARD. */
	bool hears;
};

struct schedule_due schedule_due(const struct schedule *s,
				 const struct schedule_look *look);

/* IDLE and WAITED go with schedule_idle(). */
void schedule_event(struct schedule *s, enum schedule_event ev);
/* An operation was submitted at NOW. */
void schedule_submitted(struct schedule *s, uint64_t now, bool expected);
/* A round was in vain, until NOW.  WAITS: a thread waited.  HEARS: the news of other
 * ranks wake this one.  DEADLINE: the first of what is pending; 0: there is none. */
void schedule_idle(struct schedule *s, uint64_t now, bool waits, bool hears,
		   uint64_t deadline);
/* For messages and tests. */
const char *schedule_state_name(enum schedule_state state);

#endif
