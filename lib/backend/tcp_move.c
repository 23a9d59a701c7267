#include "lib/backend/tcp_internal.h"

#include <stdlib.h>
#include <string.h>

enum {
	TREE_BYTES = 64 << 10, /* of a broadcast along a tree */
	/* Steps of a broadcast, in which ranks do not send and receive equally
	 * often. */
	TREE_STEP = 1 << 20,
	PARTS_STEP,
	RING_STEP
};

berth_result tcp_share(struct tcp_op *w)
{
	struct tcp *t = w->t;
	unsigned n = t->n, next = (t->me + 1) % n, before = (t->me + n - 1) % n;
	unsigned char *out = w->c->out;
	berth_result rc = BERTH_OK;

	for (unsigned k = 0; !rc && k + 1 < n; k++) {
		unsigned give = (t->me + n - k) % n, get = (t->me + 2 * n - k - 1) % n;
		uint64_t at = tcp_bound(w, n, give), end = tcp_bound(w, n, give + 1);
		uint64_t to = tcp_bound(w, n, get), to_end = tcp_bound(w, n, get + 1);

		rc = tcp_sendrecv(w, next, out + at, end - at, before, out + to,
				  to_end - to);
	}
	return rc;
}

berth_result tcp_allgather(struct tcp_op *w)
{
	struct tcp *t = w->t;
	unsigned n = t->n, next = (t->me + 1) % n, before = (t->me + n - 1) % n;
	unsigned char *out = w->c->out;
	berth_result rc = BERTH_OK;

	coll_keep_own(w->c, n, t->me);
	for (unsigned k = 0; !rc && k + 1 < n; k++) {
		unsigned give = (t->me + n - k) % n, get = (t->me + 2 * n - k - 1) % n;

		rc = tcp_sendrecv(w, next, out + coll_got_at(w->c, n, give) * w->size,
				  coll_got(w->c, n, give) * w->size, before,
				  out + coll_got_at(w->c, n, get) * w->size,
				  coll_got(w->c, n, get) * w->size);
	}
	return rc;
}

static berth_result down_tree(struct tcp_op *w)
{
	struct tcp *t = w->t;
	unsigned n = t->n, place = (t->me + n - w->c->root) % n, mask = 1;
	uint64_t bytes = w->c->count * w->size;
	berth_result rc = BERTH_OK;

	while (mask < n && !(place & mask))
		mask *= 2;
	if (place) {
		unsigned from = (place - mask + w->c->root) % n;

		t->step = TREE_STEP;
		rc = tcp_sendrecv(w, from, NULL, 0, from, w->c->out, bytes);
	}
	for (mask /= 2; !rc && mask; mask /= 2)
		if (place + mask < n) {
			unsigned to = (place + mask + w->c->root) % n;

			t->step = TREE_STEP;
			rc = tcp_sendrecv(w, to, w->c->out, bytes, to, NULL, 0);
		}
	return rc;
}

berth_result tcp_broadcast(struct tcp_op *w)
{
	struct tcp *t = w->t;
	unsigned char *out = w->c->out;
	berth_result rc = BERTH_OK;

	coll_keep_own(w->c, t->n, t->me);
	if (w->c->count * w->size <= TREE_BYTES)
		return down_tree(w);
	for (unsigned r = 0; !rc && r < t->n; r++) {
		uint64_t at = tcp_bound(w, t->n, r),
			 bytes = tcp_bound(w, t->n, r + 1) - at;

		t->step = PARTS_STEP;
		if (r == w->c->root)
			continue;
		if (t->me == w->c->root)
			rc = tcp_sendrecv(w, r, out + at, bytes, r, NULL, 0);
		else if (r == t->me)
			rc = tcp_sendrecv(w, w->c->root, NULL, 0, w->c->root, out + at,
					  bytes);
	}
	t->step = RING_STEP;
	return rc ? rc : tcp_share(w);
}

berth_result tcp_alltoall(struct tcp_op *w)
{
	struct tcp *t = w->t;
	const struct coll *c = w->c;
	unsigned n = t->n;
	const unsigned char *in = c->in;
	unsigned char *out = c->out, *copy = NULL;
	uint64_t own = coll_part(c, n, t->me) * w->size;
	berth_result rc = BERTH_OK;

	if (c->in == c->out) { /* data that come would overwrite data to send */
		copy = malloc(c->count * w->size + 1);
		if (!copy)
			return tcp_fail(t, BERTH_MEMORY, t->rank[t->me]);
		if (c->count) /* else IN may be NULL */
			memcpy(copy, in, c->count * w->size);
		in = copy;
	}
	if (own)
		memcpy(out + coll_got_at(c, n, t->me) * w->size,
		       in + coll_part_at(c, n, t->me) * w->size, own);
	for (unsigned k = 1; !rc && k < n; k++) {
		unsigned to = (t->me + k) % n, from = (t->me + n - k) % n;

		rc = tcp_sendrecv(w, to, in + coll_part_at(c, n, to) * w->size,
				  coll_part(c, n, to) * w->size, from,
				  out + coll_got_at(c, n, from) * w->size,
				  coll_got(c, n, from) * w->size);
	}
	free(copy);
	return rc;
}

/* Lists other places, from the K-th after the root on, each with its part of ARRAY,
 * which the root has.  Returns how many. */
static size_t list_parts(const struct tcp_op *w, unsigned char *array, unsigned k,
			 struct tcp_transfer part[TCP_AT_ONCE])
{
	const unsigned n = w->t->n;
	const uint64_t bytes = w->c->count * w->size;
	size_t m;

	for (m = 0; m < TCP_AT_ONCE && k + m < n; m++) {
		unsigned place = (w->c->root + k + (unsigned)m) % n;
		unsigned char *at = array ? array + place * bytes : NULL;

		part[m] = (struct tcp_transfer){
			.place = place, .data = at, .dst = at, .bytes = bytes
		};
	}
	return m;
}

/* Moves data between the root, which has ARRAY, and all others.  Each of the others has
 * one step. */
static berth_result with_root(struct tcp_op *w, unsigned char *array, bool gathers)
{
	struct tcp_transfer part[TCP_AT_ONCE], none[TCP_AT_ONCE];
	uint32_t step = w->t->step;
	berth_result rc = BERTH_OK;
	size_t m;

	memset(none, 0, sizeof none);
	for (unsigned k = 1; !rc && k < w->t->n; k += (unsigned)m) {
		m = list_parts(w, array, k, part);
		w->t->step = step;
		rc = gathers ? tcp_exchange_all(w, none, part, m)
			     : tcp_exchange_all(w, part, none, m);
	}
	return rc;
}

berth_result tcp_gather(struct tcp_op *w)
{
	const struct coll *c = w->c;
	struct tcp_transfer mine = { .place = c->root,
				     .data = c->in,
				     .bytes = c->count * w->size };

	if (w->t->me != c->root)
		return tcp_exchange(w, &mine, NULL);
	coll_keep_own(c, w->t->n, w->t->me);
	return with_root(w, c->out, true);
}

berth_result tcp_scatter(struct tcp_op *w)
{
	const struct coll *c = w->c;
	struct tcp_transfer mine = { .place = c->root,
				     .dst = c->out,
				     .bytes = c->count * w->size };

	if (w->t->me != c->root)
		return tcp_exchange(w, NULL, &mine);
	coll_keep_own(c, w->t->n, w->t->me);
	return with_root(w, (unsigned char *)(uintptr_t)c->in, false);
}
