#include "lib/core/progress.h"

#include "lib/base/thread.h"
#include "lib/core/queue.h"
#include "lib/core/rest.h"
#include "lib/core/round.h"
#include "lib/core/run.h"

enum {
	DOZE_NS = 10000000,    /* of the thread, to the next one while there is work */
	RETIRE_NS = 2000000000 /* without work, until the thread ends */
};

/* ---- one step ---- */

static enum progress progress_follow_plan(struct engine *e, size_t n)
{
	uint64_t cycle = e->plan.cycle;
	berth_result rc = run_bucket(e, e->list, n, plan_signature(&e->plan));

	if (rc == BERTH_MISMATCH) {
		e->called = true;
		return PROGRESS_DID;
	}
	pthread_mutex_lock(&e->queue);
	schedule_event(&e->schedule, SCHEDULE_BUCKET);
	rc = plan_advance(&e->plan);
	if (e->plan.cycle != cycle)
		queue_look_again(e);
	pthread_mutex_unlock(&e->queue);
	return rc ? round_failed(e, rc) : PROGRESS_DID;
}

/* Has another rank begun an operation, or is the set aborted? */
static bool progress_hears(const struct engine *e)
{
	const struct region_shared *shared = e->comm->shared;

	return rest_is_called(e) || (shared && atomic_load(&shared->aborted));
}

/* The units of the plan's next bucket, perhaps of the next cycle, are pending. */
static bool progress_bucket_is_here(struct engine *e, berth_result *rc)
{
	if (queue_bucket_is_here(e))
		return true;
	*rc = queue_begin_cycle(e);
	return queue_bucket_is_here(e);
}

/* Decides the next step.  QUEUE is held.  *RC: the plan cannot go on. */
static struct schedule_due progress_look(struct engine *e, berth_result *rc)
{
	struct schedule_look look = { .ends = e->comm->broken, .called = e->called };
	struct schedule_due due;

	if (!look.ends && !look.called)
		look.bucket = progress_bucket_is_here(e, rc);
	if (!look.bucket || e->schedule.idle) { /* else they do not matter */
		look.now = clock_ns();
		look.waits = queue_wanted_since(e);
	}
	due = schedule_due(&e->schedule, &look);
	e->is_idle = due.hears;
	look.heard = due.hears && progress_hears(e);
	if (look.heard)
		due = schedule_due(&e->schedule, &look);
	e->schedule.visits += due.what == SCHEDULE_VISIT;
	return due;
}

static enum progress progress_until(uint64_t until, uint64_t *ns)
{
	uint64_t now = clock_ns();

	*ns = until > now ? until - now : 1;
	return until ? PROGRESS_SOON : PROGRESS_IDLE;
}

enum progress progress_step(struct engine *e, uint64_t *ns)
{
	struct schedule_due due;
	struct failure why;
	berth_result rc = BERTH_OK;
	size_t n = 0;

	*ns = 0;
	pthread_mutex_lock(&e->queue);
	due = progress_look(e, &rc);
	if (!rc && due.what == SCHEDULE_FOLLOW)
		n = queue_take_bucket(e);
	pthread_mutex_unlock(&e->queue);
	if (rc)
		return round_failed(e, rc);
	switch (due.what) {
	case SCHEDULE_END:
		queue_complete_all(e, comm_broken(e->comm, &why), &why);
		return PROGRESS_IDLE;
	case SCHEDULE_FOLLOW:
		return progress_follow_plan(e, n);
	case SCHEDULE_ROUND:
	case SCHEDULE_VISIT:
		return round_run(e);
	default:
		return progress_until(due.until, ns);
	}
}

/* ---- the thread ---- */

static void progress_listen(struct engine *e, uint32_t heard, uint64_t ns)
{
	atomic_fetch_add(&e->asleep, 1);
	if (atomic_load(&e->bell) == heard)
		sleep_on(&e->bell, heard, ns);
	atomic_fetch_sub(&e->asleep, 1);
}

/* An operation that the plan expects does not wake the thread, so the thread looks by
 * itself while there is work.  Without work it sleeps until it is
 * woken. */
static uint64_t progress_doze(struct engine *e, uint64_t *seen)
{
	uint64_t ns = 0;

	atomic_store(&e->dozes, true);
	pthread_mutex_lock(&e->queue);
	if (e->entered != *seen || e->schedule.pending) {
		*seen = e->entered;
		ns = DOZE_NS;
		atomic_store(&e->dozes, false);
	}
	pthread_mutex_unlock(&e->queue);
	return ns;
}

/* Without work since it HEARD the bell: the thread ends, and so does the rest, which
 * has a descriptor.  The next request starts another one. */
static bool progress_retire(struct engine *e, uint32_t heard, uint64_t seen)
{
	bool idle;

	if (atomic_load(&e->bell) != heard)
		return false;
	pthread_mutex_lock(&e->work);
	pthread_mutex_lock(&e->queue);
	idle = !e->schedule.pending && !e->schedule.joined && e->entered == seen &&
	       atomic_load(&e->bell) == heard;
	if (idle) {
		rest_free(e->rest);
		e->rest = NULL;
		e->retired = true;
	}
	pthread_mutex_unlock(&e->queue);
	pthread_mutex_unlock(&e->work);
	return idle;
}

static void *progress_serve(void *arg)
{
	struct engine *e = arg;
	uint64_t seen = 0;

	while (!atomic_load(&e->comm->aborted)) {
		uint32_t heard = atomic_load(&e->bell);
		enum progress step;
		bool is_over;
		uint64_t ns;

		pthread_mutex_lock(&e->work);
		do
			step = progress_step(e, &ns);
		while (step == PROGRESS_DID && !atomic_load(&e->comm->aborted));
		if (atomic_load(&e->comm->aborts) && !e->comm->broken)
			queue_end_aborted(e);
		/* only then, since the bell of a rest takes a system call more: over
		 * TCP a step of 64 gradients took twice as long */
		if (step == PROGRESS_SOON && e->is_idle && e->rest) {
			rest_sleep(e, heard, ns);
			continue;
		}
		pthread_mutex_unlock(&e->work);
		if (step == PROGRESS_IDLE)
			ns = progress_doze(e, &seen);
		is_over = step == PROGRESS_IDLE && !ns;
		if (!atomic_load(&e->comm->aborted))
			progress_listen(e, heard, is_over ? RETIRE_NS : ns);
		if (is_over && progress_retire(e, heard, seen))
			break;
	}
	return NULL;
}

bool progress_start_held(struct engine *e)
{
	if (e->retired) { /* it holds no lock any more */
		pthread_join(e->thread, NULL);
		e->started = e->retired = false;
	}
	if (!e->started && !e->rest)
		e->rest = rest_make(e->comm);
	if (!e->started && queue_make_lists(e))
		e->started = thread_start(&e->thread, "berth", progress_serve, e);
	return e->started;
}

bool progress_start(struct engine *e)
{
	bool started;

	pthread_mutex_lock(&e->queue);
	started = progress_start_held(e);
	pthread_mutex_unlock(&e->queue);
	return started;
}
