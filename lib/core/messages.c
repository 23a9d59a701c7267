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

enum {
	/* From one look of the thread at what is in flight to the next: a rank that
	 * waits for its messages itself is not disturbed. */
	DOZE_NS = 2000000,
	/* With connections and nothing in flight, the thread waits for what peers say,
	 * if no message was posted for so long. */
	QUIET_NS = 50000000,
	RETIRE_NS = 2000000000, /* with nothing to do, until the thread ends */
	CALL_NS = 1000000 /* a function of the caller's is slow if it takes longer */
};

struct messages {
	struct world *world;
	struct p2p *p2p;
	pthread_mutex_t starting; /* guards THREAD, STARTED and RETIRED, of both */
	pthread_t thread;
	bool started, retired; /* RETIRED: it holds no lock any more */
	/* makes progress while the thread is in a slow function of the caller's */
	struct {
		pthread_t thread;
		bool started, retired;
		_Atomic bool dozes; /* until a call begins */
	} relief;
	_Atomic uint32_t calls; /* of such functions; odd: the thread is in one */
	_Atomic bool runs;      /* the thread, for a caller whose use has begun */
	_Atomic uint32_t in_flight, bell, uses;
	_Atomic uint32_t posts; /* how many there were */
	_Atomic bool dozes, stopped;
};

/* ---- in place of the thread ---- */

struct call {
	struct messages *messages;
	uint32_t number;
};

static bool messages_has_returned(void *ctx)
{
	const struct call *c = ctx;

	return atomic_load(&c->messages->calls) != c->number;
}

/* There has been no call since CALLS. */
static bool relief_retires(struct messages *m, uint32_t calls)
{
	bool retires;

	pthread_mutex_lock(&m->starting);
	retires = atomic_load(&m->calls) == calls;
	m->relief.retired = retires;
	pthread_mutex_unlock(&m->starting);
	return retires;
}

static void *messages_relieve(void *arg)
{
	struct call c = { .messages = arg };
	struct messages *m = arg;

	while (!atomic_load(&m->stopped)) {
		atomic_store(&m->relief.dozes, true);
		c.number = atomic_load(&m->calls);
		sleep_on(&m->calls, c.number, c.number % 2 ? CALL_NS : RETIRE_NS);
		if (c.number % 2)
			p2p_wait(m->p2p, messages_has_returned, &c, 0);
		else if (relief_retires(m, c.number))
			break;
	}
	return NULL;
}

/* The thread is IS_IN a function of the caller's, or it has returned.  It may be slow
 * for one set, and the others go on. */
static void messages_is_in_call(void *ctx, bool is_in)
{
	struct messages *m = ctx;

	pthread_mutex_lock(&m->starting);
	atomic_fetch_add(&m->calls, 1);
	if (is_in && m->relief.retired) {
		pthread_join(m->relief.thread, NULL);
		m->relief.started = m->relief.retired = false;
	}
	if (is_in && !m->relief.started)
		m->relief.started = thread_start(&m->relief.thread, "berth relief",
						 messages_relieve, m);
	pthread_mutex_unlock(&m->starting);
	if (!is_in)
		p2p_wake(m->p2p);
	else if (atomic_exchange(&m->relief.dozes, false))
		sleep_wake(&m->calls);
}

/* ---- the thread ---- */

static void messages_ring(struct messages *m)
{
	atomic_fetch_add(&m->bell, 1);
	sleep_wake(&m->bell);
}

static bool messages_are_over(void *ctx)
{
	const struct messages *m = ctx;

	return (!atomic_load(&m->in_flight) && !p2p_owes(m->p2p)) ||
	       atomic_load(&m->stopped);
}

/* The thread has slept since it HEARD the bell, and is to end.  DOZES stays true. */
static bool messages_retire(struct messages *m, uint32_t heard)
{
	bool retires;

	pthread_mutex_lock(&m->starting);
	atomic_store(&m->runs, false); /* before a look at who has found that it does */
	retires = atomic_load(&m->bell) == heard && !atomic_load(&m->uses) &&
		  messages_are_over(m);
	m->retired = retires;
	atomic_store(&m->runs, !retires);
	pthread_mutex_unlock(&m->starting);
	return retires;
}

struct listener {
	struct messages *messages;
	uint32_t heard;
};

static bool messages_are_awaited(void *ctx)
{
	const struct listener *l = ctx;

	return atomic_load(&l->messages->bell) != l->heard ||
	       atomic_load(&l->messages->stopped) || !messages_are_over(l->messages);
}

/* Nothing is in flight since the thread HEARD the bell, when POSTS were posted.  FALSE:
 * the thread ends. */
static bool messages_rest(struct messages *m, uint32_t heard, uint32_t posts)
{
	struct listener l = { m, heard };

	p2p_progress(m->p2p); /* a connection may have come */
	if (!p2p_is_connected(m->p2p)) {
		sleep_on(&m->bell, heard, RETIRE_NS);
		return !messages_retire(m, heard);
	}
	sleep_on(&m->bell, heard, QUIET_NS);
	if (atomic_load(&m->posts) == posts && atomic_load(&m->bell) == heard)
		p2p_wait(m->p2p, messages_are_awaited, &l, 0);
	return true;
}

static void *messages_serve(void *arg)
{
	struct messages *m = arg;

	callback_tell(messages_is_in_call, m);
	while (!atomic_load(&m->stopped)) {
		uint32_t heard = atomic_load(&m->bell);
		uint32_t posts = atomic_load(&m->posts);

		atomic_store(&m->dozes, true);
		if (messages_are_over(m)) {
			if (!messages_rest(m, heard, posts))
				break;
			continue;
		}
		atomic_store(&m->dozes, false);
		sleep_on(&m->bell, heard, DOZE_NS);
		p2p_wait(m->p2p, messages_are_over, m, 0);
	}
	return NULL;
}

static bool messages_start(struct messages *m)
{
	bool started;

	if (atomic_load(&m->runs))
		return true;
	pthread_mutex_lock(&m->starting);
	if (m->retired) {
		pthread_join(m->thread, NULL);
		m->started = m->retired = false;
	}
	if (!m->started && !atomic_load(&m->stopped))
		m->started =
			thread_start(&m->thread, "berth messages", messages_serve, m);
	started = m->started;
	atomic_store(&m->runs, started);
	pthread_mutex_unlock(&m->starting);
	return started;
}

/* ---- opening, closing ---- */

static bool messages_is_lost(void *ctx, unsigned rank)
{
	return world_is_lost(((struct messages *)ctx)->world, rank);
}

/* The door's thread calls it: a peer may ask, whatever this rank does. */
static void messages_came(void *ctx)
{
	struct messages *m = ctx;

	if (messages_start(m))
		messages_ring(m);
}

static void messages_destroy(struct messages *m)
{
	pthread_mutex_destroy(&m->starting);
	free(m);
}

struct messages *messages_open(struct world *w, void *region, struct net *net)
{
	struct messages *m = calloc(1, sizeof *m);
	struct p2p_config config = { .members = &w->members,
				     .region = region,
				     .net = net,
				     .is_lost = messages_is_lost,
				     .came = messages_came,
				     .ctx = m,
				     .cores = w->cores };

	if (!m)
		return NULL;
	m->world = w;
	pthread_mutex_init(&m->starting, NULL);
	m->p2p = p2p_open(&config);
	if (m->p2p)
		return m;
	messages_destroy(m);
	return NULL;
}

void messages_close(struct messages *m)
{
	bool started;

	if (!m)
		return;
	pthread_mutex_lock(&m->starting); /* the door's thread starts none any more */
	atomic_store(&m->stopped, true);
	started = m->started;
	pthread_mutex_unlock(&m->starting);
	messages_ring(m);
	p2p_wake(m->p2p);
	if (started)
		pthread_join(m->thread, NULL);
	atomic_fetch_add(&m->calls, 2); /* there are no more */
	sleep_wake(&m->calls);
	if (m->relief.started)
		pthread_join(m->relief.thread, NULL);
	p2p_close(m->p2p);
	messages_destroy(m);
}

/* ---- the messages of a set ---- */

static berth_result messages_look(void *ctx)
{
	const struct comm *c = ctx;

	return atomic_load(&c->aborted) || atomic_load(&c->aborts) ||
			       atomic_load(&c->shared->aborted)
		       ? BERTH_ABORTED
		       : BERTH_OK;
}

static void messages_hear_abort(void *ctx, unsigned place, const char *why)
{
	comm_hear_abort(ctx, place, why);
}

static bool messages_has_left(void *ctx, unsigned place)
{
	return missing_has_gone(ctx, place);
}

berth_result messages_join(struct comm *c)
{
	const struct p2p_group_config config = { .members = c->members,
						 .number = c->id,
						 .look = messages_look,
						 .has_left = messages_has_left,
						 .aborted = messages_hear_abort,
						 .ctx = c };

	c->messages =
		c->world->messages ? p2p_join(c->world->messages->p2p, &config) : NULL;
	return c->messages ? BERTH_OK : BERTH_MEMORY;
}

void messages_stop(const struct comm *c)
{
	if (!c->messages)
		return;
	p2p_end(c->messages, BERTH_ABORTED);
	p2p_wake(c->world->messages->p2p);
}

void messages_abort(const struct comm *c)
{
	struct messages *m = c->world->messages;

	messages_stop(c);
	if (!c->messages)
		return;
	p2p_abort(c->messages, c->shared->why);
	if (p2p_owes(m->p2p) && messages_start(m))
		messages_ring(m);
}

void messages_leave(struct comm *c)
{
	struct messages *m;

	if (!c->messages)
		return;
	m = c->world->messages;
	p2p_leave(c->messages);
	c->messages = NULL;
	if (p2p_owes(m->p2p) && messages_start(m))
		messages_ring(m);
}

/* ---- waiting ---- */

void messages_wait(struct messages *m, bool (*is_over)(void *ctx), void *ctx,
		   uint64_t until_ns)
{
	p2p_wait(m->p2p, is_over, ctx, until_ns);
}

void messages_wake(struct messages *m)
{
	p2p_wake(m->p2p);
}

/* ---- how one ends ---- */

static void say_difference(const struct message *m, char *text, size_t bytes,
			   const char *words)
{
	const struct comm *c = m->comm;
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
	const struct comm *c = m->comm;
	const struct op *op = m->op;
	const struct net_fault *f =
		p2p_fault(c->messages, op->peer == BERTH_ANY ? P2P_ANY : op->peer);
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
	struct messages *all = m->comm->world->messages;
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
	void *p = memory_give(&m->comm->world->memory, bytes);

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

bool messages_begin(struct messages *m)
{
	atomic_fetch_add(&m->uses, 1);
	if (messages_start(m))
		return true;
	messages_end(m);
	return false;
}

void messages_end(struct messages *m)
{
	atomic_fetch_sub(&m->uses, 1);
}

void messages_post(const struct comm *c, struct message *message, size_t n,
		   uint64_t deadline_ns)
{
	struct messages *m = c->world->messages;
	berth_result rc = BERTH_OK;

	atomic_fetch_add(&m->posts, 1);
	atomic_fetch_add(&m->in_flight, (uint32_t)n);
	for (size_t i = 0; i < n; i++) {
		message[i].comm = c;
		messages_fill(&message[i], deadline_ns);
		if (!rc)
			rc = p2p_post(c->messages, &message[i].p2p, 1);
		if (rc) {
			message[i].p2p.rc = rc;
			messages_done(&message[i].p2p);
		}
	}
	if (atomic_exchange(&m->dozes, false))
		messages_ring(m);
}
