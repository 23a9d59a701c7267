/* totals.h - what this rank has done so far, in the memory of its host (boot.def), so
 * that the agent's monitor can sample it.
 *
 * An operation of 8 B in memory takes 228 ns with it, and 208 without.
 *
 * Times and bytes count from the end of the first operation on: until then ranks
 * start, each at its own time.  What a rank waits is counted of its main thread alone,
 * which is asleep then: other threads may sleep while the rank computes. */
#ifndef BERTH_LIB_TOTALS_H
#define BERTH_LIB_TOTALS_H

#include "lib/base/one_thread.h"
#include "lib/boot/memory.h"

enum {
	TOTALS_LOST = 16384, /* operations without the largest: it comes no more */
	TOTALS_LARGE = 1 << BOOT_LARGE_FIRST /* bytes */
};

static inline struct boot_rank *totals_of(const struct memory *m)
{
	return &m->rank[m->local_rank];
}

static inline void totals_count(_Atomic uint64_t *counter, uint64_t n)
{
	if (one_thread())
		atomic_store_explicit(
			counter,
			atomic_load_explicit(counter, memory_order_relaxed) + n,
			memory_order_relaxed);
	else
		atomic_fetch_add_explicit(counter, n, memory_order_relaxed);
}

extern _Atomic uint64_t totals_asleep_ns; /* not told yet */

/* A reduction of BYTES, named NAME or NULL, has ended: is it the largest again? */
void totals_step(struct boot_rank *me, uint64_t bytes, const char *name);
/* The first operation has ended, or this rank was asleep since the last one. */
void totals_tell(struct boot_rank *me);

/* An operation of KIND and BYTES, named NAME or NULL, has ended.  Any thread. */
static inline void totals_add(struct boot_rank *me, unsigned kind, uint64_t bytes,
			      const char *name)
{
	const uint64_t step = atomic_load_explicit(&me->step, memory_order_relaxed);
	const uint64_t last =
		atomic_load_explicit(&me->step_number, memory_order_relaxed);

	if (!atomic_load_explicit(&me->first_ns, memory_order_relaxed) ||
	    atomic_load_explicit(&totals_asleep_ns, memory_order_relaxed))
		totals_tell(me);
	totals_count(&me->bytes, bytes);
	if (kind <= KIND_LAST_REDUCTION &&
	    (bytes >= step >> 16 ||
	     atomic_load_explicit(&me->number, memory_order_relaxed) - last >
		     TOTALS_LOST))
		totals_step(me, bytes, name);
}

/* An operation of KIND on arrays of BYTES, TOTALS_LARGE or more, took NS.  IN has BYTES
 * on each of N ranks; of an allgather OUT has N times as many.  Any thread. */
void totals_large(struct boot_rank *me, unsigned kind, uint64_t bytes, unsigned n,
		  uint64_t ns);

/* This thread was asleep for NS, in an operation of its own or for a request.  The next
 * operation tells: a request may outlive the memory. */
void totals_blocked(uint64_t ns);

#endif
