#include "lib/core/engine.h"

#include <linux/futex.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "lib/base/kern.h"
#include "lib/core/engine_internal.h"

enum {
	LOOK_NS = 50000000, /* at most, of who waits, to the next look */
	DOZE_NS = 10000000  /* of the thread, to the next one while there is work */
};

/* ---- sleeping ---- */

/* Until WORD is not VALUE any more, woken, or after NS (0: never). */
static void sleep_on(_Atomic uint32_t *word, uint32_t value, uint64_t ns)
{
	struct timespec t = { (time_t)(ns / 1000000000), (long)(ns % 1000000000) };

	syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, ns ? &t : NULL, NULL, 0);
}

static void ring(struct engine *e)
{
	atomic_fetch_add(&e->bell, 1);
	if (atomic_load(&e->asleep))
		engine_wake(&e->bell);
}

static void listen(struct engine *e, uint32_t heard, uint64_t ns)
{
	atomic_fetch_add(&e->asleep, 1);
	if (atomic_load(&e->bell) == heard)
		sleep_on(&e->bell, heard, ns);
	atomic_fetch_sub(&e->asleep, 1);
}

/* ---- the thread ---- */

/* What is submitted does not wake the thread as long as the plan expects it, so the
 * thread looks by itself while there is work.  Without work it sleeps until it is
 * woken. */
static uint64_t doze(struct engine *e, uint64_t *seen)
{
	uint64_t ns = 0;

	atomic_store(&e->dozes, true);
	pthread_mutex_lock(&e->queue);
	if (e->entered != *seen || e->pending) {
		*seen = e->entered;
		ns = DOZE_NS;
		atomic_store(&e->dozes, false);
	}
	pthread_mutex_unlock(&e->queue);
	return ns;
}

static void *serve(void *arg)
{
	struct engine *e = arg;
	uint64_t seen = 0;

	while (!atomic_load(&e->comm->aborted)) {
		uint32_t heard = atomic_load(&e->bell);
		enum engine_step step;
		uint64_t ns;

		pthread_mutex_lock(&e->work);
		do
			step = engine_step(e, &ns);
		while (step == ENGINE_DID && !atomic_load(&e->comm->aborted));
		pthread_mutex_unlock(&e->work);
		if (step == ENGINE_IDLE)
			ns = doze(e, &seen);
		if (!atomic_load(&e->comm->aborted))
			listen(e, heard, ns);
	}
	return NULL;
}

/* The caller's signals are not for this thread. */
static int start(struct engine *e)
{
	sigset_t all, before;
	int rc;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	rc = pthread_create(&e->thread, NULL, serve, e);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (!rc)
		pthread_setname_np(e->thread, "berth");
	return rc;
}

static unsigned forks;

void engine_in_child(void)
{
	forks++;
}

bool engine_has(const struct berth_request *r)
{
	return r->engine->forks == forks;
}

struct engine *engine_make(struct comm *c)
{
	struct engine *e = calloc(1, sizeof *e);

	if (!e)
		return NULL;
	e->users = 1;
	e->forks = forks;
	e->comm = c;
	e->last = &e->first;
	e->idle.coll.kind = BERTH_BARRIER;
	e->idle.name = "asynchronous operations";
	pthread_mutex_init(&e->work, NULL);
	pthread_mutex_init(&e->queue, NULL);
	e->list = calloc(ENGINE_PENDING_MOST, sizeof(struct berth_request *));
	e->piece = calloc(ENGINE_PIECES, sizeof *e->piece);
	if (!e->list || !e->piece || start(e)) {
		free(e->piece);
		free(e->list);
		free(e);
		return NULL;
	}
	return e;
}

/* Requests are users: who waits for one may look at the bell when all else is gone. */
static void let_go(struct engine *e)
{
	if (atomic_fetch_sub(&e->users, 1) > 1)
		return;
	pthread_mutex_destroy(&e->work);
	pthread_mutex_destroy(&e->queue);
	free(e);
}

void engine_free(struct engine *e)
{
	struct failure why = { .rc = BERTH_ABORTED };

	atomic_store(&e->comm->aborted, true);
	ring(e);
	pthread_join(e->thread, NULL);
	pthread_mutex_lock(&e->work); /* who waits may be at it still */
	snprintf(why.text, sizeof why.text, COMM_ENDED);
	engine_complete_all(e, BERTH_ABORTED, &why);
	pthread_mutex_unlock(&e->work);
	plan_free(&e->plan);
	if (e->fusion && e->fusion_is_heap)
		memory_free(&e->comm->world->memory, e->fusion);
	else
		free(e->fusion);
	free(e->lists);
	free(e->piece);
	free(e->list);
	let_go(e);
}

/* ---- submitting ---- */

/* One block: the request, its operations, their counts and names. */
static struct berth_request *copy(const struct op *op, size_t n, unsigned ranks)
{
	size_t bytes = sizeof(struct berth_request) + n * sizeof *op;
	struct berth_request *r;
	char *at;

	for (size_t i = 0; i < n; i++) {
		bytes += op[i].name ? strlen(op[i].name) + 1 : 0;
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
	for (size_t i = 0; i < n; i++)
		if (op[i].name) {
			size_t length = strlen(op[i].name) + 1;

			r->op[i].name = memcpy(at, op[i].name, length);
			at += length;
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

static berth_result refuse(berth_result rc, const struct op *op, struct failure *why,
			   const char *text)
{
	memset(why, 0, sizeof *why);
	why->rc = rc;
	snprintf(why->tensor, sizeof why->tensor, "%s", op->name ? op->name : "");
	snprintf(why->text, sizeof why->text, "%s", text);
	return rc;
}

/* Its address says which thread it is. */
static const void *this_thread(void)
{
	static _Thread_local char here;

	return &here;
}

static berth_result enter_new(struct engine *e, struct berth_request *r,
			      struct failure *why, bool *work)
{
	berth_result rc = BERTH_OK;

	pthread_mutex_lock(&e->queue);
	describe(e, r);
	if (engine_find(e, r->unit.key))
		rc = refuse(BERTH_INVALID, r->op, why,
			    "an operation of that name is in flight");
	else if (e->pending >= ENGINE_PENDING_MOST)
		rc = refuse(BERTH_MEMORY, r->op, why,
			    "too many operations are in flight");
	else
		engine_enter(e, r);
	e->submitter = this_thread();
	*work = r->beside || engine_bucket_is_here(e) ||
		atomic_exchange(&e->dozes, false);
	pthread_mutex_unlock(&e->queue);
	return rc;
}

berth_result engine_submit(struct engine *e, const struct op *op, size_t n,
			   struct berth_request **request, struct failure *why)
{
	struct berth_request *r;
	berth_result rc;
	bool work;

	if (e->comm->broken)
		return comm_broken(e->comm, why);
	r = copy(op, n, e->comm->n);
	if (!r)
		return refuse(BERTH_MEMORY, op, why, "out of memory");
	r->engine = e;
	r->submitted_ns = clock_ns();
	r->deadline_ns = comm_deadline(e->comm, op);
	rc = enter_new(e, r, why, &work);
	if (rc) {
		free(r);
		return rc;
	}
	*request = r;
	if (work)
		ring(e);
	return BERTH_OK;
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

berth_result engine_poll(struct berth_request *r, struct failure *why)
{
	if (atomic_load(&r->done) == 1)
		return outcome(r, why);
	sched_yield(); /* who does it may need this core */
	if (want(r))   /* the plan may keep it from being done */
		ring(r->engine);
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
		ring(e);
}

/* Until R is done, or for NS (0: however long). */
static void sleep_until_done(struct berth_request *r, uint64_t ns)
{
	uint32_t waits = 0;

	atomic_compare_exchange_strong(&r->done, &waits, 2);
	if (waits != 1)
		sleep_on(&r->done, 2, ns);
}

berth_result engine_wait(struct berth_request *r, int64_t timeout_ms,
			 struct failure *why)
{
	uint64_t until_ns = timeout_ms >= 0 ? clock_until(timeout_ms) : 0;
	berth_result rc;

	if (atomic_load(&r->done) != 1) {
		want(r);
		if (timeout_ms)
			want_at_once(r);
		if (until_ns) /* an operation's time has no limit: the thread does it */
			ring(r->engine);
		else
			help(r->engine, r);
	}
	while (atomic_load(&r->done) != 1) {
		uint64_t now = until_ns ? clock_ns() : 0;

		if (until_ns && now >= until_ns)
			return BERTH_BUSY;
		sleep_until_done(r, until_ns - now);
	}
	rc = outcome(r, why);
	let_go(r->engine);
	free(r->why);
	free(r);
	return rc;
}

/* ---- joining, counting ---- */

void engine_join_begin(struct engine *e)
{
	pthread_mutex_lock(&e->queue);
	e->joined = true;
	pthread_mutex_unlock(&e->queue);
	ring(e);
}

static bool has_joined(struct engine *e)
{
	bool joined;

	pthread_mutex_lock(&e->queue);
	joined = e->joined;
	pthread_mutex_unlock(&e->queue);
	return joined;
}

berth_result engine_join_wait(struct engine *e, uint64_t *taken, struct failure *why)
{
	for (;;) {
		uint32_t before = atomic_load(&e->all_joined);

		if (!has_joined(e)) {
			*taken += e->taken; /* of who holds WORK: nobody does more */
			e->taken = 0;
			return BERTH_OK;
		}
		if (e->comm->broken)
			return comm_broken(e->comm, why);
		if (atomic_load(&e->comm->aborted))
			return refuse(BERTH_ABORTED, &e->idle, why, COMM_ENDED);
		sleep_on(&e->all_joined, before, LOOK_NS);
	}
}

void engine_counts(struct engine *e, struct engine_count *sum)
{
	sum->operations += trace_counted(&e->count.operations);
	sum->bytes += trace_counted(&e->count.bytes);
	sum->fused += trace_counted(&e->count.fused);
	sum->negotiations += trace_counted(&e->count.negotiations);
	sum->errors += trace_counted(&e->count.errors);
	sum->stalls += trace_counted(&e->comm->count.stalls);
	sum->wait_ns += trace_counted(&e->comm->count.wait_ns);
}
