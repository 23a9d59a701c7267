#include "lib/p2p/p2p_internal.h"

#include <stdlib.h>
#include <string.h>

enum {
	SLOTS_FIRST = 64,
	SLOTS_MOST = 2 * P2P_MESSAGES, /* of a group, with those that have ended */
	SLOTS_ALL = 1 << 26,           /* of all groups */
	RING_PIECE_BYTES = 32 << 10,
	LAST_BYTES = 4 << 10
};

/* ---- the numbers of messages ---- */

static bool more_slots(struct p2p *p)
{
	uint32_t n = p->slots ? 2 * p->slots : SLOTS_FIRST;
	struct p2p_slot *slot;

	if (n > SLOTS_ALL)
		return false;
	slot = realloc(p->slot, n * sizeof *slot);
	if (!slot)
		return false;
	p->slot = slot;
	for (uint32_t i = n; i-- > p->slots;) {
		slot[i] = (struct p2p_slot){ .next = p->free_slot };
		p->free_slot = i;
	}
	p->slots = n;
	return true;
}

uint32_t p2p_slot_take(struct p2p_pair *pair, struct p2p_message *m,
		       enum p2p_state state)
{
	struct p2p_group *g = pair->group;
	struct p2p *p = g->p2p;
	uint32_t id;

	if (g->slots == SLOTS_MOST || (p->free_slot == P2P_NO_ID && !more_slots(p)))
		return P2P_NO_ID;
	g->slots++;
	id = p->free_slot;
	p->free_slot = p->slot[id].next;
	p->slot[id] = (struct p2p_slot){ .state = state, .pair = pair, .m = m };
	m->slot = id;
	return id;
}

void p2p_slot_free(struct p2p *p, uint32_t id)
{
	p->slot[id].pair->group->slots--;
	p->slot[id] = (struct p2p_slot){ .next = p->free_slot };
	p->free_slot = id;
}

struct p2p_slot *p2p_slot_of(const struct p2p_pair *pair, uint32_t id)
{
	struct p2p *p = pair->group->p2p;
	struct p2p_slot *s = id < p->slots ? &p->slot[id] : NULL;

	return s && s->state != P2P_FREE && s->pair == pair ? s : NULL;
}

/* ---- sending ---- */

bool p2p_peer_answer(struct p2p_peer *q, const struct p2p_frame *f)
{
	struct p2p_answers *a = &q->answers;

	if (a->n == P2P_ANSWERS)
		return false;
	if (a->n == a->room) {
		uint32_t room = a->room ? 2 * a->room : 16;
		struct p2p_frame *at = malloc(room * sizeof *at);

		if (!at)
			return false;
		for (uint32_t i = 0; i < a->n; i++)
			at[i] = a->at[(a->first + i) % a->room];
		free(a->at);
		a->at = at;
		a->first = 0;
		a->room = room;
	}
	a->at[(a->first + a->n++) % a->room] = *f;
	return true;
}

bool p2p_answer(struct p2p_pair *pair, struct p2p_frame f)
{
	f.group = pair->group->config.number;
	f.place = pair->group->me;
	pair->met = true;
	return p2p_peer_answer(pair->peer, &f);
}

static bool peer_put(struct p2p_peer *q, const struct p2p_frame *f, const void *body,
		     size_t bytes)
{
	return q->stream ? p2p_stream_put(q->stream, f, body, bytes)
			 : p2p_ring_put(&q->out, f, body, bytes);
}

bool p2p_peer_put(struct p2p_pair *pair, struct p2p_frame f, const void *body,
		  size_t bytes)
{
	f.group = pair->group->config.number;
	f.place = pair->group->me;
	pair->met = true;
	return peer_put(pair->peer, &f, body, bytes);
}

bool p2p_peer_put_last(struct p2p_peer *q)
{
	return peer_put(q, &(struct p2p_frame){ .kind = P2P_LEAVE }, NULL, 0);
}

bool p2p_push_answers(struct p2p_peer *q)
{
	struct p2p_answers *a = &q->answers;
	bool moved = false;

	while (a->n && peer_put(q, &a->at[a->first], NULL, 0)) {
		a->first = (a->first + 1) % a->room;
		a->n--;
		moved = true;
	}
	return moved;
}

void p2p_is_told(struct p2p_pair *pair)
{
	if (!pair->tells)
		return;
	pair->tells = false;
	pair->peer->telling--;
	pair->group->telling--;
}

size_t p2p_peer_put_data(struct p2p_pair *pair, const struct p2p_message *m,
			 uint32_t to)
{
	struct p2p_peer *q = pair->peer;
	const unsigned char *from = (const unsigned char *)m->in + m->moved;
	uint64_t left = m->bytes - m->moved,
		 most = q->stream ? P2P_DATA_BYTES : RING_PIECE_BYTES;
	struct p2p_frame f = { .kind = P2P_DATA,
			       .group = pair->group->config.number,
			       .place = pair->group->me,
			       .to = to };

	f.bytes = left < most ? left : most;
	if (!q->stream) {
		f.bytes = p2p_ring_room(&q->out, f.bytes);
		return f.bytes && p2p_ring_put(&q->out, &f, from, f.bytes) ? f.bytes
									   : 0;
	}
	/* The last bytes are copied.  Data that go from where they lie may still be
	 * withdrawn, so they must not be the end of the data. */
	if (left <= LAST_BYTES)
		return p2p_stream_put(q->stream, &f, from, f.bytes) ? f.bytes : 0;
	if (f.bytes > left - LAST_BYTES)
		f.bytes = left - LAST_BYTES;
	if (!p2p_stream_put_data(q->stream, &f, from, f.bytes))
		return 0;
	q->sends = m;
	return f.bytes;
}

void p2p_peer_wake(struct p2p *p, struct p2p_peer *q)
{
	if (!q->bell)
		return;
	if (bell_has_sleeper(q->bell, 0))
		bell_ring(q->bell, p->bell_fd);
	if (!q->thread ||
	    !atomic_load_explicit(&q->bell->listens, memory_order_relaxed))
		return;
	/* as the thread's last look comes after it shows that it sleeps */
	atomic_thread_fence(memory_order_seq_cst);
	if (bell_has_sleeper(q->thread, 0))
		bell_ring(q->thread, p->bell_fd);
}

/* ---- receiving ---- */

int p2p_peer_head(struct p2p_peer *q, struct p2p_frame *f, bool *fresh)
{
	return q->stream ? p2p_stream_head(q->stream, f, fresh)
			 : p2p_ring_head(&q->in, f, fresh);
}

size_t p2p_peer_body(struct p2p_peer *q, void *to)
{
	if (q->stream)
		return p2p_stream_body(q->stream, to);
	p2p_ring_body(&q->in, to);
	return q->in.body;
}

void p2p_peer_next(struct p2p *p, struct p2p_peer *q)
{
	if (q->stream) {
		p2p_stream_next(q->stream);
		return;
	}
	p2p_ring_next(&q->in);
	if (p2p_ring_is_awaited(&q->in))
		p2p_peer_wake(p, q);
}
