/* region.h - the memory of a set's ranks on one host: of their back end, and what they
 * say of the set itself.  That of all ranks has their messages, too. */
#ifndef BERTH_LIB_REGION_H
#define BERTH_LIB_REGION_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/bell.h"
#include "lib/core/arrive.h"

/* All zero at first. */
struct region_shared {
	_Atomic uint32_t gone;     /* ranks that use the region no more */
	_Atomic uint32_t aborting; /* 1 + the place that aborts the set */
	_Atomic uint32_t aborted;  /* the same; WHY is whole */
	_Atomic uint32_t resting;  /* ranks whose bell is to be rung (rest.h) */
	char why[240]; /* a rank of another host hears P2P_REASON_BYTES of it */
	struct arrival arrival[]; /* of each of them; and then LEFT of each */
};

/* The size of the region of N ranks, which is sparse.  It begins with shm_bytes(N). */
size_t region_bytes(unsigned n);
/* The size of the region of all N ranks of a host. */
size_t region_bytes_of_all(unsigned n);
/* p2p_bytes(N), in the region of all. */
void *region_messages(void *region, unsigned n);
struct region_shared *region_shared(void *region, unsigned n);
/* N flags: the rank has left the set. */
_Atomic uint32_t *region_left(struct region_shared *shared, unsigned n);
/* N bells of all ranks of a host, in the region of all. */
struct bell *region_bells(void *region, unsigned n);

#endif
