/* round.h - a round, in which all ranks tell each other what they have (plan.h).
 *
 * Each rank tells a head, and an entry for each unit that is beside its plan, or for
 * all that is pending.  From the same lists all ranks find which units all of them
 * have, and do these; find units that differ, which fail on all of them, unless they
 * differ in the memories of their arrays alone; and let ranks that have joined take
 * part without data. */
#ifndef BERTH_LIB_ROUND_H
#define BERTH_LIB_ROUND_H

#include "lib/core/set.h"

/* A unit, as a rank tells it. */
struct entry {
	uint64_t key;
	uint32_t signature;
	uint32_t alike : 31, first : 1; /* as in a struct plan_unit */
};

/* The head of a rank's list: its entries follow. */
struct head {
	uint64_t n;       /* entries that follow */
	uint64_t pending; /* units */
	uint64_t beside;  /* of them, those that the plan does not expect */
	uint64_t fusion_bytes;
	uint32_t joined, waits; /* waits: for what the plan holds back */
	uint32_t direct;        /* a thread had blocked on what it tells first */
	uint32_t bucket;        /* it has the plan's next bucket */
	uint64_t cycle, base;   /* of its plan */
};

static inline size_t round_list_bytes(uint64_t most)
{
	return sizeof(struct head) + most * sizeof(struct entry);
}

static inline struct entry *round_entries(struct head *h)
{
	return (struct entry *)(h + 1);
}

/* Is the head possible, in a list with room for MOST entries? */
static inline bool round_head_is_sound(const struct head *h, uint64_t most)
{
	return h->n <= most && h->n <= h->pending && h->pending <= SET_PENDING_MOST;
}

/* One round.  All ranks call it; WORK is held. */
enum progress round_run(struct berth_set *s);
/* An operation or a round came to RC.  After BERTH_MISMATCH a round is called; after
 * any other error the set is broken, and all that is pending ends. */
enum progress round_failed(struct berth_set *s, berth_result rc);

#endif
