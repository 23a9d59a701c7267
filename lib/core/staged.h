/* staged.h - operations on arrays of a device by way of the host: what a device's ranks
 * can't do together, as where two of them share a GPU, or where some ranks have arrays
 * in the host's memory.
 *
 * A step of an operation is a part of each of its arrays that fits into the room of a
 * stage (device.h).  The device copies a step's input there, the ranks do the step in
 * the host's memory, as any other operation, and the device copies the result to its
 * place.  So the result is that of the host, bit by bit.  While the ranks do one step,
 * the device copies those around it.
 *
 * The host waits for the device there, in the thread that holds the set's WORK: first
 * for what the caller's stream has, then for the copies.  In a fiber other sets go on
 * meanwhile, and no step takes longer than a part of a millisecond in memory.  The last
 * copies are a work (works.h), which a stream can follow. */
#ifndef BERTH_LIB_STAGED_H
#define BERTH_LIB_STAGED_H

#include "lib/core/works.h"

struct staged;

/* For a set of N ranks on DEVICE.  NULL: *WHY not, in words. */
struct staged *staged_open(const struct device_backend *back, int device, unsigned n,
			   const char **why);
/* No work of it is under way.  S may be NULL. */
void staged_close(struct staged *s);
/* Does W by S; all ranks of C have called for it with SIGNATURE.  But for its last
 * copies it is done then: it runs.  After an error nothing is begun. */
berth_result staged_run(struct comm *c, struct work *w, struct staged *s,
			uint32_t signature);

#endif
