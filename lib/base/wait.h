/* wait.h - one rank waits for another through memory that they share.  A post is a
 * counter with one writer.
 *
 * A rank that waits spins (hand-over between cores of one L3: 50 ns), then yields (0.4
 * us), then sleeps on a futex.  It looks around each WAIT_SLICE_MS (0.1 to 0.2 % of a
 * core), or each WAIT_OFTEN_MS.
 *
 * If ranks outnumber the cores, they hardly spin, since a rank that they wait for may
 * need this core.  (4 ranks on 2 cores: 1.4 us with 8 spins of 50 ns, 2.0 with 60.) */
#ifndef BERTH_LIB_WAIT_H
#define BERTH_LIB_WAIT_H

#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "lib/base/bell.h"
#include "lib/base/clock.h"
#include "lib/berth.h"

enum { POST_BELL = 1 << 16 };

struct post {
	_Atomic uint64_t value; /* low half: the counter, wraps */
	/* Written by the ranks that wait: how many sleep here, and in multiples of
	 * POST_BELL how many sleep until their bell is rung. */
	_Atomic uint32_t sleepers;
	_Atomic uint32_t
		core; /* on which it was posted, plus 1, of oversubscribed ranks */
};

struct wait {
	unsigned spins, yields;
	uint64_t spin_ns;     /* how long it spins on after SPINS looks */
	bool oversubscribed;  /* the ranks outnumber the cores */
	uint64_t deadline_ns; /* of CLOCK_MONOTONIC; 0: none */
	/* Not 0: no rank will come any more.  The low half is the reason (a
	 * berth_result).  The high half is how many operations the rank that says so is
	 * done with. */
	const _Atomic uint64_t *broken;
	/* How many operations this rank is done with (done.h), or NULL.  If the rank
	 * that says so in BROKEN is done with more, the wait goes on. */
	const _Atomic uint32_t *done;
	/* Bells of the ranks that wait for this one's posts.  A rank's thread for all
	 * sets (fiber.h) sleeps there.  NULL: no such thread waits. */
	const struct bells *bells;
	/* Called each WAIT_SLICE_MS while the rank sleeps.  It may look for a reason to
	 * break the wait. */
	void (*idle)(void *ctx);
	void *ctx;
	uint64_t slept; /* how often it slept */
};

enum {
	WAIT_SLICE_MS = 50,
	WAIT_OFTEN_MS = 10,
	/* Yields go on for at most this long, a few times what sleeping costs.  Beside
	 * threads that compute, a yield takes their whole slice, and newer kernels let
	 * the thread that yielded run later.  (5 ranks beside other tests on 2 cores:
	 * 15 s with this limit, 107 with 8 ms.) */
	WAIT_YIELD_NS = 50000,
	/* If yields took this long, other threads compute on this core, and this many
	 * waits of the process that follow do not yield. */
	WAIT_CROWDED_NS = 500000,
	WAIT_CROWDED = 100
};

/* From now on, waits of this process, over connections too, look around each
 * WAIT_OFTEN_MS; or no longer. */
void wait_look_often(bool often);
/* The time from one look to the next. */
uint64_t wait_look_ns(void);

/* Sets the usual spins and yields for RANKS on CORES. */
void wait_tune(struct wait *w, unsigned ranks, unsigned cores);

/* Why the rank that W's rank waits for no longer comes, or BERTH_OK.  Any rank of the
 * host may have written it. */
berth_result wait_ends(const struct wait *w);

static inline bool wait_reached(uint64_t value, uint32_t want)
{
	return (int32_t)((uint32_t)value - want) >= 0;
}

/* Did the rank that posts P run on this core last?  Then it does not run now, and
 * spinning would keep it from running.  (4 ranks on 2 cores: 1.5 us, without this look
 * 1.7.) */
static inline bool wait_is_vain(const struct wait *w, const struct post *p)
{
	return w->oversubscribed &&
	       atomic_load_explicit(&p->core, memory_order_relaxed) ==
		       (uint32_t)sched_getcpu() + 1;
}

/* Waits on after spinning has not helped.  Returns BERTH_OK, BERTH_TIMEOUT, or the
 * reason why the wait is broken. */
berth_result wait_long(struct wait *w, struct post *p, uint32_t want);

static inline void wait_pause(void)
{
#if defined(__x86_64__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("isb");
#endif
}

/* Waits until P has reached WANT. */
static inline berth_result wait_for(struct wait *w, struct post *p, uint32_t want)
{
	bool vain = false;

	for (unsigned i = 0; i <= w->spins && !vain; i++) {
		if (wait_reached(atomic_load_explicit(&p->value, memory_order_acquire),
				 want))
			return BERTH_OK;
		vain = wait_is_vain(w, p);
		if (!vain)
			wait_pause();
	}
	return wait_long(w, p, want);
}

/* Yields, in a wait that has yielded since BEGUN_NS, of clock_ns().  False: it is to
 * sleep now. */
bool wait_yield(uint64_t begun_ns);

/* Wakes the ranks that sleep on P, and rings BELLS, which may be NULL. */
void post_wake(struct post *p, const struct bells *bells);

/* A rank that sees VALUE also sees all that was written before.
 *
 * This is a plain store, and the look at the sleepers may run ahead of it.  So it can
 * miss a sleeper that came within that moment and did not see VALUE yet.  The sleeper
 * looks again after 50 us, and is counted all the while.  By then VALUE has reached it,
 * or this look comes after it was counted and wakes it.  (Of 600,000 posts to sleepers
 * that had just come, none missed.)  An exchange would forbid running ahead, but it
 * takes longer.  (8 bytes between two ranks: 0.30 us instead of 0.22.) */
static inline void post_to(struct post *p, uint64_t value, const struct bells *bells)
{
	atomic_store_explicit(&p->value, value, memory_order_release);
	atomic_signal_fence(memory_order_seq_cst);
	if (atomic_load_explicit(&p->sleepers, memory_order_relaxed))
		post_wake(p, bells);
}

static inline void post(struct post *p, uint64_t value)
{
	post_to(p, value, NULL);
}

/* post() by a rank that waits by W itself. */
static inline void post_from(const struct wait *w, struct post *p, uint64_t value)
{
	if (w->oversubscribed)
		atomic_store_explicit(&p->core, (uint32_t)sched_getcpu() + 1,
				      memory_order_relaxed);
	post_to(p, value, w->bells);
}

#endif
