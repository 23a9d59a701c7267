/* coll.h - one collective operation, as the back ends see it: arguments checked, the
 * average turned into a sum and a division. */
#ifndef BERTH_LIB_COLL_H
#define BERTH_LIB_COLL_H

#include "lib/base/kern.h"

/* Where elements of an array lie that is in pieces. */
struct coll_piece {
	const void *in;
	void *out;
	uint64_t at; /* elements in front of it */
};

struct coll;

/* What each rank tells all others before an allgather or alltoall of which it knows its
 * own counts alone (coll_rows.h). */
struct coll_rows {
	unsigned n, me; /* of the group */
	/* WORDS of this rank: elements that it gives, of an alltoall to each rank, and
	 * behind them what the caller likes.  Not in ALL. */
	const uint64_t *mine;
	size_t words;  /* the same on all ranks */
	uint64_t *all; /* gets N * WORDS, in the order of ranks */
	/* Called when ALL is there, the same on all ranks: sets IN_COUNTS, OUT_COUNTS,
	 * LARGEST and OUT of C, a private copy.  BERTH_MISMATCH, the same on all ranks:
	 * the operation ends there, and OUT is as it was.  Any other error is one of
	 * this rank alone: the caller has to end the group. */
	berth_result (*settle)(void *ctx, struct coll *c);
	void *ctx;
};

struct coll {
	berth_kind kind;
	const void *in;
	void *out;
	uint64_t count; /* elements; of allgather, gather, scatter: one rank's */
	berth_type type;
	berth_op op; /* of a reduction, one that kern_make() has */
	struct kern_scale scale;
	/* Of a reduction: of IN and of OUT.  KERN_PARTIAL: for a back end that reduces
	 * in several steps; what has pieces has none. */
	enum kern_form in_form, out_form;
	unsigned root; /* place in the group */
	/* One for each rank, or NULL: COUNT / ranks each, the first ones one more if
	 * there is a rest (reducescatter), COUNT each (allgather). */
	const uint64_t *in_counts, *out_counts;
	/* Of an alltoall with counts, the same on all ranks: elements of the largest
	 * part that any rank gives. */
	uint64_t largest;
	/* NPIECES of an allreduce whose IN and OUT mean nothing; for back ends that
	 * take them. */
	const struct coll_piece *piece;
	size_t npieces;
	struct coll_rows *rows; /* for coll_run_rows(); run() does not look */
	/* Of everything that has to be the same on all ranks: what it is called,
	 * kind, type, op, shape, root, scalings. */
	uint32_t signature;
};

/* Elements that rank I of N gives (alltoall, reducescatter, scatter: to each; here:
 * part I) and gets. */
uint64_t coll_part(const struct coll *c, unsigned n, unsigned i);
uint64_t coll_got(const struct coll *c, unsigned n, unsigned i);
/* Elements in front of them. */
uint64_t coll_part_at(const struct coll *c, unsigned n, unsigned i);
uint64_t coll_got_at(const struct coll *c, unsigned n, unsigned i);
/* Of the largest part that any rank gives: the same on all ranks that have agreed. */
uint64_t coll_largest(const struct coll *c, unsigned n);

/* Does rank I have something that others read; get something of others? */
bool coll_gives(const struct coll *c, unsigned i);
bool coll_gets(const struct coll *c, unsigned i);

/* Of a kind that moves data, what rank ME of N keeps: from its IN to its OUT, unless it
 * is there. */
void coll_keep_own(const struct coll *c, unsigned n, unsigned me);

/* C of one rank alone. */
void coll_alone(const struct coll *c);

/* Allreduce, reduce, reducescatter. */
static inline bool coll_reduces(berth_kind kind)
{
	return kind == BERTH_ALLREDUCE || kind == BERTH_REDUCE ||
	       kind == BERTH_REDUCESCATTER;
}

/* The reduction of C, from IN to OUT. */
static inline bool coll_kern(struct kern *k, const struct coll *c, enum kern_form in,
			     enum kern_form out)
{
	return kern_make(k, c->type, c->op, &c->scale, in, out);
}

#endif
