/* engine_end.c - requests come to their ends: their owners are woken and called. */
#include <sched.h>
#include <stdlib.h>

#include "lib/base/callback.h"
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

/* ---- callbacks ---- */

enum { NO_CALLBACK, CALLBACK, OVER };

_Thread_local struct berth_request *engine_calling;

/* R's.  True: R is still there. */
static bool call_back(struct berth_request *r)
{
	struct berth_request *before = engine_calling;
	bool is_there;

	comm_note_failure(r->rc, r->why);
	engine_calling = r;
	callback_begin();
	r->then(r->then_ctx, r->rc);
	callback_end();
	is_there = engine_calling;
	engine_calling = before;
	return is_there;
}

berth_result engine_then(struct berth_request *r,
			 void (*done)(void *ctx, berth_result rc), void *ctx)
{
	if (r->then)
		return BERTH_STATE;
	r->then = done;
	r->then_ctx = ctx;
	if (engine_want(r)) /* the callback waits for it, and may end it */
		engine_ring(r->engine);
	if (atomic_exchange(&r->callback, CALLBACK) == OVER) {
		while (!engine_is_done(r)) /* who ends it is at that */
			sched_yield();
		call_back(r);
	}
	return BERTH_OK;
}

/* ---- the end of one ---- */

void engine_wake(struct engine_wakes *wakes)
{
	while (wakes->n)
		sleep_wake(wakes->word[--wakes->n]);
}

/* DONE is 1: its request may have been freed.  Who sleeps there then is woken for
 * nothing. */
static void wake_later(struct engine_wakes *wakes, _Atomic uint32_t *done)
{
	const unsigned most = sizeof wakes->word / sizeof *wakes->word;

	if (wakes && wakes->n < most)
		wakes->word[wakes->n++] = done;
	else
		sleep_wake(done);
}

/* As soon as DONE is 1, R may be freed, and with it its set. */
static void end(struct berth_request *r, struct engine_wakes *later)
{
	struct engine *e = r->engine;
	struct messages *m = NULL;
	bool wakes = r->nmessages; /* who waits for it may be in messages_wait() */

	if (atomic_exchange(&r->callback, OVER) == CALLBACK) {
		if (later) /* it may take its time */
			engine_wake(later);
		if (!call_back(r))
			return;
	}
	if (wakes)
		atomic_fetch_add(&e->users, 1);
	if (atomic_exchange(&r->done, 1) == 2)
		wake_later(later, &r->done);
	if (wakes)
		m = engine_use_messages(e);
	if (m) {
		messages_wake(m);
		messages_leave(m);
	}
	if (wakes)
		engine_let_go(e);
	if (atomic_load(&engine_completions.waiters)) {
		atomic_fetch_add(&engine_completions.count, 1);
		sleep_wake(&engine_completions.count);
	}
}

void engine_end(struct berth_request *r, berth_result rc, const struct failure *why,
		struct engine_wakes *wakes)
{
	if (rc && !atomic_exchange(&r->failed, 1)) {
		r->rc = rc;
		r->why = malloc(sizeof *r->why);
		if (r->why)
			*r->why = *why;
	}
	if (atomic_fetch_sub(&r->parts, 1) == 1)
		end(r, wakes);
}
