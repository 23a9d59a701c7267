/* engine_request.c - requests, as their owners see them: submitted, polled, waited for,
 * with a callback. */
#include <linux/futex.h>
#include <limits.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "lib/base/kern.h"
#include "lib/base/log.h"
#include "lib/core/engine_internal.h"

enum {
	POLLED_NS = 20000000 /* a request that is polled so late is one that a thread
				waits for */
};

/* ---- sleeping ---- */

void engine_sleep(_Atomic uint32_t *word, uint32_t value, uint64_t ns)
{
	struct timespec t = { (time_t)(ns / 1000000000), (long)(ns % 1000000000) };

	syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, ns ? &t : NULL, NULL, 0);
}

void engine_wake(_Atomic uint32_t *word)
{
	syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

/* ---- of which process ---- */

static unsigned forks;

void engine_in_child(void)
{
	forks++;
}

unsigned engine_forks(void)
{
	return forks;
}

bool engine_has(const struct berth_request *r)
{
	return r->engine->forks == forks;
}

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

/* One block: the request, its operations, their counts and texts. */
static struct berth_request *copy(const struct op *op, size_t n, unsigned ranks)
{
	size_t bytes = sizeof(struct berth_request) + n * sizeof *op;
	struct berth_request *r;
	char *at;

	for (size_t i = 0; i < n; i++) {
		bytes += text_bytes(op[i].name) + text_bytes(op[i].shape);
		bytes += op[i].coll.in_counts ? ranks * sizeof(uint64_t) : 0;
		bytes += op[i].coll.out_counts ? ranks * sizeof(uint64_t) : 0;
	}
	r = malloc(bytes);
	if (!r)
		return NULL;
	memset(r, 0, sizeof *r);
	r->n = n;
	r->op = (struct op *)(r + 1);
	memcpy(r->op, op, n * sizeof *op);
	at = (char *)(r->op + n);
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
		r->op[i].name = keep(op[i].name, &at);
		r->op[i].shape = keep(op[i].shape, &at);
	}
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
	r->unit.first = atomic_load(&e->users) == 1;
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
	else if (e->pending >= ENGINE_PENDING_MOST)
		rc = engine_refuse(BERTH_MEMORY, r->op, why,
				   "too many operations are in flight");
	else
		engine_enter(e, r);
	e->submitter = this_thread();
	*work = r->beside || engine_bucket_is_here(e) ||
		atomic_exchange(&e->dozes, false);
	pthread_mutex_unlock(&e->queue);
	return rc;
}

berth_result engine_enter_new(struct engine *e, const struct op *op, size_t n,
			      struct berth_request **request, struct failure *why)
{
	struct berth_request *r = copy(op, n, e->comm->n);
	berth_result rc;
	bool work;

	if (!r)
		return engine_refuse(BERTH_MEMORY, op, why, "out of memory");
	r->engine = e;
	r->submitted_ns = clock_ns();
	r->deadline_ns = comm_deadline(e->comm, op);
	rc = enter(e, r, why, &work);
	if (rc) {
		free(r);
		return rc;
	}
	*request = r;
	if (work)
		engine_ring(e);
	return BERTH_OK;
}

berth_result engine_submit(struct engine *e, const struct op *op, size_t n,
			   struct berth_request **request, struct failure *why)
{
	if (e->comm->broken)
		return comm_broken(e->comm, why);
	if (!engine_start(e))
		return engine_no_thread(op, why);
	return engine_enter_new(e, op, n, request, why);
}

/* ---- waiting ---- */

/* RC of a request that is done. */
static berth_result outcome(const struct berth_request *r, struct failure *why)
{
	if (r->rc && r->why) {
		*why = *r->why;
	} else if (r->rc) {
		memset(why, 0, sizeof *why);
		why->rc = r->rc;
	}
	return r->rc;
}

/* True: nobody has before. */
static bool want(struct berth_request *r)
{
	uint64_t nobody = 0;

	return atomic_compare_exchange_strong(&r->wanted_ns, &nobody, clock_ns());
}

/* The thread that submitted last waits, and submits no more until R is done: what the
 * plan still lacks does not come.  (A step without one of 64 tensors: 1.2 ms less.) */
static void want_at_once(struct berth_request *r)
{
	struct engine *e = r->engine;

	pthread_mutex_lock(&e->queue);
	if (e->submitter == this_thread()) {
		atomic_store(&r->wanted_ns, 1);
		atomic_store(&e->again_ns, 0);
	}
	pthread_mutex_unlock(&e->queue);
}

/* What the plan holds back is done sooner if a thread waits for it. */
berth_result engine_poll(struct berth_request *r, struct failure *why)
{
	if (atomic_load(&r->done) == 1)
		return outcome(r, why);
	if (!atomic_load(&r->wanted_ns) && clock_ns() - r->submitted_ns > POLLED_NS &&
	    want(r))
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
			step = atomic_load(&r->done) == 1 ? ENGINE_IDLE
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
		engine_sleep(&r->done, 2, ns);
}

static bool is_done(struct berth_request *r)
{
	return atomic_load(&r->done) == 1;
}

/* R ends. */
static berth_result end(struct berth_request *r, struct failure *why)
{
	berth_result rc = outcome(r, why);

	engine_let_go(r->engine);
	free(r->why);
	free(r);
	return rc;
}

berth_result engine_wait(struct berth_request *r, int64_t timeout_ms,
			 struct failure *why)
{
	uint64_t until_ns = timeout_ms >= 0 ? clock_until(timeout_ms) : 0;

	if (!is_done(r)) {
		want(r);
		if (timeout_ms)
			want_at_once(r);
		if (until_ns) /* an operation's time has no limit: the thread does it */
			engine_ring(r->engine);
		else
			help(r->engine, r);
	}
	while (!is_done(r)) {
		uint64_t now = until_ns ? clock_ns() : 0;

		if (until_ns && now >= until_ns)
			return BERTH_BUSY;
		sleep_until_done(r, until_ns - now);
	}
	return end(r, why);
}

/* ---- waiting for one of several ---- */

static _Atomic uint32_t completions, any_waiters;

static size_t first_done(struct berth_request *const *r, size_t n)
{
	size_t i = 0;

	while (i < n && !(r[i] && is_done(r[i])))
		i++;
	return i;
}

static void want_all(struct berth_request *const *r, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (r[i] && want(r[i])) {
			want_at_once(r[i]);
			engine_ring(r[i]->engine);
		}
}

berth_result engine_wait_any(struct berth_request *const *r, size_t n,
			     int64_t timeout_ms, size_t *which, struct failure *why)
{
	uint64_t until_ns = timeout_ms >= 0 ? clock_until(timeout_ms) : 0, now = 0;

	atomic_fetch_add(&any_waiters, 1);
	*which = first_done(r, n);
	if (*which == n)
		want_all(r, n);
	for (;;) {
		uint32_t before = atomic_load(&completions);

		*which = first_done(r, n);
		now = until_ns ? clock_ns() : 0;
		if (*which < n || (until_ns && now >= until_ns))
			break;
		engine_sleep(&completions, before, until_ns - now);
	}
	atomic_fetch_sub(&any_waiters, 1);
	return *which < n ? end(r[*which], why) : BERTH_BUSY;
}

/* ---- the end of one ---- */

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
	if (atomic_load(&any_waiters)) {
		atomic_fetch_add(&completions, 1);
		engine_wake(&completions);
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
		while (!is_done(r)) /* who ends it is at that */
			sched_yield();
		rc = outcome(r, &why);
		call_back(done, ctx, rc, &why);
	} else if (want(r)) { /* the callback waits for it */
		engine_ring(r->engine);
	}
	return BERTH_OK;
}
