#include "launcher/output/out_queue.h"

#include <unistd.h>

#include "common/str.h"

enum {
	DEBT_BYTES = 4096, /* returned at once: small against the least window */
	BLOCK_BYTES = 65536
};

/* Credit of a host that goes back once everything up to mark was written. */
struct debt {
	uint64_t mark;
	uint32_t host;
	size_t n;
};

/* Pieces one after the other, each a struct out_queue_piece and its bytes: [at, end). */
struct block {
	struct block *next;
	size_t at, end, newest; /* newest: where the last piece begins */
	size_t taken;           /* bytes of the first piece that are gone */
	unsigned char bytes[BLOCK_BYTES];
};

/* ---- credit ---- */

static void pay(struct out_queue *l)
{
	while (l->n && l->debt[l->first].mark <= l->written) {
		struct debt d = l->debt[l->first];

		l->first = (l->first + 1) % l->cap;
		l->n--;
		l->events->left(l, d.host, d.n);
	}
}

static void grow_debts(struct out_queue *l)
{
	size_t cap = l->cap ? 2 * l->cap : 64;
	struct debt *grown = xcalloc(cap, sizeof *grown);

	for (size_t i = 0; i < l->n; i++)
		grown[i] = l->debt[(l->first + i) % l->cap];
	free(l->debt);
	l->debt = grown;
	l->first = 0;
	l->cap = cap;
}

void out_queue_owe(struct out_queue *l, const struct out_queue_piece *p)
{
	struct debt *last = l->n ? &l->debt[(l->first + l->n - 1) % l->cap] : NULL;

	if (!p->stream)
		return;
	if (l->queued == l->written) {
		l->events->left(l, p->host, p->cost);
	} else if (last && last->host == p->host && last->n + p->cost <= DEBT_BYTES) {
		last->mark = l->queued;
		last->n += p->cost;
	} else {
		if (l->n == l->cap)
			grow_debts(l);
		l->debt[(l->first + l->n++) % l->cap] =
			(struct debt){ l->queued, p->host, p->cost };
	}
}

/* ---- the queue ---- */

void out_queue_put(struct out_queue *l, const void *bytes, size_t n)
{
	buf_add(&l->sink.queue, bytes, n);
	l->queued += n;
}

bool out_queue_is_full(const struct out_queue *l)
{
	return l->head || l->sink.queue.len >= LANE_QUEUE_BYTES;
}

static void on_written(void *ctx, size_t n)
{
	struct out_queue *l = ctx;

	l->written += n;
	pay(l);
	l->events->room(l);
}

static void on_broken(void *ctx, int error)
{
	struct out_queue *l = ctx;
	struct out_queue_piece p;

	l->written = l->queued;
	pay(l);
	while (out_queue_first(l, &p)) {
		out_queue_took(l, &p);
		out_queue_owe(l, &p);
	}
	l->events->broken(l, error);
}

/* ---- what waits for room ---- */

static struct out_queue_piece piece_at(const struct block *b, size_t at)
{
	struct out_queue_piece p;

	memcpy(&p, b->bytes + at, sizeof p);
	return p;
}

static bool same_stream(const struct out_queue_piece *a,
			const struct out_queue_piece *b)
{
	return a->host == b->host && a->rank == b->rank && a->stream == b->stream &&
	       a->stream;
}

/* The last block, with room for at least one byte of P behind a piece like it. */
static struct block *room_for(struct out_queue *l, const struct out_queue_piece *p)
{
	struct out_queue_piece fresh = { p->host, p->rank, p->stream, 0, 0 };
	struct block *b = l->tail;

	if (b && b->end < BLOCK_BYTES) {
		struct out_queue_piece newest = piece_at(b, b->newest);

		if (same_stream(&newest, p))
			return b;
	}
	if (!b || BLOCK_BYTES - b->end <= sizeof fresh) {
		b = xmalloc(sizeof *b); /* not zeroed: its pages come as they fill */
		b->next = NULL;
		b->at = b->end = b->taken = 0;
		if (l->tail)
			l->tail->next = b;
		else
			l->head = b;
		l->tail = b;
	}
	b->newest = b->end;
	memcpy(b->bytes + b->end, &fresh, sizeof fresh);
	b->end += sizeof fresh;
	return b;
}

void out_queue_keep(struct out_queue *l, const struct out_queue_piece *p,
		    const void *bytes)
{
	const char *from = bytes;
	uint32_t left = p->n, heads = p->cost - p->n;

	while (left) {
		struct block *b = room_for(l, p);
		size_t room = BLOCK_BYTES - b->end;
		uint32_t part = left < room ? left : (uint32_t)room;
		struct out_queue_piece grown = piece_at(b, b->newest);

		memcpy(b->bytes + b->end, from, part);
		b->end += part;
		grown.n += part;
		grown.cost += part + heads;
		memcpy(b->bytes + b->newest, &grown, sizeof grown);
		heads = 0;
		from += part;
		left -= part;
		l->waiting += part;
	}
}

const char *out_queue_first(const struct out_queue *l, struct out_queue_piece *p)
{
	const struct block *b = l->head;

	if (!b || l->sink.queue.len >= LANE_QUEUE_BYTES)
		return NULL;
	*p = piece_at(b, b->at);
	p->n -= (uint32_t)b->taken;
	p->cost -= (uint32_t)b->taken;
	return (const char *)b->bytes + b->at + sizeof *p + b->taken;
}

void out_queue_took(struct out_queue *l, struct out_queue_piece *p)
{
	struct block *b = l->head;
	struct out_queue_piece all = piece_at(b, b->at);

	l->waiting -= p->n;
	b->taken += p->n;
	p->cost = p->n;
	if (b->taken < all.n)
		return;
	p->cost += all.cost - all.n;
	b->at += sizeof all + all.n;
	b->taken = 0;
	if (b->at == b->end) {
		l->head = b->next;
		if (!l->head)
			l->tail = NULL;
		free(b);
	}
}

/* ---- the whole ---- */

void out_queue_open(struct out_queue *l, struct event_base *base, int fd,
		    const struct out_queue_events *events, void *ctx)
{
	static const struct sink_events sink = { on_written, on_broken };

	*l = (struct out_queue){ .events = events, .ctx = ctx, .open_line = -1 };
	l->terminal = isatty(fd);
	sink_open(&l->sink, base, fd, &sink, l);
}

void out_queue_free(struct out_queue *l)
{
	while (l->head) {
		struct block *next = l->head->next;

		free(l->head);
		l->head = next;
	}
	free(l->debt);
	sink_free(&l->sink);
	*l = (struct out_queue){ 0 };
}
