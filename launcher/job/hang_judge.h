/* hang_judge.h - pure: which rank hangs, and what is done about it.
 *
 * The ranks that have waited in an operation for the limit, and those for which they
 * wait: a root is one of these that does not wait itself.  In this order:
 *
 *   a rank is stopped (T) for the limit, and not all are        that rank
 *   one is blocked in the kernel (D) so long, and others wait   that rank
 *   for it, or nobody does anything
 *   one root; it has done nothing for the limit                 that rank
 *   one root; it works, and all others wait for it 5 limits     that rank
 *   long, of its time and of theirs
 *   several roots; none has done anything for the limit         all
 *   no root: all wait for each other, 5 limits long             all
 *   no rank has done anything for the limit                     all
 *
 * One that leaves with its host never hangs.  While others wait for it, none of them
 * does that is not stopped.
 *
 * All these times, but those of T and D, leave out the time in which that rank could
 * run and had no CPU.  One that came into T or D within the limit has done something.
 *
 * If a debugger holds one (t), nobody hangs: the others wait for its user.
 *
 * A rank that works while another root does nothing may be the one for which both wait,
 * by sockets of their own: so nobody is blamed then, unless the wait lasts 5 limits. */
#ifndef BERTH_LAUNCHER_JOB_HANG_JUDGE_H
#define BERTH_LAUNCHER_JOB_HANG_JUDGE_H

#include "launcher/request.h"

/* One rank, as far as it is known. */
struct hang_rank {
	bool lives;      /* its process runs, */
	bool leaves;     /* or it does, and the others go on without it */
	bool known;      /* its agent has answered this time */
	bool joined;     /* it is in a world of libberth */
	bool waits;      /* in an operation, or for one that it has submitted */
	char state;      /* as in /proc/PID/stat */
	uint32_t behind; /* ranks that wait for it, for the limit */
	/* since its last change of operations; its last work; the last change of
	 * another rank, which waits */
	uint64_t still_ms, idle_ms, awaited_ms;
	uint64_t state_ms; /* since it came into STATE */
};

enum hang_why {
	HANG_NOT,
	HANG_STOPPED,
	HANG_BLOCKED,
	HANG_IDLE,
	HANG_BUSY,
	HANG_MANY,   /* all: several roots */
	HANG_CIRCLE, /* all: they wait for each other */
	HANG_SILENT  /* all: nobody does anything */
};

struct hang_verdict {
	enum hang_why why;
	uint32_t rank;    /* up to HANG_BUSY */
	uint32_t waiting; /* ranks that have waited for the limit */
	uint64_t ms;      /* for how long */
};

struct hang_verdict hang_judge(const struct hang_rank *v, uint32_t np,
			       uint64_t limit_ms);

/* WAS is still so: for the same rank, or for all.  A rank of which nothing is known
 * this time is taken to be as it was before. */
bool hang_holds(const struct hang_rank *v, uint32_t np, uint64_t limit_ms,
		struct hang_verdict was);

/* The deed that a verdict leads to; of a rank: the one that follows its end. */
enum hang_act { HANG_LEAVE, HANG_REPORT, HANG_KILL, HANG_RESTART, HANG_REPLACE };

struct hang_can {
	bool replace; /* the rank can start again while the others go on */
	bool restart; /* --restarts has a start left */
};

enum hang_act hang_act(const struct hang_limit *limit, enum hang_why why,
		       struct hang_can can);

/* The limit now, PAUSE_MS being the longest pause so far. */
uint64_t hang_limit_ms(const struct hang_limit *limit, uint64_t pause_ms);

/* How often the NP ranks are looked at, with that limit. */
uint64_t hang_interval_ms(const struct hang_limit *limit, uint32_t np);

#endif
