#include "lib/p2p/p2p_internal.h"

#include <stdlib.h>
#include <string.h>

enum {
	SLOTS_FIRST = 64,
	SLOTS_MOST = 2 * P2P_MESSAGES, /* with those that have ended */
	RING_PIECE_BYTES = 32 << 10,
	LAST_BYTES = 4 << 10
};

/* ---- the numbers of messages ---- */

static bool more_slots(struct p2p *p)
{
	uint32_t n = p->slots ? 2 * p->slots : SLOTS_FIRST;
	struct p2p_slot *slot;

	if (n > SLOTS_MOST)
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

uint32_t p2p_slot_take(struct p2p *p, struct p2p_message *m, unsigned peer,
		       enum p2p_state state)
{
	uint32_t id;

	if (p->free_slot == P2P_NO_ID && !more_slots(p))
		return P2P_NO_ID;
	id = p->free_slot;
	p->free_slot = p->slot[id].next;
	p->slot[id] = (struct p2p_slot){ .state = state, .peer = peer, .m = m };
	m->slot = id;
	return id;
}

void p2p_slot_free(struct p2p *p, uint32_t id)
{
	p->slot[id] = (struct p2p_slot){ .next = p->free_slot };
	p->free_slot = id;
}

struct p2p_slot *p2p_slot_of(struct p2p *p, unsigned peer, uint32_t id)
{
	struct p2p_slot *s = id < p->slots ? &p->slot[id] : NULL;

	return s && s->state != P2P_FREE && s->peer == peer ? s : NULL;
}

/* ---- sending ---- */

bool p2p_answer(struct p2p_peer *q, const struct p2p_frame *f)
{
	struct p2p_answers *a = &q->answers;

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

bool p2p_peer_put(struct p2p *p, struct p2p_peer *q, struct p2p_frame *f,
		  const void *body, size_t bytes)
{
	struct p2p_frame g = *f;
	bool put;

	(void)p;
	g.heads += q->heads_owed;
	g.room += q->room_owed;
	put = q->stream ? p2p_stream_put(q->stream, &g, body, bytes)
			: p2p_ring_put(&q->out, &g, body, bytes);
	if (!put)
		return false;
	q->heads_in -= g.heads;
	q->room_in -= g.room;
	q->heads_owed = q->room_owed = 0;
	return true;
}

bool p2p_push_answers(struct p2p *p, struct p2p_peer *q)
{
	struct p2p_answers *a = &q->answers;
	bool moved = false;

	while (a->n && p2p_peer_put(p, q, &a->at[a->first], NULL, 0)) {
		a->first = (a->first + 1) % a->room;
		a->n--;
		moved = true;
	}
	return moved;
}

size_t p2p_peer_put_data(struct p2p *p, struct p2p_peer *q, const struct p2p_message *m,
			 uint32_t to)
{
	const unsigned char *from = (const unsigned char *)m->in + m->moved;
	uint64_t left = m->bytes - m->moved,
		 most = q->stream ? P2P_DATA_BYTES : RING_PIECE_BYTES;
	struct p2p_frame f = { .kind = P2P_DATA, .to = to };

	f.bytes = left < most ? left : most;
	if (!q->stream) {
		f.bytes = p2p_ring_room(&q->out, f.bytes);
		return f.bytes && p2p_peer_put(p, q, &f, from, f.bytes) ? f.bytes : 0;
	}
	/* The last bytes are copied.  Data that go from where they lie may still be
	 * withdrawn, so they must not be the end of the data. */
	if (left <= LAST_BYTES)
		return p2p_stream_put(q->stream, &f, from, f.bytes) ? f.bytes : 0;
	if (f.bytes > left - LAST_BYTES)
		f.bytes = left - LAST_BYTES;
	return p2p_stream_put_data(q->stream, &f, from, f.bytes) ? f.bytes : 0;
}

void p2p_peer_wake(struct p2p *p, struct p2p_peer *q)
{
	if (q->bell && bell_has_sleeper(q->bell, 0))
		bell_ring(q->bell, p->bell_fd);
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
