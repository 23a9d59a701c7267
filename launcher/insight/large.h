/* large.h - pure: the large operations of a rank in libberth, by kind and size.
 *
 * Agents send counters of each rank (wire.def: large_ops), which begin anew in each of
 * its worlds.  Sums are over all of them. */
#ifndef BERTH_LAUNCHER_INSIGHT_LARGE_H
#define BERTH_LAUNCHER_INSIGHT_LARGE_H

#include "common/wire.h"

enum { LARGE_MOST = 128 }; /* kinds and sizes */

/* Operations of one kind whose arrays have 2^size bytes to twice as many. */
struct large_sum {
	char kind[16]; /* "allreduce" */
	uint32_t size;
	double ops, bytes, bus_bytes, s;
	struct wire_large_ops last; /* the last counters */
};

struct large {
	struct large_sum *v;
	size_t n;
};

/* A message of an agent.  Returns its fault, or NULL. */
const char *large_add(struct large *l, const struct wire_large_ops *m);
void large_free(struct large *l); /* takes {0} */

#endif
