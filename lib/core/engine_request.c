/* engine_request.c - requests, as their owners see them: submitted, polled, waited
 * for. */
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/kern.h"
#include "lib/base/wait.h"
#include "lib/core/engine_internal.h"

enum {
	START_NS = 10000000,
	AWHILE_NS = 1000000000,
	POLLED_NS = 20000000 /* a request that is polled so late is one that a thread
				waits for */
};

/* ---- submitting ---- */

static size_t text_bytes(const char *text)
{
	return text ? strlen(text) + 1 : 0;
}

/* TEXT, or NULL, to *AT, which goes on behind it. */
static const char *keep(const char *text, char **at)
{
	size_t bytes = text_bytes(text);
	char *to = *at;

	if (text)
		memcpy(to, text, bytes);
	*at += bytes;
	return text ? to : NULL;
}

static size_t count_messages(const struct op *op, size_t n)
{
	size_t messages = 0;

	for (size_t i = 0; i < n; i++)
		messages += op_is_message(&op[i]);
	return messages;
}

/* Copies all that the operations point to, behind them at AT. */
static void keep_all(struct berth_request *r, size_t n, unsigned ranks, char *at)
{
	for (size_t i = 0; i < n; i++) {
		struct coll *c = &r->op[i].coll;

		if (c->in_counts) {
			c->in_counts = memcpy(at, c->in_counts, ranks * 8);
			at += ranks * 8;
		}
		if (c->out_counts) {
			c->out_counts = memcpy(at, c->out_counts, ranks * 8);
			at += ranks * 8;
		}
	}
	for (size_t i = 0; i < n; i++) {
		r->op[i].name = keep(r->op[i].name, &at);
		r->op[i].shape = keep(r->op[i].shape, &at);
	}
}

/* Collectives first, then messages. */
static void sort_kinds(struct berth_request *r, const struct op *op, size_t n)
{
	size_t at = 0;

	for (size_t i = 0; i < n; i++)
		if (!op_is_message(&op[i]))
			r->op[at++] = op[i];
	for (size_t i = 0; i < n; i++)
		if (op_is_message(&op[i]))
			r->op[at++] = op[i];
}

/* One block: the request, its messages, its operations, their counts and texts. */
static struct berth_request *copy(const struct op *op, size_t n, unsigned ranks)
{
	const size_t messages = count_messages(op, n);
	size_t bytes = sizeof(struct berth_request) + n * sizeof *op +
		       messages * sizeof(struct message);
	struct berth_request *r;
	size_t devices = 0;

	for (size_t i = 0; i < n; i++) {
		devices += op_is_device(&op[i]);
		bytes += text_bytes(op[i].name) + text_bytes(op[i].shape);
		bytes += op[i].coll.in_counts ? ranks * sizeof(uint64_t) : 0;
		bytes += op[i].coll.out_counts ? ranks * sizeof(uint64_t) : 0;
	}
	r = malloc(bytes + devices * sizeof *r->work);
	if (!r)
		return NULL;
	memset(r, 0, sizeof *r);
	r->ndevice = devices;
	r->n = n - messages;
	r->nmessages = messages;
	r->parts = (r->n > 0) + (uint32_t)messages;
	r->message = (struct message *)(r + 1);
	r->op = (struct op *)(r->message + messages);
	r->work = (struct work **)(r->op + n);
	sort_kinds(r, op, n);
	keep_all(r, n, ranks, (char *)(r->work + devices));
	return r;
}

/* Name, signature, and what it may be fused with. */
static void describe(struct engine *e, struct berth_request *r)
{
	const struct op *first = r->op;
	uint64_t key = r->n, signature = 0, fuse_key;
	bool named = true;

	fuse_key = plan_fuse_key(first);
	for (size_t i = 0; i < r->n; i++) {
		const struct op *op = &r->op[i];

		named = named && op->name;
		if (op->name)
			key = op_hash(op->name, strlen(op->name), key);
		signature = op_hash(&op->coll.signature, sizeof op->coll.signature,
				    signature);
		r->unit.bytes += op->coll.count * kern_size(op->coll.type);
		if (i && plan_fuse_key(op) != fuse_key)
			fuse_key = 0;
		if (op->priority > r->priority)
			r->priority = op->priority;
	}
	if (!named) { /* by their order alone */
		r->unit.number = ++e->unnamed;
		key = plan_number_key(r->unit.number);
	}
	r->unit.first = atomic_load(&e->collectives) == 0;
	r->unit.key = key;
	r->unit.signature = (uint32_t)(signature >> 32);
	r->unit.fuse_key = fuse_key;
}

berth_result engine_refuse(berth_result rc, const struct op *op, struct failure *why,
			   const char *text)
{
	memset(why, 0, sizeof *why);
	why->rc = rc;
	snprintf(why->tensor, sizeof why->tensor, "%s", op->name ? op->name : "");
	snprintf(why->text, sizeof why->text, "%s", text);
	return rc;
}

berth_result engine_no_thread(const struct op *op, struct failure *why)
{
	return engine_refuse(BERTH_MEMORY, op, why,
			     "no memory, or no thread, for submitted operations");
}

/* Its address says which thread it is. */
static const void *this_thread(void)
{
	static _Thread_local char here;

	return &here;
}

/* WORK: the thread is to look at it. */
static berth_result enter(struct engine *e, struct berth_request *r,
			  struct failure *why, bool *work)
{
	berth_result rc = BERTH_OK;

	pthread_mutex_lock(&e->queue);
	describe(e, r);
	if (atomic_load(&e->comm->aborted))
		rc = engine_refuse(BERTH_ABORTED, r->op, why, COMM_ENDED);
	else if (engine_find(e, r->unit.key))
		rc = engine_refuse(BERTH_INVALID, r->op, why,
				   "an operation of that name is in flight");
	else if (e->schedule.pending >= ENGINE_PENDING_MOST)
		rc = engine_refuse(BERTH_MEMORY, r->op, why,
				   "too many operations are in flight");
	else if (e->retired && !engine_start_held(e)) /* it has ended since */
		rc = engine_no_thread(r->op, why);
	else
		engine_enter(e, r);
	e->submitter = this_thread();
	*work = r->beside || engine_bucket_is_here(e) ||
		atomic_exchange(&e->dozes, false);
	pthread_mutex_unlock(&e->queue);
	return rc;
}

static void message_done(struct message *m, berth_result rc, const struct failure *why)
{
	engine_end(m->owner, rc, why, NULL);
}

/* After the collectives of R have been entered: nothing can be refused any more. */
static void post_messages(struct messages *m, struct berth_request *r)
{
	for (size_t i = 0; i < r->nmessages; i++)
		r->message[i] = (struct message){ .op = &r->op[r->n + i],
						  .owner = r,
						  .done = message_done };
	messages_post(m, r->message, r->nmessages, r->deadline_ns);
}

/* R's collectives, if it has any. */
static berth_result enter_collectives(struct engine *e, struct berth_request *r,
				      struct failure *why)
{
	bool work = false;
	berth_result rc;

	if (!r->n)
		return BERTH_OK;
	rc = enter(e, r, why, &work);
	if (work && !rc)
		engine_ring(e);
	return rc;
}

berth_result engine_enter_new(struct engine *e, const struct op *op, size_t n,
			      struct berth_request **request, struct failure *why)
{
	struct berth_request *r = copy(op, n, e->comm->members->n);
	struct messages *m = NULL;
	berth_result rc = BERTH_OK;

	if (r && r->nmessages)
		m = engine_need_messages(e);
	if (!r || (r->nmessages && !m)) {
		free(r);
		return engine_refuse(BERTH_MEMORY, op, why,
				     "no memory, thread or socket for it");
	}
	r->engine = e;
	r->submitted_ns = clock_ns();
	r->deadline_ns = comm_deadline(e->comm, op);
	atomic_fetch_add(&e->users, 1);
	if (r->ndevice && engine_mark(e, r))
		rc = engine_refuse(BERTH_UNSUPPORTED, op, why,
				   "its device, stream or event can't be used");
	if (!rc)
		rc = enter_collectives(e, r, why);
	if (rc) {
		if (r->ndevice && !(n == 1 && op->marked)) /* that is the caller's */
			engine_forget(r);
		engine_let_go(e);
		free(r);
	} else {
		*request = r;
		if (m)
			post_messages(m, r);
	}
	if (m)
		messages_leave(m);
	return rc;
}

/* The engine's thread does collectives alone. */
berth_result engine_submit(struct engine *e, const struct op *op, size_t n,
			   struct berth_request **request, struct failure *why)
{
	if (e->comm->broken)
		return comm_broken(e->comm, why);
	if (count_messages(op, n) < n && !engine_start(e))
		return engine_no_thread(op, why);
	return engine_enter_new(e, op, n, request, why);
}

/* ---- waiting ---- */

/* The thread that submitted last waits, and submits no more until R is done: what the
 * plan still lacks does not come.  (A step without one of 64 tensors: 1.2 ms less.) */
static void want_at_once(struct berth_request *r)
{
	struct engine *e = r->engine;

	pthread_mutex_lock(&e->queue);
	if (e->submitter == this_thread()) {
		atomic_store(&r->wanted_ns, 1);
		schedule_event(&e->schedule, SCHEDULE_ASKED);
	}
	pthread_mutex_unlock(&e->queue);
}

/* A request that the plan holds back is done sooner if a thread waits for it. */
berth_result engine_poll(struct berth_request *r, struct failure *why)
{
	if (r->ndevice && !engine_is_done(r))
		works_poll();
	if (engine_is_done(r))
		return engine_outcome(r, why);
	if (!atomic_load(&r->wanted_ns) && clock_ns() - r->submitted_ns > POLLED_NS &&
	    engine_want(r))
		engine_ring(r->engine);
	return BERTH_BUSY;
}

/* Do what there is to do until R is done.  What is left then, when another thread stops
 * or after some time, is the engine's thread's: if each waiting thread looked after it,
 * 3 of them took 2.5 % of a core, now 0.3. */
static void help(struct engine *e, const struct berth_request *r)
{
	enum engine_step step = ENGINE_SOON;
	uint64_t ns;

	if (!pthread_mutex_trylock(&e->work)) {
		do
			step = engine_is_done(r) || atomic_load(&r->launched) == 1
				       ? ENGINE_IDLE
				       : engine_step(e, &ns);
		while (step == ENGINE_DID);
		pthread_mutex_unlock(&e->work);
	}
	if (step == ENGINE_SOON)
		engine_ring(e);
}

/* Until R is done, or for NS (0: however long). */
static void sleep_until_done(struct berth_request *r, uint64_t ns)
{
	uint32_t waits = 0;

	atomic_compare_exchange_strong(&r->done, &waits, 2);
	if (waits != 1)
		sleep_on(&r->done, 2, ns);
}

/* R ends. */
static berth_result end(struct berth_request *r, struct failure *why)
{
	berth_result rc = engine_outcome(r, why);

	if (engine_calling == r)
		engine_calling = NULL;
	if (r->n)
		atomic_fetch_sub(&r->engine->collectives, 1);
	engine_drop_works(r);
	engine_let_go(r->engine);
	free(r->why);
	free(r);
	return rc;
}

static bool is_over(void *ctx)
{
	return engine_is_done(ctx);
}

/* Waits for R, which has messages. */
static void wait_for_messages(struct berth_request *r, uint64_t until_ns)
{
	struct messages *m = engine_use_messages(r->engine);

	if (!m) /* the set ends, and with it R */
		return;
	messages_wait(m, is_over, r, until_ns);
	messages_leave(m);
}

/* Tests the works on devices for a moment, then leaves them to the thread of
 * works.h. */
static void wait_for_device(struct berth_request *r, uint64_t until_ns)
{
	enum { LOOKS = 100 };
	const uint64_t begun_ns = clock_coarse_ns();

	for (unsigned i = 0;
	     i < LOOKS && !engine_is_done(r) && wait_may_yield(begun_ns); i++) {
		if (until_ns && clock_ns() >= until_ns)
			return;
		works_poll();
		sched_yield();
	}
}

berth_result engine_wait(struct berth_request *r, int64_t timeout_ms,
			 struct failure *why)
{
	uint64_t until_ns = timeout_ms >= 0 ? clock_until(timeout_ms) : 0;

	if (r->nmessages && timeout_ms && !engine_is_done(r)) {
		if (r->n && engine_want(r))
			engine_ring(r->engine);
		wait_for_messages(r, until_ns);
	} else if (!engine_is_done(r)) {
		engine_want(r);
		if (timeout_ms)
			want_at_once(r);
		if (until_ns) /* an operation's time has no limit: the thread does it */
			engine_ring(r->engine);
		else
			help(r->engine, r);
	}
	if (timeout_ms && r->ndevice)
		wait_for_device(r, until_ns);
	while (!engine_is_done(r)) {
		uint64_t now = until_ns ? clock_ns() : 0;

		if (until_ns && now >= until_ns)
			return BERTH_BUSY;
		sleep_until_done(r, until_ns - now);
	}
	return end(r, why);
}

/* ---- on devices ---- */

/* Until the works of R have been started, or it is done. */
static void wait_for_start(struct berth_request *r)
{
	uint32_t not_yet = 0;

	if (!atomic_load(&r->launched) && !engine_is_done(r)) {
		engine_want(r);
		want_at_once(r);
		help(r->engine, r);
	}
	while (atomic_load(&r->launched) != 1 && !engine_is_done(r)) {
		not_yet = 0;
		atomic_compare_exchange_strong(&r->launched, &not_yet, 2);
		if (not_yet != 1)
			sleep_on(&r->launched, 2, START_NS);
	}
	for (size_t i = 0; atomic_load(&r->launched) == 1 && i < r->nworks; i++)
		while (!works_wait(r->work[i], WORK_RUNS, AWHILE_NS))
			;
}

static berth_result follow_all(struct berth_request *r, void *stream)
{
	berth_result rc = BERTH_OK;

	for (size_t i = 0; atomic_load(&r->launched) == 1 && !rc && i < r->nworks; i++)
		rc = works_follow(r->work[i], stream);
	return rc;
}

berth_result engine_wait_stream(struct berth_request *r, void *stream,
				struct failure *why)
{
	berth_result rc;

	if (!r->ndevice)
		return engine_refuse(BERTH_INVALID, r->op, why,
				     "the request has nothing in a device's memory");
	wait_for_start(r);
	if (engine_is_done(r) && r->rc)
		return engine_outcome(r, why);
	rc = follow_all(r, stream);
	return rc ? engine_refuse(rc, r->op, why, "the stream can't be used") : rc;
}

/* It ends itself. */
static void end_alone(void *ctx, berth_result rc)
{
	struct failure why;

	(void)rc;
	engine_wait(ctx, 0, &why);
}

berth_result engine_wait_on_stream(struct berth_request *r, void *stream,
				   struct failure *why)
{
	berth_result rc;

	if (stream == BERTH_HOST_STREAM)
		return engine_wait(r, -1, why);
	rc = engine_wait_stream(r, stream, why);
	if (rc)
		return engine_wait(r, -1, why);
	engine_then(r, end_alone, r);
	return BERTH_OK;
}

/* ---- waiting for one of several ---- */

static size_t first_done(struct berth_request *const *r, size_t n)
{
	size_t i = 0;

	while (i < n && !(r[i] && engine_is_done(r[i])))
		i++;
	return i;
}

static void want_all(struct berth_request *const *r, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (r[i] && engine_want(r[i])) {
			want_at_once(r[i]);
			engine_ring(r[i]->engine);
		}
}

berth_result engine_wait_any(struct berth_request *const *r, size_t n,
			     int64_t timeout_ms, size_t *which, struct failure *why)
{
	uint64_t until_ns = timeout_ms >= 0 ? clock_until(timeout_ms) : 0, now = 0;

	atomic_fetch_add(&engine_completions.waiters, 1);
	*which = first_done(r, n);
	if (*which == n)
		want_all(r, n);
	for (;;) {
		uint32_t before = atomic_load(&engine_completions.count);

		*which = first_done(r, n);
		now = until_ns ? clock_ns() : 0;
		if (*which < n || (until_ns && now >= until_ns))
			break;
		sleep_on(&engine_completions.count, before, until_ns - now);
	}
	atomic_fetch_sub(&engine_completions.waiters, 1);
	return *which < n ? end(r[*which], why) : BERTH_BUSY;
}
