#include "lib/core/progress.h"

#include "lib/base/clock.h"
#include "lib/base/fiber.h"
#include "lib/core/comm.h"
#include "lib/core/queue.h"
#include "lib/core/rest.h"
#include "lib/core/round.h"
#include "lib/core/run.h"

enum { DOZE_NS = 10000000 /* of a set with work, to its next turn */ };

/* ---- one step ---- */

static enum progress progress_follow_plan(struct berth_set *s, size_t n)
{
	uint64_t cycle = s->plan.cycle;
	berth_result rc = run_bucket(s, s->list, n, plan_signature(&s->plan));

	if (rc == BERTH_MISMATCH) {
		s->called = true;
		return PROGRESS_DID;
	}
	pthread_mutex_lock(&s->queue);
	schedule_event(&s->schedule, SCHEDULE_BUCKET);
	rc = plan_advance(&s->plan);
	if (s->plan.cycle != cycle)
		queue_look_again(s);
	pthread_mutex_unlock(&s->queue);
	return rc ? round_failed(s, rc) : PROGRESS_DID;
}

/* Decides the next step.  QUEUE is held.  *RC: the plan cannot go on. */
static struct schedule_due progress_look(struct berth_set *s, berth_result *rc)
{
	const struct region_shared *shared = s->comm.shared;
	struct schedule_look look = { .ends = s->comm.broken, .called = s->called };
	struct schedule_due due;

	if (!look.ends && !look.called) {
		look.bucket = queue_bucket_is_here(s);
		if (!look.bucket) { /* perhaps that of the next cycle is */
			*rc = queue_begin_cycle(s);
			look.bucket = queue_bucket_is_here(s);
		}
	}
	if (!look.bucket || s->schedule.idle) { /* else they do not matter */
		look.now = clock_ns();
		look.waits = queue_wanted_since(s);
	}
	due = schedule_due(&s->schedule, &look);
	s->is_idle = due.hears;
	look.heard = due.hears &&
		     (rest_is_called(s) || (shared && atomic_load(&shared->aborted)));
	if (look.heard)
		due = schedule_due(&s->schedule, &look);
	s->schedule.visits += due.what == SCHEDULE_VISIT;
	return due;
}

enum progress progress_step(struct berth_set *s, uint64_t *ns)
{
	struct schedule_due due;
	struct failure why;
	berth_result rc = BERTH_OK;
	uint64_t now;
	size_t n = 0;

	*ns = 0;
	pthread_mutex_lock(&s->queue);
	due = progress_look(s, &rc);
	if (!rc && due.what == SCHEDULE_FOLLOW)
		n = queue_take_bucket(s);
	pthread_mutex_unlock(&s->queue);
	if (rc)
		return round_failed(s, rc);
	switch (due.what) {
	case SCHEDULE_END:
		queue_complete_all(s, comm_broken(&s->comm, &why), &why);
		return PROGRESS_IDLE;
	case SCHEDULE_FOLLOW:
		return progress_follow_plan(s, n);
	case SCHEDULE_ROUND:
	case SCHEDULE_VISIT:
		return round_run(s);
	default:
		now = clock_ns();
		*ns = due.until > now ? due.until - now : 1;
		return due.until ? PROGRESS_SOON : PROGRESS_IDLE;
	}
}

/* ---- a turn of the set ---- */

static struct berth_set *progress_set(struct turn *t)
{
	return (struct berth_set *)((char *)t - offsetof(struct berth_set, turn));
}

/* If another thread has WORK, it rings when it releases that. */
static bool progress_takes_work(struct berth_set *s)
{
	if (pthread_mutex_trylock(&s->work)) {
		atomic_store(&s->awaited, true);
		if (pthread_mutex_trylock(&s->work))
			return false;
	}
	atomic_store(&s->awaited, false);
	return true;
}

/* An operation that the plan expects does not ring, so there is a turn now and then
 * while there is work.  Without work the set waits until it is rung. */
static void progress_doze(struct berth_set *s)
{
	atomic_store(&s->dozes, true);
	pthread_mutex_lock(&s->queue);
	if (s->entered != s->seen || s->schedule.pending) {
		s->seen = s->entered;
		s->turn.until_ns = clock_ns() + DOZE_NS;
		atomic_store(&s->dozes, false);
	}
	pthread_mutex_unlock(&s->queue);
}

static bool progress_take_turn(struct turn *t)
{
	struct berth_set *s = progress_set(t);
	enum progress step = PROGRESS_DID;
	uint64_t ns = 0;

	rest_end(s);
	if (!progress_takes_work(s))
		return false;
	while (step == PROGRESS_DID && !atomic_load(&s->comm.aborted)) {
		step = progress_step(s, &ns);
		if (step == PROGRESS_DID && fiber_runs() && turn_has_others(t))
			fiber_pass(); /* there may be very many steps */
	}
	if (atomic_load(&s->comm.aborts) && !s->comm.broken)
		queue_end_aborted(s);
	/* only then, since its bell takes a system call more: over TCP a step of 64
	 * gradients took twice as long */
	if (step == PROGRESS_SOON && s->is_idle && s->rest)
		rest_begin(s);
	if (step == PROGRESS_SOON)
		t->until_ns = clock_ns() + ns;
	pthread_mutex_unlock(&s->work);
	if (step == PROGRESS_IDLE)
		progress_doze(s);
	return true;
}

static size_t progress_sockets(struct turn *t, struct pollfd *p)
{
	const struct berth_set *s = progress_set(t);

	if (!p)
		return rest_most(&s->comm);
	return s->rest ? rest_sockets(s->rest, p) : 0;
}

static bool progress_is_called(struct turn *t)
{
	struct berth_set *s = progress_set(t);
	bool called;

	if (!s->rest || pthread_mutex_trylock(&s->work))
		return false;
	called = rest_is_called_here(s);
	set_release(s);
	return called;
}

static void progress_retire(struct turn *t)
{
	struct berth_set *s = progress_set(t);

	if (pthread_mutex_trylock(&s->queue))
		return;
	if (!s->schedule.pending && !s->schedule.joined &&
	    (s->entered == s->seen || atomic_load(&s->comm.aborted)))
		turn_drop(t);
	pthread_mutex_unlock(&s->queue);
}

static void progress_is_dropped(struct turn *t)
{
	rest_end(progress_set(t));
}

const struct turn_hooks progress_turns = { .take = progress_take_turn,
					   .sockets = progress_sockets,
					   .is_called = progress_is_called,
					   .retire = progress_retire,
					   .dropped = progress_is_dropped };

bool progress_start_held(struct berth_set *s)
{
	if (atomic_load(&s->turn.served))
		return true;
	if (!queue_make_lists(s))
		return false;
	if (!s->rest)
		s->rest = rest_make(&s->comm);
	return turn_start(&s->turn);
}

bool progress_start(struct berth_set *s)
{
	bool started;

	pthread_mutex_lock(&s->queue);
	started = progress_start_held(s);
	pthread_mutex_unlock(&s->queue);
	return started;
}
