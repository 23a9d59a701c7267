#include "lib/backend/tcp_internal.h"

#include <stdlib.h>
#include <string.h>

/* One transfer of tcp_sendrecv_agree(): the elements from part FIRST to END of P. */
static struct tcp_transfer parts(const struct tcp_op *w, unsigned place, unsigned p,
				 unsigned first, unsigned end)
{
	uint64_t at = tcp_bound(w, p, first);

	return (struct tcp_transfer){ .place = place,
				      .data = (const unsigned char *)w->c->out + at,
				      .dst = (unsigned char *)w->c->out + at,
				      .bytes = tcp_bound(w, p, end) - at };
}

/* Recursive halving: of P ranks each gets part `me` of the sum in OUT, of OWN and what
 * the others have. */
static berth_result halve(struct tcp_op *w, unsigned p, const unsigned char *own)
{
	unsigned me = w->t->me, first = 0;
	berth_result rc = BERTH_OK;

	for (unsigned half = p / 2; !rc && half; half /= 2) {
		unsigned keep = me & half ? first + half : first;
		unsigned give = me & half ? first : first + half;
		struct tcp_transfer out = parts(w, me ^ half, p, give, give + half);
		struct tcp_transfer in = parts(w, me ^ half, p, keep, keep + half);

		out.data = own + tcp_bound(w, p, give);
		in.data = own + tcp_bound(w, p, keep);
		in.reduces = true;
		rc = tcp_sendrecv_agree(w, &out, &in);
		own = w->c->out;
		first = keep;
	}
	return rc;
}

/* And back: everybody gets all parts. */
static berth_result give_back(struct tcp_op *w, unsigned p)
{
	berth_result rc = BERTH_OK;

	for (unsigned half = 1; !rc && half < p; half *= 2) {
		unsigned mine = w->t->me & ~(half - 1), theirs = mine ^ half;
		struct tcp_transfer out =
			parts(w, w->t->me ^ half, p, mine, mine + half);
		struct tcp_transfer in =
			parts(w, w->t->me ^ half, p, theirs, theirs + half);

		rc = tcp_exchange(w, &out, &in);
	}
	return rc;
}

/* Recursive doubling: each of P ranks gets all of the sum. */
static berth_result double_up(struct tcp_op *w, unsigned p, const unsigned char *own)
{
	berth_result rc = BERTH_OK;

	for (unsigned half = p / 2; !rc && half; half /= 2) {
		struct tcp_transfer out = parts(w, w->t->me ^ half, p, 0, p), in = out;

		out.data = in.data = own;
		in.reduces = true;
		in.behind = own == w->c->out;
		rc = tcp_sendrecv_agree(w, &out, &in);
		own = w->c->out;
	}
	return rc;
}

/* Nothing but what ranks hear. */
static berth_result agree(struct tcp_op *w, unsigned p)
{
	berth_result rc = BERTH_OK;

	for (unsigned half = p / 2; !rc && half; half /= 2) {
		struct tcp_transfer l = { .place = w->t->me ^ half };

		rc = tcp_sendrecv_agree(w, &l, &l);
	}
	return rc;
}

enum { /* of the first and last messages, where ranks are no power of 2 */
       FOLD_STEP = 1 << 16,
       MIDDLE_STEP,
       UNFOLD_STEP = 1 << 17,
       NEXT_STEP = 1 << 18 /* not all ranks have done equally many */
};

/* One of the rest has somebody to speak for it. */
static berth_result be_spoken_for(struct tcp_op *w, unsigned p, bool has_data)
{
	unsigned place = w->t->me - p;
	struct tcp_transfer out = has_data ? parts(w, place, p, 0, p)
					   : (struct tcp_transfer){ .place = place };
	struct tcp_transfer in = out;
	berth_result rc;

	out.data = w->c->in;
	w->t->step = FOLD_STEP;
	rc = tcp_sendrecv_agree(w, &out, NULL);
	w->t->step = UNFOLD_STEP;
	return rc ? rc : tcp_sendrecv_agree(w, NULL, &in);
}

static berth_result round_of(struct tcp_op *w, unsigned p,
			     enum tune_algorithm algorithm)
{
	const unsigned char *own = w->c->in;
	struct tcp_transfer rest = { .place = w->t->me + p };
	bool has_rest = rest.place < w->t->n;
	berth_result rc = BERTH_OK;

	if (algorithm != TUNE_ALGORITHMS)
		rest = parts(w, rest.place, p, 0, p);
	if (has_rest) {
		struct tcp_transfer in = rest;

		in.data = own;
		in.reduces = algorithm != TUNE_ALGORITHMS;
		w->t->step = FOLD_STEP;
		rc = tcp_sendrecv_agree(w, NULL, &in);
		own = w->c->out;
	}
	w->t->step = MIDDLE_STEP;
	if (!rc)
		rc = algorithm == TUNE_DOUBLE  ? double_up(w, p, own)
		     : algorithm == TUNE_HALVE ? halve(w, p, own)
					       : agree(w, p);
	if (!rc && algorithm == TUNE_HALVE && !(w->agrees && tcp_differs(w->t)))
		rc = give_back(w, p);
	w->t->step = UNFOLD_STEP;
	return rc || !has_rest ? rc : tcp_sendrecv_agree(w, &rest, NULL);
}

/* Parts of N ranks, the sum of part `me` in OUT at its place. */
static berth_result ring_reduce(struct tcp_op *w)
{
	struct tcp *t = w->t;
	unsigned n = t->n, next = (t->me + 1) % n, before = (t->me + n - 1) % n;
	unsigned char *out = w->c->out;
	const unsigned char *in = w->c->in;
	berth_result rc = BERTH_OK;

	for (unsigned k = 0; !rc && k + 1 < n; k++) {
		unsigned give = (t->me + 2 * n - k - 1) % n;
		unsigned get = (t->me + 2 * n - k - 2) % n;
		uint64_t at = tcp_bound(w, n, give), end = tcp_bound(w, n, give + 1);
		uint64_t to = tcp_bound(w, n, get), to_end = tcp_bound(w, n, get + 1);

		rc = tcp_sendrecv_reduce(w, next, (k ? out : in) + at, end - at, before,
					 out + to, in + to, to_end - to);
	}
	return rc;
}

berth_result tcp_round(struct tcp_op *w, enum tune_algorithm algorithm)
{
	unsigned p = tcp_power(w->t->n);
	berth_result rc;

	if (algorithm == TUNE_RING) {
		rc = ring_reduce(w);
		return rc ? rc : tcp_share(w);
	}
	rc = w->t->me >= p ? be_spoken_for(w, p, algorithm != TUNE_ALGORITHMS)
			   : round_of(w, p, algorithm);
	w->t->step = NEXT_STEP;
	return rc;
}

static bool is_power(unsigned n)
{
	return tcp_power(n) == n;
}

/* The root takes the others' parts of the sum. */
static berth_result collect(struct tcp_op *w)
{
	struct tcp *t = w->t;
	unsigned char *out = w->c->out;
	uint64_t at = tcp_bound(w, t->n, t->me), end = tcp_bound(w, t->n, t->me + 1);
	berth_result rc = BERTH_OK;

	if (t->me != w->c->root)
		return tcp_sendrecv(w, w->c->root, out + at, end - at, w->c->root, NULL,
				    0);
	for (unsigned r = 0; !rc && r < t->n; r++) {
		at = tcp_bound(w, t->n, r);
		end = tcp_bound(w, t->n, r + 1);
		if (r != t->me) {
			rc = tcp_sendrecv(w, r, NULL, 0, r, out + at, end - at);
			t->step--; /* the others have sent only one */
		}
	}
	return rc;
}

/* OUT of the others is theirs: they work in memory of their own. */
berth_result tcp_reduce(struct tcp_op *w)
{
	struct coll c = *w->c;
	struct tcp_op inner = *w;
	void *room = NULL;
	berth_result rc;

	if (w->t->me != c.root) {
		room = malloc(c.count * w->size);
		if (!room)
			return tcp_fail(w->t, BERTH_MEMORY, w->t->rank[w->t->me]);
		c.out = room;
	}
	inner.c = &c;
	rc = is_power(w->t->n) ? halve(&inner, w->t->n, c.in) : ring_reduce(&inner);
	if (!rc)
		rc = collect(&inner);
	free(room);
	return rc;
}

/* As ring_reduce(), but OUT has room for one part only. */
berth_result tcp_reducescatter(struct tcp_op *w)
{
	struct tcp *t = w->t;
	unsigned n = t->n, next = (t->me + 1) % n, before = (t->me + n - 1) % n;
	const unsigned char *in = w->c->in;
	uint64_t largest = 0;
	unsigned char *room[2];
	berth_result rc = BERTH_OK;

	for (unsigned i = 0; i < n; i++)
		if (coll_part(w->c, n, i) > largest)
			largest = coll_part(w->c, n, i);
	room[0] = malloc(2 * largest * w->size + 1);
	if (!room[0])
		return tcp_fail(t, BERTH_MEMORY, t->rank[t->me]);
	room[1] = room[0] + largest * w->size;
	for (unsigned k = 0; !rc && k + 1 < n; k++) {
		unsigned give = (t->me + 2 * n - k - 1) % n;
		unsigned get = (t->me + 2 * n - k - 2) % n;
		const unsigned char *from =
			k ? room[(k + 1) % 2]
			  : in + coll_part_at(w->c, n, give) * w->size;

		rc = tcp_sendrecv_reduce(w, next, from,
					 coll_part(w->c, n, give) * w->size, before,
					 k + 2 == n ? w->c->out : room[k % 2],
					 in + coll_part_at(w->c, n, get) * w->size,
					 coll_part(w->c, n, get) * w->size);
	}
	free(room[0]);
	return rc;
}
