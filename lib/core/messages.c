#include "lib/core/messages.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/apart.h"
#include "lib/base/callback.h"
#include "lib/base/clock.h"
#include "lib/base/fiber.h"
#include "lib/base/kern.h"
#include "lib/core/comm.h"
#include "lib/core/fault.h"
#include "lib/core/missing.h"
#include "lib/core/turns.h"
#include "lib/core/world.h"

enum {
	/* From a post to the look of the thread of all sets at what is in flight: a
	 * rank that waits for its messages itself is not disturbed. */
	DOZE_NS = 2000000,
	/* With connections and nothing in flight, the thread waits for what peers say,
	 * if no message was posted for so long. */
	QUIET_NS = 50000000,
	SOON_NS = 50000 /* its first sleep: p2p_listen() */
};

/* The messages have two turns (turns.h).  RELIEF makes progress while a function of the
 * caller's, called in a turn of OWN, does not return. */
struct messages {
	struct turn own, relief;
	struct world *world;
	struct p2p *p2p;
	struct bounces *bounces;
	_Atomic bool runs; /* OWN has turns, for a caller whose use has begun */
	_Atomic uint32_t in_flight, uses;
	_Atomic uint32_t waiters;    /* in messages_wait() */
	_Atomic uint32_t posts;      /* how many there were */
	_Atomic bool dozes, stopped; /* DOZES: a post rings */
	_Atomic bool is_in_call;     /* of OWN's */
	/* of the thread */
	bool dozed; /* DOZES was set */
	bool listens;
	bool is_connected; /* when nothing was in flight */
	bool is_idle;      /* the last look moved nothing */
	uint32_t seen;     /* POSTS, when there was nothing in flight */
};

/* ---- turns ---- */

static bool messages_are_over(const struct messages *m)
{
	return (!atomic_load(&m->in_flight) && !p2p_owes(m->p2p)) ||
	       atomic_load(&m->stopped);
}

/* When the next look is due, if nothing comes.  MOVED: the last look has moved
 * something. */
static uint64_t messages_listen(struct messages *m, uint64_t now, bool moved)
{
	const bool soon = moved || !m->is_idle;

	m->listens = true;
	m->is_idle = !p2p_listen(m->p2p);
	if (!m->is_idle)
		return 1; /* at once */
	return soon ? now + SOON_NS : p2p_next_look(m->p2p, now);
}

/* When the next look is due, if nothing is in flight, or threads wait for what is.  If
 * no message was posted for a while, what peers say is heard. */
static uint64_t messages_rest(struct messages *m, uint64_t now, bool moved)
{
	const uint32_t posts = atomic_load(&m->posts);
	const bool is_connected = p2p_is_connected(m->p2p);
	const bool is_quiet = posts == m->seen;

	m->dozed = true;
	m->is_connected = is_connected;
	m->seen = posts;
	atomic_store(&m->dozes, true);
	if (is_connected && is_quiet && !atomic_load(&m->waiters))
		return messages_listen(m, now, moved);
	m->listens = false;
	p2p_listen_no_more(m->p2p);
	if (is_connected || atomic_load(&m->waiters))
		return now + QUIET_NS;
	return messages_are_over(m) ? 0 : 1; /* a post may have seen no mark */
}

static void messages_move(struct messages *m, struct turn *t)
{
	const uint64_t now = clock_ns();
	bool moved = bounce_look(m->bounces);
	uint64_t copies_ns;

	while (p2p_progress(m->p2p)) {
		moved = true;
		if (fiber_runs() && turn_has_others(t))
			fiber_pass();
	}
	/* a thread that waits, and this one, would both be woken for each message */
	if (messages_are_over(m) || atomic_load(&m->waiters))
		t->until_ns = messages_rest(m, now, moved);
	else
		t->until_ns = messages_listen(m, now, moved);
	copies_ns = bounce_next_look(m->bounces, now);
	if (copies_ns && (!t->until_ns || t->until_ns > copies_ns))
		t->until_ns = copies_ns;
}

static bool messages_take_turn(struct turn *t)
{
	struct messages *m = (struct messages *)t;

	if (m->dozed && !atomic_load(&m->dozes) && !bounce_next_look(m->bounces, 1)) {
		m->dozed = false; /* a post has rung */
		t->until_ns = clock_ns() + DOZE_NS;
	} else {
		messages_move(m, t);
	}
	return true;
}

static size_t messages_sockets(struct turn *t, struct pollfd *p)
{
	struct messages *m = (struct messages *)t;

	return m->listens || !p ? p2p_sockets(m->p2p, p) : 0;
}

static bool messages_are_called(struct turn *t)
{
	struct messages *m = (struct messages *)t;

	return m->listens && p2p_has_come(m->p2p);
}

/* The lock of the turns is held.  A connection that comes rings with it under the lock
 * of the net, so no lock of p2p may be taken here. */
static void messages_retire(struct turn *t)
{
	struct messages *m = (struct messages *)t;

	atomic_store(&m->runs, false); /* before a look at who has found that it does */
	if (!atomic_load(&m->uses) && messages_are_over(m) && !m->is_connected)
		turn_drop(t);
	else
		atomic_store(&m->runs, true);
}

static void messages_are_dropped(struct turn *t)
{
	(void)t;
}

static const struct turn_hooks messages_turns = { .take = messages_take_turn,
						  .sockets = messages_sockets,
						  .is_called = messages_are_called,
						  .retire = messages_retire,
						  .dropped = messages_are_dropped };

/* ---- turns in place of these, during a call ---- */

static struct messages *messages_of_relief(struct turn *t)
{
	return (struct messages *)((char *)t - offsetof(struct messages, relief));
}

static bool messages_relieve(struct turn *t)
{
	struct messages *m = messages_of_relief(t);

	if (m->is_in_call)
		messages_move(m, t);
	return true;
}

static size_t messages_relief_sockets(struct turn *t, struct pollfd *p)
{
	struct messages *m = messages_of_relief(t);

	return m->is_in_call || !p ? messages_sockets(&m->own, p) : 0;
}

static bool messages_relief_is_called(struct turn *t)
{
	struct messages *m = messages_of_relief(t);

	return m->is_in_call && messages_are_called(&m->own);
}

static void messages_relief_retires(struct turn *t)
{
	if (!messages_of_relief(t)->is_in_call)
		turn_drop(t);
}

static const struct turn_hooks messages_relief_turns = {
	.take = messages_relieve,
	.sockets = messages_relief_sockets,
	.is_called = messages_relief_is_called,
	.retire = messages_relief_retires,
	.dropped = messages_are_dropped
};

/* A function of the caller's is about to be called.  True: this is a turn of OWN, and
 * the call is over when IS_IN_CALL is false. */
static bool messages_call_begins(struct messages *m)
{
	if (!fiber_runs() || m->is_in_call)
		return false;
	m->is_in_call = true;
	if (turn_start(&m->relief))
		turn_ring(&m->relief);
	return true;
}

/* ---- for other threads ---- */

/* False: there is no thread. */
static bool messages_start(struct messages *m)
{
	if (atomic_load(&m->runs))
		return true;
	if (atomic_load(&m->stopped) || !turn_start(&m->own))
		return false;
	atomic_store(&m->runs, true);
	return true;
}

/* Progress is needed. */
static void messages_ring(void *messages)
{
	struct messages *m = messages;

	if (!messages_start(m))
		return;
	turn_ring(&m->own);
	if (atomic_load(&m->is_in_call))
		turn_ring(&m->relief);
}
/* ---- opening, closing ---- */

static bool messages_is_lost(void *ctx, unsigned rank)
{
	return world_is_lost(((struct messages *)ctx)->world, rank);
}

static const struct bounce_hooks messages_bounces;

struct messages *messages_open(struct world *w, void *region, struct bell *bells,
			       struct net *net)
{
	struct messages *m = calloc(1, sizeof *m);
	struct p2p_config config = { .members = &w->members,
				     .region = region,
				     .net = net,
				     .is_lost = messages_is_lost,
				     .wake = messages_ring,
				     .ctx = m,
				     .threads = region ? bells : NULL,
				     .cores = w->cores };

	if (!m)
		return NULL;
	m->world = w;
	m->dozes = m->dozed = true;
	m->own.hooks = &messages_turns;
	m->relief.hooks = &messages_relief_turns;
	m->bounces = bounces_open(&messages_bounces);
	m->p2p = m->bounces ? p2p_open(&config) : NULL;
	if (m->p2p)
		return m;
	bounces_close(m->bounces);
	free(m);
	return NULL;
}

void messages_close(struct messages *m)
{
	if (!m)
		return;
	atomic_store(&m->stopped, true);
	turn_leave(&m->own);
	turn_leave(&m->relief);
	p2p_listen_no_more(m->p2p);
	p2p_close(m->p2p);
	turn_leave(&m->own); /* until then a connection that came may have started it */
	bounces_close(m->bounces);
	free(m);
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
	if (p2p_owes(m->p2p))
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
	if (p2p_owes(m->p2p))
		messages_ring(m);
}

/* ---- waiting ---- */

void messages_wait(struct messages *m, bool (*is_over)(void *ctx), void *ctx,
		   uint64_t until_ns)
{
	atomic_fetch_add(&m->waiters, 1);
	p2p_wait(m->p2p, is_over, ctx, until_ns);
	if (atomic_fetch_sub(&m->waiters, 1) == 1 && !messages_are_over(m))
		messages_ring(m);
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
	if (m->bounce.why)
		snprintf(why->text, sizeof why->text, "%s: %s", words, m->bounce.why);
	else if ((rc == BERTH_PEER_LOST || rc == BERTH_TIMEOUT) &&
		 op->peer != BERTH_ANY) {
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

static void messages_finish(struct message *m)
{
	struct messages *all = m->comm->world->messages;
	const struct p2p_message *p = &m->p2p;
	struct failure why;
	bool begun;

	bounce_end(&m->bounce);
	if (!p->rc && !p->sends)
		messages_give(m);
	if (p->rc)
		messages_say_why(m, p->rc, &why);
	/* before the last look at M, which may be freed by its owner at once */
	atomic_fetch_sub(&all->in_flight, 1);
	begun = messages_call_begins(all);
	m->done(m, p->rc, &why);
	if (begun)
		all->is_in_call = false;
}

/* ---- room for what comes ---- */

/* Memory of the library's, for berth_free(). */
static void *messages_make_room(void *ctx, uint64_t bytes)
{
	const struct message *m = ctx;
	void *p = memory_give(&m->comm->world->memory, bytes);

	*m->op->made = p;
	return p;
}

struct room {
	const struct op *op;
	uint64_t bytes;
	void *at;
};

static void call_for_room(void *ctx)
{
	struct room *r = ctx;

	callback_begin();
	r->at = r->op->alloc(r->op->alloc_ctx, r->bytes);
	callback_end();
}

static void *ask_for_room(void *ctx, uint64_t bytes)
{
	const struct message *m = ctx;
	struct messages *all = m->comm->world->messages;
	struct room r = { .op = m->op, .bytes = bytes };
	const bool begun = messages_call_begins(all);

	apart_call(call_for_room, &r);
	if (begun)
		all->is_in_call = false;
	return r.at;
}

/* ---- on a device ---- */

static struct message *messages_of_bounce(const struct bounce *b)
{
	return (struct message *)((char *)(uintptr_t)b -
				  offsetof(struct message, bounce));
}

static void messages_done(struct p2p_message *p)
{
	struct message *m = p->ctx;
	struct messages *all = m->comm->world->messages;
	void *out = m->op->coll.out;

	if (!p->rc && !p->sends && m->bounce.stage && p->got) {
		if (m->op->room == UINT64_MAX)
			out = ask_for_room(m, p->got);
		p->rc = out ? bounce_give(all->bounces, &m->bounce, out, p->got)
			    : BERTH_MEMORY;
		if (!p->rc) {
			messages_ring(all);
			return;
		}
	}
	messages_finish(m);
}

static void *messages_make_buffer(void *ctx, uint64_t bytes)
{
	struct message *m = ctx;

	return bounce_begin(&m->bounce, bytes) ? NULL : m->bounce.room;
}

static void messages_post_copied(struct bounce *b)
{
	struct message *m = messages_of_bounce(b);
	const berth_result rc = p2p_post(m->comm->messages, &m->p2p, 1);

	if (!rc) /* another thread may have ended M, and its owner have freed it */
		return;
	m->p2p.rc = rc;
	messages_finish(m);
}

static void messages_are_copied(struct bounce *b, berth_result rc)
{
	struct message *m = messages_of_bounce(b);

	m->p2p.rc = rc;
	messages_finish(m);
}

static berth_result messages_look_at(const struct bounce *b)
{
	const uint64_t until_ns = messages_of_bounce(b)->p2p.deadline_ns;
	const berth_result rc = messages_look((void *)(uintptr_t)b->comm);

	return !rc && until_ns && clock_ns() >= until_ns ? BERTH_TIMEOUT : rc;
}

static const struct bounce_hooks messages_bounces = { .post = messages_post_copied,
						      .over = messages_are_copied,
						      .look = messages_look_at };

/* ---- how it begins ---- */

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
		m->p2p.alloc = op_is_device(op) ? messages_make_buffer
			       : op->alloc      ? ask_for_room
						: messages_make_room;
		m->p2p.alloc_ctx = m;
	}
}

static berth_result messages_post_one(struct messages *all, struct message *m)
{
	struct bounce *b = &m->bounce;
	const uint64_t bytes = m->p2p.bytes;
	berth_result rc = BERTH_OK;

	b->op = m->op;
	b->comm = m->comm;
	if (b->back && all->world->params.device == DEVICE_ONLY_NCCL) {
		b->why = "messages do not go by NCCL, and BERTH_DEVICE is nccl-only";
		rc = BERTH_UNSUPPORTED;
	} else if (b->back && bytes) {
		rc = bounce_begin(b, bytes);
		m->p2p.in = m->p2p.out = b->room;
	}
	if (rc || !m->p2p.sends || !bounce_is_needed(all->bounces, b))
		return rc ? rc : p2p_post(m->comm->messages, &m->p2p, 1);
	rc = bounce_send(all->bounces, b, bytes);
	if (!rc)
		messages_ring(all);
	return rc;
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
			rc = messages_post_one(m, &message[i]);
		if (rc) {
			message[i].p2p.rc = rc;
			messages_finish(&message[i]);
		}
	}
	if (atomic_exchange(&m->dozes, false))
		messages_ring(m);
}
