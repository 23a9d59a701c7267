/* staged_step.h - the steps of an operation that goes by way of the host (staged.h).
 * Pure.
 *
 * An operation has blocks in its arrays: one for each rank, or one.  Step K has of each
 * block as many elements, behind those of the steps before, or what is left.  So all
 * ranks have the same steps, whatever their blocks are. */
#ifndef BERTH_LIB_STAGED_STEP_H
#define BERTH_LIB_STAGED_STEP_H

#include "lib/backend/device.h"

enum { STAGED_BYTES = 1 << 20 /* the room of a step's input, and of its result */ };

/* How much of that a step uses: all of it, but in tests. */
extern size_t staged_step_bytes;

/* Copies, in memory that grows. */
struct staged_copies {
	struct device_copy *copy;
	size_t n, most;
	bool failed; /* there was no memory for one */
};

struct staged_step {
	struct coll coll; /* on the host */
	uint64_t from;    /* elements of each block in front of it */
	/* to the room, and from there */
	struct staged_copies *in, *out;
};

/* How many steps C has, of a group of N.  One at least. */
uint64_t staged_steps(const struct coll *c, unsigned n);
/* Step K of C, for the rank at place ME of N, whose room is at ROOM, of twice
 * STAGED_BYTES.  COUNTS: for N counts that are given, and N that are got.  STEP->IN and
 * OUT get what is to be copied. */
void staged_make_step(struct staged_step *step, const struct coll *c, uint64_t k,
		      unsigned n, unsigned me, unsigned char *room, uint64_t *counts);
void staged_add(struct staged_copies *c, const void *from, const void *to,
		size_t bytes);

#endif
