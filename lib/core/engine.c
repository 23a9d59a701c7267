#include "lib/core/engine.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "lib/backend/devices.h"
#include "lib/base/sleep.h"
#include "lib/base/wait.h"
#include "lib/core/arrive.h"
#include "lib/core/comm.h"
#include "lib/core/comm_device.h"
#include "lib/core/messages.h"
#include "lib/core/request.h"
#include "lib/core/set.h"
#include "lib/core/progress.h"
#include "lib/core/queue.h"
#include "lib/core/rest.h"
#include "lib/core/run.h"
#include "lib/core/totals.h"
#include "lib/core/trace.h"
#include "lib/core/works.h"
#include "lib/core/world.h"

enum {
	LOOK_NS = 50000000,  /* of a thread that waits, to the next look */
	ARRIVE_NS = 1000000, /* how long a rank looks whether the others come */
	START_NS = 10000000,
	AWHILE_NS = 1000000000,
	POLLED_NS = 20000000 /* a request that is polled so late is one that a thread
				waits for */
};

/* ---- making, freeing ---- */

/* The door's thread calls it.  It acts only if no thread has WORK. */
static void engine_tidy(void *set)
{
	struct berth_set *s = set;

	if (!pthread_mutex_trylock(&s->work)) {
		net_tidy(s->comm.net);
		set_release(s);
	}
}

void engine_open(struct berth_set *s)
{
	s->forks = request_forks();
	s->turn.hooks = &progress_turns;
	s->pending.last = &s->pending.first;
	s->idle.coll.kind = BERTH_BARRIER;
	s->idle.name = "asynchronous operations";
	if (s->comm.net)
		net_tend(s->comm.net, engine_tidy, s);
	s->is_open = true;
}

void engine_stop(struct berth_set *s)
{
	atomic_store(&s->comm.aborted, true);
	set_ring(s);
}

/* A thread that waits may still hold WORK, as where a set's ranks join on devices.
 * Then what these run for other sets may have to end first. */
bool engine_ends(struct berth_set *s)
{
	struct failure why = { .rc = BERTH_ABORTED };
	bool ends, cut;

	if (pthread_mutex_trylock(&s->work))
		return false;
	snprintf(why.text, sizeof why.text, COMM_ENDED);
	queue_complete_all(s, BERTH_ABORTED, &why);
	ends = comm_device_ends(&s->comm);
	cut = ends && comm_device_was_cut(&s->comm);
	set_release(s);
	if (!ends)
		return false;
	if (cut) { /* ranks that run what this one has not started hear of it */
		comm_say_abort(&s->comm, "it has left");
		messages_abort(&s->comm);
	}
	messages_stop(&s->comm);
	return true;
}

void engine_end_all(struct berth_set *s)
{
	engine_stop(s);
	while (!engine_ends(s))
		works_nap();
}

void engine_close(struct berth_set *s)
{
	if (s->comm.net)
		net_tend(s->comm.net, NULL, NULL);
	engine_end_all(s);
	turn_leave(&s->turn);
	rest_free(s->rest);
	comm_device_close(&s->comm);
	plan_free(&s->plan);
	run_free_fusion(&s->world->memory, &s->fusion);
	free(s->lists);
	free(s->piece);
	free(s->list);
	s->is_open = false;
}

/* ---- submitting ---- */

static const char engine_no_room[] = "no memory, thread or socket for it";

static berth_result engine_no_thread(const struct op *op, struct failure *why)
{
	return request_refuse(BERTH_MEMORY, op, why,
			      "no memory, or no thread, for submitted operations");
}

/* Its address says which thread it is. */
static const void *engine_this_thread(void)
{
	static _Thread_local char here;

	return &here;
}

/* QUEUE is held. */
static berth_result engine_enter(struct berth_set *s, struct berth_request *r,
				 struct failure *why)
{
	request_describe(r);
	if (atomic_load(&s->comm.aborted))
		return request_refuse(BERTH_ABORTED, r->op, why, COMM_ENDED);
	if (queue_find(&s->pending, r->unit.key))
		return request_refuse(BERTH_INVALID, r->op, why,
				      "an operation of that name is in flight");
	if (s->schedule.pending >= SET_PENDING_MOST)
		return request_refuse(BERTH_MEMORY, r->op, why,
				      "too many operations are in flight");
	if (!atomic_load(&s->turn.served) && !progress_start_held(s)) /* it has ended */
		return engine_no_thread(r->op, why);
	queue_enter(s, r);
	return BERTH_OK;
}

/* Collectives of the K of R.  They are pending from now on, or none is. */
static berth_result engine_enter_all(struct berth_set *s, struct berth_request **r,
				     size_t k, struct failure *why)
{
	berth_result rc = BERTH_OK;
	bool work = false;
	uint64_t unnamed;
	size_t n = 0;

	pthread_mutex_lock(&s->queue);
	unnamed = s->unnamed;
	for (; n < k; n++) {
		rc = r[n]->n ? engine_enter(s, r[n], why) : BERTH_OK;
		if (rc)
			break;
		work |= r[n]->beside;
	}
	if (rc)
		s->unnamed = unnamed;
	while (rc && n)
		if (r[--n]->n)
			queue_take_back(s, r[n]);
	s->submitter = engine_this_thread();
	/* a thread that dozes is told by the ring alone: its mark goes with that */
	work = !rc &&
	       (work || queue_bucket_is_here(s) || atomic_exchange(&s->dozes, false));
	pthread_mutex_unlock(&s->queue);
	if (work)
		set_ring(s);
	return rc;
}

/* After the collectives of R have been entered: nothing can be refused any more. */
static void engine_post_messages(struct berth_request *r)
{
	for (size_t i = 0; i < r->nmessages; i++) {
		struct op *op = &r->op[r->n + i];

		r->message[i] = (struct message){ .op = op,
						  .owner = r,
						  .done = request_message_done };
		if (op_is_device(op))
			r->message[i].bounce =
				(struct bounce){ .back = device_of(op->memory),
						 .ready = op->mark };
	}
	if (!r->n)
		request_become(r, REQUEST_RUNNING);
	messages_post(&r->set->comm, r->message, r->nmessages, r->deadline_ns);
}

/* The K of R begin, or none does, and they are freed.  KEEPS_MARK: as request_drop().
 */
static berth_result engine_begin(struct berth_set *s, struct berth_request **r,
				 size_t k, bool keeps_mark, struct failure *why)
{
	struct messages *m = s->world->messages;
	size_t messages = 0, collectives = 0;
	berth_result rc = BERTH_OK;
	const struct op *marked = NULL;
	const char *no_mark;

	for (size_t i = 0; i < k; i++) {
		messages += r[i]->nmessages;
		collectives += r[i]->n;
	}
	if (messages && !messages_begin(m)) {
		rc = request_refuse(BERTH_MEMORY, r[0]->op, why, engine_no_room);
		messages = 0;
	}
	for (size_t i = 0; !rc && i < k; i++)
		if (request_is_on_device(r[i])) {
			rc = request_mark(r[i], &marked, &no_mark);
			if (rc)
				rc = request_refuse(rc, r[i]->op, why, no_mark);
		}
	if (!rc && collectives)
		rc = engine_enter_all(s, r, k, why);
	for (size_t i = 0; i < k; i++)
		if (rc)
			request_drop(r[i], keeps_mark);
		else if (r[i]->nmessages)
			engine_post_messages(r[i]);
	if (messages)
		messages_end(m);
	return rc;
}

berth_result engine_enter_new(struct berth_set *s, const struct op *op, size_t n,
			      struct berth_request **request, struct failure *why)
{
	struct berth_request *r = request_make(s, op, n, NULL);
	berth_result rc;

	if (!r)
		return request_refuse(BERTH_MEMORY, op, why, engine_no_room);
	rc = engine_begin(s, &r, 1, n == 1 && op_is_device(op) && op->marked, why);
	if (!rc)
		*request = r;
	return rc;
}

/* Collectives need the thread of all sets. */
static berth_result engine_is_ready(struct berth_set *s, const struct op *op, size_t n,
				    struct failure *why)
{
	if (s->comm.broken)
		return comm_broken(&s->comm, why);
	if (request_count_messages(op, n) < n && !progress_start(s))
		return engine_no_thread(op, why);
	return BERTH_OK;
}

berth_result engine_submit(struct berth_set *s, const struct op *op, size_t n,
			   struct berth_request **request, struct failure *why)
{
	const berth_result rc = engine_is_ready(s, op, n, why);

	return rc ? rc : engine_enter_new(s, op, n, request, why);
}

berth_result engine_submit_each(struct berth_set *s, struct berth_request **r, size_t n,
				struct failure *why)
{
	berth_result rc;
	size_t k = 0;

	while (k < n - 1 && !r[k]->n)
		k++;
	rc = engine_is_ready(s, r[k]->op, 1, why); /* a collective's, if there is one */
	if (!rc)
		return engine_begin(s, r, n, false, why);
	for (size_t i = 0; i < n; i++)
		request_drop(r[i], false);
	return rc;
}

/* ---- waiting ---- */

/* The thread that submitted last waits, and submits no more until R is done: what the
 * plan still lacks does not come.  (A step without one of 64 tensors: 1.2 ms less.) */
static void engine_want_at_once(struct berth_request *r)
{
	struct berth_set *s = r->set;

	pthread_mutex_lock(&s->queue);
	if (s->submitter == engine_this_thread()) {
		atomic_store(&r->wanted_ns, 1);
		schedule_event(&s->schedule, SCHEDULE_ASKED);
	}
	pthread_mutex_unlock(&s->queue);
}

/* A request that the plan holds back is done sooner if a thread waits for it. */
berth_result engine_poll(struct berth_request *r, struct failure *why)
{
	if (r->ndevice && !request_is_done(r))
		works_poll();
	if (request_is_done(r))
		return request_outcome(r, why);
	if (!atomic_load(&r->wanted_ns) && clock_ns() - r->submitted_ns > POLLED_NS &&
	    request_want(r))
		set_ring(r->set);
	return BERTH_BUSY;
}

/* Takes steps until R is done, or nothing is left to do now.  The thread of all sets
 * takes the steps that come later.  (When each waiting thread took these, 3 of them
 * took 2.5 % of a core, now 0.3.) */
static void engine_help(struct berth_set *s, const struct berth_request *r)
{
	enum progress step = PROGRESS_SOON;
	uint64_t ns;

	if (!pthread_mutex_trylock(&s->work)) {
		do
			step = request_is_done(r) || request_state(r) >= REQUEST_RUNNING
				       ? PROGRESS_IDLE
				       : progress_step(s, &ns);
		while (step == PROGRESS_DID);
		set_release(s);
	}
	if (step == PROGRESS_SOON)
		set_ring(s);
}

static bool engine_request_is_over(void *ctx)
{
	return request_is_done(ctx);
}

/* Waits for R, which has messages. */
static void engine_wait_for_messages(struct berth_request *r, uint64_t until_ns)
{
	messages_wait(r->set->world->messages, engine_request_is_over, r, until_ns);
}

/* Tests the works on devices for a moment, then leaves them to their turns
 * (works.h). */
static void engine_wait_for_device(struct berth_request *r, uint64_t until_ns)
{
	enum { LOOKS = 100 };
	const uint64_t begun_ns = clock_ns();

	for (unsigned i = 0; i < LOOKS && !request_is_done(r); i++) {
		if (until_ns && clock_ns() >= until_ns)
			return;
		works_poll();
		if (!wait_yield(begun_ns))
			return;
	}
}

static berth_result engine_wait_long(struct berth_request *r, int64_t timeout_ms,
				     struct failure *why)
{
	uint64_t until_ns = timeout_ms >= 0 ? clock_until(timeout_ms) : 0;

	if (r->nmessages && timeout_ms && !request_is_done(r)) {
		if (r->n && request_want(r))
			set_ring(r->set);
		engine_wait_for_messages(r, until_ns);
	} else if (!request_is_done(r)) {
		request_want(r);
		if (timeout_ms)
			engine_want_at_once(r);
		if (until_ns) /* an operation's time has no limit: the thread does it */
			set_ring(r->set);
		else
			engine_help(r->set, r);
	}
	if (timeout_ms && r->ndevice && !request_is_done(r))
		engine_wait_for_device(r, until_ns);
	while (!request_is_done(r)) {
		uint64_t now = until_ns ? clock_ns() : 0;

		if (until_ns && now >= until_ns)
			return BERTH_BUSY;
		request_sleep(r, REQUEST_DONE, until_ns - now);
	}
	return request_free(r, why);
}

berth_result engine_wait(struct berth_request *r, int64_t timeout_ms,
			 struct failure *why)
{
	uint64_t begun_ns;
	berth_result rc;

	if (!timeout_ms || request_is_done(r))
		return engine_wait_long(r, timeout_ms, why);
	begun_ns = clock_ns();
	rc = engine_wait_long(r, timeout_ms, why);
	totals_blocked(clock_ns() - begun_ns);
	return rc;
}

/* ---- on devices ---- */

/* Until the works of R have been started, or it is done; or until UNTIL_NS, which is 0
 * for no limit. */
static bool engine_wait_for_start(struct berth_request *r, uint64_t until_ns)
{
	if (r->nbounced) { /* what they receive is there when they end */
		if (r->n && request_want(r))
			set_ring(r->set);
		engine_wait_for_messages(r, until_ns);
		return request_is_done(r);
	}
	if (request_state(r) < REQUEST_RUNNING && !request_is_done(r)) {
		request_want(r);
		engine_want_at_once(r);
		if (until_ns) /* as in engine_wait() */
			set_ring(r->set);
		else
			engine_help(r->set, r);
	}
	while (request_state(r) < REQUEST_RUNNING && !request_is_done(r)) {
		if (until_ns && clock_ns() >= until_ns)
			return false;
		request_sleep(r, REQUEST_RUNNING, START_NS);
	}
	for (size_t i = 0; request_state(r) >= REQUEST_RUNNING && i < r->nworks; i++)
		while (!works_wait(r->work[i], WORK_RUNS, START_NS))
			if (until_ns && clock_ns() >= until_ns)
				return false;
	return true;
}

berth_result engine_wait_stream(struct berth_request *r, void *stream,
				int64_t timeout_ms, struct failure *why)
{
	berth_result rc = BERTH_OK;

	if (!request_is_on_device(r))
		return request_refuse(BERTH_INVALID, r->op, why,
				      "the request has nothing in a device's memory");
	if (!engine_wait_for_start(r, timeout_ms >= 0 ? clock_until(timeout_ms) : 0))
		return BERTH_BUSY;
	if (request_is_done(r) && r->rc)
		return request_outcome(r, why);
	for (size_t i = 0; request_state(r) >= REQUEST_RUNNING && !rc && i < r->nworks;
	     i++)
		rc = works_follow(r->work[i], stream);
	return rc ? request_refuse(rc, r->op, why, "the stream can't be used") : rc;
}

/* It ends itself. */
static void engine_end_alone(void *ctx, berth_result rc)
{
	struct failure why;

	(void)rc;
	engine_wait(ctx, 0, &why);
}

/* R, of a thread that blocks in it: until OUT may be used on STREAM.  It is not the
 * caller's any more. */
static berth_result engine_wait_on_stream(struct berth_request *r, void *stream,
					  struct failure *why)
{
	berth_result rc;

	if (stream == BERTH_HOST_STREAM)
		return engine_wait(r, -1, why);
	rc = engine_wait_stream(r, stream, -1, why);
	if (rc)
		return engine_wait(r, -1, why);
	request_then(r, engine_end_alone, r);
	return BERTH_OK;
}

/* ---- waiting for one of several ---- */

static size_t engine_first_done(struct berth_request *const *r, size_t n)
{
	size_t i = 0;

	while (i < n && !(r[i] && request_is_done(r[i])))
		i++;
	return i;
}

static void engine_want_all(struct berth_request *const *r, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (r[i] && request_want(r[i])) {
			engine_want_at_once(r[i]);
			set_ring(r[i]->set);
		}
}

berth_result engine_wait_any(struct berth_request *const *r, size_t n,
			     int64_t timeout_ms, size_t *which, struct failure *why)
{
	uint64_t until_ns = timeout_ms >= 0 ? clock_until(timeout_ms) : 0, now = 0;

	atomic_fetch_add(&request_completions.waiters, 1);
	*which = engine_first_done(r, n);
	if (*which == n)
		engine_want_all(r, n);
	for (;;) {
		uint32_t before = atomic_load(&request_completions.count);

		*which = engine_first_done(r, n);
		now = until_ns ? clock_ns() : 0;
		if (*which < n || (until_ns && now >= until_ns))
			break;
		sleep_on(&request_completions.count, before, until_ns - now);
	}
	atomic_fetch_sub(&request_completions.waiters, 1);
	return *which < n ? request_free(r[*which], why) : BERTH_BUSY;
}

/* ---- blocking operations ---- */

/* W, of a thread that blocks in it: until OUT may be used on STREAM. */
static berth_result engine_await(struct work *w, void *stream, struct failure *why)
{
	const enum work_state until =
		stream == BERTH_HOST_STREAM ? WORK_OVER : WORK_RUNS;
	berth_result rc = BERTH_OK;

	while (!works_wait(w, until, AWHILE_NS))
		;
	if (until == WORK_RUNS && works_follow(w, stream))
		while (!works_wait(w, WORK_OVER, AWHILE_NS))
			;
	if (atomic_load(&w->state) == WORK_OVER)
		rc = w->rc;
	if (rc) {
		memset(why, 0, sizeof *why);
		why->rc = rc;
		if (w->why)
			*why = *w->why;
	}
	works_let_go(w);
	return rc;
}

/* OP met other ranks' operations: it is told in a round as a request.  *REQUEST stays
 * NULL if this rank cannot have it. */
static berth_result engine_meet(struct berth_set *s, const struct op *op,
				struct berth_request **request, struct failure *why)
{
	berth_result rc = progress_start(s) ? engine_enter_new(s, op, 1, request, why)
					    : engine_no_thread(op, why);
	uint64_t ns;

	s->direct = *request;
	s->called = true;
	progress_step(s, &ns);
	return rc;
}

static berth_result engine_run_now(struct berth_set *s, const struct op *op,
				   struct berth_request **request, struct failure *why)
{
	berth_result rc;
	uint64_t ns;

	pthread_mutex_lock(&s->work);
	while (s->called && !s->comm.broken)
		progress_step(s, &ns);
	rc = run_blocking(&s->comm, op, why);
	if (rc == BERTH_MISMATCH && !*why->text)
		rc = engine_meet(s, op, request, why);
	set_release(s);
	return rc;
}

/* As engine_run_now(), on a device: *WORK is the work that begins. */
static berth_result engine_run_on_device(struct berth_set *s, struct op *op,
					 struct berth_request **request,
					 struct work **work, struct failure *why)
{
	struct comm *c = &s->comm;
	berth_result rc;
	uint64_t ns;

	pthread_mutex_lock(&s->work);
	while (s->called && !c->broken)
		progress_step(s, &ns);
	rc = run_blocking(c, op, why);
	*work = c->work;
	c->work = NULL;
	if (rc == BERTH_MISMATCH && !*why->text)
		rc = engine_meet(s, op, request, why);
	if (!rc) /* the mark is another's now */
		op->marked = false;
	set_release(s);
	return rc;
}

/* Until OUT may be used on OP's stream. */
static berth_result engine_run_device(struct berth_set *s, struct op *op,
				      struct failure *why)
{
	struct berth_request *r = NULL;
	struct work *w = NULL;
	const char *no_mark;
	berth_result rc = comm_device_mark(&s->comm, op, NULL, &no_mark);

	if (rc)
		return request_refuse(rc, op, why, no_mark);
	if (op_is_message(op) ||
	    atomic_load_explicit(&s->collectives, memory_order_relaxed)) {
		rc = engine_submit(s, op, 1, &r, why);
		op->marked &= rc != BERTH_OK;
	} else {
		rc = engine_run_on_device(s, op, &r, &w, why);
	}
	comm_device_forget(op);
	if (w)
		return engine_await(w, op->stream, why);
	return rc || !r ? rc : engine_wait_on_stream(r, op->stream, why);
}

berth_result engine_run(struct berth_set *s, struct op *op, struct failure *why)
{
	struct berth_request *r = NULL;
	berth_result rc;

	if (op_is_device(op))
		return engine_run_device(s, op, why);
	if (!op_is_message(op) &&
	    !atomic_load_explicit(&s->collectives, memory_order_relaxed))
		rc = engine_run_now(s, op, &r, why);
	else
		rc = engine_submit(s, op, 1, &r, why);
	return rc || !r ? rc : engine_wait(r, -1, why);
}

/* WORK is held: can this thread do the operation itself, and come back in time? */
static bool engine_none_is_late(struct berth_set *s, const struct op *op,
				int64_t slice_ms)
{
	const char *name = op->name ? op->name : "";
	const struct comm *c = &s->comm;
	const uint64_t most_ns = (uint64_t)slice_ms * 1000000 < ARRIVE_NS
					 ? (uint64_t)slice_ms * 1000000
					 : ARRIVE_NS;

	if (c->members->n == 1)
		return true;
	if (s->called || c->broken || !c->shared || c->members->nlocal < c->members->n)
		return false;
	return arrive(c->shared->arrival, c->members->n, c->members->local_me,
		      (uint32_t)(op_hash(name, strlen(name), 0) >> 32), most_ns);
}

/* In this thread, if that can be.  BERTH_BUSY, without *REQUEST: not so. */
static berth_result engine_run_if_soon(struct berth_set *s, const struct op *op,
				       int64_t slice_ms, struct berth_request **request,
				       struct failure *why)
{
	berth_result rc = BERTH_BUSY;

	if (op_is_message(op) || op_is_device(op) ||
	    atomic_load_explicit(&s->collectives, memory_order_relaxed) ||
	    pthread_mutex_trylock(&s->work))
		return BERTH_BUSY;
	if (engine_none_is_late(s, op, slice_ms)) {
		rc = run_blocking(&s->comm, op, why);
		if (rc == BERTH_MISMATCH && !*why->text)
			rc = engine_meet(s, op, request, why);
	}
	set_release(s);
	return rc;
}

berth_result engine_run_for(struct berth_set *s, const struct op *op, int64_t slice_ms,
			    struct berth_request **later, struct failure *why)
{
	struct berth_request *r = NULL;
	berth_result rc = engine_run_if_soon(s, op, slice_ms, &r, why);

	if (rc == BERTH_BUSY)
		rc = engine_submit(s, op, 1, &r, why);
	if (rc || !r)
		return rc;
	rc = engine_wait(r, slice_ms, why);
	if (rc == BERTH_BUSY)
		*later = r;
	return rc;
}

/* ---- ending, joining, counting ---- */

/* A thread that is at work sees it within 50 ms, and so does a rank that rests. */
void engine_abort(struct berth_set *s)
{
	pthread_mutex_lock(&s->queue);
	rest_call_others(s);
	pthread_mutex_unlock(&s->queue);
	if (!pthread_mutex_trylock(&s->work)) {
		queue_end_aborted(s);
		set_release(s);
	}
	messages_abort(&s->comm);
	set_ring(s);
}

/* *LAST: of the last time that all had. */
static bool engine_has_joined(struct berth_set *s, unsigned *last)
{
	bool joined;

	pthread_mutex_lock(&s->queue);
	joined = s->schedule.joined;
	*last = s->last_joined;
	pthread_mutex_unlock(&s->queue);
	return joined;
}

static berth_result engine_wait_for_all(struct berth_set *s, unsigned *last,
					struct failure *why)
{
	for (;;) {
		uint32_t before = atomic_load(&s->all_joined);

		if (!engine_has_joined(s, last))
			return BERTH_OK;
		if (s->comm.broken)
			return comm_broken(&s->comm, why);
		if (atomic_load(&s->comm.aborted))
			return request_refuse(BERTH_ABORTED, &s->idle, why, COMM_ENDED);
		sleep_on(&s->all_joined, before, LOOK_NS);
	}
}

berth_result engine_join(struct berth_set *s, unsigned *last, struct failure *why)
{
	bool started;

	pthread_mutex_lock(&s->queue);
	started = progress_start_held(s);
	if (started && !s->schedule.joined) {
		s->schedule.joined = true;
		schedule_event(&s->schedule, SCHEDULE_ASKED);
		s->joiner.time_ns =
			clock_ns() + (uint64_t)s->world->who.clock_offset_ns;
	}
	pthread_mutex_unlock(&s->queue);
	if (!started)
		return engine_no_thread(&s->idle, why);
	set_ring(s);
	return engine_wait_for_all(s, last, why);
}

size_t engine_algorithms(struct berth_set *s, char *text, size_t bytes)
{
	const struct comm *c = &s->comm;
	size_t n = 0;

	pthread_mutex_lock(&s->work);
	if (c->members->n > 1)
		n = c->back->algorithms(c->group, text, bytes);
	n += comm_device_algorithms(c, n < bytes ? text + n : NULL,
				    n < bytes ? bytes - n : 0);
	set_release(s);
	return n;
}

static void engine_add(struct berth_metrics *sum, const struct berth_metrics *count)
{
	sum->operations += trace_counted(&count->operations);
	sum->bytes += trace_counted(&count->bytes);
	sum->fused += trace_counted(&count->fused);
	sum->negotiations += trace_counted(&count->negotiations);
	sum->stalls += trace_counted(&count->stalls);
	sum->errors += trace_counted(&count->errors);
	sum->wait_ns += trace_counted(&count->wait_ns);
}

void engine_count(const struct berth_set *s, struct berth_metrics *sum)
{
	engine_add(sum, &s->count);
	engine_add(sum, &s->comm.count);
}
