/* missing.h - the ranks because of which an operation does not end: those that have
 * ended, and those that have not come to it.  By the op records of this host, by
 * connections, and by what the agents see. */
#ifndef BERTH_LIB_MISSING_H
#define BERTH_LIB_MISSING_H

#include "lib/core/set.h"

/* As far as this rank can see, the rank of PLACE has not come to C's operation. */
bool missing_is_behind(const struct comm *c, unsigned place);
/* The rank of PLACE, of this host, has begun an operation after C's. */
bool missing_is_ahead(const struct comm *c, unsigned place);
/* It has ended, or left before C's operation. */
bool missing_is_lost(const struct comm *c, unsigned place);
/* It has ended without having left the job. */
bool missing_has_ended(const struct comm *c, unsigned place);
/* The rank of PLACE, of this host, has left the set. */
bool missing_has_gone(const struct comm *c, unsigned place);
/* The rank of PLACE, of this host, has left the set without C's operation. */
bool missing_has_left(const struct comm *c, unsigned place);
/* Ranks of the job that have ended by themselves: how many, MOST at most, into
 * RANK.  If there is none, those that ranks which gave up name. */
size_t missing_lost(const struct comm *c, unsigned *rank, size_t most);
/* Ranks of the job that are the reason for RC: by what C has seen, by what its back
 * end was told, else by looking. */
size_t missing_find(struct comm *c, berth_result rc, unsigned *rank, size_t most);

#endif
