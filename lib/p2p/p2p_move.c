#include "lib/p2p/p2p_internal.h"

#include <string.h>

#include "lib/base/clock.h"

enum { FRAMES = 256, PIECES = 8 /* of one peer in one pass, to it and from it */ };

/* ---- matching ---- */

/* Does M take a message of SIGNATURE and BYTES?  After BERTH_OK there is room for
 * it. */
static berth_result move_fit(struct p2p_message *m, unsigned from, uint32_t signature,
			     uint64_t bytes)
{
	m->from = from;
	m->got = bytes;
	if (m->signature != signature)
		return BERTH_MISMATCH;
	if (!m->out && m->alloc && bytes) {
		m->out = m->alloc(m->alloc_ctx, bytes);
		return m->out ? BERTH_OK : BERTH_MEMORY;
	}
	return bytes <= m->bytes ? BERTH_OK : BERTH_MISMATCH;
}

/* The description of a message by its sender. */
struct said {
	uint32_t id, signature;
	uint64_t bytes;
	bool has_data;
};

/* M is the receive of the message that Q describes in S.  TRUE: the data are here.  The
 * caller has to copy them to M->out, and then M is done. */
static bool move_match(struct p2p *p, struct p2p_peer *q, struct p2p_message *m,
		       const struct said *s)
{
	struct p2p_frame f = { .kind = P2P_REFUSE, .id = s->id, .heads = 1 };
	berth_result rc = move_fit(m, q->place, s->signature, s->bytes);
	uint32_t id;

	p2p_list_remove(m);
	m->moved = 0;
	if (s->has_data)
		f.room = (uint32_t)s->bytes;
	if (!rc && s->has_data) {
		f.kind = P2P_MATCHED;
	} else if (!rc) {
		id = p2p_slot_take(p, m, q->place, P2P_RECEIVING);
		rc = id == P2P_NO_ID ? BERTH_MEMORY : BERTH_OK;
		f.kind = rc ? P2P_REFUSE : P2P_TAKE;
		f.to = id;
	}
	if (!rc && !s->has_data) {
		p->slot[f.to].other = s->id;
		p->slot[f.to].left = s->bytes;
		if (q->stream)
			q->stream->is_bulk = true;
	}
	f.signature = rc;
	if (q->gone) {
		;
	} else if (s->id == P2P_NO_ID) {
		q->heads_owed++;
		q->room_owed += f.room;
	} else if (!p2p_answer(q, &f)) {
		p2p_give_up(p, BERTH_MEMORY);
	}
	if (rc)
		p2p_finish(p, m, rc);
	return !rc && s->has_data;
}

static void match_self(struct p2p *p, struct p2p_message *m, struct p2p_message *sent)
{
	berth_result rc =
		move_fit(m, p->config.members->me, sent->signature, sent->bytes);

	if (!rc && sent->bytes)
		memcpy(m->out, sent->in, sent->bytes);
	p2p_finish(p, sent, rc);
	p2p_finish(p, m, rc);
}

/* M gets the message that is kept in E. */
static void match_entry(struct p2p *p, struct p2p_message *m, struct p2p_entry *e)
{
	const struct said s = { e->id, e->signature, e->bytes, e->has_data };
	berth_result rc;

	if (e->self) {
		match_self(p, m, e->self);
	} else if (e->from == p->config.members->me) {
		p->peer[e->from].heads_in--;
		p->peer[e->from].room_in -= (uint32_t)e->bytes;
		rc = move_fit(m, e->from, e->signature, e->bytes);
		if (!rc && e->bytes)
			memcpy(m->out, e->data, e->bytes);
		p2p_finish(p, m, rc);
	} else if (!e->has_data && p->peer[e->from].gone) {
		/* M belongs to this message, not to the next one */
		m->from = e->from;
		p2p_finish(p, m, p2p_why(&p->peer[e->from]));
	} else if (move_match(p, &p->peer[e->from], m, &s)) {
		if (e->bytes)
			memcpy(m->out, e->data, e->bytes);
		p2p_finish(p, m, BERTH_OK);
	}
	p2p_match_drop(&p->match, e);
}

/* ---- messages that have been posted ---- */

static void start_self(struct p2p *p, struct p2p_message *m)
{
	struct p2p_message *r =
		p2p_match_receive(&p->match, p->config.members->me, m->tag);
	struct p2p_peer *q = &p->peer[p->config.members->me];
	bool keep = m->early && m->bytes <= P2P_EAGER_BYTES &&
		    m->bytes <= P2P_ROOM_BYTES - q->room_in && q->heads_in < P2P_HEADS;
	struct p2p_entry *e;

	if (r) {
		match_self(p, r, m);
		return;
	}
	e = p2p_match_keep(&p->match, p->config.members->me, m->tag,
			   keep ? m->bytes : 0);
	if (!e) {
		p2p_finish(p, m, BERTH_MEMORY);
		return;
	}
	e->id = P2P_NO_ID;
	e->signature = m->signature;
	e->bytes = m->bytes;
	e->has_data = keep;
	e->self = keep ? NULL : m;
	if (!keep)
		return;
	q->heads_in++;
	q->room_in += (uint32_t)m->bytes;
	if (m->bytes)
		memcpy(e->data, m->in, m->bytes);
	p2p_finish(p, m, BERTH_OK);
}

static void start_receive(struct p2p *p, struct p2p_message *m)
{
	struct p2p_entry *e = p2p_match_entry(&p->match, m->peer, m->tag);

	if (e)
		match_entry(p, m, e);
	else if (m->peer == P2P_ANY ? p->any_lost : p->peer[m->peer].gone)
		p2p_finish(p, m,
			   m->peer == P2P_ANY ? BERTH_PEER_LOST
					      : p2p_why(&p->peer[m->peer]));
	else
		p2p_match_add(&p->match, m);
}

static void move_start(struct p2p *p, struct p2p_message *m)
{
	if (m->peer == P2P_ANY)
		p->any_pending++;
	else
		p->peer[m->peer].pending++;
	if (m->deadline_ns && (!p->deadline_ns || m->deadline_ns < p->deadline_ns))
		p->deadline_ns = m->deadline_ns;
	m->moved = 0;
	m->got = 0;
	if (p->ended)
		p2p_finish(p, m, p->ended);
	else if (!m->sends)
		start_receive(p, m);
	else if (m->peer == (int)p->config.members->me)
		start_self(p, m);
	else if (p->peer[m->peer].gone)
		p2p_finish(p, m, p2p_why(&p->peer[m->peer]));
	else
		p2p_list_add(&p->peer[m->peer].waiting, m);
}

/* ---- receiving ---- */

enum taken { TAKEN, NOT_ALL, BAD };

static enum taken take_message(struct p2p *p, struct p2p_peer *q,
			       const struct p2p_frame *f)
{
	const bool has_data = f->kind == P2P_EAGER;
	const struct said s = { f->id, f->signature, f->bytes, has_data };
	struct p2p_message *m = p2p_match_receive(&p->match, q->place, f->tag);
	struct p2p_entry *e;

	q->heads_in++;
	q->room_in += has_data ? (uint32_t)f->bytes : 0;
	if (q->heads_in > P2P_HEADS || q->room_in > P2P_ROOM_BYTES ||
	    (!has_data && (!f->bytes || f->id == P2P_NO_ID)))
		return BAD;
	if (m) {
		bool takes = move_match(p, q, m, &s);

		p2p_peer_body(q, takes ? m->out : NULL);
		if (takes)
			p2p_finish(p, m, BERTH_OK);
		return TAKEN;
	}
	e = p2p_match_keep(&p->match, q->place, f->tag, has_data ? f->bytes : 0);
	if (!e) {
		p2p_give_up(p, BERTH_MEMORY);
		return TAKEN;
	}
	e->id = f->id;
	e->signature = f->signature;
	e->bytes = f->bytes;
	e->has_data = has_data;
	p2p_peer_body(q, e->data);
	return TAKEN;
}

static enum taken take_data(struct p2p *p, struct p2p_peer *q,
			    const struct p2p_frame *f, bool fresh, bool *moved)
{
	struct p2p_slot *s = p2p_slot_of(p, q->place, f->to);
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
			p2p_finish(p, m, BERTH_OK);
		p2p_slot_free(p, f->to);
	}
	return TAKEN;
}

/* An answer to a message of this rank. */
static enum taken take_answer(struct p2p *p, struct p2p_peer *q,
			      const struct p2p_frame *f)
{
	struct p2p_slot *s = p2p_slot_of(p, q->place, f->id);
	berth_result rc = BERTH_OK;

	if (!s || s->state == P2P_RECEIVING || s->state == P2P_DISCARD ||
	    s->state == P2P_SENDING)
		return BAD;
	if (f->kind == P2P_REFUSE)
		rc = f->signature == BERTH_MEMORY ? BERTH_MEMORY : BERTH_MISMATCH;
	if (f->kind == P2P_TAKE) {
		if (s->state == P2P_SENT)
			return BAD;
		if (s->state == P2P_WITHDRAWN)
			return TAKEN;
		s->state = P2P_SENDING;
		s->other = f->to;
		p2p_list_add(&q->sending, s->m);
		return TAKEN;
	}
	if (f->kind == P2P_MATCHED && s->state == P2P_OFFERED)
		return BAD;
	if (s->m)
		p2p_finish(p, s->m, rc);
	p2p_slot_free(p, f->id);
	return TAKEN;
}

/* The peer no longer waits with its message ID. */
static enum taken take_withdrawal(struct p2p *p, struct p2p_peer *q,
				  const struct p2p_frame *f)
{
	struct p2p_frame g = { .kind = P2P_GONE, .id = f->id };
	struct p2p_entry *e = p->match.entries[p2p_bucket(f->tag)].first;
	uint32_t i = 0;

	while (e && (e->from != q->place || e->id != f->id))
		e = e->next;
	if (e) {
		g.heads = 1;
		g.room = e->has_data ? (uint32_t)e->bytes : 0;
		p2p_match_drop(&p->match, e);
	} else {
		while (i < p->slots &&
		       (p->slot[i].peer != q->place || p->slot[i].other != f->id ||
			(p->slot[i].state != P2P_RECEIVING &&
			 p->slot[i].state != P2P_DISCARD)))
			i++;
		if (i == p->slots)
			return TAKEN; /* it has its answer */
		if (p->slot[i].m)
			p2p_finish(p, p->slot[i].m, BERTH_TIMEOUT);
		p2p_slot_free(p, i);
	}
	if (!p2p_answer(q, &g))
		p2p_give_up(p, BERTH_MEMORY);
	return TAKEN;
}

static enum taken take_gone(struct p2p *p, struct p2p_peer *q,
			    const struct p2p_frame *f)
{
	struct p2p_slot *s = p2p_slot_of(p, q->place, f->id);

	if (!s || s->state != P2P_WITHDRAWN)
		return BAD;
	p2p_slot_free(p, f->id);
	return TAKEN;
}

static bool take_credit(struct p2p_peer *q, const struct p2p_frame *f)
{
	if (f->heads > q->heads_out || f->room > q->room_out)
		return false;
	q->heads_out -= f->heads;
	q->room_out -= f->room;
	return true;
}

static enum taken move_take(struct p2p *p, struct p2p_peer *q,
			    const struct p2p_frame *f, bool fresh, bool *moved)
{
	if (fresh && !take_credit(q, f))
		return BAD;
	switch (f->kind) {
	case P2P_EAGER:
	case P2P_OFFER:
		return take_message(p, q, f);
	case P2P_DATA:
		return take_data(p, q, f, fresh, moved);
	case P2P_TAKE:
	case P2P_MATCHED:
	case P2P_REFUSE:
		return take_answer(p, q, f);
	case P2P_WITHDRAW:
		return take_withdrawal(p, q, f);
	case P2P_GONE:
		return take_gone(p, q, f);
	case P2P_ABORT:
		p2p_hear_abort(p, q);
		return TAKEN;
	case P2P_REST:
	case P2P_REST_TOO:
	case P2P_STAY:
		return p2p_take_rest(p, q, f->kind) ? TAKEN : BAD;
	case P2P_LEAVE:
		q->left = true;
		return BAD; /* nothing follows */
	default:
		return TAKEN;
	}
}

/* Take the frames that have come from Q.  Did anything come? */
static bool move_pull(struct p2p *p, struct p2p_peer *q)
{
	struct p2p_frame f;
	enum taken t;
	bool fresh, moved = false;
	int rc;

	for (unsigned i = 0; i < FRAMES && !p->ended; i++) {
		rc = p2p_peer_head(q, &f, &fresh);
		if (!rc || (rc < 0 && p2p_sees_rest(p, q, true)))
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

/* Tell Q of M for the first time.  FALSE: this cannot be done yet. */
static bool move_announce(struct p2p *p, struct p2p_peer *q, struct p2p_message *m)
{
	bool eager =
		m->bytes <= P2P_EAGER_BYTES && m->bytes <= P2P_ROOM_BYTES - q->room_out;
	bool ends = eager && m->early;
	struct p2p_frame f = { .kind = eager ? P2P_EAGER : P2P_OFFER,
			       .id = P2P_NO_ID,
			       .signature = m->signature,
			       .tag = m->tag,
			       .bytes = m->bytes };

	if (q->heads_out == P2P_HEADS)
		return false;
	if (!ends)
		f.id = p2p_slot_take(p, m, q->place, eager ? P2P_SENT : P2P_OFFERED);
	if (!ends && f.id == P2P_NO_ID)
		return false;
	if (!p2p_peer_put(p, q, &f, m->in, eager ? m->bytes : 0)) {
		if (!ends)
			p2p_slot_free(p, f.id);
		return false;
	}
	q->heads_out++;
	q->room_out += eager ? (uint32_t)m->bytes : 0;
	p2p_list_remove(m);
	if (ends)
		p2p_finish(p, m, BERTH_OK);
	return true;
}

/* Send data of the first message for which Q has asked. */
static bool push_data(struct p2p *p, struct p2p_peer *q)
{
	struct p2p_message *m;
	bool moved = false;
	size_t k;

	for (unsigned i = 0; i < PIECES && (m = q->sending.first); i++) {
		if (m->moved < m->bytes) {
			k = p2p_peer_put_data(p, q, m, p->slot[m->slot].other);
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
		p2p_finish(p, m, BERTH_OK);
	}
	return moved;
}

static bool owes_credit(const struct p2p_peer *q)
{
	return q->heads_owed >= P2P_HEADS / 4 || q->room_owed >= P2P_ROOM_BYTES / 4;
}

static bool push_stay(struct p2p *p, struct p2p_peer *q)
{
	struct p2p_frame f = { .kind = P2P_STAY };
	const bool said = q->stays && p2p_peer_put(p, q, &f, NULL, 0);

	q->stays &= !said;
	return said;
}

static bool push_credit(struct p2p *p, struct p2p_peer *q)
{
	struct p2p_frame f = { .kind = P2P_CREDIT };

	return owes_credit(q) && p2p_peer_put(p, q, &f, NULL, 0);
}

static bool has_to_say(const struct p2p_peer *q)
{
	return q->answers.n || q->waiting.first || q->sending.first || q->stays ||
	       (q->stream && q->stream->wanted && q->stream->speaks < 0) ||
	       owes_credit(q);
}

/* Q has gone and takes nothing more.  The frames that it said before count. */
static void hear_last(struct p2p *p, struct p2p_peer *q)
{
	do
		q->stream->is_drained = false;
	while (move_pull(p, q) && !q->gone);
	p2p_lose(p, q);
}

static bool push_stream(struct p2p *p, struct p2p_peer *q)
{
	struct p2p_stream *s = q->stream;
	bool moved = s->moved;

	s->moved = false;
	if (!p2p_stream_flush(s))
		hear_last(p, q);
	return moved;
}

/* Is there something to be sent to Q for which no message of this rank waits? */
static bool is_owed(const struct p2p_peer *q)
{
	return q->answers.n || q->stays || owes_credit(q) ||
	       (q->stream && !p2p_stream_is_flushed(q->stream));
}

/* Note the fault of a handshake with Q.  Is there a fault? */
static bool move_hear_fault(struct p2p *p, struct p2p_peer *q)
{
	const struct net_fault *f = net_fault(p->config.net);

	if (f && f->peer == q->place && !q->fault.kind)
		q->fault = *f;
	return q->fault.kind;
}

static bool push_all(struct p2p *p, struct p2p_peer *q)
{
	bool moved = false;

	if (has_to_say(q) && !p2p_is_held(q)) {
		if (q->stream) {
			q->stream->wanted = true;
			if (p2p_stream_have(q->stream)) {
				move_hear_fault(p, q);
				q->left = !q->fault.kind && !p2p_is_lost(p, q);
				p2p_lose(p, q);
				return true;
			}
		}
		moved |= push_stay(p, q);
		moved |= p2p_push_answers(p, q);
		/* a WITHDRAW goes before its number is used again */
		for (unsigned i = 0; i < FRAMES && !q->answers.n && q->waiting.first &&
				     move_announce(p, q, q->waiting.first);
		     i++)
			moved = true;
		moved |= push_data(p, q);
		moved |= push_credit(p, q);
	}
	if (q->stream)
		return push_stream(p, q) || moved;
	if (q->out.is_bad)
		p2p_lose(p, q);
	else if (moved)
		p2p_peer_wake(p, q);
	return moved;
}

static bool move_push(struct p2p *p, struct p2p_peer *q)
{
	bool moved = !q->gone && push_all(p, q);
	bool owed = !q->gone && is_owed(q);

	if (owed != q->owed)
		atomic_fetch_add(&p->owing, owed ? 1 : UINT32_MAX);
	q->owed = owed;
	return moved;
}

/* Start M.  Then send its data, or the answer to the message that it has matched,
 * unless NEXT is for the same peer. */
static void start_and_push(struct p2p *p, struct p2p_message *m,
			   const struct p2p_message *next)
{
	const int peer = m->peer;
	unsigned to = peer == P2P_ANY ? p->config.members->me : (unsigned)peer;

	m->list = NULL;
	m->from = to;
	move_start(p, m);
	if (peer == P2P_ANY)
		to = m->from; /* the sender of the message that was here */
	if (to != p->config.members->me && (!next || next->peer != (int)to))
		move_push(p, &p->peer[to]);
}

void p2p_start(struct p2p *p, struct p2p_message *m, size_t n)
{
	for (size_t i = 0; i < n; i++)
		start_and_push(p, &m[i], i + 1 < n ? &m[i + 1] : NULL);
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
		start_and_push(p, m, next);
	}
	return true;
}

bool p2p_pass(struct p2p *p)
{
	bool moved = p2p_start_posted(p);
	const struct net_fault *f = NULL;

	if (p->ended)
		return moved;
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
		if (q->rests)
			p2p_sees_rest(p, q, false);
		if (q->stream)
			q->stream->is_drained = false;
		moved |= move_pull(p, q);
		moved |= move_push(p, q);
	}
	p2p_look(p);
	return moved;
}
