/* region.h - the memory of a set's ranks on one host: their back end's, and what they
 * say of the set itself. */
#ifndef BERTH_LIB_REGION_H
#define BERTH_LIB_REGION_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

/* At the end of a region; all zero at first. */
struct region_shared {
	_Atomic uint32_t gone;     /* ranks that use the region no more */
	_Atomic uint32_t aborting; /* 1 + the place that aborts the set */
	_Atomic uint32_t aborted;  /* the same; WHY is whole */
	char why[240];
	_Atomic uint32_t left[]; /* of each of them: it has left the set */
};

/* Of N ranks; it begins with shm_bytes(N). */
size_t region_bytes(unsigned n);
struct region_shared *region_shared(void *region, unsigned n);

#endif
