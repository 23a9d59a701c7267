/* coll.h - one collective operation, as the back ends see it.  Its arguments are
 * checked.  An average is a sum and a division. */
#ifndef BERTH_LIB_COLL_H
#define BERTH_LIB_COLL_H

#include "lib/base/kern.h"

/* A piece of an array, and where its elements lie. */
struct coll_piece {
	const void *in;
	void *out;
	uint64_t at; /* elements in front of it */
};

struct coll;

/* The row that each rank tells all others before an allgather or alltoall in which it
 * knows only its own counts (coll_rows.h). */
struct coll_rows {
	unsigned n, me; /* of the group */
	/* This rank's row of WORDS words.  It has the elements that the rank gives (for
	 * an alltoall, to each rank), then any words of the caller.  It does not lie in
	 * ALL. */
	const uint64_t *mine;
	size_t words;  /* the same on all ranks */
	uint64_t *all; /* gets N * WORDS, in the order of ranks */
	/* Called when ALL is complete and the same on all ranks.  It sets IN_COUNTS,
	 * OUT_COUNTS, LARGEST and OUT of C, a private copy.  BERTH_MISMATCH, the same
	 * on all ranks: the operation ends there, and OUT is unchanged.  Any other
	 * error is one of this rank alone.  Then the caller has to end the group. */
	berth_result (*settle)(void *ctx, struct coll *c);
	void *ctx;
};

struct coll {
	berth_kind kind;
	const void *in;
	void *out;
	uint64_t count; /* elements; allgather, gather, scatter: one rank's */
	berth_type type;
	berth_op op; /* for a reduction: one that kern_make() has */
	struct kern_scale scale;
	/* Forms of IN and OUT in a reduction.  KERN_PARTIAL is for a back end that
	 * reduces in several steps.  An operation with pieces does not have it. */
	enum kern_form in_form, out_form;
	unsigned root; /* place in the group */
	/* One count for each rank, or NULL.  NULL in a reducescatter: each rank has
	 * COUNT / ranks, and the first ones have one more if there is a rest.  NULL in
	 * an allgather: each rank has COUNT. */
	const uint64_t *in_counts, *out_counts;
	/* For an alltoall with counts: elements of the largest part that any rank
	 * gives, the same on all ranks. */
	uint64_t largest;
	/* NPIECES pieces of an allreduce, for back ends that take them.  IN and OUT
	 * mean nothing then. */
	const struct coll_piece *piece;
	size_t npieces;
	struct coll_rows *rows; /* for coll_run_rows(); begin() ignores it */
	/* On a device: this rank has no data for an allreduce.  It gives NEUTRAL, which
	 * changes nothing, and is not scaled.  IN and OUT mean nothing then. */
	bool has_none;
	unsigned char neutral[8];
	/* On a device, beside such a rank: IN is prescaled before ranks are told of it,
	 * since what changes nothing is not scaled. */
	bool scales_apart;
	/* Made from all that has to be the same on all ranks: name, kind, type, op,
	 * shape, root, scalings. */
	uint32_t signature;
};

/* Elements of part I that a rank gives in an alltoall, reducescatter or scatter, and
 * elements that it gets from rank I.  There are N ranks. */
uint64_t coll_part(const struct coll *c, unsigned n, unsigned i);
uint64_t coll_got(const struct coll *c, unsigned n, unsigned i);
/* Elements in front of that part. */
uint64_t coll_part_at(const struct coll *c, unsigned n, unsigned i);
uint64_t coll_got_at(const struct coll *c, unsigned n, unsigned i);
/* Elements of the largest part that any rank gives, the same on all ranks that have
 * agreed. */
uint64_t coll_largest(const struct coll *c, unsigned n);

/* Does rank I have data that others read?  Does it get data of others? */
bool coll_gives(const struct coll *c, unsigned i);
bool coll_gets(const struct coll *c, unsigned i);

/* Copies the part that rank ME of N keeps from its IN to its OUT, unless it is there
 * already.  C is of a kind that moves data. */
void coll_keep_own(const struct coll *c, unsigned n, unsigned me);

/* Does C for a group of one rank. */
void coll_alone(const struct coll *c);

/* Allreduce, reduce, reducescatter. */
static inline bool coll_reduces(berth_kind kind)
{
	return kind == BERTH_ALLREDUCE || kind == BERTH_REDUCE ||
	       kind == BERTH_REDUCESCATTER;
}

/* Makes K, the reduction of C, from the form IN to the form OUT. */
static inline bool coll_kern(struct kern *k, const struct coll *c, enum kern_form in,
			     enum kern_form out)
{
	return kern_make(k, c->type, c->op, &c->scale, in, out);
}

#endif
