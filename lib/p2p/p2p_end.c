#include "lib/p2p/p2p_internal.h"

#include <stdio.h>
#include <stdlib.h>

#include "lib/base/clock.h"

enum { SILENT_LOOKS = 6 };

void p2p_finish(struct p2p *p, struct p2p_message *m, berth_result rc)
{
	p2p_list_remove(m);
	if (m->peer == P2P_ANY)
		p->any_pending--;
	else
		p->peer[m->peer].pending--;
	m->rc = rc;
	p2p_list_add(&p->done, m);
}

/* The owner of M may take its data back. */
static void stop_data(struct p2p_peer *q, const struct p2p_message *m)
{
	if (q->stream && q->stream->data_left && q->sending.first == m)
		q->stream->data = NULL;
}

/* End the message of slot ID.  Its peer may still speak of it. */
static void finish_slot(struct p2p *p, uint32_t id, berth_result rc)
{
	struct p2p_slot *s = &p->slot[id];
	struct p2p_peer *q = &p->peer[s->peer];
	struct p2p_message *m = s->m;
	struct p2p_frame f = { .kind = P2P_WITHDRAW, .id = id, .tag = m->tag };

	if (s->state == P2P_RECEIVING) {
		s->state = P2P_DISCARD;
	} else {
		if (s->state == P2P_SENDING)
			stop_data(q, m);
		s->state = P2P_WITHDRAWN;
		if (!p->ended && !p2p_answer(q, &f))
			rc = BERTH_MEMORY;
	}
	s->m = NULL;
	p2p_finish(p, m, rc);
}

static void finish_list(struct p2p *p, struct p2p_list *l,
			bool (*is)(const struct p2p_message *m, bool matched,
				   const void *ctx),
			const void *ctx, berth_result rc)
{
	for (struct p2p_message *m = l->first, *next; m; m = next) {
		next = m->next;
		if (is(m, false, ctx))
			p2p_finish(p, m, rc);
	}
}

/* As finish_list(), for the messages that this rank sends to itself. */
static void finish_entries(struct p2p *p, struct p2p_entries *l,
			   bool (*is)(const struct p2p_message *m, bool matched,
				      const void *ctx),
			   const void *ctx, berth_result rc)
{
	for (struct p2p_entry *e = l->first, *next; e; e = next) {
		next = e->next;
		if (!e->self || !is(e->self, false, ctx))
			continue;
		p2p_finish(p, e->self, rc);
		p2p_match_drop(&p->match, e);
	}
}

void p2p_finish_all(struct p2p *p,
		    bool (*is)(const struct p2p_message *m, bool matched,
			       const void *ctx),
		    const void *ctx, berth_result rc)
{
	for (uint32_t i = 0; i < p->slots; i++)
		if (p->slot[i].m && is(p->slot[i].m, true, ctx))
			finish_slot(p, i, rc);
	for (unsigned i = 0; i < p->config.members->n; i++)
		finish_list(p, &p->peer[i].waiting, is, ctx, rc);
	for (unsigned i = 0; i < P2P_BUCKETS; i++) {
		finish_list(p, &p->match.receives[i], is, ctx, rc);
		finish_entries(p, &p->match.entries[i], is, ctx, rc);
	}
}

/* ---- peers ---- */

static bool waits_for(const struct p2p_message *m, bool matched, const void *ctx)
{
	const struct p2p_peer *q = ctx;

	return m->peer == (int)q->place || (m->peer == P2P_ANY && !matched && !q->left);
}

static bool is_from_any(const struct p2p_message *m, bool matched, const void *ctx)
{
	(void)ctx;
	return m->peer == P2P_ANY && !matched;
}

berth_result p2p_why(const struct p2p_peer *q)
{
	return q->fault.kind && q->fault.kind != NET_CUT ? BERTH_AUTH : BERTH_PEER_LOST;
}

const struct net_fault *p2p_fault(const struct p2p *p, int place)
{
	unsigned i = place == P2P_ANY ? 0 : (unsigned)place;

	while (place == P2P_ANY && i + 1 < p->config.members->n &&
	       p2p_why(&p->peer[i]) != BERTH_AUTH)
		i++;
	return p->peer[i].fault.kind ? &p->peer[i].fault : NULL;
}

/* The address of the lane on which the peer is heard, or of any lane. */
static const char *end_address_of(struct p2p_stream *s)
{
	const char *address = NULL;

	for (unsigned lane = 0; lane < 2 && !address; lane++)
		if (s->hears < 0 || s->hears == (int)lane)
			address = net_channel(s->net, s->peer, lane)->address;
	return address ? address : "";
}

/* Note the fault while the connection still stands.  Soon it does not. */
static void note_fault(struct p2p *p, struct p2p_peer *q)
{
	struct p2p_stream *s = q->stream;
	struct net_fault *f = &q->fault;

	if (f->kind || !s || q->left || !p2p_stream_is_made(s))
		return;
	f->kind = s->is_forged ? NET_FORGED : NET_CUT;
	f->by = p->config.members->me;
	f->peer = q->place;
	snprintf(f->address, sizeof f->address, "%s", end_address_of(s));
}

void p2p_lose(struct p2p *p, struct p2p_peer *q)
{
	if (q->gone)
		return;
	note_fault(p, q);
	q->gone = true;
	q->asks = q->rests = q->stays = false;
	atomic_fetch_sub(&p->owing, q->owed);
	q->owed = false;
	p->others--;
	p->any_lost |= !q->left || !p->others;
	for (uint32_t i = 0; i < p->slots; i++) {
		struct p2p_slot *s = &p->slot[i];

		if (s->state == P2P_FREE || s->peer != q->place)
			continue;
		if (s->m)
			p2p_finish(p, s->m, p2p_why(q));
		p2p_slot_free(p, i);
	}
	p2p_finish_all(p, waits_for, q, p2p_why(q));
	if (p->any_lost)
		p2p_finish_all(p, is_from_any, NULL, BERTH_PEER_LOST);
	free(q->answers.at);
	q->answers = (struct p2p_answers){ 0 };
	p2p_stream_close(q->stream);
	q->stream = NULL;
}

static bool is_any(const struct p2p_message *m, bool matched, const void *ctx)
{
	(void)m;
	(void)matched;
	(void)ctx;
	return true;
}

void p2p_give_up(struct p2p *p, berth_result why)
{
	if (p->ended)
		return;
	p->ended = why;
	atomic_store(&p->over, (uint32_t)why);
	p2p_finish_all(p, is_any, NULL, why);
}

/* ---- from time to time ---- */

static bool end_is_late(const struct p2p_message *m, bool matched, const void *ctx)
{
	(void)matched;
	return m->deadline_ns && m->deadline_ns <= *(const uint64_t *)ctx;
}

/* Note the first deadline of all messages in flight.  All of them are asked, and none
 * of them is chosen to end. */
static bool note_deadline(const struct p2p_message *m, bool matched, const void *ctx)
{
	struct p2p *p = *(struct p2p *const *)ctx;

	(void)matched;
	if (m->deadline_ns && (!p->deadline_ns || m->deadline_ns < p->deadline_ns))
		p->deadline_ns = m->deadline_ns;
	return false;
}

bool p2p_is_lost(const struct p2p *p, const struct p2p_peer *q)
{
	return p->config.is_lost && p->config.is_lost(p->config.ctx, q->place);
}

/* Q could not be reached, and so it seemed to have left.  Is it lost? */
static void look_again(struct p2p *p, struct p2p_peer *q)
{
	if (!q->left || !p2p_is_lost(p, q))
		return;
	q->left = false;
	p->any_lost = true;
	p2p_finish_all(p, is_from_any, NULL, BERTH_PEER_LOST);
}

/* Has Q said something before that has not been read? */
static bool has_more(const struct p2p_peer *q)
{
	if (q->stream)
		return p2p_stream_is_made(q->stream) && !q->stream->is_drained;
	return !p2p_ring_is_empty(&q->in);
}

static void look_at_peer(struct p2p *p, struct p2p_peer *q)
{
	bool left;

	/* a peer that has left for good, and has never said anything, refuses */
	if (q->stream && q->pending && !p2p_stream_is_made(q->stream) &&
	    ++q->silent == SILENT_LOOKS)
		q->stream->wanted = true;
	left = q->bell && atomic_load(&q->bell->left);

	if ((!left && !p2p_is_lost(p, q)) || has_more(q))
		return;
	q->left = left;
	p2p_lose(p, q);
}

void p2p_look(struct p2p *p)
{
	uint64_t now = clock_coarse_ns();

	if (now == p->tick_ns)
		return;
	p->tick_ns = now;
	now = clock_ns();
	if (p->deadline_ns && now >= p->deadline_ns) {
		p2p_finish_all(p, end_is_late, &now, BERTH_TIMEOUT);
		p->deadline_ns = 0;
		p2p_finish_all(p, note_deadline, &p, BERTH_OK);
	}
	if (now - p->watched_ns < P2P_WATCH_MS * 1000000ull)
		return;
	p->watched_ns = now;
	for (unsigned i = 0; i < p->config.members->n; i++) {
		struct p2p_peer *q = &p->peer[i];

		if (i == p->config.members->me || (!q->pending && !p->any_pending))
			continue;
		if (q->gone)
			look_again(p, q);
		else
			look_at_peer(p, q);
	}
}
