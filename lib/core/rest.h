/* rest.h - a rank whose rounds bring nothing sleeps until there is something new: of
 * its own, which rings the engine's bell, or of another rank, which has begun an
 * operation.  Ranks of this host ring a bell in the set's region; of others, something
 * comes on a connection.  (Two ranks that waited for different requests told them each
 * 5 ms: 1.0 % of a core, and 2 to 5 ms late.  Now 0.1 %, and 0.1 ms.) */
#ifndef BERTH_LIB_REST_H
#define BERTH_LIB_REST_H

#include "lib/core/engine_internal.h"

/* For the thread; NULL if it cannot hear another rank while it rests. */
struct rest *rest_make(const struct comm *c);
void rest_free(struct rest *r);
/* Has another rank begun an operation that this one has not?  Not while one runs. */
bool rest_is_called(const struct engine *e);
/* The thread has WORK.  It releases WORK, and sleeps until the bell is no longer HEARD,
 * until another rank calls, or for NS. */
void rest_sleep(struct engine *e, uint32_t heard, uint64_t ns);
/* An operation begins: ranks that rest come to it. */
void rest_call_others(const struct engine *e);

#endif
