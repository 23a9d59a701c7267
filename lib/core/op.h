/* op.h - what a caller asked for: checked, and in the form that back ends take.
 * Pure. */
#ifndef BERTH_LIB_OP_H
#define BERTH_LIB_OP_H

#include <stdbool.h>

#include "lib/backend/coll.h"

struct op {
	struct coll coll;         /* average and Adasum as sums */
	const char *name, *shape; /* the caller's, or NULL */
	bool adasum;
	bool own_counts;    /* each rank knows its own alone: op_counts.h */
	int64_t timeout_ms; /* 0: the default, -1: none */
	int priority;
	/* only for kinds with counts, and for a send or a receive */
	uint64_t room; /* elements that OUT holds; UINT64_MAX: it is yet to be had */
	uint64_t *received; /* or NULL */
	void *(*alloc)(void *ctx, uint64_t bytes);
	void *alloc_ctx;
	void **made;
	int peer; /* a place, or BERTH_ANY */
	uint64_t tag;
	int *from;
	bool mixed; /* other ranks give arrays of other memories */
	/* for memory of a device; else MEMORY is BERTH_HOST, and the rest is not set */
	berth_memory memory;
	int device;
	void *stream, *ready;
	bool marked; /* MARK is what device.h's mark() made of these */
	void *mark;
};

enum { OP_WORDS_BYTES = 480, OP_CODE_BYTES = 704 };

/* D, which has a SET at least, as an operation in a set of N ranks, in which this one
 * is ME.  NULL, or what is wrong with it: BERTH_INVALID, or BERTH_UNSUPPORTED if it is
 * one of these three. */
extern const char op_unknown[], op_not_there[];
const char *op_make(struct op *op, const struct berth_desc *d, unsigned n, unsigned me);

/* Is its memory a device's? */
static inline bool op_is_device(const struct op *op)
{
	return op->memory > BERTH_HOST;
}

/* Is it a work (works.h)? */
static inline bool op_is_work(const struct op *op)
{
	return op_is_device(op) || op->mixed;
}

static inline bool op_is_message(const struct op *op)
{
	return op->coll.kind >= BERTH_SEND;
}

/* Its signature without its memory: that of other ranks which differ in no more. */
uint32_t op_alike(const struct op *op);
/* The ranks differ in its memory, and do it together all the same. */
void op_mix_memories(struct op *op);

/* More than any count, where they are too many to be added. */
uint64_t op_total(const uint64_t *counts, unsigned n);

const char *op_kind_name(berth_kind kind);
/* `allreduce "grad" of 1024 f32, sum`; without a number where each rank has its own. */
void op_words(char *text, size_t bytes, const struct op *op);
/* Writes to TEXT, of OP_CODE_BYTES, all that a rank which has joined needs to take
 * part, and the words of OP. */
void op_encode(char *text, const struct op *op);
/* The operation of such a text in a set of N ranks, without buffers and counts; its
 * words are where *WORDS points.  BERTH_INVALID: no rank of the set can have called for
 * it. */
berth_result op_decode(struct op *op, const char *text, unsigned n, const char **words);
/* Fills P with N elements that do not change the result: a rank without data gives
 * these. */
void op_fill_neutral(void *p, const struct coll *c, uint64_t n);

uint64_t op_hash(const void *p, size_t bytes, uint64_t seed);

#endif
