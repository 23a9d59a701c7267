/* done.h - how many operations of a set a rank is done with.  Counts wrap.  If a rank
 * is done with more than another, it has done its part of the other's operation. */
#ifndef BERTH_LIB_DONE_H
#define BERTH_LIB_DONE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* DONE is NULL for a rank that does not count. */
static inline uint32_t done_count(const _Atomic uint32_t *done)
{
	return done ? atomic_load_explicit(done, memory_order_relaxed) : 0;
}

static inline bool done_is_more(uint32_t theirs, uint32_t own)
{
	return (int32_t)(theirs - own) > 0;
}

#endif
