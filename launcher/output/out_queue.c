#include "launcher/output/out_queue.h"

#include <unistd.h>

#include "common/str.h"

enum {
	CREDIT_BYTES = 4096, /* returned at once: small against the least window */
	BLOCK_BYTES = 65536
};

/* Credit for N bytes of HOST, which goes back when MARK bytes were written. */
struct out_credit {
	uint64_t mark;
	uint32_t host;
	size_t n;
};

/* Chunks in [at, end), each a struct out_chunk and its bytes. */
struct out_block {
	struct out_block *next;
	size_t at, end, newest; /* newest: where the last chunk begins */
	size_t taken;           /* bytes of the first chunk that are queued */
	unsigned char bytes[BLOCK_BYTES];
};

/* ---- credit ---- */

static void return_credit(struct out_queue *q)
{
	while (q->n && q->credit[q->first].mark <= q->written) {
		struct out_credit c = q->credit[q->first];

		q->first = (q->first + 1) % q->cap;
		q->n--;
		q->events->left(q, c.host, c.n);
	}
}

void out_queue_credit(struct out_queue *q, const struct out_chunk *c)
{
	struct out_credit *last =
		q->n ? &q->credit[(q->first + q->n - 1) % q->cap] : NULL;
	const uint64_t queued = q->written + q->sink.queue.len;

	if (!c->stream)
		return;
	if (queued == q->written) {
		q->events->left(q, c->host, c->cost);
		return;
	}
	if (last && last->host == c->host && last->n + c->cost <= CREDIT_BYTES) {
		last->mark = queued;
		last->n += c->cost;
		return;
	}
	if (q->n == q->cap) {
		size_t cap = q->cap ? 2 * q->cap : 64;
		struct out_credit *grown = xcalloc(cap, sizeof *grown);

		for (size_t i = 0; i < q->n; i++)
			grown[i] = q->credit[(q->first + i) % q->cap];
		free(q->credit);
		q->credit = grown;
		q->first = 0;
		q->cap = cap;
	}
	q->credit[(q->first + q->n++) % q->cap] =
		(struct out_credit){ queued, c->host, c->cost };
}

/* ---- the queue ---- */

bool out_queue_is_full(const struct out_queue *q)
{
	return q->head || !out_queue_has_room(q);
}

bool out_queue_has_room(const struct out_queue *q)
{
	return q->sink.queue.len < OUT_QUEUE_BYTES;
}

static void on_written(void *ctx, size_t n)
{
	struct out_queue *q = ctx;

	q->written += n;
	return_credit(q);
	q->events->room(q);
}

static void queue_on_broken(void *ctx, int error)
{
	struct out_queue *q = ctx;
	struct out_chunk c;

	if (q->n) /* as if all were written */
		q->written = q->credit[(q->first + q->n - 1) % q->cap].mark;
	return_credit(q);
	while (out_queue_first(q, &c)) {
		out_queue_drop(q, &c);
		out_queue_credit(q, &c);
	}
	q->events->broken(q, error);
}

/* ---- chunks that wait for room ---- */

static struct out_chunk chunk_at(const struct out_block *b, size_t at)
{
	struct out_chunk c;

	memcpy(&c, b->bytes + at, sizeof c);
	return c;
}

/* The last block, with room for at least one byte of C.  Its newest chunk is of the
 * same stream. */
static struct out_block *room_for(struct out_queue *q, const struct out_chunk *c)
{
	struct out_chunk fresh = { c->host, c->rank, c->stream, 0, 0 };
	struct out_block *b = q->tail;

	if (b && b->end < BLOCK_BYTES && c->stream) {
		struct out_chunk newest = chunk_at(b, b->newest);

		if (newest.host == c->host && newest.rank == c->rank &&
		    newest.stream == c->stream)
			return b;
	}
	if (!b || BLOCK_BYTES - b->end <= sizeof fresh) {
		b = xmalloc(sizeof *b); /* not zeroed: its pages come as they fill */
		b->next = NULL;
		b->at = b->end = b->taken = 0;
		if (q->tail)
			q->tail->next = b;
		else
			q->head = b;
		q->tail = b;
	}
	b->newest = b->end;
	memcpy(b->bytes + b->end, &fresh, sizeof fresh);
	b->end += sizeof fresh;
	return b;
}

void out_queue_keep(struct out_queue *q, const struct out_chunk *c, const void *bytes)
{
	const char *from = bytes;
	uint32_t left = c->n, heads = c->cost - c->n;

	while (left) {
		struct out_block *b = room_for(q, c);
		size_t room = BLOCK_BYTES - b->end;
		uint32_t part = left < room ? left : (uint32_t)room;
		struct out_chunk grown = chunk_at(b, b->newest);

		memcpy(b->bytes + b->end, from, part);
		b->end += part;
		grown.n += part;
		grown.cost += part + heads;
		memcpy(b->bytes + b->newest, &grown, sizeof grown);
		heads = 0;
		from += part;
		left -= part;
		q->waiting += part;
	}
}

const char *out_queue_first(const struct out_queue *q, struct out_chunk *c)
{
	const struct out_block *b = q->head;

	if (!b || q->sink.queue.len >= OUT_QUEUE_BYTES)
		return NULL;
	*c = chunk_at(b, b->at);
	c->n -= (uint32_t)b->taken;
	c->cost -= (uint32_t)b->taken;
	return (const char *)b->bytes + b->at + sizeof *c + b->taken;
}

void out_queue_drop(struct out_queue *q, struct out_chunk *c)
{
	struct out_block *b = q->head;
	struct out_chunk whole = chunk_at(b, b->at);

	q->waiting -= c->n;
	b->taken += c->n;
	c->cost = c->n;
	if (b->taken < whole.n)
		return;
	c->cost += whole.cost - whole.n;
	b->at += sizeof whole + whole.n;
	b->taken = 0;
	if (b->at == b->end) {
		q->head = b->next;
		if (!q->head)
			q->tail = NULL;
		free(b);
	}
}

/* ---- open and free ---- */

void out_queue_open(struct out_queue *q, struct event_base *base, int fd,
		    const struct out_queue_events *events, void *ctx)
{
	static const struct sink_events sink = { on_written, queue_on_broken };

	*q = (struct out_queue){ .events = events, .ctx = ctx };
	q->lines.out = &q->sink.queue;
	q->lines.terminal = isatty(fd);
	sink_open(&q->sink, base, fd, &sink, q);
}

void out_queue_free(struct out_queue *q)
{
	while (q->head) {
		struct out_block *next = q->head->next;

		free(q->head);
		q->head = next;
	}
	free(q->credit);
	sink_free(&q->sink);
	*q = (struct out_queue){ 0 };
}
