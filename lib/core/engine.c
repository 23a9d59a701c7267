#include "lib/core/engine.h"

#include <stdlib.h>
#include <string.h>

#include "lib/core/engine_internal.h"

enum {
	LOOK_NS = 50000000, /* of who waits, to the next look */
	ARRIVE_NS = 1000000 /* how long a rank looks whether the others come */
};

/* ---- making, freeing ---- */

/* The door's thread calls it.  It acts only if no thread has WORK. */
static void tidy(void *engine)
{
	struct engine *e = engine;

	if (!pthread_mutex_trylock(&e->work)) {
		net_tidy(e->comm->net);
		pthread_mutex_unlock(&e->work);
	}
	engine_tidy_messages(e);
}

struct engine *engine_make(struct comm *c)
{
	struct engine *e = calloc(1, sizeof *e);

	if (!e)
		return NULL;
	e->users = 1;
	e->forks = engine_forks();
	e->comm = c;
	c->hear = c->net ? engine_hear : NULL;
	c->hear_ctx = e;
	c->hooks = &engine_works;
	c->owner = e;
	e->last = &e->first;
	e->idle.coll.kind = BERTH_BARRIER;
	e->idle.name = "asynchronous operations";
	pthread_mutex_init(&e->work, NULL);
	pthread_mutex_init(&e->queue, NULL);
	if (c->net)
		net_tend(c->net, tidy, e);
	return e;
}

void engine_stop(struct engine *e)
{
	struct failure why = { .rc = BERTH_ABORTED };

	atomic_store(&e->comm->aborted, true);
	engine_ring(e);
	snprintf(why.text, sizeof why.text, COMM_ENDED);
	pthread_mutex_lock(&e->work); /* who waits may be at it still */
	engine_complete_all(e, BERTH_ABORTED, &why);
	pthread_mutex_unlock(&e->work);
}

/* Ends all that this rank has started, so that nothing more ends on ranks that run
 * operations which this rank has not started. */
static void tell_cut(struct engine *e)
{
	comm_say_abort(e->comm, "it has left");
	engine_tell_other_hosts(e);
}

bool engine_ends(struct engine *e)
{
	struct messages *m;
	bool ends, cut;

	pthread_mutex_lock(&e->work);
	ends = comm_device_ends(e->comm);
	cut = ends && comm_device_was_cut(e->comm);
	pthread_mutex_unlock(&e->work);
	if (!ends)
		return false;
	if (cut)
		tell_cut(e);
	m = engine_use_messages(e);
	if (m) {
		messages_stop(m);
		messages_leave(m);
	}
	return true;
}

void engine_end_all(struct engine *e)
{
	engine_stop(e);
	while (!engine_ends(e))
		works_nap();
}

void engine_free(struct engine *e)
{
	struct rest *rest;

	if (e->comm->net)
		net_tend(e->comm->net, NULL, NULL);
	engine_end_all(e);
	if (e->started)
		pthread_join(e->thread, NULL);
	pthread_mutex_lock(&e->queue);
	rest = e->rest;
	e->rest = NULL;
	pthread_mutex_unlock(&e->queue);
	engine_rest_free(rest);
	e->comm->hear = NULL;
	engine_free_messages(e);
	comm_device_close(e->comm);
	plan_free(&e->plan);
	if (e->fusion && e->fusion_is_heap)
		memory_free(&e->comm->world->memory, e->fusion);
	else
		free(e->fusion);
	free(e->lists);
	free(e->piece);
	free(e->list);
	engine_let_go(e);
}

/* ---- blocking operations ---- */

/* OP met other ranks' operations: it is told in a round as a request.  *REQUEST stays
 * NULL if this rank cannot have it. */
static berth_result meet(struct engine *e, const struct op *op,
			 struct berth_request **request, struct failure *why)
{
	berth_result rc = engine_start(e) ? engine_enter_new(e, op, 1, request, why)
					  : engine_no_thread(op, why);
	uint64_t ns;

	e->direct = *request;
	e->called = true;
	engine_step(e, &ns);
	return rc;
}

static berth_result run_now(struct engine *e, const struct op *op,
			    struct berth_request **request, struct failure *why)
{
	berth_result rc;
	uint64_t ns;

	pthread_mutex_lock(&e->work);
	while (e->called && !e->comm->broken)
		engine_step(e, &ns);
	rc = comm_run(e->comm, op, why);
	if (rc == BERTH_MISMATCH && !*why->text)
		rc = meet(e, op, request, why);
	pthread_mutex_unlock(&e->work);
	return rc;
}

/* As run_now(), on a device: *WORK is the work that begins. */
static berth_result run_on_device(struct engine *e, struct op *op,
				  struct berth_request **request, struct work **work,
				  struct failure *why)
{
	struct comm *c = e->comm;
	berth_result rc;
	uint64_t ns;

	pthread_mutex_lock(&e->work);
	while (e->called && !c->broken)
		engine_step(e, &ns);
	c->blocks = true;
	rc = comm_run(c, op, why);
	c->blocks = false;
	*work = c->work;
	c->work = NULL;
	if (rc == BERTH_MISMATCH && !*why->text)
		rc = meet(e, op, request, why);
	if (!rc) /* the mark is another's now */
		op->marked = false;
	pthread_mutex_unlock(&e->work);
	return rc;
}

static berth_result no_mark(const struct op *op, berth_result rc, struct failure *why)
{
	return engine_refuse(rc, op, why,
			     rc == BERTH_UNSUPPORTED
				     ? "the set's operations are on another device"
				     : "the stream, or the event, can't be used");
}

/* Until OUT may be used on OP's stream. */
static berth_result run_device(struct engine *e, struct op *op, struct failure *why)
{
	struct berth_request *r = NULL;
	struct work *w = NULL;
	berth_result rc = comm_device_mark(e->comm, op);

	if (rc)
		return no_mark(op, rc, why);
	if (atomic_load_explicit(&e->collectives, memory_order_relaxed)) {
		rc = engine_submit(e, op, 1, &r, why);
		op->marked &= rc != BERTH_OK;
	} else {
		rc = run_on_device(e, op, &r, &w, why);
	}
	comm_device_forget(op);
	if (w)
		return engine_await(w, why);
	return rc || !r ? rc : engine_wait_on_stream(r, op->stream, why);
}

berth_result engine_run(struct engine *e, struct op *op, struct failure *why)
{
	struct berth_request *r = NULL;
	berth_result rc;

	if (op_is_device(op))
		return run_device(e, op, why);
	if (!op_is_message(op) &&
	    !atomic_load_explicit(&e->collectives, memory_order_relaxed))
		rc = run_now(e, op, &r, why);
	else
		rc = engine_submit(e, op, 1, &r, why);
	return rc || !r ? rc : engine_wait(r, -1, why);
}

/* WORK is held: can this thread do the operation itself, and come back in time? */
static bool none_is_late(struct engine *e, const struct op *op, int64_t slice_ms)
{
	const char *name = op->name ? op->name : "";
	const struct comm *c = e->comm;
	const uint64_t most_ns = (uint64_t)slice_ms * 1000000 < ARRIVE_NS
					 ? (uint64_t)slice_ms * 1000000
					 : ARRIVE_NS;

	if (c->members->n == 1)
		return true;
	if (e->called || c->broken || !c->shared || c->members->nlocal < c->members->n)
		return false;
	return arrive(region_arrivals(c->shared, c->members->nlocal), c->members->n,
		      c->members->local_me,
		      (uint32_t)(op_hash(name, strlen(name), 0) >> 32), most_ns);
}

/* In this thread, if that can be.  BERTH_BUSY, without *REQUEST: not so. */
static berth_result run_if_soon(struct engine *e, const struct op *op, int64_t slice_ms,
				struct berth_request **request, struct failure *why)
{
	berth_result rc = BERTH_BUSY;

	if (op_is_message(op) || op_is_device(op) ||
	    atomic_load_explicit(&e->collectives, memory_order_relaxed) ||
	    pthread_mutex_trylock(&e->work))
		return BERTH_BUSY;
	if (none_is_late(e, op, slice_ms)) {
		rc = comm_run(e->comm, op, why);
		if (rc == BERTH_MISMATCH && !*why->text)
			rc = meet(e, op, request, why);
	}
	pthread_mutex_unlock(&e->work);
	return rc;
}

berth_result engine_run_for(struct engine *e, const struct op *op, int64_t slice_ms,
			    struct berth_request **later, struct failure *why)
{
	struct berth_request *r = NULL;
	berth_result rc = run_if_soon(e, op, slice_ms, &r, why);

	if (rc == BERTH_BUSY)
		rc = engine_submit(e, op, 1, &r, why);
	if (rc || !r)
		return rc;
	rc = engine_wait(r, slice_ms, why);
	if (rc == BERTH_BUSY)
		*later = r;
	return rc;
}

/* A thread that is at work sees it within 50 ms, and so does a rank that rests. */
void engine_abort(struct engine *e)
{
	pthread_mutex_lock(&e->queue);
	engine_call(e);
	pthread_mutex_unlock(&e->queue);
	if (!pthread_mutex_trylock(&e->work)) {
		engine_end_aborted(e);
		pthread_mutex_unlock(&e->work);
	}
	engine_tell_other_hosts(e);
	engine_ring(e);
}

/* ---- joining, counting ---- */

/* *LAST: of the last time that all had. */
static bool has_joined(struct engine *e, unsigned *last)
{
	bool joined;

	pthread_mutex_lock(&e->queue);
	joined = e->schedule.joined;
	*last = e->last_joined;
	pthread_mutex_unlock(&e->queue);
	return joined;
}

static berth_result wait_for_all(struct engine *e, unsigned *last, struct failure *why)
{
	for (;;) {
		uint32_t before = atomic_load(&e->all_joined);

		if (!has_joined(e, last))
			return BERTH_OK;
		if (e->comm->broken)
			return comm_broken(e->comm, why);
		if (atomic_load(&e->comm->aborted))
			return engine_refuse(BERTH_ABORTED, &e->idle, why, COMM_ENDED);
		sleep_on(&e->all_joined, before, LOOK_NS);
	}
}

berth_result engine_join(struct engine *e, unsigned *last, struct failure *why)
{
	bool started;

	pthread_mutex_lock(&e->queue);
	started = engine_start_held(e);
	if (started && !e->schedule.joined) {
		e->schedule.joined = true;
		schedule_event(&e->schedule, SCHEDULE_ASKED);
		e->joiner.time_ns =
			clock_ns() + (uint64_t)e->comm->world->who.clock_offset_ns;
	}
	pthread_mutex_unlock(&e->queue);
	if (!started)
		return engine_no_thread(&e->idle, why);
	engine_ring(e);
	return wait_for_all(e, last, why);
}

size_t engine_algorithms(struct engine *e, char *text, size_t bytes)
{
	const struct comm *c = e->comm;
	size_t n = 0;

	pthread_mutex_lock(&e->work);
	if (c->members->n > 1)
		n = c->back->algorithms(c->group, text, bytes);
	pthread_mutex_unlock(&e->work);
	return n;
}

static void add(struct berth_metrics *sum, const struct berth_metrics *count)
{
	sum->operations += trace_counted(&count->operations);
	sum->bytes += trace_counted(&count->bytes);
	sum->fused += trace_counted(&count->fused);
	sum->negotiations += trace_counted(&count->negotiations);
	sum->stalls += trace_counted(&count->stalls);
	sum->errors += trace_counted(&count->errors);
	sum->wait_ns += trace_counted(&count->wait_ns);
}

void engine_count(const struct engine *e, struct berth_metrics *sum)
{
	add(sum, &e->count);
	add(sum, &e->comm->count);
}
