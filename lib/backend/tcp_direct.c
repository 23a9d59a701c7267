#include "lib/backend/tcp_internal.h"

#include <stdlib.h>
#include <string.h>

#include "lib/backend/pairwise.h"

/* Each place reduces one part, and all others send it their elements of that part.
 * Elements travel as they are, and are rounded once.  It takes as many bytes as
 * recursive halving, and two steps for any number of places, but more messages. */

enum { CHUNK_BYTES = 256 << 10 /* of a part, from each place at a time */ };

static uint64_t direct_part(const struct tcp *t, unsigned i)
{
	return t->bound[i + 1] - t->bound[i];
}

static uint64_t direct_least(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* Elements of place I's part from element FROM on, at most MOST. */
static uint64_t direct_cut(const struct tcp *t, unsigned i, uint64_t from,
			   uint64_t most)
{
	return from < direct_part(t, i) ? direct_least(direct_part(t, i) - from, most)
					: 0;
}

static void even_bounds(struct tcp_op *w)
{
	for (unsigned i = 0; i <= w->t->n; i++)
		w->t->bound[i] = tcp_first(w, w->t->n, i);
}

/* The place K further on, and the one K before. */
static unsigned direct_after(const struct tcp *t, unsigned k)
{
	return (t->me + k) % t->n;
}

static unsigned direct_before(const struct tcp *t, unsigned k)
{
	return (t->me + t->n - k) % t->n;
}

/* Receives a chunk from each other place in T->room, by place, and sends each its
 * own. */
static berth_result scatter_chunk(struct tcp_op *w, size_t unit, uint64_t from,
				  uint64_t most)
{
	struct tcp *t = w->t;
	struct tcp_transfer out[TCP_AT_ONCE], in[TCP_AT_ONCE];
	berth_result rc = BERTH_OK;

	for (unsigned k = 1, m; !rc && k < t->n; k += m) {
		for (m = 0; m < TCP_AT_ONCE && k + m < t->n; m++) {
			unsigned to = direct_after(t, k + m),
				 of = direct_before(t, k + m);

			out[m] = (struct tcp_transfer){
				.place = to,
				.data = (const unsigned char *)w->c->in +
					(t->bound[to] + from) * unit,
				.bytes = direct_cut(t, to, from, most) * unit
			};
			in[m] = (struct tcp_transfer){
				.place = of,
				.dst = t->room + of * most * unit,
				.bytes = direct_cut(t, t->me, from, most) * unit
			};
		}
		rc = tcp_exchange_all(w, out, in, m);
	}
	return rc;
}

static void reduce_chunk(struct tcp_op *w, unsigned char *out, size_t unit,
			 uint64_t from, uint64_t most)
{
	struct tcp *t = w->t;
	const void *src[t->n];
	uint64_t n = direct_cut(t, t->me, from, most);

	for (unsigned i = 0; i < t->n; i++)
		src[i] = i == t->me ? (const unsigned char *)w->c->in +
					      (t->bound[i] + from) * unit
				    : t->room + i * most * unit;
	if (n)
		pairwise_reduce(w->c, out + from * w->size, src, t->n, n,
				w->c->in_form);
}

berth_result tcp_direct_reducescatter(struct tcp_op *w, void *out)
{
	struct tcp *t = w->t;
	struct kern k;
	uint64_t largest = 0, most;
	berth_result rc;

	coll_kern(&k, w->c, w->c->in_form, KERN_ELEMENTS);
	for (unsigned i = 0; i < t->n; i++)
		if (direct_part(t, i) > largest)
			largest = direct_part(t, i);
	most = direct_least(largest, CHUNK_BYTES / k.in_bytes);
	rc = tcp_need_room(t, t->n * most * k.in_bytes);
	for (uint64_t from = 0; !rc && from < largest; from += most) {
		rc = scatter_chunk(w, k.in_bytes, from, most);
		if (!rc)
			reduce_chunk(w, out, k.in_bytes, from, most);
	}
	return rc;
}

/* Each place has its part in OUT, and sends it to all others. */
static berth_result direct_spread(struct tcp_op *w)
{
	struct tcp *t = w->t;
	struct tcp_transfer out[TCP_AT_ONCE], in[TCP_AT_ONCE];
	unsigned char *at = w->c->out;
	berth_result rc = BERTH_OK;

	for (unsigned k = 1, m; !rc && k < t->n; k += m) {
		for (m = 0; m < TCP_AT_ONCE && k + m < t->n; m++) {
			unsigned of = direct_before(t, k + m);

			out[m] = (struct tcp_transfer){
				.place = direct_after(t, k + m),
				.data = at + t->bound[t->me] * w->size,
				.bytes = direct_part(t, t->me) * w->size
			};
			in[m] = (struct tcp_transfer){
				.place = of,
				.dst = at + t->bound[of] * w->size,
				.bytes = direct_part(t, of) * w->size
			};
		}
		rc = tcp_exchange_all(w, out, in, m);
	}
	return rc;
}

static unsigned char *direct_own_part(const struct tcp_op *w)
{
	return (unsigned char *)w->c->out + w->t->bound[w->t->me] * w->size;
}

berth_result tcp_direct_allreduce(struct tcp_op *w)
{
	berth_result rc;

	even_bounds(w);
	rc = tcp_direct_reducescatter(w, direct_own_part(w));
	return rc ? rc : direct_spread(w);
}

/* The root takes the others' parts of the result. */
static berth_result direct_collect(struct tcp_op *w, const unsigned char *mine)
{
	struct tcp *t = w->t;
	struct tcp_transfer in[TCP_AT_ONCE], none[TCP_AT_ONCE];
	struct tcp_transfer out = { .place = w->c->root,
				    .data = mine,
				    .bytes = direct_part(t, t->me) * w->size };
	uint32_t step = t->step;
	berth_result rc = BERTH_OK;

	if (t->me != w->c->root)
		return tcp_exchange(w, &out, NULL);
	memset(none, 0, sizeof none);
	for (unsigned k = 1, m; !rc && k < t->n; k += m) {
		for (m = 0; m < TCP_AT_ONCE && k + m < t->n; m++) {
			unsigned of = direct_before(t, k + m);

			in[m] = (struct tcp_transfer){
				.place = of,
				.dst = (unsigned char *)w->c->out +
				       t->bound[of] * w->size,
				.bytes = direct_part(t, of) * w->size
			};
		}
		t->step = step; /* the step of the others, which send once */
		rc = tcp_exchange_all(w, none, in, m);
	}
	return rc;
}

/* Only the root writes OUT.  The others have room of their own for their parts. */
berth_result tcp_direct_reduce(struct tcp_op *w)
{
	struct tcp *t = w->t;
	unsigned char *mine = NULL;
	size_t bytes;
	berth_result rc;

	even_bounds(w);
	if (t->me == w->c->root) {
		rc = tcp_direct_reducescatter(w, direct_own_part(w));
		return rc ? rc : direct_collect(w, NULL);
	}
	bytes = direct_part(t, t->me) * w->size;
	mine = bytes ? malloc(bytes) : NULL;
	if (bytes && !mine)
		return tcp_fail(t, BERTH_MEMORY, t->rank[t->me]);
	rc = tcp_direct_reducescatter(w, mine);
	if (!rc)
		rc = direct_collect(w, mine);
	free(mine);
	return rc;
}

berth_result tcp_reducescatter(struct tcp_op *w)
{
	struct tcp *t = w->t;

	for (unsigned i = 0; i <= t->n; i++)
		t->bound[i] = coll_part_at(w->c, t->n, i);
	return tcp_direct_reducescatter(w, w->c->out);
}
