#include "lib/core/progress.h"

#include "lib/base/fiber.h"
#include "lib/core/queue.h"
#include "lib/core/rest.h"
#include "lib/core/round.h"
#include "lib/core/run.h"

enum { DOZE_NS = 10000000 /* of a set with work, to its next turn */ };

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

/* Decides the next step.  QUEUE is held.  *RC: the plan cannot go on. */
static struct schedule_due progress_look(struct engine *e, berth_result *rc)
{
	const struct region_shared *shared = e->comm->shared;
	struct schedule_look look = { .ends = e->comm->broken, .called = e->called };
	struct schedule_due due;

	if (!look.ends && !look.called) {
		look.bucket = queue_bucket_is_here(e);
		if (!look.bucket) { /* perhaps that of the next cycle is */
			*rc = queue_begin_cycle(e);
			look.bucket = queue_bucket_is_here(e);
		}
	}
	if (!look.bucket || e->schedule.idle) { /* else they do not matter */
		look.now = clock_ns();
		look.waits = queue_wanted_since(e);
	}
	due = schedule_due(&e->schedule, &look);
	e->is_idle = due.hears;
	look.heard = due.hears &&
		     (rest_is_called(e) || (shared && atomic_load(&shared->aborted)));
	if (look.heard)
		due = schedule_due(&e->schedule, &look);
	e->schedule.visits += due.what == SCHEDULE_VISIT;
	return due;
}

enum progress progress_step(struct engine *e, uint64_t *ns)
{
	struct schedule_due due;
	struct failure why;
	berth_result rc = BERTH_OK;
	uint64_t now;
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
		now = clock_ns();
		*ns = due.until > now ? due.until - now : 1;
		return due.until ? PROGRESS_SOON : PROGRESS_IDLE;
	}
}

/* ---- a turn of the set ---- */

static struct engine *progress_engine(struct turn *t)
{
	return (struct engine *)((char *)t - offsetof(struct engine, turn));
}

/* If another thread has WORK, it rings when it releases that. */
static bool progress_takes_work(struct engine *e)
{
	if (pthread_mutex_trylock(&e->work)) {
		atomic_store(&e->awaited, true);
		if (pthread_mutex_trylock(&e->work))
			return false;
	}
	atomic_store(&e->awaited, false);
	return true;
}

/* An operation that the plan expects does not ring, so there is a turn now and then
 * while there is work.  Without work the set waits until it is rung. */
static void progress_doze(struct engine *e)
{
	atomic_store(&e->dozes, true);
	pthread_mutex_lock(&e->queue);
	if (e->entered != e->seen || e->schedule.pending) {
		e->seen = e->entered;
		e->turn.until_ns = clock_ns() + DOZE_NS;
		atomic_store(&e->dozes, false);
	}
	pthread_mutex_unlock(&e->queue);
}

static bool progress_take_turn(struct turn *t)
{
	struct engine *e = progress_engine(t);
	enum progress step = PROGRESS_DID;
	uint64_t ns = 0;

	rest_end(e);
	if (!progress_takes_work(e))
		return false;
	while (step == PROGRESS_DID && !atomic_load(&e->comm->aborted)) {
		step = progress_step(e, &ns);
		if (step == PROGRESS_DID && fiber_runs() && turn_has_others(t))
			fiber_pass(); /* there may be very many steps */
	}
	if (atomic_load(&e->comm->aborts) && !e->comm->broken)
		queue_end_aborted(e);
	/* only then, since its bell takes a system call more: over TCP a step of 64
	 * gradients took twice as long */
	if (step == PROGRESS_SOON && e->is_idle && e->rest)
		rest_begin(e);
	if (step == PROGRESS_SOON)
		t->until_ns = clock_ns() + ns;
	pthread_mutex_unlock(&e->work);
	if (step == PROGRESS_IDLE)
		progress_doze(e);
	return true;
}

static size_t progress_sockets(struct turn *t, struct pollfd *p)
{
	const struct engine *e = progress_engine(t);

	if (!p)
		return rest_most(e->comm);
	return e->rest ? rest_sockets(e->rest, p) : 0;
}

static bool progress_is_called(struct turn *t)
{
	struct engine *e = progress_engine(t);
	bool called;

	if (!e->rest || pthread_mutex_trylock(&e->work))
		return false;
	called = rest_is_called_here(e);
	engine_release(e);
	return called;
}

static void progress_retire(struct turn *t)
{
	struct engine *e = progress_engine(t);

	if (pthread_mutex_trylock(&e->queue))
		return;
	if (!e->schedule.pending && !e->schedule.joined &&
	    (e->entered == e->seen || atomic_load(&e->comm->aborted)))
		turn_drop(t);
	pthread_mutex_unlock(&e->queue);
}

static void progress_is_dropped(struct turn *t)
{
	rest_end(progress_engine(t));
}

const struct turn_hooks progress_turns = { .take = progress_take_turn,
					   .sockets = progress_sockets,
					   .is_called = progress_is_called,
					   .retire = progress_retire,
					   .dropped = progress_is_dropped };

bool progress_start_held(struct engine *e)
{
	if (atomic_load(&e->turn.served))
		return true;
	if (!queue_make_lists(e))
		return false;
	if (!e->rest)
		e->rest = rest_make(e->comm);
	return turn_start(&e->turn);
}

bool progress_start(struct engine *e)
{
	bool started;

	pthread_mutex_lock(&e->queue);
	started = progress_start_held(e);
	pthread_mutex_unlock(&e->queue);
	return started;
}
