/* engine_end.c - requests come to their ends: their owners are woken and called. */
#include <sched.h>
#include <stdlib.h>

#include "lib/base/log.h"
#include "lib/core/engine_internal.h"

struct engine_completions engine_completions;

berth_result engine_outcome(const struct berth_request *r, struct failure *why)
{
	if (r->rc && r->why) {
		*why = *r->why;
	} else if (r->rc) {
		memset(why, 0, sizeof *why);
		why->rc = r->rc;
	}
	return r->rc;
}

bool engine_want(struct berth_request *r)
{
	uint64_t nobody = 0;

	return atomic_compare_exchange_strong(&r->wanted_ns, &nobody, clock_ns());
}

enum { NO_CALLBACK, CALLBACK, OVER };

static _Thread_local unsigned calling;

bool engine_calls_back(void)
{
	return calling;
}

static void call_back(void (*done)(void *ctx, berth_result rc), void *ctx,
		      berth_result rc, const struct failure *why)
{
	if (rc)
		log_error(rc, why->tensor, why->missing, why->nmissing, "%s",
			  *why->text ? why->text : berth_result_text(rc));
	calling++;
	done(ctx, rc);
	calling--;
}

/* As soon as DONE is 1, R may be freed. */
void engine_end(struct berth_request *r, berth_result rc, const struct failure *why)
{
	void (*then)(void *ctx, berth_result rc) = NULL;
	void *ctx = NULL;

	r->rc = rc;
	if (rc) {
		r->why = malloc(sizeof *r->why);
		if (r->why)
			*r->why = *why;
	}
	if (atomic_exchange(&r->callback, OVER) == CALLBACK) {
		then = r->then;
		ctx = r->then_ctx;
	}
	if (atomic_exchange(&r->done, 1) == 2)
		engine_wake(&r->done);
	if (atomic_load(&engine_completions.waiters)) {
		atomic_fetch_add(&engine_completions.count, 1);
		engine_wake(&engine_completions.count);
	}
	if (then)
		call_back(then, ctx, rc, why);
}

berth_result engine_then(struct berth_request *r,
			 void (*done)(void *ctx, berth_result rc), void *ctx)
{
	struct failure why;
	berth_result rc;

	if (r->then)
		return BERTH_STATE;
	r->then = done;
	r->then_ctx = ctx;
	if (atomic_exchange(&r->callback, CALLBACK) == OVER) {
		while (!engine_is_done(r)) /* who ends it is at that */
			sched_yield();
		rc = engine_outcome(r, &why);
		call_back(done, ctx, rc, &why);
	} else if (engine_want(r)) { /* the callback waits for it */
		engine_ring(r->engine);
	}
	return BERTH_OK;
}
