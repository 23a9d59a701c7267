#include "lib/core/request.h"

#include <inttypes.h>
#include <sched.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/apart.h"
#include "lib/base/callback.h"
#include "lib/base/clock.h"
#include "lib/base/kern.h"
#include "lib/base/sleep.h"
#include "lib/core/comm.h"
#include "lib/core/comm_device.h"
#include "lib/core/works.h"
#include "lib/core/world.h"

enum {
	LATE_NS = 200000000, /* a device's work, after its deadline */
	ALIGN = 64,          /* of the requests of a block */
	NAME_BYTES = 64,     /* of each, at a rough guess */
	BLOCK_MOST = 256,    /* requests: while one is there, so is its block */
	BLOCK_OPEN = 1 << 30
};

/* Memory of requests that one call makes. */
struct request_block {
	/* the requests that are there, and BLOCK_OPEN less TAKEN until it is closed */
	_Atomic uint32_t users;
	uint32_t taken;
	uint64_t now_ns;
	size_t left; /* from AT on */
	unsigned char *at;
	_Alignas(ALIGN) unsigned char room[];
};

struct request_completions request_completions;

/* ---- making ---- */

static size_t request_text_bytes(const char *text)
{
	return text ? strlen(text) + 1 : 0;
}

/* TEXT, or NULL, to *AT, which goes on behind it. */
static const char *request_keep(const char *text, char **at)
{
	size_t bytes = request_text_bytes(text);
	char *to = *at;

	if (text)
		memcpy(to, text, bytes);
	*at += bytes;
	return text ? to : NULL;
}

size_t request_count_messages(const struct op *op, size_t n)
{
	size_t messages = 0;

	for (size_t i = 0; i < n; i++)
		messages += op_is_message(&op[i]);
	return messages;
}

/* Copies all that the operations point to, behind them at AT. */
static void request_keep_all(struct berth_request *r, size_t n, unsigned ranks,
			     char *at)
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
		r->op[i].name = request_keep(r->op[i].name, &at);
		r->op[i].shape = request_keep(r->op[i].shape, &at);
	}
}

/* Collectives first, then messages. */
static void request_sort_kinds(struct berth_request *r, const struct op *op, size_t n)
{
	size_t at = 0;

	for (size_t i = 0; i < n; i++)
		if (!op_is_message(&op[i]))
			r->op[at++] = op[i];
	for (size_t i = 0; i < n; i++)
		if (op_is_message(&op[i]))
			r->op[at++] = op[i];
}

/* As malloc(), if there is no block, or not so much left of it. */
static struct berth_request *request_take_room(struct request_block *b, size_t bytes)
{
	struct berth_request *r = b && bytes <= b->left ? (void *)b->at : malloc(bytes);
	const bool is_of_block = b && (void *)r == b->at;

	if (!r)
		return NULL;
	memset(r, 0, sizeof *r);
	if (!is_of_block)
		return r;
	bytes = (bytes + ALIGN - 1) / ALIGN * ALIGN;
	b->left -= bytes < b->left ? bytes : b->left;
	b->at += bytes;
	b->taken++;
	r->block = b;
	return r;
}

static void request_give_room(struct berth_request *r)
{
	struct request_block *b = r->block;

	if (!b)
		free(r);
	else if (atomic_fetch_sub(&b->users, 1) == 1)
		free(b);
}

struct request_block *request_block_make(size_t n)
{
	const size_t each = (sizeof(struct berth_request) + sizeof(struct op) +
			     sizeof(struct work *) + NAME_BYTES + ALIGN - 1) /
			    ALIGN * ALIGN;
	struct request_block *b =
		n <= BLOCK_MOST ? aligned_alloc(ALIGN, sizeof *b + n * each) : NULL;

	if (!b)
		return NULL;
	b->users = BLOCK_OPEN;
	b->taken = 0;
	b->left = n * each;
	b->at = b->room;
	b->now_ns = clock_ns();
	return b;
}

void request_block_close(struct request_block *b)
{
	const uint32_t unused = BLOCK_OPEN - b->taken;

	if (atomic_fetch_sub(&b->users, unused) == unused)
		free(b);
}

struct berth_request *request_make(struct berth_set *s, const struct op *op, size_t n,
				   struct request_block *block)
{
	const unsigned ranks = s->members.n;
	const size_t messages = request_count_messages(op, n);
	size_t bytes = sizeof(struct berth_request) + n * sizeof *op +
		       messages * sizeof(struct message);
	struct berth_request *r;
	size_t devices = 0, bounced = 0;

	for (size_t i = 0; i < n; i++) {
		devices += op_is_device(&op[i]) && !op_is_message(&op[i]);
		bounced += op_is_device(&op[i]) && op_is_message(&op[i]);
		bytes += request_text_bytes(op[i].name) +
			 request_text_bytes(op[i].shape);
		bytes += op[i].coll.in_counts ? ranks * sizeof(uint64_t) : 0;
		bytes += op[i].coll.out_counts ? ranks * sizeof(uint64_t) : 0;
	}
	r = request_take_room(block, bytes + devices * sizeof *r->work);
	if (!r)
		return NULL;
	r->nbounced = bounced;
	r->ndevice = devices;
	r->n = n - messages;
	r->nmessages = messages;
	r->parts = (r->n > 0) + (uint32_t)messages;
	r->message = (struct message *)(r + 1);
	r->op = (struct op *)(r->message + messages);
	r->work = (struct work **)(r->op + n);
	request_sort_kinds(r, op, n);
	request_keep_all(r, n, ranks, (char *)(r->work + devices));
	r->set = s;
	r->submitted_ns = block ? block->now_ns : clock_ns();
	r->deadline_ns = comm_deadline(&s->comm, op);
	atomic_fetch_add(&s->users, 1);
	return r;
}

void request_describe(struct berth_request *r)
{
	struct berth_set *s = r->set;
	const struct op *first = r->op;
	uint64_t key = r->n, signature = 0, alike = 0, fuse_key;
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
		r->unit.number = ++s->unnamed;
		key = plan_number_key(r->unit.number);
	}
	r->unit.first = atomic_load(&s->collectives) == 0;
	r->unit.key = key;
	r->unit.signature = (uint32_t)(signature >> 32);
	for (size_t i = 0; r->ndevice && i < r->n; i++) {
		const uint32_t one = op_alike(&r->op[i]);

		alike = op_hash(&one, sizeof one, alike);
	}
	r->unit.alike = (uint32_t)((r->ndevice ? alike : signature) >> 33) & 0x7fffffff;
	r->unit.fuse_key = fuse_key;
}

void request_mix(struct berth_request *r)
{
	for (size_t i = 0; i < r->n; i++)
		op_mix_memories(&r->op[i]);
	r->unit.fuse_key = 0; /* its operations go one by one */
}

berth_result request_refuse(berth_result rc, const struct op *op, struct failure *why,
			    const char *text)
{
	memset(why, 0, sizeof *why);
	why->rc = rc;
	snprintf(why->tensor, sizeof why->tensor, "%s", op->name ? op->name : "");
	snprintf(why->text, sizeof why->text, "%s", text);
	return rc;
}

static void request_forget_ops(struct op *op, size_t n)
{
	for (size_t k = 0; k < n; k++)
		if (op_is_device(&op[k]))
			comm_device_forget(&op[k]);
}

void request_drop(struct berth_request *r, bool keeps_mark)
{
	if (request_is_on_device(r) && !keeps_mark)
		request_forget_ops(r->op, r->n + r->nmessages);
	set_let_go(r->set);
	request_give_room(r);
}

/* ---- of which process ---- */

static unsigned forks;

void request_in_child(void)
{
	forks++;
}

unsigned request_forks(void)
{
	return forks;
}

bool request_is_ours(const struct berth_request *r)
{
	return r->set->forks == forks;
}

/* ---- states ---- */

void request_become(struct berth_request *r, enum request_state state)
{
	uint32_t before = atomic_load(&r->state);

	while (!atomic_compare_exchange_weak(&r->state, &before,
					     state | (before & REQUEST_SLEEPS)))
		;
}

void request_launched(struct berth_request *r)
{
	if (atomic_exchange(&r->state, REQUEST_RUNNING) & REQUEST_SLEEPS)
		sleep_wake(&r->state);
}

void request_sleep(struct berth_request *r, enum request_state state, uint64_t ns)
{
	uint32_t before = atomic_load(&r->state);

	if ((before & ~(uint32_t)REQUEST_SLEEPS) >= state)
		return;
	if (atomic_compare_exchange_strong(&r->state, &before, before | REQUEST_SLEEPS))
		sleep_on(&r->state, before | REQUEST_SLEEPS, ns);
}

/* ---- for people ---- */

__attribute__((format(printf, 4, 5))) static size_t
request_add(char *text, size_t bytes, size_t at, const char *fmt, ...)
{
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(text + at, bytes - at, fmt, ap);
	va_end(ap);
	return n < 0 ? at : at + (size_t)n < bytes ? at + (size_t)n : bytes - 1;
}

static const char *const request_state_name[REQUEST_STATES] = { "new", "queued",
								"promised", "running",
								"done" };

void request_text(char *text, size_t bytes, const struct berth_request *r)
{
	const enum request_state state = request_state(r);
	const uint64_t now = clock_ns(), wanted = atomic_load(&r->wanted_ns);
	const size_t others = r->n + r->nmessages - 1;
	size_t at = 0;
	char words[OP_WORDS_BYTES];

	op_words(words, sizeof words, r->op);
	at = request_add(text, bytes, at, "%s", words);
	if (others)
		at = request_add(text, bytes, at, ", and %zu other%s", others,
				 others > 1 ? "s" : "");
	at = request_add(text, bytes, at, ": %s", request_state_name[state]);
	if (state == REQUEST_DONE) {
		request_add(text, bytes, at, ", %s", berth_result_text(r->rc));
		return;
	}
	if (r->submitted_ns)
		at = request_add(text, bytes, at, ", submitted %.3f s ago",
				 (double)(now - r->submitted_ns) / 1e9);
	if (state == REQUEST_QUEUED && r->beside)
		at = request_add(text, bytes, at, ", not expected by the plan");
	if (r->nmessages || r->nworks)
		at = request_add(text, bytes, at, ", %" PRIu32 " parts are not done",
				 atomic_load(&r->parts));
	if (wanted)
		at = request_add(text, bytes, at, ", a thread waits for it");
	if (r->deadline_ns)
		request_add(text, bytes, at, ", its time is over in %.3f s",
			    ((double)r->deadline_ns - (double)now) / 1e9);
}

void request_print(const struct berth_request *r)
{
	char text[OP_WORDS_BYTES + 256];

	request_text(text, sizeof text, r);
	fprintf(stderr, "%s\n", text);
}

/* ---- waiting ---- */

bool request_want(struct berth_request *r)
{
	uint64_t nobody = 0;

	return atomic_compare_exchange_strong(&r->wanted_ns, &nobody, clock_ns());
}

berth_result request_outcome(const struct berth_request *r, struct failure *why)
{
	if (r->rc && r->why) {
		*why = *r->why;
	} else if (r->rc) {
		memset(why, 0, sizeof *why);
		why->rc = r->rc;
	}
	return r->rc;
}

berth_result request_free(struct berth_request *r, struct failure *why)
{
	berth_result rc = request_outcome(r, why);

	if (request_calling == r)
		request_calling = NULL;
	if (r->n)
		atomic_fetch_sub(&r->set->collectives, 1);
	for (size_t i = 0; i < r->nworks; i++)
		works_let_go(r->work[i]);
	set_let_go(r->set);
	free(r->why);
	request_give_room(r);
	return rc;
}

/* ---- callbacks ---- */

enum { NO_CALLBACK, CALLBACK, OVER };

_Thread_local struct berth_request *request_calling;

/* In a thread of the caller's, or apart.  True: R is still there. */
static bool request_call_back(struct berth_request *r)
{
	struct berth_request *before = request_calling;
	bool is_there;

	comm_note_failure(r->rc, r->why);
	request_calling = r;
	callback_begin();
	r->then(r->then_ctx, r->rc);
	callback_end();
	is_there = request_calling;
	request_calling = before;
	return is_there;
}

berth_result request_then(struct berth_request *r,
			  void (*done)(void *ctx, berth_result rc), void *ctx)
{
	if (r->then)
		return BERTH_STATE;
	r->then = done;
	r->then_ctx = ctx;
	if (request_want(r)) /* the callback waits for it, and may end it */
		set_ring(r->set);
	if (atomic_exchange(&r->callback, CALLBACK) == OVER) {
		while (!request_is_done(r)) /* who ends it is at that */
			sched_yield();
		request_call_back(r);
	}
	return BERTH_OK;
}

/* ---- the end of one ---- */

/* The request of STATE is done and may have been freed.  A thread that sleeps there
 * then is woken for nothing. */
static void request_wake_later(struct request_wakes *wakes, _Atomic uint32_t *state)
{
	const unsigned most = sizeof wakes->word / sizeof *wakes->word;

	if (wakes && wakes->n < most)
		wakes->word[wakes->n++] = state;
	else
		sleep_wake(state);
}

/* As soon as R is DONE, its owner may free it, and with it the set. */
static void request_is_over(struct berth_request *r, struct request_wakes *later)
{
	struct berth_set *s = r->set;
	/* who waits for it may be in messages_wait() */
	struct messages *m = r->nmessages ? s->world->messages : NULL;

	if (atomic_exchange(&r->state, REQUEST_DONE) & REQUEST_SLEEPS)
		request_wake_later(later, &r->state);
	if (m)
		messages_wake(m);
	if (atomic_load(&request_completions.waiters)) {
		atomic_fetch_add(&request_completions.count, 1);
		sleep_wake(&request_completions.count);
	}
}

/* Requests that end together, from R on, each when its callback has returned. */
static void request_call_all(void *first)
{
	struct berth_request *next;

	for (struct berth_request *r = first; r; r = next) {
		next = r->next;
		if (request_call_back(r))
			request_is_over(r, NULL);
	}
}

void request_wake(struct request_wakes *wakes)
{
	while (wakes->n)
		sleep_wake(wakes->word[--wakes->n]);
	if (wakes->first) /* it may take its time */
		apart_call(request_call_all, wakes->first);
}

void request_end(struct berth_request *r, berth_result rc, const struct failure *why,
		 struct request_wakes *wakes)
{
	if (rc && !atomic_exchange(&r->failed, 1)) {
		r->rc = rc;
		r->why = malloc(sizeof *r->why);
		if (r->why)
			*r->why = *why;
	}
	if (atomic_fetch_sub(&r->parts, 1) != 1)
		return;
	if (atomic_exchange(&r->callback, OVER) != CALLBACK) {
		request_is_over(r, wakes);
		return;
	}
	r->next = NULL;
	if (!wakes)
		apart_call(request_call_all, r);
	else if (wakes->first)
		wakes->last->next = r;
	else
		wakes->first = r;
	if (wakes)
		wakes->last = r;
}

void request_message_done(struct message *m, berth_result rc, const struct failure *why)
{
	request_end(m->owner, rc, why, NULL);
}

/* ---- works on devices ---- */

static void request_work_is_over(struct work *w)
{
	struct request_wakes wakes = { .n = 0 };

	for (size_t i = 0; i < w->nrequests; i++) {
		struct failure none = { .rc = w->rc };

		request_end(w->request[i], w->rc, w->why ? w->why : &none, &wakes);
	}
	request_wake(&wakes);
}

/* A rank of another host would see only that connections end, and not why. */
static void request_work_failed(struct work *w, const char *why)
{
	comm_say_abort(w->comm, why);
	messages_abort(w->comm);
	set_ring(set_of(w->comm));
}

/* A work that waits for its marks has time: they pass when the device has done what the
 * program gave it before. */
static uint64_t request_work_deadline(const struct work *w)
{
	if (atomic_load(&w->state) < WORK_RUNS)
		return w->deadline_ns;
	return w->runs_ns && w->limit_ns ? w->runs_ns + w->limit_ns : 0;
}

/* A thread that holds the set's WORK looks by itself.  If it waits there without a
 * deadline, it would not see that the deadline of this work is over. */
static void request_watch_work(struct work *w)
{
	struct berth_set *s = set_of(w->comm);
	const uint64_t deadline_ns = request_work_deadline(w);
	berth_result rc;

	if (w->comm->broken)
		return;
	if (!pthread_mutex_trylock(&s->work)) {
		rc = comm_watch(w->comm, w->op, w->runs_ns ? w->runs_ns : clock_ns(),
				deadline_ns);
		w->comm->op = &s->idle;
		set_release(s);
		if (rc) { /* also of a rank that leaves */
			atomic_store(&w->of->stopped, true);
			set_ring(s);
		}
	} else if (deadline_ns && clock_ns() > deadline_ns + LATE_NS) {
		request_work_failed(w, "an operation on a device was not done in time");
	}
}

void request_attach(struct work *w, struct berth_request **r, size_t n)
{
	w->nrequests = n;
	for (size_t i = 0; i < n; i++) {
		w->request[i] = r[i];
		r[i]->work[r[i]->nworks++] = w;
		works_hold(w);
		atomic_fetch_add(&r[i]->parts, 1);
	}
}

void request_detach(struct work *w)
{
	for (size_t i = 0; i < w->nrequests; i++) {
		w->request[i]->nworks--;
		works_let_go(w);
		atomic_fetch_sub(&w->request[i]->parts, 1);
	}
}

static void request_work_begins(struct work *w)
{
	struct berth_set *s = set_of(w->comm);

	if (s->beginning)
		request_attach(w, &s->beginning, 1);
}

const struct work_hooks request_works = { .begins = request_work_begins,
					  .withdrawn = request_detach,
					  .over = request_work_is_over,
					  .watch = request_watch_work,
					  .failed = request_work_failed };

berth_result request_mark(struct berth_request *r, const struct op **before,
			  const char **why)
{
	berth_result rc = BERTH_OK;

	for (size_t k = 0; !rc && k < r->n + r->nmessages; k++) {
		struct op *op = &r->op[k];

		if (!op_is_device(op) || op->marked)
			continue;
		rc = comm_device_mark(&r->set->comm, op, *before, why);
		*before = op;
	}
	return rc;
}

void request_forget(struct berth_request *r)
{
	if (r->ndevice)
		request_forget_ops(r->op, r->n);
}
