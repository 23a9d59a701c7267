/* engine.h - the asynchronous operations of one set: submitted in any order, done in
 * one that all ranks share (plan.h).
 *
 * Who waits for a request does the work himself if nobody is at it; else the
 * engine's thread does, which is started by the first submission and asleep while
 * nothing is submitted. */
#ifndef BERTH_LIB_ENGINE_H
#define BERTH_LIB_ENGINE_H

#include "lib/core/comm.h"

struct engine;

/* NULL: out of memory, or no thread. */
/* On C, which has no other user and lives until engine_free(). */
struct engine *engine_make(struct comm *c);
/* What is in flight ends with BERTH_ABORTED; requests remain their owners'. */
void engine_free(struct engine *e);

/* After fork(2) in the child: the engines are its parent's. */
void engine_in_child(void);
/* Was R submitted in this process, not in a parent of it? */
bool engine_has(const struct berth_request *r);

/* N operations, copied but for their arrays.  *WHY, where it fails. */
berth_result engine_submit(struct engine *e, const struct op *op, size_t n,
			   struct berth_request **request, struct failure *why);
berth_result engine_poll(struct berth_request *r, struct failure *why);
/* As berth_wait(). */
berth_result engine_wait(struct berth_request *r, int64_t timeout_ms,
			 struct failure *why);

/* From now on this rank takes part without data, until all ranks do. */
void engine_join_begin(struct engine *e);
/* *TAKEN: plus the requests of others that it took part in meanwhile. */
berth_result engine_join_wait(struct engine *e, uint64_t *taken, struct failure *why);

struct engine_count {
	uint64_t operations, bytes, fused, negotiations, stalls, errors, wait_ns;
};
void engine_counts(struct engine *e, struct engine_count *sum);

#endif
