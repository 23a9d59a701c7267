/* engine.h - the operations of one set.
 *
 * A blocking operation is done at once, by the thread that calls for it, if this rank
 * has no request.  Those that are submitted come in any order, and are done in one
 * that all ranks share (plan.h).  If ranks find that they are at different operations,
 * they tell each other what they have in a round; what a rank had blocked on is a
 * request from then on.  So a rank that blocks and one that submits do one operation.
 *
 * A thread that waits for a request runs operations itself, unless another thread
 * does.  Else a thread for all sets runs them (progress.h). */
#ifndef BERTH_LIB_ENGINE_H
#define BERTH_LIB_ENGINE_H

#include "lib/core/set.h"

/* S, whose comm is joined, takes operations. */
void engine_open(struct berth_set *s);
/* All requests, pending and new ones, end with BERTH_ABORTED.  For works that devices
 * run the caller calls engine_ends() until it is true, for each set in turn. */
void engine_stop(struct berth_set *s);
bool engine_ends(struct berth_set *s);
/* Until then, of this one. */
void engine_end_all(struct berth_set *s);
/* No call is in S; requests still belong to their owners. */
void engine_close(struct berth_set *s);

/* A blocking operation.  *WHY, where it fails. */
berth_result engine_run(struct berth_set *s, struct op *op, struct failure *why);

/* As engine_run(), for about SLICE_MS: after BERTH_BUSY *LATER is a request for it. */
berth_result engine_run_for(struct berth_set *s, const struct op *op, int64_t slice_ms,
			    struct berth_request **later, struct failure *why);

/* N operations, copied but for their arrays.  *WHY, where it fails. */
berth_result engine_submit(struct berth_set *s, const struct op *op, size_t n,
			   struct berth_request **request, struct failure *why);
/* N requests that were made: all begin, or none, and they are freed. */
berth_result engine_submit_each(struct berth_set *s, struct berth_request **r, size_t n,
				struct failure *why);
berth_result engine_poll(struct berth_request *r, struct failure *why);
/* As berth_wait(). */
berth_result engine_wait(struct berth_request *r, int64_t timeout_ms,
			 struct failure *why);
/* As berth_wait_stream(). */
berth_result engine_wait_stream(struct berth_request *r, void *stream,
				int64_t timeout_ms, struct failure *why);
/* As berth_wait_any(), of N requests, of which one is no NULL. */
berth_result engine_wait_any(struct berth_request *const *r, size_t n,
			     int64_t timeout_ms, size_t *which, struct failure *why);

/* From now on this rank takes part without data, until all ranks do.  *LAST: the place
 * of who joined last. */
berth_result engine_join(struct berth_set *s, unsigned *last, struct failure *why);

/* After comm_say_abort(): what is in flight ends. */
void engine_abort(struct berth_set *s);

/* engine_submit(), where the comm is whole and progress_start() is done. */
berth_result engine_enter_new(struct berth_set *s, const struct op *op, size_t n,
			      struct berth_request **request, struct failure *why);

/* As berth_algorithms(). */
size_t engine_algorithms(struct berth_set *s, char *text, size_t bytes);

/* *SUM grows by what was done. */
void engine_count(const struct berth_set *s, struct berth_metrics *sum);

#endif
