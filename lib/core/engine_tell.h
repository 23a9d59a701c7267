/* engine_tell.h - what ranks tell each other in a round (plan.h). */
#ifndef BERTH_LIB_ENGINE_TELL_H
#define BERTH_LIB_ENGINE_TELL_H

#include "lib/core/engine_internal.h"

/* What a rank tells of a unit. */
struct entry {
	uint64_t key;
	uint32_t signature, first;
};

/* What a rank tells: its entries follow. */
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

/* What all ranks have told: lists with room for MOST entries each. */
struct told {
	uint64_t most;
	uint64_t fusion_bytes, cycle, base; /* on which they agree */
	bool joined, waits;                 /* any of them */
	bool direct, bucket;                /* all of them */
};

static inline size_t engine_list_bytes(uint64_t most)
{
	return sizeof(struct head) + most * sizeof(struct entry);
}

static inline struct head *engine_list_of(const struct engine *e, uint64_t most,
					  unsigned place)
{
	return (struct head *)((unsigned char *)e->lists +
			       place * engine_list_bytes(most));
}

static inline struct entry *engine_entries(struct head *h)
{
	return (struct entry *)(h + 1);
}

/* Is what a rank tells possible, in a list with room for MOST entries? */
static inline bool engine_head_is_sound(const struct head *h, uint64_t most)
{
	return h->n <= most && h->n <= h->pending && h->pending <= ENGINE_PENDING_MOST;
}

/* All ranks call it.  OWN is this rank's head; e->list has its pending requests. */
berth_result engine_tell(struct engine *e, const struct head *own, struct told *told,
			 uint64_t deadline_ns);

#endif
