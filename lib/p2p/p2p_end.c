#include "lib/p2p/p2p_internal.h"

#include <stdio.h>
#include <stdlib.h>

#include "lib/base/clock.h"

enum { SILENT_LOOKS = 6 };

void p2p_finish(struct p2p_message *m, berth_result rc)
{
	struct p2p_group *g = m->group;

	p2p_list_remove(m);
	if (m->peer == P2P_ANY)
		g->any_pending--;
	else
		g->pair[m->peer].pending--;
	m->rc = rc;
	p2p_list_add(&g->p2p->done, m);
}

/* The owner of M, which goes to Q, may take its data back. */
static void end_stop_data(struct p2p_peer *q, const struct p2p_message *m)
{
	if (q->stream && q->stream->data_left && q->sends == m)
		q->stream->data = NULL;
}

/* End the message of slot ID.  Its peer may still speak of it. */
static void finish_slot(struct p2p *p, uint32_t id, berth_result rc)
{
	struct p2p_slot *s = &p->slot[id];
	struct p2p_pair *pair = s->pair;
	struct p2p_message *m = s->m;
	const struct p2p_frame f = { .kind = P2P_WITHDRAW, .id = id, .tag = m->tag };

	if (s->state == P2P_RECEIVING) {
		s->state = P2P_DISCARD;
	} else {
		if (s->state == P2P_SENDING)
			end_stop_data(pair->peer, m);
		s->state = P2P_WITHDRAWN;
		if (!pair->group->over && !p2p_answer(pair, f))
			rc = BERTH_MEMORY;
	}
	s->m = NULL;
	p2p_finish(m, rc);
}

static void finish_list(struct p2p_list *l,
			bool (*is)(const struct p2p_message *m, bool matched,
				   const void *ctx),
			const void *ctx, berth_result rc)
{
	for (struct p2p_message *m = l->first, *next; m; m = next) {
		next = m->next;
		if (is(m, false, ctx))
			p2p_finish(m, rc);
	}
}

/* As finish_list(), for the messages that this rank sends to itself. */
static void finish_entries(struct p2p_match *t, struct p2p_entries *l,
			   bool (*is)(const struct p2p_message *m, bool matched,
				      const void *ctx),
			   const void *ctx, berth_result rc)
{
	for (struct p2p_entry *e = l->first, *next; e; e = next) {
		next = e->next;
		if (!e->self || !is(e->self, false, ctx))
			continue;
		p2p_finish(e->self, rc);
		e->self = NULL;
		e->is_over = true;
		if (!e->is_asked)
			p2p_match_drop(t, e);
	}
}

void p2p_finish_all(struct p2p_group *g,
		    bool (*is)(const struct p2p_message *m, bool matched,
			       const void *ctx),
		    const void *ctx, berth_result rc)
{
	struct p2p *p = g->p2p;

	for (uint32_t i = 0; i < p->slots; i++)
		if (p->slot[i].m && p->slot[i].pair->group == g &&
		    is(p->slot[i].m, true, ctx))
			finish_slot(p, i, rc);
	for (unsigned i = 0; i < g->n; i++)
		finish_list(&g->pair[i].waiting, is, ctx, rc);
	for (unsigned i = 0; i < P2P_BUCKETS; i++) {
		finish_list(&g->match->receives[i], is, ctx, rc);
		finish_entries(g->match, &g->match->entries[i], is, ctx, rc);
	}
}

/* ---- the end of a group ---- */

static bool end_is_any(const struct p2p_message *m, bool matched, const void *ctx)
{
	(void)m;
	(void)matched;
	(void)ctx;
	return true;
}

void p2p_give_up(struct p2p_group *g, berth_result why)
{
	uint32_t none = BERTH_OK;

	if (atomic_compare_exchange_strong(&g->over, &none, (uint32_t)why) && g->pair)
		p2p_finish_all(g, end_is_any, NULL, why);
}

/* ---- peers ---- */

static bool waits_for(const struct p2p_message *m, bool matched, const void *ctx)
{
	const struct p2p_pair *pair = ctx;

	return m->peer == (int)pair->place ||
	       (m->peer == P2P_ANY && !matched && !pair->left);
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

const struct net_fault *p2p_fault(const struct p2p_group *g, int place)
{
	const struct members *m = g->config.members;
	unsigned i = place == P2P_ANY ? 0 : (unsigned)place;
	const struct p2p_peer *peer = g->p2p->peer;

	while (place == P2P_ANY && i + 1 < g->n &&
	       p2p_why(&peer[m->rank[i]]) != BERTH_AUTH)
		i++;
	return peer[m->rank[i]].fault.kind ? &peer[m->rank[i]].fault : NULL;
}

/* Note the fault while the connection still stands.  Soon it does not. */
static void note_fault(struct p2p *p, struct p2p_peer *q)
{
	struct p2p_stream *s = q->stream;
	struct net_fault *f = &q->fault;
	const char *address = NULL;

	if (f->kind || !s || q->left || !p2p_stream_is_made(s))
		return;
	f->kind = s->is_forged ? NET_FORGED : NET_CUT;
	f->by = p->config.members->me;
	f->peer = q->rank;
	/* of the lane on which the peer is heard, or of any lane */
	for (unsigned lane = 0; lane < 2 && !address; lane++)
		if (s->hears < 0 || s->hears == (int)lane)
			address = net_channel(s->net, s->peer, lane)->address;
	snprintf(f->address, sizeof f->address, "%s", address ? address : "");
}

void p2p_lose_pair(struct p2p_pair *pair)
{
	const berth_result why = p2p_why(pair->peer);
	struct p2p_group *g = pair->group;
	struct p2p *p = g->p2p;

	if (pair->gone)
		return;
	pair->gone = true;
	p2p_is_told(pair);
	g->others--;
	g->any_lost |= !pair->left || !g->others;
	for (uint32_t i = 0; i < p->slots; i++) {
		struct p2p_slot *s = &p->slot[i];

		if (s->state == P2P_FREE || s->pair != pair)
			continue;
		if (s->state == P2P_SENDING)
			end_stop_data(pair->peer, s->m);
		if (s->m)
			p2p_finish(s->m, why);
		p2p_slot_free(p, i);
	}
	p2p_finish_all(g, waits_for, pair, why);
	if (g->any_lost)
		p2p_finish_all(g, is_from_any, NULL, BERTH_PEER_LOST);
}

void p2p_lose(struct p2p *p, struct p2p_peer *q)
{
	if (q->gone)
		return;
	note_fault(p, q);
	q->gone = true;
	atomic_fetch_sub(&p->owing, q->owed);
	q->owed = false;
	for (struct p2p_group *g = p->groups; g; g = g->next)
		for (unsigned i = 0; g->pair && i < g->n; i++)
			if (g->pair[i].peer == q) {
				g->pair[i].left |= q->left;
				p2p_lose_pair(&g->pair[i]);
			}
	free(q->answers.at);
	q->answers = (struct p2p_answers){ 0 };
	p2p_stream_close(q->stream);
	q->stream = NULL;
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
	return p->config.is_lost && p->config.is_lost(p->config.ctx, q->rank);
}

static void look_at_pair(struct p2p_pair *pair)
{
	struct p2p_group *g = pair->group;
	struct p2p_peer *q = pair->peer;
	bool has_left;

	/* a peer that could not be reached seemed to have left, and may be lost */
	if (pair->gone && pair->left && p2p_is_lost(g->p2p, q)) {
		pair->left = false;
		g->any_lost = true;
		p2p_finish_all(g, is_from_any, NULL, BERTH_PEER_LOST);
	}
	if (pair->gone)
		return;
	/* a member of another host that has left the group says so if it is asked */
	if (q->stream && pair->pending && !pair->met && ++pair->silent == SILENT_LOOKS)
		p2p_answer(pair, (struct p2p_frame){ .kind = P2P_ASK });
	if (q->bell && atomic_load(&q->bell->left))
		q->left = true;
	has_left = q->bell && g->config.has_left &&
		   g->config.has_left(g->config.ctx, pair->place);
	if (!q->left && !has_left && !p2p_is_lost(g->p2p, q))
		return;
	/* has Q said something before that has not been read? */
	if (q->stream ? p2p_stream_is_made(q->stream) && !q->stream->is_drained
		      : !p2p_ring_is_empty(&q->in))
		return;
	pair->left = has_left;
	if (has_left)
		p2p_lose_pair(pair);
	else
		p2p_lose(g->p2p, q);
}

static void look_at_group(struct p2p_group *g)
{
	const berth_result rc =
		g->config.look ? g->config.look(g->config.ctx) : BERTH_OK;

	if (rc) {
		p2p_give_up(g, rc);
		return;
	}
	for (unsigned i = 0; i < g->n; i++) {
		struct p2p_pair *pair = &g->pair[i];

		if (i != g->me && (pair->pending || g->any_pending))
			look_at_pair(pair);
	}
}

void p2p_look(struct p2p *p)
{
	uint64_t now = clock_coarse_ns();

	if (now == p->tick_ns)
		return;
	p->tick_ns = now;
	now = clock_ns();
	if (p->deadline_ns && now >= p->deadline_ns) {
		p->deadline_ns = 0;
		for (struct p2p_group *g = p->groups; g; g = g->next)
			if (atomic_load(&g->in_flight)) {
				p2p_finish_all(g, end_is_late, &now, BERTH_TIMEOUT);
				p2p_finish_all(g, note_deadline, &p, BERTH_OK);
			}
	}
	if (now - p->watched_ns < wait_look_ns())
		return;
	p->watched_ns = now;
	for (struct p2p_group *g = p->groups; g; g = g->next)
		if (g->pair && !g->has_left && atomic_load(&g->in_flight))
			look_at_group(g);
}
