/* wait.h - one rank waits for another through memory that they share: a post is a
 * counter with one writer.
 *
 * A rank that waits spins (hand-over between cores of one L3: 50 ns), then yields
 * (0.4 us), then sleeps on a futex, and looks around each WAIT_SLICE_MS (0.1 to 0.2 %
 * of a core).
 * Ranks that outnumber the cores hardly spin, since a rank that they wait for may need
 * this core: 4 ranks on 2 cores 1.4 us with 8 spins of 50 ns, 2.0 with 60. */
#ifndef BERTH_LIB_WAIT_H
#define BERTH_LIB_WAIT_H

#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "lib/base/clock.h"
#include "lib/berth.h"

struct post {
	_Atomic uint64_t value;    /* low half: the counter, wraps */
	_Atomic uint32_t sleepers; /* written by those who wait */
	_Atomic uint32_t
		core; /* on which it was posted, plus 1, of oversubscribed ranks */
};

struct wait {
	unsigned spins, yields;
	uint64_t spin_ns;     /* for so long it spins on after SPINS looks */
	bool oversubscribed;  /* the ranks outnumber the cores */
	uint64_t deadline_ns; /* of CLOCK_MONOTONIC; 0: none */
	/* Not 0: nobody will come any more.  Why (a berth_result), and, shifted by 32,
	 * how many operations the rank that says so is done with. */
	const _Atomic uint64_t *broken;
	/* The same of this rank (done.h); or NULL.  While the other is done with more,
	 * the wait goes on. */
	const _Atomic uint32_t *done;
	/* Called while asleep, each WAIT_SLICE_MS; may look for what breaks the
	 * wait. */
	void (*idle)(void *ctx);
	void *ctx;
	uint64_t slept; /* how often it came to that */
};

enum {
	WAIT_SLICE_MS = 50,
	/* Yields go on for so long.  On a core that 15 others want one takes 45 ms:
	 * 2,000 of them kept a rank from looking around for 90 s. */
	WAIT_YIELD_NS = 8000000
};

/* The usual patience for RANKS on CORES. */
void wait_tune(struct wait *w, unsigned ranks, unsigned cores);

/* Why nobody comes any more for whom W's rank waits; or BERTH_OK.  Any rank of the host
 * may have written it. */
berth_result wait_ends(const struct wait *w);

static inline bool wait_reached(uint64_t value, uint32_t want)
{
	return (int32_t)((uint32_t)value - want) >= 0;
}

/* Who posts P ran on this core, so not now: spinning keeps it from doing so.  4 ranks
 * on 2 cores 1.5 us, without this look 1.7. */
static inline bool wait_is_vain(const struct wait *w, const struct post *p)
{
	return w->oversubscribed &&
	       atomic_load_explicit(&p->core, memory_order_relaxed) ==
		       (uint32_t)sched_getcpu() + 1;
}

/* When spinning has not helped.  BERTH_OK, BERTH_TIMEOUT or what broke it. */
berth_result wait_long(struct wait *w, struct post *p, uint32_t want);

static inline void wait_pause(void)
{
#if defined(__x86_64__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("isb");
#endif
}

/* Until P has reached WANT. */
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

/* May a wait that has yielded since BEGUN_NS, of clock_coarse_ns(), go on with that? */
static inline bool wait_may_yield(uint64_t begun_ns)
{
	return clock_coarse_ns() < begun_ns + WAIT_YIELD_NS;
}

/* Wake who sleeps on P. */
void post_wake(struct post *p);

/* What was written before is seen by a rank that sees VALUE.
 *
 * A plain store, past which the look at sleepers may run ahead (an exchange that
 * forbids it: 0.30 us for 8 bytes between two ranks instead of 0.22).  So this can miss
 * a sleeper that came within that moment, which in turn did not see VALUE yet.  The
 * sleeper looks again after 50 us, counted all the while: by then either VALUE has
 * reached it, or this look comes after it was counted and wakes it.  (Of 600,000 posts
 * to sleepers that had just come, none missed.) */
static inline void post(struct post *p, uint64_t value)
{
	atomic_store_explicit(&p->value, value, memory_order_release);
	atomic_signal_fence(memory_order_seq_cst);
	if (atomic_load_explicit(&p->sleepers, memory_order_relaxed))
		post_wake(p);
}

/* The same, of a rank that waits by W itself. */
static inline void post_from(const struct wait *w, struct post *p, uint64_t value)
{
	if (w->oversubscribed)
		atomic_store_explicit(&p->core, (uint32_t)sched_getcpu() + 1,
				      memory_order_relaxed);
	post(p, value);
}

#endif
