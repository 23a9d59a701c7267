#include "lib/tcp_way.h"

#include <stdlib.h>
#include <string.h>

/* The greatest power of 2 that is no more than N. */
unsigned tcp_power(unsigned n)
{
	unsigned p = 1;

	while (p <= n / 2)
		p *= 2;
	return p;
}

static uint64_t even_at(uint64_t count, unsigned n, unsigned i)
{
	return count / n * i + (i < count % n ? i : count % n);
}

/* Bytes in front of part I of N of the operation's elements. */
uint64_t tcp_bound(const struct way *w, unsigned n, unsigned i)
{
	return even_at(w->c->count, n, i) * w->size;
}

/* A leg of tcp_trade(): elements from part FIRST to END of P. */
static struct leg parts(const struct way *w, unsigned place, unsigned p, unsigned first,
			unsigned end)
{
	uint64_t at = tcp_bound(w, p, first);

	return (struct leg){ .place = place,
			     .data = (const unsigned char *)w->c->out + at,
			     .dst = (unsigned char *)w->c->out + at,
			     .bytes = tcp_bound(w, p, end) - at };
}

/* Recursive halving: of P ranks each gets part `me` of the sum in OUT, of OWN and what
 * the others have. */
static berth_result halve(struct way *w, unsigned p, const unsigned char *own)
{
	unsigned me = w->t->me, first = 0;
	berth_result rc = BERTH_OK;

	for (unsigned half = p / 2; !rc && half; half /= 2) {
		unsigned keep = me & half ? first + half : first;
		unsigned give = me & half ? first : first + half;
		struct leg out = parts(w, me ^ half, p, give, give + half);
		struct leg in = parts(w, me ^ half, p, keep, keep + half);

		out.data = own + tcp_bound(w, p, give);
		in.data = own + tcp_bound(w, p, keep);
		in.reduces = true;
		rc = tcp_trade(w, &out, &in);
		own = w->c->out;
		first = keep;
	}
	return rc;
}

/* And back: everybody gets all parts. */
static berth_result give_back(struct way *w, unsigned p)
{
	berth_result rc = BERTH_OK;

	for (unsigned half = 1; !rc && half < p; half *= 2) {
		unsigned mine = w->t->me & ~(half - 1), theirs = mine ^ half;
		struct leg out = parts(w, w->t->me ^ half, p, mine, mine + half);
		struct leg in = parts(w, w->t->me ^ half, p, theirs, theirs + half);

		rc = tcp_exchange(w, &out, &in);
	}
	return rc;
}

/* Recursive doubling: each of P ranks gets all of the sum. */
static berth_result double_up(struct way *w, unsigned p, const unsigned char *own)
{
	berth_result rc = BERTH_OK;

	for (unsigned half = p / 2; !rc && half; half /= 2) {
		struct leg out = parts(w, w->t->me ^ half, p, 0, p), in = out;

		out.data = in.data = own;
		in.reduces = true;
		in.behind = own == w->c->out;
		rc = tcp_trade(w, &out, &in);
		own = w->c->out;
	}
	return rc;
}

/* Nothing but what ranks hear. */
static berth_result agree(struct way *w, unsigned p)
{
	berth_result rc = BERTH_OK;

	for (unsigned half = p / 2; !rc && half; half /= 2) {
		struct leg l = { .place = w->t->me ^ half };

		rc = tcp_trade(w, &l, &l);
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
static berth_result be_spoken_for(struct way *w, unsigned p, bool has_data)
{
	unsigned place = w->t->me - p;
	struct leg out =
		has_data ? parts(w, place, p, 0, p) : (struct leg){ .place = place };
	struct leg in = out;
	berth_result rc;

	out.data = w->c->in;
	w->t->step = FOLD_STEP;
	rc = tcp_trade(w, &out, NULL);
	w->t->step = UNFOLD_STEP;
	return rc ? rc : tcp_trade(w, NULL, &in);
}

static berth_result round_of(struct way *w, unsigned p, enum tune_way way)
{
	const unsigned char *own = w->c->in;
	struct leg rest = { .place = w->t->me + p };
	bool has_rest = rest.place < w->t->n;
	berth_result rc = BERTH_OK;

	if (way != TUNE_WAYS)
		rest = parts(w, rest.place, p, 0, p);
	if (has_rest) {
		struct leg in = rest;

		in.data = own;
		in.reduces = way != TUNE_WAYS;
		w->t->step = FOLD_STEP;
		rc = tcp_trade(w, NULL, &in);
		own = w->c->out;
	}
	w->t->step = MIDDLE_STEP;
	if (!rc)
		rc = way == TUNE_DOUBLE  ? double_up(w, p, own)
		     : way == TUNE_HALVE ? halve(w, p, own)
					 : agree(w, p);
	if (!rc && way == TUNE_HALVE && !(w->hears && tcp_differs(w->t)))
		rc = give_back(w, p);
	w->t->step = UNFOLD_STEP;
	return rc || !has_rest ? rc : tcp_trade(w, &rest, NULL);
}

/* Parts of N ranks, the sum of part `me` in OUT at its place. */
static berth_result ring_reduce(struct way *w)
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

		rc = tcp_swap_reduce(w, next, (k ? out : in) + at, end - at, before,
				     out + to, in + to, to_end - to);
	}
	return rc;
}

berth_result tcp_round(struct way *w, enum tune_way way)
{
	unsigned p = tcp_power(w->t->n);
	berth_result rc;

	if (way == TUNE_RING) {
		rc = ring_reduce(w);
		return rc ? rc : tcp_share(w);
	}
	rc = w->t->me >= p ? be_spoken_for(w, p, way != TUNE_WAYS)
			   : round_of(w, p, way);
	w->t->step = NEXT_STEP;
	return rc;
}

static bool is_power(unsigned n)
{
	return tcp_power(n) == n;
}

/* The root takes the others' parts of the sum. */
static berth_result collect(struct way *w)
{
	struct tcp *t = w->t;
	unsigned char *out = w->c->out;
	uint64_t at = tcp_bound(w, t->n, t->me), end = tcp_bound(w, t->n, t->me + 1);
	berth_result rc = BERTH_OK;

	if (t->me != w->c->root)
		return tcp_swap(w, w->c->root, out + at, end - at, w->c->root, NULL, 0);
	for (unsigned r = 0; !rc && r < t->n; r++) {
		at = tcp_bound(w, t->n, r);
		end = tcp_bound(w, t->n, r + 1);
		if (r != t->me) {
			rc = tcp_swap(w, r, NULL, 0, r, out + at, end - at);
			t->step--; /* the others have sent only one */
		}
	}
	return rc;
}

/* OUT of the others is theirs: they work in memory of their own. */
berth_result tcp_reduce(struct way *w)
{
	struct coll c = *w->c;
	struct way inner = *w;
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
berth_result tcp_reducescatter(struct way *w)
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

		rc = tcp_swap_reduce(w, next, from, coll_part(w->c, n, give) * w->size,
				     before, k + 2 == n ? w->c->out : room[k % 2],
				     in + coll_part_at(w->c, n, get) * w->size,
				     coll_part(w->c, n, get) * w->size);
	}
	free(room[0]);
	return rc;
}
