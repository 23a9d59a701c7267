#include "lib/core/round.h"

static enum engine_step follow_plan(struct engine *e, size_t n)
{
	uint64_t cycle = e->plan.cycle;
	berth_result rc = engine_do(e, e->list, n, plan_signature(&e->plan));

	if (rc == BERTH_MISMATCH) {
		e->called = true;
		return ENGINE_DID;
	}
	pthread_mutex_lock(&e->queue);
	schedule_event(&e->schedule, SCHEDULE_BUCKET);
	rc = plan_advance(&e->plan);
	if (e->plan.cycle != cycle)
		engine_look_again(e);
	pthread_mutex_unlock(&e->queue);
	return rc ? round_failed(e, rc) : ENGINE_DID;
}

/* Has another rank begun an operation, or is the set aborted? */
static bool hears(const struct engine *e)
{
	const struct region_shared *shared = e->comm->shared;

	return engine_is_called(e) || (shared && atomic_load(&shared->aborted));
}

/* The units of the plan's next bucket, perhaps of the next cycle, are pending. */
static bool bucket_is_here(struct engine *e, berth_result *rc)
{
	if (engine_bucket_is_here(e))
		return true;
	*rc = engine_begin_cycle(e);
	return engine_bucket_is_here(e);
}

/* Decides the next step.  QUEUE is held.  *RC: the plan cannot go on. */
static struct schedule_due look_around(struct engine *e, berth_result *rc)
{
	struct schedule_look look = { .ends = e->comm->broken, .called = e->called };
	struct schedule_due due;

	if (!look.ends && !look.called)
		look.bucket = bucket_is_here(e, rc);
	if (!look.bucket || e->schedule.idle) { /* else they do not matter */
		look.now = clock_ns();
		look.waits = engine_wanted_since(e);
	}
	due = schedule_due(&e->schedule, &look);
	e->is_idle = due.hears;
	look.heard = due.hears && hears(e);
	if (look.heard)
		due = schedule_due(&e->schedule, &look);
	e->schedule.visits += due.what == SCHEDULE_VISIT;
	return due;
}

static enum engine_step end_all(struct engine *e)
{
	struct failure why;

	engine_complete_all(e, comm_broken(e->comm, &why), &why);
	return ENGINE_IDLE;
}

static enum engine_step sleep_until(uint64_t until, uint64_t *ns)
{
	uint64_t now = clock_ns();

	*ns = until > now ? until - now : 1;
	return until ? ENGINE_SOON : ENGINE_IDLE;
}

enum engine_step engine_step(struct engine *e, uint64_t *ns)
{
	struct schedule_due due;
	berth_result rc = BERTH_OK;
	size_t n = 0;

	*ns = 0;
	pthread_mutex_lock(&e->queue);
	due = look_around(e, &rc);
	if (!rc && due.what == SCHEDULE_FOLLOW)
		n = engine_take_bucket(e);
	pthread_mutex_unlock(&e->queue);
	if (rc)
		return round_failed(e, rc);
	switch (due.what) {
	case SCHEDULE_END:
		return end_all(e);
	case SCHEDULE_FOLLOW:
		return follow_plan(e, n);
	case SCHEDULE_ROUND:
	case SCHEDULE_VISIT:
		return round_run(e);
	default:
		return sleep_until(due.until, ns);
	}
}
