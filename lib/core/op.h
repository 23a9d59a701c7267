/* op.h - what a caller asked for: checked, and in the form that back ends take.
 * Pure. */
#ifndef BERTH_LIB_OP_H
#define BERTH_LIB_OP_H

#include <stdbool.h>

#include "lib/backend/coll.h"

struct op {
	struct coll coll; /* average and Adasum as sums */
	const char *name; /* the caller's, or NULL */
	bool adasum;
	int64_t timeout_ms; /* 0: the default, -1: none */
	int priority;
};

enum { OP_WORDS_BYTES = 320, OP_CODE_BYTES = 512 };

/* D, which has a TYPE at least, as an operation of KIND in a set of N ranks, in which
 * this one is ME.  NULL, or what is wrong with it (BERTH_INVALID). */
extern const char op_unknown[]; /* what is wrong: BERTH_UNSUPPORTED */
const char *op_make(struct op *op, enum berth_kind kind, const struct berth_desc *d,
		    unsigned n, unsigned me);

const char *op_kind_name(enum berth_kind kind);
/* `allreduce "grad" of 1024 f32, sum`; without a number where each rank has its own. */
void op_words(char *text, size_t bytes, const struct op *op);
/* What a rank that has joined needs to take part, and the words: OP_CODE_BYTES. */
void op_encode(char *text, const struct op *op);
/* The operation of such a text in a set of N ranks, without buffers and counts; its
 * words are where *WORDS points.  BERTH_INVALID: no rank of the set can have called for
 * it. */
berth_result op_decode(struct op *op, const char *text, unsigned n, const char **words);
/* What a rank without data gives: N elements that change nothing. */
void op_fill_neutral(void *p, const struct coll *c, uint64_t n);

uint64_t op_hash(const void *p, size_t bytes, uint64_t seed);

#endif
