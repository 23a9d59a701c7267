#include "lib/core/engine_round.h"

enum { QUIET_NS = 50000000 /* from the last submission to the first visit */ };

/* ---- the plan ---- */

static enum engine_step follow_plan(struct engine *e, size_t n)
{
	uint64_t cycle = e->plan.cycle;
	berth_result rc = engine_do(e, e->list, n, plan_signature(&e->plan));

	if (rc == BERTH_MISMATCH) {
		e->called = true;
		return ENGINE_DID;
	}
	pthread_mutex_lock(&e->queue);
	e->told_waits = false; /* it may have been for this */
	rc = plan_advance(&e->plan);
	if (e->plan.cycle != cycle)
		engine_look_again(e);
	pthread_mutex_unlock(&e->queue);
	return rc ? engine_round_failed(e, rc) : ENGINE_DID;
}

/* Nothing was submitted for a while, and what is here waits for more: a rank that does
 * not wait comes to a round now and then, since others may wait there. */
static bool is_quiet(struct engine *e, uint64_t now, uint64_t *ns)
{
	uint64_t quiet = now - e->entered_ns,
		 due = (uint64_t)QUIET_NS << (e->visits < 8 ? e->visits : 8);

	if (!e->pending || now < e->entered_ns)
		return false;
	if (quiet >= due) {
		e->visits++;
		return true;
	}
	if (!*ns || due - quiet < *ns)
		*ns = due - quiet;
	return false;
}

static void sooner(uint64_t *ns, uint64_t in)
{
	if (!*ns || in < *ns)
		*ns = in;
}

/* What this rank has told brought nothing.  Until AGAIN_NS, and without news of its own
 * or others, it does not tell it again. */
static bool rests(struct engine *e, uint64_t *ns)
{
	uint64_t now;

	if (!e->idle_rounds)
		return false;
	now = clock_ns();
	if (now < e->idle_ns + ENGINE_PAUSE_NS) {
		sooner(ns, e->idle_ns + ENGINE_PAUSE_NS - now);
		return true;
	}
	if (now >= e->again_ns || engine_is_called(e) ||
	    (e->comm->shared && atomic_load(&e->comm->shared->aborted)))
		return false;
	sooner(ns, e->again_ns - now);
	e->is_idle = true;
	return true;
}

/* Is a round needed?  *NS: or in so many.  QUEUE is held. */
static bool is_called(struct engine *e, uint64_t *ns)
{
	uint64_t now = clock_ns();
	bool wanted = engine_is_wanted(e, now, ns),
	     awaited = e->told_waits && !e->told && e->pending;

	if (!e->beside && !e->joined && !wanted && !awaited)
		return is_quiet(e, now, ns);
	return (wanted && !e->told_waits) || !rests(e, ns);
}

enum engine_step engine_step(struct engine *e, uint64_t *ns)
{
	berth_result rc = BERTH_OK;
	bool here, call;
	size_t n = 0;

	*ns = 0;
	e->is_idle = false;
	if (e->comm->broken) {
		struct failure why;

		engine_complete_all(e, comm_broken(e->comm, &why), &why);
		return ENGINE_IDLE;
	}
	if (e->called)
		return engine_round(e);
	pthread_mutex_lock(&e->queue);
	here = engine_bucket_is_here(e);
	if (!here) {
		rc = engine_begin_cycle(e);
		here = engine_bucket_is_here(e);
	}
	/* else it would meet ranks that do not have it, again and again */
	if (here && !e->news && rests(e, ns))
		here = false;
	if (here)
		n = engine_take_bucket(e);
	call = !here && is_called(e, ns);
	pthread_mutex_unlock(&e->queue);
	if (rc)
		return engine_round_failed(e, rc);
	if (here)
		return follow_plan(e, n);
	if (call)
		return engine_round(e);
	return *ns ? ENGINE_SOON : ENGINE_IDLE;
}
