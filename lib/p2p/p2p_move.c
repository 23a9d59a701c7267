#include "lib/p2p/p2p_internal.h"

#include <string.h>

#include "lib/base/clock.h"

enum { FRAMES = 256, PIECES = 8 /* of one peer in one pass, to it and from it */ };

/* ---- matching ---- */

/* Does M take a message of SIGNATURE and BYTES?  After BERTH_OK there is room for it.
 * BERTH_BUSY: its alloc() is to be called first. */
static berth_result move_fit(struct p2p_message *m, unsigned from, uint32_t signature,
			     uint64_t bytes)
{
	m->from = from;
	m->got = bytes;
	if (m->signature != signature)
		return BERTH_MISMATCH;
	if (!m->out && m->alloc && bytes)
		return m->has_asked ? BERTH_MEMORY : BERTH_BUSY;
	if (m->has_asked)
		return BERTH_OK;
	return bytes <= m->bytes ? BERTH_OK : BERTH_MISMATCH;
}

/* The description of a message by its sender. */
struct said {
	uint32_t id, signature;
	uint64_t bytes;
	bool has_data;
};

/* This rank no longer keeps a message of PAIR, with DATA bytes. */
static void move_forget(struct p2p_pair *pair, uint64_t data)
{
	pair->heads_in--;
	pair->room_in -= (uint32_t)data;
}

/* M is the receive of the message that PAIR describes in S.  TRUE: the data are here.
 * The caller has to copy them to M->out, and then M is done. */
static bool move_match(struct p2p_pair *pair, struct p2p_message *m,
		       const struct said *s)
{
	struct p2p *p = pair->group->p2p;
	struct p2p_frame f = { .kind = P2P_REFUSE, .id = s->id };
	berth_result rc = move_fit(m, pair->place, s->signature, s->bytes);
	uint32_t id;

	p2p_list_remove(m);
	m->moved = 0;
	move_forget(pair, s->has_data ? s->bytes : 0);
	if (!rc && s->has_data) {
		f.kind = P2P_MATCHED;
	} else if (!rc) {
		id = p2p_slot_take(pair, m, P2P_RECEIVING);
		rc = id == P2P_NO_ID ? BERTH_MEMORY : BERTH_OK;
		f.kind = rc ? P2P_REFUSE : P2P_TAKE;
		f.to = id;
	}
	if (!rc && !s->has_data) {
		p->slot[f.to].other = s->id;
		p->slot[f.to].left = s->bytes;
		if (pair->peer->stream)
			pair->peer->stream->is_bulk = true;
	}
	f.signature = rc;
	if (!pair->gone && !p2p_answer(pair, f))
		p2p_give_up(pair->group, BERTH_MEMORY);
	if (rc)
		p2p_finish(m, rc);
	return !rc && s->has_data;
}

/* Is M's alloc() to be called first, for the message of E? */
static bool match_asks(struct p2p_message *m, struct p2p_entry *e)
{
	if (move_fit(m, e->from, e->signature, e->bytes) != BERTH_BUSY)
		return false;
	e->is_asked = true;
	m->entry = e;
	p2p_list_remove(m);
	p2p_list_add(&m->group->p2p->asks, m);
	return true;
}

/* M gets the message that is kept in E. */
static void match_entry(struct p2p_message *m, struct p2p_entry *e)
{
	const struct said s = { e->id, e->signature, e->bytes, e->has_data };
	struct p2p_group *g = m->group;
	struct p2p_pair *pair = &g->pair[e->from];
	berth_result rc;

	if (match_asks(m, e))
		return;
	if (e->self) { /* sent by this rank */
		rc = move_fit(m, g->me, e->self->signature, e->self->bytes);
		if (!rc && e->self->bytes)
			memcpy(m->out, e->self->in, e->self->bytes);
		p2p_finish(e->self, rc);
		p2p_finish(m, rc);
	} else if (!e->has_data && pair->gone) {
		/* M belongs to this message, not to the next one */
		move_forget(pair, 0);
		m->from = e->from;
		p2p_finish(m, p2p_why(pair->peer));
	} else if (move_match(pair, m, &s)) {
		if (e->bytes)
			memcpy(m->out, e->data, e->bytes);
		p2p_finish(m, BERTH_OK);
	}
	p2p_match_drop(g->match, e);
}

/* ---- messages that have been posted ---- */

static void start_self(struct p2p_message *m)
{
	struct p2p_group *g = m->group;
	struct p2p_message *r = p2p_match_receive(g->match, g->me, m->tag);
	struct p2p_entry *e = p2p_match_keep(g->match, g->me, m->tag, 0);

	if (!e) {
		p2p_finish(m, BERTH_MEMORY);
		return;
	}
	e->self = m;
	e->signature = m->signature;
	e->bytes = m->bytes;
	if (r)
		match_entry(r, e);
}

void p2p_go_on(struct p2p_message *m)
{
	struct p2p_entry *e = m->entry;
	struct p2p_group *g = m->group;

	e->is_asked = false;
	if (!g->over && !e->is_over) {
		match_entry(m, e); /* E is gone */
		if (m->from != g->me)
			p2p_push(g->p2p, g->pair[m->from].peer);
		return;
	}
	p2p_finish(m, g->over ? (berth_result)g->over : BERTH_TIMEOUT);
	p2p_match_drop(g->match, e);
}

static void start_receive(struct p2p_message *m)
{
	struct p2p_group *g = m->group;
	struct p2p_entry *e = p2p_match_entry(g->match, m->peer, m->tag);

	if (e)
		match_entry(m, e);
	else if (m->peer == P2P_ANY ? g->any_lost : g->pair[m->peer].gone)
		p2p_finish(m, m->peer == P2P_ANY ? BERTH_PEER_LOST
						 : p2p_why(g->pair[m->peer].peer));
	else
		p2p_match_add(g->match, m);
}

static void move_start(struct p2p_message *m)
{
	struct p2p_group *g = m->group;
	struct p2p_pair *pair = m->peer == P2P_ANY ? NULL : &g->pair[m->peer];
	struct p2p *p = g->p2p;

	if (pair)
		pair->pending++;
	else
		g->any_pending++;
	if (m->deadline_ns && (!p->deadline_ns || m->deadline_ns < p->deadline_ns))
		p->deadline_ns = m->deadline_ns;
	m->moved = 0;
	m->got = 0;
	m->has_asked = false;
	if (g->over) {
		p2p_finish(m, (berth_result)g->over);
	} else if (!m->sends) {
		start_receive(m);
	} else if (pair->place == g->me) {
		start_self(m);
	} else if (pair->gone) {
		p2p_finish(m, p2p_why(pair->peer));
	} else {
		p2p_list_add(&pair->waiting, m);
		p2p_is_busy(pair);
	}
}

/* ---- receiving ---- */

enum taken { TAKEN, NOT_ALL, BAD };

static enum taken take_message(struct p2p_pair *pair, const struct p2p_frame *f)
{
	const bool has_data = f->kind == P2P_EAGER;
	const struct said s = { f->id, f->signature, f->bytes, has_data };
	struct p2p_match *t = pair->group->match;
	struct p2p_message *m = p2p_match_receive(t, pair->place, f->tag);
	struct p2p_peer *q = pair->peer;
	struct p2p_entry *e;

	pair->heads_in++;
	pair->room_in += has_data ? (uint32_t)f->bytes : 0;
	if (pair->heads_in > P2P_HEADS || pair->room_in > P2P_ROOM_BYTES ||
	    f->id == P2P_NO_ID || (!has_data && !f->bytes))
		return BAD;
	if (m && move_fit(m, pair->place, s.signature, s.bytes) != BERTH_BUSY) {
		bool takes = move_match(pair, m, &s);

		p2p_peer_body(q, takes ? m->out : NULL);
		if (takes)
			p2p_finish(m, BERTH_OK);
		return TAKEN;
	}
	e = p2p_match_keep(t, pair->place, f->tag, has_data ? f->bytes : 0);
	if (!e) {
		p2p_give_up(pair->group, BERTH_MEMORY);
		return TAKEN;
	}
	e->id = f->id;
	e->signature = f->signature;
	e->bytes = f->bytes;
	e->has_data = has_data;
	p2p_peer_body(q, e->data);
	if (m)
		match_asks(m, e);
	return TAKEN;
}

static enum taken take_data(struct p2p_pair *pair, const struct p2p_frame *f,
			    bool fresh, bool *moved)
{
	struct p2p_slot *s = p2p_slot_of(pair, f->to);
	struct p2p_peer *q = pair->peer;
	struct p2p_message *m;
	size_t k;

	if (!s || (s->state != P2P_RECEIVING && s->state != P2P_DISCARD) ||
	    (fresh && f->bytes > s->left))
		return BAD;
	m = s->m;
	k = p2p_peer_body(q, m ? (unsigned char *)m->out + m->moved : NULL);
	s->left -= k;
	*moved |= k > 0;
	if (m)
		m->moved += k;
	if (q->stream && q->stream->is_forged)
		return BAD;
	if (q->stream && !p2p_stream_is_whole(q->stream))
		return NOT_ALL;
	if (!s->left) {
		if (m)
			p2p_finish(m, BERTH_OK);
		p2p_slot_free(pair->group->p2p, f->to);
	}
	return TAKEN;
}

/* The peer no longer keeps the message of slot S. */
static void move_was_kept(struct p2p_slot *s)
{
	if (!s->is_kept)
		return;
	s->is_kept = false;
	s->pair->heads_out--;
	s->pair->room_out -= s->room;
}

/* An answer to a message of this rank. */
static enum taken take_answer(struct p2p_pair *pair, const struct p2p_frame *f)
{
	struct p2p_slot *s = p2p_slot_of(pair, f->id);
	berth_result rc = BERTH_OK;

	if (!s || s->state == P2P_RECEIVING || s->state == P2P_DISCARD ||
	    s->state == P2P_SENDING || !s->is_kept)
		return BAD;
	if (f->kind == P2P_REFUSE)
		rc = f->signature == BERTH_MEMORY ? BERTH_MEMORY : BERTH_MISMATCH;
	if (f->kind == P2P_TAKE) {
		if (s->state == P2P_SENT)
			return BAD;
		move_was_kept(s);
		if (s->state == P2P_WITHDRAWN)
			return TAKEN;
		s->state = P2P_SENDING;
		s->other = f->to;
		p2p_list_add(&pair->sending, s->m);
		p2p_is_busy(pair);
		return TAKEN;
	}
	if (f->kind == P2P_MATCHED && s->state == P2P_OFFERED)
		return BAD;
	move_was_kept(s);
	if (s->m)
		p2p_finish(s->m, rc);
	p2p_slot_free(pair->group->p2p, f->id);
	return TAKEN;
}

/* The slot of PAIR's message ID, whose data come; NULL: it has its answer. */
static struct p2p_slot *move_coming(struct p2p_pair *pair, uint32_t id)
{
	struct p2p *p = pair->group->p2p;

	for (uint32_t i = 0; i < p->slots; i++) {
		struct p2p_slot *s = &p->slot[i];

		if ((s->state == P2P_RECEIVING || s->state == P2P_DISCARD) &&
		    s->pair == pair && s->other == id)
			return s;
	}
	return NULL;
}

/* The peer no longer waits with its message ID. */
static enum taken take_withdrawal(struct p2p_pair *pair, const struct p2p_frame *f)
{
	const struct p2p_frame gone = { .kind = P2P_GONE, .id = f->id };
	struct p2p_group *g = pair->group;
	struct p2p_entry *e = g->match->entries[p2p_bucket(f->tag)].first;
	struct p2p_slot *s;

	while (e && (e->is_over || e->self || e->from != pair->place || e->id != f->id))
		e = e->next;
	if (e) {
		move_forget(pair, e->has_data ? e->bytes : 0);
		e->is_over = true;
		if (!e->is_asked)
			p2p_match_drop(g->match, e);
	} else {
		s = move_coming(pair, f->id);
		if (!s)
			return TAKEN;
		if (s->m)
			p2p_finish(s->m, BERTH_TIMEOUT);
		p2p_slot_free(g->p2p, (uint32_t)(s - g->p2p->slot));
	}
	if (!p2p_answer(pair, gone))
		p2p_give_up(g, BERTH_MEMORY);
	return TAKEN;
}

static enum taken take_gone(struct p2p_pair *pair, const struct p2p_frame *f)
{
	struct p2p_slot *s = p2p_slot_of(pair, f->id);

	if (!s || s->state != P2P_WITHDRAWN)
		return BAD;
	move_was_kept(s);
	p2p_slot_free(pair->group->p2p, f->id);
	return TAKEN;
}

/* F is of a group that this rank has left, or that has ended. */
static enum taken move_drop(struct p2p_peer *q, const struct p2p_frame *f,
			    bool is_known, bool *moved)
{
	const bool asks =
		f->kind == P2P_EAGER || f->kind == P2P_OFFER || f->kind == P2P_ASK;
	const struct p2p_frame left = { .kind = P2P_LEAVE, .group = f->group };

	*moved |= p2p_peer_body(q, NULL) > 0;
	if (q->stream && q->stream->is_forged)
		return BAD;
	if (q->stream && !p2p_stream_is_whole(q->stream))
		return NOT_ALL;
	return !is_known && asks && !p2p_peer_answer(q, &left) ? BAD : TAKEN;
}

static enum taken take_of_pair(struct p2p_pair *pair, const struct p2p_frame *f,
			       bool fresh, bool *moved)
{
	pair->met = true;
	switch (f->kind) {
	case P2P_EAGER:
	case P2P_OFFER:
		return take_message(pair, f);
	case P2P_DATA:
		return take_data(pair, f, fresh, moved);
	case P2P_TAKE:
	case P2P_MATCHED:
	case P2P_REFUSE:
		return take_answer(pair, f);
	case P2P_WITHDRAW:
		return take_withdrawal(pair, f);
	case P2P_GONE:
		return take_gone(pair, f);
	case P2P_ABORT:
		p2p_hear_abort(pair);
		return TAKEN;
	case P2P_LEAVE:
		pair->left = true;
		p2p_lose_pair(pair);
		return TAKEN;
	default: /* P2P_ASK */
		return TAKEN;
	}
}

static enum taken move_take(struct p2p *p, struct p2p_peer *q,
			    const struct p2p_frame *f, bool fresh, bool *moved)
{
	struct p2p_group *g = p2p_group_of(p, f->group);
	unsigned place = f->place;

	if (f->kind == P2P_LEAVE && !f->group) {
		q->left = true;
		return BAD; /* nothing follows */
	}
	if (g && !g->over && !p2p_group_begin(g))
		p2p_give_up(g, BERTH_MEMORY);
	if (!g || g->over)
		return move_drop(q, f, g, moved);
	if (f->kind == P2P_LEAVE) /* that rank no longer knows its place */
		for (place = 0; place < g->n && g->pair[place].peer != q;)
			place++;
	if (place >= g->n || g->pair[place].peer != q || place == g->me)
		return BAD;
	return g->pair[place].gone ? move_drop(q, f, true, moved)
				   : take_of_pair(&g->pair[place], f, fresh, moved);
}

/* Take the frames that have come from Q.  Did anything come? */
static bool move_pull(struct p2p *p, struct p2p_peer *q)
{
	struct p2p_frame f;
	enum taken t;
	bool fresh, moved = false;
	int rc;

	for (unsigned i = 0; i < FRAMES; i++) {
		rc = p2p_peer_head(q, &f, &fresh);
		if (!rc)
			break;
		t = rc < 0 ? BAD : move_take(p, q, &f, fresh, &moved);
		if (t == BAD) {
			p2p_lose(p, q);
			return true;
		}
		if (t == NOT_ALL)
			break;
		moved = true;
		p2p_peer_next(p, q);
	}
	return moved;
}

/* ---- sending ---- */

/* Tell PAIR of M for the first time.  FALSE: this cannot be done yet. */
static bool move_announce(struct p2p_pair *pair, struct p2p_message *m)
{
	struct p2p *p = pair->group->p2p;
	bool eager = m->bytes <= P2P_EAGER_BYTES &&
		     m->bytes <= P2P_ROOM_BYTES - pair->room_out;
	struct p2p_frame f = { .kind = eager ? P2P_EAGER : P2P_OFFER,
			       .signature = m->signature,
			       .tag = m->tag,
			       .bytes = m->bytes };

	if (pair->heads_out == P2P_HEADS)
		return false;
	f.id = p2p_slot_take(pair, m, eager ? P2P_SENT : P2P_OFFERED);
	if (f.id == P2P_NO_ID)
		return false;
	if (!p2p_peer_put(pair, f, m->in, eager ? m->bytes : 0)) {
		p2p_slot_free(p, f.id);
		return false;
	}
	p->slot[f.id].is_kept = true;
	p->slot[f.id].room = eager ? (uint32_t)m->bytes : 0;
	pair->heads_out++;
	pair->room_out += p->slot[f.id].room;
	p2p_list_remove(m);
	return true;
}

/* Send data of the first messages for which PAIR has asked. */
static bool push_data(struct p2p_pair *pair)
{
	struct p2p *p = pair->group->p2p;
	struct p2p_peer *q = pair->peer;
	struct p2p_message *m;
	bool moved = false;
	size_t k;

	for (unsigned i = 0; i < PIECES && (m = pair->sending.first); i++) {
		if (m->moved < m->bytes) {
			k = p2p_peer_put_data(pair, m, p->slot[m->slot].other);
			m->moved += k;
			moved |= k > 0;
			if (!k && (!q->stream || !q->stream->data_left))
				break;
		}
		if (q->stream && (!p2p_stream_flush(q->stream) || q->stream->data_left))
			break;
		if (!q->stream)
			p2p_peer_wake(p, q);
		if (m->moved < m->bytes)
			continue;
		p2p_slot_free(p, m->slot);
		p2p_finish(m, BERTH_OK);
	}
	return moved;
}

/* The busy members of Q's groups, each in its turn. */
static bool push_pairs(struct p2p_peer *q)
{
	bool moved = false;

	for (unsigned n = q->nbusy; n; n--) {
		struct p2p_pair *pair = q->busy;

		moved |= p2p_tell_abort(pair);
		/* a WITHDRAW goes before its number is used again */
		for (unsigned i = 0;
		     i < FRAMES && !q->answers.n && pair->waiting.first &&
		     move_announce(pair, pair->waiting.first);
		     i++)
			moved = true;
		moved |= push_data(pair);
		p2p_next_busy(q, pair->tells || pair->waiting.first ||
					 pair->sending.first);
	}
	return moved;
}

static bool push_stream(struct p2p *p, struct p2p_peer *q)
{
	struct p2p_stream *s = q->stream;
	bool moved = s->moved;

	s->moved = false;
	if (p2p_stream_flush(s))
		return moved;
	/* Q has gone and takes nothing more.  The frames that it said before count. */
	do
		q->stream->is_drained = false;
	while (move_pull(p, q) && !q->gone);
	p2p_lose(p, q);
	return moved;
}

/* Note the fault of a handshake with Q.  Is there a fault? */
static bool move_hear_fault(struct p2p *p, struct p2p_peer *q)
{
	const struct net_fault *f = net_fault(p->config.net);

	if (f && f->peer == q->rank && !q->fault.kind)
		q->fault = *f;
	return q->fault.kind;
}

static bool push_all(struct p2p *p, struct p2p_peer *q)
{
	struct p2p_stream *s = q->stream;
	bool moved = false;

	if (q->answers.n || q->busy || (s && s->wanted && s->speaks < 0)) {
		if (s) {
			s->wanted = true;
			if (p2p_stream_have(s)) {
				move_hear_fault(p, q);
				q->left = !q->fault.kind && !p2p_is_lost(p, q);
				p2p_lose(p, q);
				return true;
			}
		}
		moved |= p2p_push_answers(q);
		moved |= push_pairs(q);
	}
	if (s)
		return push_stream(p, q) || moved;
	if (q->out.is_bad)
		p2p_lose(p, q);
	else if (moved)
		p2p_peer_wake(p, q);
	return moved;
}

bool p2p_push(struct p2p *p, struct p2p_peer *q)
{
	bool moved = !q->gone && push_all(p, q);
	/* is there something to be sent for which no message of this rank waits? */
	bool owed = !q->gone && (q->answers.n || q->telling ||
				 (q->stream && !p2p_stream_is_flushed(q->stream)));

	if (owed != q->owed)
		atomic_fetch_add(&p->owing, owed ? 1 : UINT32_MAX);
	q->owed = owed;
	return moved;
}

/* Start M.  Then send its data, or the answer to the message that it has matched,
 * unless NEXT is for the same peer. */
static void start_and_push(struct p2p_message *m, const struct p2p_message *next)
{
	struct p2p_group *g = m->group;
	const int peer = m->peer;
	unsigned to = peer == P2P_ANY ? g->me : (unsigned)peer;

	m->list = NULL;
	m->from = to;
	move_start(m);
	if (peer == P2P_ANY)
		to = m->from; /* the sender of the message that was here */
	if (to != g->me && (!next || next->group != g || next->peer != (int)to))
		p2p_push(g->p2p, g->pair[to].peer);
}

void p2p_start(struct p2p_message *m, size_t n)
{
	for (size_t i = 0; i < n; i++)
		start_and_push(&m[i], i + 1 < n ? &m[i + 1] : NULL);
}

bool p2p_start_posted(struct p2p *p)
{
	struct p2p_message *m, *next;

	if (!atomic_load_explicit(&p->has_posted, memory_order_relaxed))
		return false;
	pthread_mutex_lock(&p->posting);
	m = p->posted.first;
	p->posted = (struct p2p_list){ NULL, NULL };
	atomic_store_explicit(&p->has_posted, false, memory_order_relaxed);
	pthread_mutex_unlock(&p->posting);
	for (; m; m = next) {
		next = m->next;
		start_and_push(m, next);
	}
	return true;
}

bool p2p_pass(struct p2p *p)
{
	bool moved = p2p_start_posted(p);
	const struct net_fault *f = NULL;

	if (p->config.net) {
		moved |= net_serve(p->config.net);
		f = net_fault(p->config.net);
	}
	for (unsigned i = 0; i < p->config.members->n; i++) {
		struct p2p_peer *q = &p->peer[i];

		if (q->gone || i == p->config.members->me)
			continue;
		if (f && f->peer == i && move_hear_fault(p, q)) {
			p2p_lose(p, q);
			continue;
		}
		if (q->stream)
			q->stream->is_drained = false;
		moved |= move_pull(p, q);
		moved |= p2p_push(p, q);
	}
	p2p_look(p);
	p2p_free_groups(p);
	return moved;
}
