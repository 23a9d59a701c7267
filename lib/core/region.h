/* region.h - the memory of a set's ranks on one host: of their back end, of their
 * messages, and what they say of the set itself. */
#ifndef BERTH_LIB_REGION_H
#define BERTH_LIB_REGION_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

/* All zero at first. */
struct region_shared {
	_Atomic uint32_t gone;     /* ranks that use the region no more */
	_Atomic uint32_t aborting; /* 1 + the place that aborts the set */
	_Atomic uint32_t aborted;  /* the same; WHY is whole */
	char why[240];
	_Atomic uint32_t left[]; /* of each of them: it has left the set */
};

/* Of N ranks; it begins with shm_bytes(N).  Sparse. */
size_t region_bytes(unsigned n);
/* p2p_bytes(N). */
void *region_messages(void *region, unsigned n);
struct region_shared *region_shared(void *region, unsigned n);

#endif
