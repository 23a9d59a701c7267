/* plan.h - which asynchronous operations are done when, and which of them together.
 * Pure: all ranks come to the same from the same.
 *
 * A unit is what was submitted at once.  In a round the ranks tell each other which
 * units they have (round.c).  They do those that all of them have, and note
 * them.  A cycle ends when all units of the plan are done, or when one of them comes
 * again; in front of the first plan, when half of what was noted comes again.
 *
 * What two cycles in a row had enters the plan.  What two in a row lacked leaves it.
 *
 * The plan is a list of buckets.  A rank does the next bucket as soon as it has the
 * bucket's units, and tells nothing.  The bucket's operation has a signature: of the
 * plan, the cycle and the bucket.  A rank calls a round if it has a unit that the plan
 * does not expect, or if it waits for a unit that the plan holds back.  The operation
 * of that rank then differs from the operation of the others, so all of them come to
 * the round.  The round does what is beside the plan; after it all ranks go on in the
 * plan where they were.  If a rank waits, the round also does all units of the plan
 * that all ranks have; the others remain open until the cycle ends.
 *
 * Units with the same fuse_key go together, also if others stand between them.  A
 * bucket's place is that of its last unit, so no bucket waits for a later one; of
 * buckets that were complete in the same round, that of the first unit comes first.  In
 * a round, units have the order of the first rank: by priority, then as submitted. */
#ifndef BERTH_LIB_PLAN_H
#define BERTH_LIB_PLAN_H

#include <stdbool.h>

#include "lib/core/op.h"

struct plan_unit {
	uint64_t key;        /* of its name, or of its number */
	uint64_t number;     /* 1, 2, ... of those without a name; 0: it has one */
	uint64_t bytes;      /* of its allreduces */
	uint64_t fuse_key;   /* what may be fused has the same; 0: nothing */
	uint32_t signature;  /* of all its operations */
	uint32_t alike : 31, /* the same without their memories */
		first : 1;   /* submitted when no request was in flight */
};

/* A unit in the plan, or one that was noted. */
struct plan_line {
	struct plan_unit unit; /* its number: from the beginning of the cycle on */
	uint32_t segment;      /* only units of one segment go together */
	uint32_t round;        /* of its cycle, in which it was noted */
	uint32_t cuts, before; /* in front of it, in this cycle and in the last one */
	uint32_t bucket;
	uint32_t ready;     /* the round in which its bucket was complete */
	uint32_t at;        /* its line before a sort */
	uint32_t missed;    /* cycles in a row without it */
	bool done, skipped; /* in this cycle */
};

struct plan_list {
	struct plan_line *line;
	size_t n, room;
};

struct plan_index {
	uint64_t id;
	size_t line;
};

struct plan_bucket {
	size_t from; /* its first line; its last is in front of the next one's first */
	size_t open;
};

struct plan {
	struct plan_list list;      /* the plan: N is 0 if there is none */
	struct plan_list seen;      /* in this cycle, beside the plan */
	struct plan_list last;      /* in the last one */
	struct plan_list again;     /* of those seen, in front of the first plan */
	struct plan_index *index;   /* sorted by id */
	struct plan_bucket *bucket; /* and one more at the end */
	size_t nbuckets, next;      /* the bucket to be done next */
	size_t ndone, open;         /* lines; open: neither done nor skipped */
	uint64_t cycle;             /* how many have ended */
	uint64_t base;              /* units without a name in earlier cycles */
	uint64_t most;              /* the highest number that is done */
	uint64_t beside;       /* units done in rounds, less those in good cycles */
	uint64_t noted, least; /* in this cycle; in each, in front of the first plan */
	uint64_t fusion_bytes; /* the least that any rank has; 0: nothing is fused */
	uint32_t hash;
	bool even;                      /* the last cycle was like the plan */
	uint32_t rounds, cuts, segment; /* in this cycle, so far */
};

#define PLAN_NONE SIZE_MAX

enum { PLAN_UNITS_MOST = 8192, PLAN_OPEN_MOST = 16 };

void plan_free(struct plan *p);

/* The key that OP shares with all operations that may be fused with it; 0: none may. */
uint64_t plan_fuse_key(const struct op *op);
/* The key of a unit without a name. */
uint64_t plan_number_key(uint64_t number);

/* Units go into buckets in their order: each into the one that is open for its
 * fuse_key and SEGMENT, or into a new one. */
struct plan_fusion {
	struct {
		uint64_t fuse_key, bytes;
		uint32_t segment, bucket;
	} open[PLAN_OPEN_MOST];
	size_t nopen;
	uint32_t nbuckets;
};
/* The number of UNIT's bucket. */
uint32_t plan_fuse(struct plan_fusion *f, const struct plan_unit *unit,
		   uint32_t segment, uint64_t fusion_bytes);

/* The line that UNIT is in this cycle, or PLAN_NONE. */
size_t plan_find(const struct plan *p, const struct plan_unit *unit);
/* Is UNIT in what remains of this cycle? */
bool plan_expects(const struct plan *p, const struct plan_unit *unit);
/* Is UNIT there, but with arrays of other memories?  Other ranks may hold it back. */
bool plan_expects_other(const struct plan *p, const struct plan_unit *unit);
/* Does UNIT, of the plan, begin the next cycle? */
bool plan_comes_again(const struct plan *p, const struct plan_unit *unit);
/* The key of what is expected for LINE. */
uint64_t plan_key(const struct plan *p, size_t line);
static inline bool plan_is_open(const struct plan *p, size_t line)
{
	return !p->list.line[line].done && !p->list.line[line].skipped;
}

/* All that follow change the plan.  BERTH_MEMORY is for good. */

/* UNIT comes again: what this cycle still lacks is skipped. */
berth_result plan_wrap(struct plan *p, const struct plan_unit *unit);
/* A round begins.  CYCLE and BASE: of the rank that is ahead. */
berth_result plan_round(struct plan *p, uint64_t cycle, uint64_t base);
/* UNIT is done in this round. */
berth_result plan_note(struct plan *p, const struct plan_unit *unit);
/* UNIT is done in this round, but all ranks differ in its memories: so it never enters
 * the plan, and what the plan has in its place is skipped in this cycle. */
berth_result plan_pass(struct plan *p, const struct plan_unit *unit);
/* This round has done all that it could, for a rank that waits. */
berth_result plan_cut(struct plan *p);
/* The next bucket was done. */
berth_result plan_advance(struct plan *p);
/* All ranks count units without a name from 1 again. */
void plan_restart_numbers(struct plan *p);

/* The signature of the next bucket's operation. */
uint32_t plan_signature(const struct plan *p);

#endif
