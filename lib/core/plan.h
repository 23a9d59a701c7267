/* plan.h - which asynchronous operations are done when, and which of them together.
 * Pure: all ranks come to the same from the same.
 *
 * A unit is what was submitted at once.  As long as there is no plan the ranks tell
 * each other what they have (engine.c); units that all of them have are done in the
 * order of the first rank's list, and noted.  When the first noted unit comes again
 * the cycle is closed, and becomes the plan: buckets of units, in order, each done
 * as soon as this rank has all of its units, with nothing told.  A bucket's
 * operation carries the plan's hash, so ranks that have left the plan are found by
 * the others' next operation. */
#ifndef BERTH_LIB_PLAN_H
#define BERTH_LIB_PLAN_H

#include <stdbool.h>

#include "lib/core/op.h"

struct plan_unit {
	uint64_t key;       /* of its name */
	uint32_t signature; /* of all its operations */
	uint64_t bytes;     /* of its allreduces */
	uint64_t fuse_key;  /* what may be fused has the same: type, op; 0: nothing */
};

struct plan {
	struct plan_unit *unit; /* the cycle so far, or the plan's */
	size_t n, room;
	uint64_t *sorted;      /* while it holds: keys, to find them */
	size_t *bucket;        /* the first unit of each, and N at the end */
	size_t nbuckets, next; /* while it holds: the bucket to be done next */
	bool holds;
	uint32_t hash;
	unsigned cycles, needed; /* closed in a row; before one becomes a plan */
};

enum { PLAN_UNITS_MOST = 8192, PLAN_CYCLES_MOST = 64 };

void plan_free(struct plan *p);

/* Before UNIT is done: true if with it the cycle is closed and the plan holds from
 * now on (UNIT is its first).  Else it is noted.  *RC: BERTH_MEMORY, nothing was
 * noted. */
bool plan_note(struct plan *p, const struct plan_unit *unit, uint64_t fusion_bytes,
	       berth_result *rc);
/* A rank has left it: learn anew, for twice as many cycles as the last time. */
void plan_break(struct plan *p);
/* The bucket before NEXT was done. */
void plan_advance(struct plan *p);
/* The signature of the next bucket's operation. */
uint32_t plan_signature(const struct plan *p);
/* Does the plan have UNIT? */
bool plan_has(const struct plan *p, const struct plan_unit *unit);

/* How many of the N units from UNIT on go together. */
size_t plan_together(const struct plan_unit *unit, size_t n, uint64_t fusion_bytes);

#endif
