/* tf_part.h - one tensor of an operation: its input, its output, its descriptor. */
#ifndef BERTH_OPS_TF_PART_H
#define BERTH_OPS_TF_PART_H

#include "lib/ops/tf_abi.h"
#include "lib/ops/tf_kernel.h"
#include "lib/ops/tf_sets.h"

struct tf_part {
	TF_OpKernelContext *ctx;
	int i; /* of the input and of the output */
	TF_Tensor *in, *out;
	uint64_t row;       /* elements in a row of IN; or 1, of STAND_IN */
	uint64_t *counts;   /* elements for each rank, or NULL */
	uint64_t *received; /* elements from each rank, or NULL */
	void *made;
	/* Rows without elements: a byte goes for each, so that ranks learn how many
	 * come.  NULL if they have elements. */
	void *stand_in;
};

/* COUNTS get an equal share of ROWS for each rank, and one row more for the first ones
 * where that does not come out even.  ROW: the elements in one. */
void tf_part_share(uint64_t rows, uint64_t row, int ranks, uint64_t *counts);
/* How many numbers a part of KIND keeps for each rank. */
int tf_part_numbers(int kind);
/* Describe input I of CTX in D, with GROUP's ranks, and allocate the output where its
 * size is known.  SPLITS: of an alltoall, the second input.  NUMBERS: room for
 * tf_part_numbers() for each rank.  SHAPE: room for its text.  False: the op has
 * failed. */
bool tf_part_begin(struct tf_part *part, const struct tf_kernel *k,
		   const struct tf_group *group, TF_Tensor *splits, uint64_t *numbers,
		   char *shape, size_t shape_bytes, struct berth_desc *d);
/* An operation of KIND is done: outputs get what came.  False: the op has failed. */
bool tf_part_end(struct tf_part *part, int kind, int ranks);
void tf_part_drop(struct tf_part *part);

#endif
