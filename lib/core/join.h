/* join.h - a rank that has no more data takes part in what the others call for,
 * until none has. */
#ifndef BERTH_LIB_JOIN_H
#define BERTH_LIB_JOIN_H

#include "lib/core/set.h"

/* Both comms of SET, which has an engine.  *LAST: place of who joined last. */
berth_result join_begin(struct berth_set *set, unsigned *last, struct failure *why);

#endif
