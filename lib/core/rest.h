/* rest.h - a set whose rounds bring nothing rests until there is something new: of this
 * rank, which rings its bell, or of another rank, which has begun an operation.  Ranks
 * of this host ring this rank's bell; of others, something comes on a connection.  (Two
 * ranks that waited for different requests told them each 5 ms: 1.0 % of a core, and 2
 * to 5 ms late.  Now 0.1 %, and 0.1 ms.) */
#ifndef BERTH_LIB_REST_H
#define BERTH_LIB_REST_H

#include "lib/core/set.h"

/* NULL if this rank cannot hear another rank while it rests. */
struct rest *rest_make(const struct comm *c);
void rest_free(struct rest *r);
/* Has another rank begun an operation that this one has not?  WORK is held. */
bool rest_is_called(const struct berth_set *s);
/* As rest_is_called(), of the ranks of this host, while the set rests. */
bool rest_is_called_here(const struct berth_set *s);
/* The set rests from here on, until rest_end().  WORK is held. */
void rest_begin(struct berth_set *s);
void rest_end(struct berth_set *s);
/* While it rests: the sockets on which something may come, to P.  How many; at most
 * rest_most(). */
size_t rest_sockets(const struct rest *r, struct pollfd *p);
size_t rest_most(const struct comm *c);
/* An operation begins: ranks that rest come to it. */
void rest_call_others(const struct berth_set *s);

#endif
