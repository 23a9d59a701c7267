#include "lib/core/messages.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/callback.h"
#include "lib/base/kern.h"
#include "lib/base/sleep.h"
#include "lib/base/thread.h"
#include "lib/core/fault.h"
#include "lib/core/missing.h"
#include "lib/core/world.h"

/* From one look of the thread at what is in flight to the next: a rank that waits for
 * its messages itself is not disturbed. */
enum {
	DOZE_NS = 2000000,
	RETIRE_NS = 2000000000, /* with nothing to do, until the thread ends */
	/* between two steps of telling others; twice as long after each */
	TELL_NS = 1000000,
	TELL_MOST_NS = 64000000,
	TELL_LAST_NS = 200000000 /* of a rank that removes the set, in all */
};

struct messages {
	struct comm *comm;
	struct p2p *p2p;
	pthread_mutex_t starting; /* guards THREAD, STARTED and RETIRED */
	pthread_t thread;
	bool started, retired; /* RETIRED: it holds no lock any more */
	_Atomic bool runs;     /* the thread, for a caller whose use has begun */
	_Atomic uint32_t in_flight, bell, uses;
	_Atomic bool dozes, stopped;
	_Atomic bool aborts; /* others are to be told */
};

/* ---- the thread ---- */

static void messages_ring(struct messages *m)
{
	atomic_fetch_add(&m->bell, 1);
	sleep_wake(&m->bell);
}

static bool nothing_left(void *ctx)
{
	const struct messages *m = ctx;

	return (!atomic_load(&m->in_flight) && !p2p_owes(m->p2p)) ||
	       atomic_load(&m->stopped);
}

/* A rank that has aborted the set tells the others.  If it removes the set at once, it
 * has little time. */
static void tell_abort(struct messages *m)
{
	uint64_t ns = TELL_NS, last_ns = TELL_LAST_NS;
	bool stopped;

	for (;;) {
		uint32_t heard = atomic_load(&m->bell);

		stopped = atomic_load(&m->stopped);
		if (p2p_abort(m->p2p, m->comm->shared->why) || (stopped && !last_ns))
			return;
		sleep_on(&m->bell, heard, ns);
		if (stopped)
			last_ns -= ns < last_ns ? ns : last_ns;
		ns = ns < TELL_MOST_NS ? 2 * ns : TELL_MOST_NS;
	}
}

/* The thread has slept since it HEARD the bell, and is to end.  DOZES stays true. */
static bool messages_retire(struct messages *m, uint32_t heard)
{
	bool retires;

	pthread_mutex_lock(&m->starting);
	atomic_store(&m->runs, false); /* before a look at who has found that it does */
	retires = atomic_load(&m->bell) == heard && !atomic_load(&m->uses) &&
		  nothing_left(m);
	m->retired = retires;
	atomic_store(&m->runs, !retires);
	pthread_mutex_unlock(&m->starting);
	return retires;
}

static void *messages_serve(void *arg)
{
	struct messages *m = arg;

	while (!atomic_load(&m->stopped)) {
		uint32_t heard = atomic_load(&m->bell);

		atomic_store(&m->dozes, true);
		if (atomic_exchange(&m->aborts, false)) {
			tell_abort(m);
			continue;
		}
		if (nothing_left(m)) {
			sleep_on(&m->bell, heard, RETIRE_NS);
			if (messages_retire(m, heard))
				break;
			continue;
		}
		atomic_store(&m->dozes, false);
		sleep_on(&m->bell, heard, DOZE_NS);
		messages_wait(m, nothing_left, m, 0);
	}
	return NULL;
}

bool messages_start(struct messages *m)
{
	bool started;

	if (atomic_load(&m->runs))
		return true;
	pthread_mutex_lock(&m->starting);
	if (m->retired) {
		pthread_join(m->thread, NULL);
		m->started = m->retired = false;
	}
	if (!m->started)
		m->started =
			p2p_ready(m->p2p) &&
			thread_start(&m->thread, "berth messages", messages_serve, m);
	started = m->started;
	atomic_store(&m->runs, started);
	pthread_mutex_unlock(&m->starting);
	return started;
}

/* ---- making, freeing ---- */

static berth_result messages_look(void *ctx)
{
	const struct comm *c = ((struct messages *)ctx)->comm;

	return atomic_load(&c->aborted) || atomic_load(&c->aborts) ||
			       atomic_load(&c->shared->aborted)
		       ? BERTH_ABORTED
		       : BERTH_OK;
}

static void hear_abort(void *ctx, unsigned place, const char *why)
{
	comm_hear_abort(((struct messages *)ctx)->comm, place, why);
}

static bool is_lost(void *ctx, unsigned place)
{
	return missing_has_ended(((struct messages *)ctx)->comm, place);
}

void messages_decline(const struct comm *c)
{
	if (c->messages_region)
		p2p_decline(c->messages_region, c->members->local_me);
}

static struct p2p *messages_join(struct messages *m)
{
	struct comm *c = m->comm;
	struct p2p_config config = { .members = c->members,
				     .region = c->messages_region,
				     .net = c->messages_net,
				     .look = messages_look,
				     .is_lost = is_lost,
				     .aborted = hear_abort,
				     .ctx = m,
				     .cores = c->world->cores };

	return p2p_join(&config);
}

static void messages_destroy(struct messages *m)
{
	pthread_mutex_destroy(&m->starting);
	free(m);
}

struct messages *messages_make(struct comm *c)
{
	struct messages *m = calloc(1, sizeof *m);

	if (!m)
		return NULL;
	m->comm = c;
	pthread_mutex_init(&m->starting, NULL);
	m->p2p = messages_join(m);
	if (m->p2p) {
		c->messages_net = NULL;
		return m;
	}
	messages_destroy(m);
	return NULL;
}

void messages_enter(struct messages *m)
{
	atomic_fetch_add(&m->uses, 1);
}

void messages_leave(struct messages *m)
{
	atomic_fetch_sub(&m->uses, 1);
}

void messages_stop(struct messages *m)
{
	atomic_store(&m->stopped, true);
	p2p_end(m->p2p, BERTH_ABORTED);
	p2p_wake(m->p2p);
	messages_ring(m);
}

void messages_free(struct messages *m)
{
	while (atomic_load(&m->uses)) /* of who has been woken */
		nanosleep(&(struct timespec){ .tv_nsec = 50000 }, NULL);
	if (m->started)
		pthread_join(m->thread, NULL);
	p2p_leave(m->p2p);
	messages_destroy(m);
}

/* ---- the end of the set ---- */

void messages_abort(struct messages *m)
{
	p2p_end(m->p2p, BERTH_ABORTED);
	p2p_wake(m->p2p);
	atomic_store(&m->aborts, true);
	messages_ring(m);
}

void messages_hear(struct messages *m)
{
	p2p_progress(m->p2p);
}

void messages_tidy(struct messages *m)
{
	bool is_used;

	pthread_mutex_lock(&m->starting);
	is_used = atomic_load(&m->uses) || (m->started && !m->retired);
	pthread_mutex_unlock(&m->starting);
	if (!is_used)
		p2p_tidy(m->p2p);
}

/* ---- waiting ---- */

void messages_wait(struct messages *m, bool (*is_over)(void *ctx), void *ctx,
		   uint64_t until_ns)
{
	do {
		p2p_wait(m->p2p, is_over, ctx, until_ns);
		if (messages_look(m))
			p2p_end(m->p2p, BERTH_ABORTED);
	} while (!is_over(ctx) && (!until_ns || clock_ns() < until_ns));
}

void messages_wake(struct messages *m)
{
	p2p_wake(m->p2p);
}

/* ---- how one ends ---- */

static void say_difference(const struct message *m, char *text, size_t bytes,
			   const char *words)
{
	const struct comm *c = m->messages->comm;
	const struct p2p_message *p = &m->p2p;
	size_t size = kern_size(m->op->coll.type);

	if (p->sends)
		snprintf(text, bytes,
			 "%s: the receive has another type, or too little room", words);
	else if (p->got > p->bytes)
		snprintf(text, bytes,
			 "%s: rank %u sent %llu elements, and there is room for %llu",
			 words, c->members->rank[p->from],
			 (unsigned long long)(p->got / size),
			 (unsigned long long)(p->bytes / size));
	else
		snprintf(text, bytes, "%s: rank %u sent another type", words,
			 c->members->rank[p->from]);
}

static void messages_say_why(const struct message *m, berth_result rc,
			     struct failure *why)
{
	const struct comm *c = m->messages->comm;
	const struct op *op = m->op;
	const struct net_fault *f =
		p2p_fault(m->messages->p2p, op->peer == BERTH_ANY ? P2P_ANY : op->peer);
	char words[OP_WORDS_BYTES], cut[200];

	memset(why, 0, sizeof *why);
	why->rc = rc;
	snprintf(why->tensor, sizeof why->tensor, "%s", op->name ? op->name : "");
	op_words(words, sizeof words, op);
	if ((rc == BERTH_PEER_LOST || rc == BERTH_TIMEOUT) && op->peer != BERTH_ANY) {
		why->missing[why->nmissing++] = c->members->rank[op->peer];
		*cut = '\0';
		if (rc == BERTH_PEER_LOST)
			fault_say_cut(c, f, *why->missing, cut, sizeof cut);
		snprintf(why->text, sizeof why->text, "%s: rank %u on '%s' %s%s", words,
			 c->members->rank[op->peer],
			 boot_host_name(&c->world->who, c->members->rank[op->peer]),
			 rc == BERTH_TIMEOUT ? "did not come in time" : "has ended",
			 cut);
	} else if (rc == BERTH_AUTH) {
		fault_say(c, f, why, words);
	} else if (rc == BERTH_MISMATCH) {
		say_difference(m, why->text, sizeof why->text, words);
	} else if (rc == BERTH_ABORTED) {
		comm_say_end(c, why, words);
	} else {
		snprintf(why->text, sizeof why->text, "%s: %s", words,
			 berth_result_text(rc));
	}
}

static void messages_give(const struct message *m)
{
	const struct op *op = m->op;
	const struct p2p_message *p = &m->p2p;

	if (op->received)
		*op->received = p->got / kern_size(op->coll.type);
	if (op->from)
		*op->from = (int)p->from;
}

static void messages_done(struct p2p_message *p)
{
	struct message *m = p->ctx;
	struct messages *all = m->messages;
	struct failure why;

	if (!p->rc && !p->sends)
		messages_give(m);
	if (p->rc)
		messages_say_why(m, p->rc, &why);
	/* before the last look at M, which may be freed by its owner at once */
	atomic_fetch_sub(&all->in_flight, 1);
	m->done(m, p->rc, &why);
}

/* ---- how it begins ---- */

/* Memory of the library's, for berth_free(). */
static void *messages_make_room(void *ctx, uint64_t bytes)
{
	const struct message *m = ctx;
	void *p = memory_give(&m->messages->comm->world->memory, bytes);

	*m->op->made = p;
	return p;
}

static void *ask_for_room(void *ctx, uint64_t bytes)
{
	const struct op *op = ((const struct message *)ctx)->op;
	void *p;

	callback_begin();
	p = op->alloc(op->alloc_ctx, bytes);
	callback_end();
	return p;
}

static void messages_fill(struct message *m, uint64_t deadline_ns)
{
	const struct op *op = m->op;
	const size_t size = kern_size(op->coll.type);
	const bool sends = op->coll.kind == BERTH_SEND;

	m->p2p = (struct p2p_message){
		.sends = sends,
		.peer = op->peer,
		.tag = op->tag,
		.signature = (uint32_t)op->coll.type,
		.in = op->coll.in,
		.out = op->coll.out,
		.bytes = sends ? op->coll.count * size : op->room * size,
		.deadline_ns = deadline_ns,
		.done = messages_done,
		.ctx = m,
	};
	if (!sends && op->room == UINT64_MAX) {
		m->p2p.bytes = 0;
		m->p2p.alloc = op->alloc ? ask_for_room : messages_make_room;
		m->p2p.alloc_ctx = m;
	}
}

void messages_post(struct messages *m, struct message *message, size_t n,
		   uint64_t deadline_ns)
{
	berth_result rc = BERTH_OK;

	atomic_fetch_add(&m->in_flight, (uint32_t)n);
	for (size_t i = 0; i < n; i++) {
		message[i].messages = m;
		messages_fill(&message[i], deadline_ns);
		if (!rc)
			rc = p2p_post(m->p2p, &message[i].p2p, 1);
		if (rc) {
			message[i].p2p.rc = rc;
			messages_done(&message[i].p2p);
		}
	}
	if (atomic_exchange(&m->dozes, false))
		messages_ring(m);
}
