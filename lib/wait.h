/* wait.h - one rank waits for another through memory that they share: a post is a
 * counter with one writer.
 *
 * Who waits spins (hand-over between cores of one L3: 50 ns), then yields (0.4 us),
 * then sleeps on a futex; ranks that outnumber the cores do not spin, since whoever
 * they wait for may need this core: 4 ranks on 2 cores 1.8 us with 20 spins, 6.5
 * with 200.  Who posts pays for sleepers with one exchange instead of a store. */
#ifndef BERTH_LIB_WAIT_H
#define BERTH_LIB_WAIT_H

#include <stdatomic.h>
#include <stdbool.h>

#include "lib/berth.h"

struct post {
	_Atomic uint64_t value;    /* low half: the counter, wraps */
	_Atomic uint32_t sleepers; /* written by those who wait */
};

struct wait {
	unsigned spins, yields;
	uint64_t deadline_ns; /* of CLOCK_MONOTONIC; 0: none */
	/* Not 0: nobody will come any more, and why (a berth_result). */
	const _Atomic uint32_t *broken;
	/* Called while asleep, each WAIT_SLICE_MS; may look for what breaks the
	 * wait. */
	void (*idle)(void *ctx);
	void *ctx;
	uint64_t slept; /* how often it came to that */
};

enum { WAIT_SLICE_MS = 50 };

/* The usual patience for RANKS on CORES. */
void wait_tune(struct wait *w, unsigned ranks, unsigned cores);

static inline bool wait_reached(uint64_t value, uint32_t want)
{
	return (int32_t)((uint32_t)value - want) >= 0;
}

/* When spinning has not helped.  BERTH_OK, BERTH_TIMEOUT or what broke it. */
berth_result wait_long(struct wait *w, struct post *p, uint32_t want);

/* Until P has reached WANT. */
static inline berth_result wait_for(struct wait *w, struct post *p, uint32_t want)
{
	for (unsigned i = 0; i <= w->spins; i++) {
		if (wait_reached(atomic_load_explicit(&p->value, memory_order_acquire),
				 want))
			return BERTH_OK;
#if defined(__x86_64__)
		__builtin_ia32_pause();
#elif defined(__aarch64__)
		__asm__ volatile("isb");
#endif
	}
	return wait_long(w, p, want);
}

/* Wake who sleeps on P. */
void post_wake(struct post *p);

/* What was written before is seen by whoever sees VALUE. */
static inline void post(struct post *p, uint64_t value)
{
	/* the exchange orders it before the look at sleepers */
	atomic_exchange_explicit(&p->value, value, memory_order_seq_cst);
	if (atomic_load_explicit(&p->sleepers, memory_order_relaxed))
		post_wake(p);
}

#endif
