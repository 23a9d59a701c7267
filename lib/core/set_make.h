/* set_make.h - the ways to make a set. */
#ifndef BERTH_LIB_SET_MAKE_H
#define BERTH_LIB_SET_MAKE_H

#include "lib/core/sets.h"

/* All with the thread's last error.
 *
 * The set of all ranks, at berth_init().  Fences once. */
berth_result set_of_all(struct world *w, struct berth_set **set);
/* All ranks of PARENT: a set for each COLOR >= 0, in the order of KEY, then rank.
 * *SET: that of color SEEN, in which this rank need not be; NULL for a negative one.
 * NAME: the same on all ranks. */
berth_result set_split(struct berth_set *parent, const char *name, int color, int key,
		       int seen, struct berth_set **set);
/* A set of the ranks of W that BOOTSTRAP joins, in its order. */
berth_result set_make(struct world *w, const struct berth_bootstrap *bootstrap,
		      struct berth_set **set);

#endif
