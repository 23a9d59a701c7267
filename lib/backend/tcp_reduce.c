#include "lib/backend/tcp_internal.h"

#include <stdlib.h>
#include <string.h>

/* Recursive doubling and halving: places that are a power of two apart combine their
 * arrays.  The first message has elements in the form that they have.  Later ones have
 * partial sums, and the last step makes the result. */

/* The array of this place so far: all of C's COUNT elements, or some. */
struct share {
	const unsigned char *at; /* where the first element of C lies or would lie */
	enum kern_form form;
};

struct reduction {
	struct tcp_op *w;
	unsigned p;             /* places that combine: a power of 2 */
	unsigned char *partial; /* partial sums: OUT if they fit */
	unsigned char *out;
	size_t partial_bytes; /* of an element */
	struct share own;
};

/* Begins R.  The result goes to OUT, and anything else may until then. */
static berth_result reduce_begin(struct reduction *r, struct tcp_op *w,
				 unsigned char *out)
{
	const struct coll *c = w->c;
	const size_t bytes = kern_size(kern_accumulator(c->type));
	berth_result rc = BERTH_OK;

	*r = (struct reduction){ .w = w,
				 .p = tcp_power(w->t->n),
				 .out = out,
				 .partial = out,
				 .partial_bytes = bytes,
				 .own = { c->in, c->in_form } };
	if (kern_accumulator(c->type) == c->type && !c->scale.has_prescale)
		r->own.form = KERN_PARTIAL; /* as they are */
	if (bytes != w->size) {
		rc = tcp_need_room(w->t, c->count * bytes);
		r->partial = w->t->room;
	}
	return rc;
}

static size_t reduce_unit(const struct reduction *r, enum kern_form form)
{
	return form == KERN_PARTIAL ? r->partial_bytes : r->w->size;
}

/* Parts FIRST to END of P, in the form of S and where S lies, to or from PLACE. */
static struct tcp_transfer reduce_parts(const struct reduction *r, struct share s,
					unsigned place, unsigned first, unsigned end)
{
	uint64_t at = tcp_first(r->w, r->p, first);

	return (struct tcp_transfer){ .place = place,
				      .data = s.at + at * reduce_unit(r, s.form),
				      .bytes = (tcp_first(r->w, r->p, end) - at) *
					       reduce_unit(r, s.form) };
}

/* Sends N parts from GIVE on to PLACE.  Combines the N parts that come with this
 * place's parts from KEEP on.  In the LAST step they become the result. */
static berth_result reduce_combine(struct reduction *r, unsigned place, unsigned give,
				   unsigned keep, unsigned n, bool last)
{
	struct tcp_op *w = r->w;
	struct tcp_transfer out = reduce_parts(r, r->own, place, give, give + n);
	struct tcp_transfer in = reduce_parts(r, r->own, place, keep, keep + n);
	struct share then = { last ? r->out : r->partial,
			      last ? KERN_ELEMENTS : KERN_PARTIAL };
	struct kern kern;

	coll_kern(&kern, w->c, r->own.form, then.form);
	in.kern = &kern;
	in.dst = (unsigned char *)(uintptr_t)then.at +
		 tcp_first(w, r->p, keep) * reduce_unit(r, then.form);
	in.behind = give == keep && in.dst == in.data;
	r->own = then;
	return tcp_sendrecv_agree(w, &out, &in);
}

/* Each of P places gets its own part of the result. */
static berth_result reduce_halve(struct reduction *r)
{
	unsigned me = r->w->t->me, first = 0;
	berth_result rc = BERTH_OK;

	for (unsigned half = r->p / 2; !rc && half; half /= 2) {
		unsigned keep = me & half ? first + half : first;
		unsigned give = me & half ? first : first + half;

		rc = reduce_combine(r, me ^ half, give, keep, half, half == 1);
		first = keep;
	}
	return rc;
}

/* And back: each place gets all parts. */
static berth_result reduce_give_back(struct reduction *r)
{
	unsigned me = r->w->t->me;
	berth_result rc = BERTH_OK;

	for (unsigned half = 1; !rc && half < r->p; half *= 2) {
		unsigned mine = me & ~(half - 1), theirs = mine ^ half;
		struct share all = { r->out, KERN_ELEMENTS };
		struct tcp_transfer out =
			reduce_parts(r, all, me ^ half, mine, mine + half);
		struct tcp_transfer in =
			reduce_parts(r, all, me ^ half, theirs, theirs + half);

		in.dst = (void *)(uintptr_t)in.data;
		rc = tcp_exchange(r->w, &out, &in);
	}
	return rc;
}

/* Each of P places gets all of the result.  Without data it is the agreement alone. */
static berth_result double_up(struct reduction *r, bool has_data)
{
	berth_result rc = BERTH_OK;

	for (unsigned half = r->p / 2; !rc && half; half /= 2) {
		const struct tcp_transfer none = { .place = r->w->t->me ^ half };

		if (has_data)
			rc = reduce_combine(r, none.place, 0, 0, r->p, half == 1);
		else
			rc = tcp_sendrecv_agree(r->w, &none, &none);
	}
	return rc;
}

enum { /* steps of the first and last messages, if N is not a power of 2 */
       FOLD_STEP = 1 << 16,
       MIDDLE_STEP,
       UNFOLD_STEP = 1 << 17,
       NEXT_STEP = 1 << 18 /* not all ranks have done equally many */
};

/* A place from P on gives its whole array to a place below P, and gets the result. */
static berth_result be_spoken_for(struct reduction *r, bool has_data)
{
	struct tcp_op *w = r->w;
	struct share all = { r->out, KERN_ELEMENTS };
	struct tcp_transfer out = { .place = w->t->me - r->p }, in = out;
	berth_result rc;

	if (has_data) {
		out = reduce_parts(r, r->own, out.place, 0, r->p);
		in = reduce_parts(r, all, in.place, 0, r->p);
		in.dst = (void *)(uintptr_t)in.data;
	}
	w->t->step = FOLD_STEP;
	rc = tcp_sendrecv_agree(w, &out, NULL);
	w->t->step = UNFOLD_STEP;
	return rc ? rc : tcp_sendrecv_agree(w, NULL, &in);
}

/* Takes the array of a place from P on, if this place stands for one.  The others make
 * partial sums of their own arrays, so that all send the same form from then on. */
static berth_result reduce_fold(struct reduction *r, bool has_rest, bool has_data)
{
	struct tcp_op *w = r->w;
	struct tcp_transfer in = { .place = w->t->me + r->p };
	struct share then = { r->partial, KERN_PARTIAL };
	struct kern kern;

	coll_kern(&kern, w->c, r->own.form, KERN_PARTIAL);
	if (!has_rest) {
		if (has_data && r->own.form != KERN_PARTIAL) {
			kern_reduce(&kern, &(void *){ r->partial }, 1,
				    (const void *[]){ r->own.at }, 1, w->c->count,
				    false);
			r->own = then;
		}
		return BERTH_OK;
	}
	if (has_data) {
		in = reduce_parts(r, r->own, in.place, 0, r->p);
		in.kern = &kern;
		in.dst = r->partial;
		r->own = then;
	}
	w->t->step = FOLD_STEP;
	return tcp_sendrecv_agree(w, NULL, &in);
}

static berth_result in_middle(struct reduction *r, enum tune_algorithm algorithm)
{
	struct tcp_op *w = r->w;
	const bool has_data = algorithm != TUNE_ALGORITHMS;
	const struct share all = { r->out, KERN_ELEMENTS };
	struct tcp_transfer rest = { .place = w->t->me + r->p };
	bool has_rest = rest.place < w->t->n;
	berth_result rc = BERTH_OK;

	if (r->p != w->t->n)
		rc = reduce_fold(r, has_rest, has_data);
	w->t->step = MIDDLE_STEP;
	if (!rc)
		rc = algorithm == TUNE_HALVE ? reduce_halve(r) : double_up(r, has_data);
	if (!rc && algorithm == TUNE_HALVE && !(w->agrees && tcp_differs(w->t)))
		rc = reduce_give_back(r);
	if (rc || !has_rest)
		return rc;
	if (has_data)
		rest = reduce_parts(r, all, rest.place, 0, r->p);
	w->t->step = UNFOLD_STEP;
	return tcp_sendrecv_agree(w, &rest, NULL);
}

berth_result tcp_round(struct tcp_op *w, enum tune_algorithm algorithm)
{
	const bool has_data = algorithm != TUNE_ALGORITHMS;
	struct reduction r = { .w = w, .p = tcp_power(w->t->n) };
	berth_result rc = BERTH_OK;

	if (algorithm == TUNE_DIRECT)
		return tcp_direct_allreduce(w);
	if (has_data)
		rc = reduce_begin(&r, w, w->c->out);
	if (!rc)
		rc = w->t->me >= r.p ? be_spoken_for(&r, has_data)
				     : in_middle(&r, algorithm);
	w->t->step = NEXT_STEP;
	return rc;
}

/* ---- to one place ---- */

/* In each step, the places send and leave whose bit HALF differs from the root's. */
static berth_result up_tree(struct reduction *r, unsigned root)
{
	struct tcp_op *w = r->w;
	unsigned me = w->t->me;
	berth_result rc = BERTH_OK;

	for (unsigned half = r->p / 2; !rc && half; half /= 2) {
		const bool last = half == 1;
		struct tcp_transfer l = reduce_parts(r, r->own, me ^ half, 0, r->p);
		struct kern kern;

		w->t->step = MIDDLE_STEP + half;
		if ((me & half) != (root & half))
			return tcp_exchange(w, &l, NULL);
		coll_kern(&kern, w->c, r->own.form,
			  last ? KERN_ELEMENTS : KERN_PARTIAL);
		l.kern = &kern;
		l.dst = last ? r->out : r->partial;
		rc = tcp_exchange(w, NULL, &l);
		r->own = (struct share){ l.dst, KERN_PARTIAL };
	}
	return rc;
}

/* If the root is a place from P on, the place BELOW stands for it. */
static berth_result by_tree(struct reduction *r)
{
	struct tcp_op *w = r->w;
	struct tcp *t = w->t;
	const unsigned root = w->c->root, below = root < r->p ? root : root - r->p;
	struct tcp_transfer l;
	berth_result rc;

	if (t->me >= r->p) {
		l = reduce_parts(r, r->own, t->me - r->p, 0, r->p);
		t->step = FOLD_STEP;
		rc = tcp_exchange(w, &l, NULL);
	} else {
		rc = r->p == t->n ? BERTH_OK
				  : reduce_fold(r, t->me + r->p < t->n, true);
		if (!rc)
			rc = up_tree(r, below);
	}
	if (rc || below == root || (t->me != root && t->me != below))
		return rc;
	l = reduce_parts(r, (struct share){ r->out, KERN_ELEMENTS },
			 t->me == root ? below : root, 0, r->p);
	l.dst = (void *)(uintptr_t)l.data;
	t->step = UNFOLD_STEP;
	return tcp_exchange(w, t->me == root ? NULL : &l, t->me == root ? &l : NULL);
}

/* Only the root writes OUT. */
berth_result tcp_reduce(struct tcp_op *w)
{
	const struct coll *c = w->c;
	const bool has_out = w->t->me == c->root;
	const struct tune_work work = tcp_work(w->t, c);
	struct reduction r;
	void *room = NULL;
	berth_result rc = BERTH_OK;

	if (tune_choose_reduce(&w->t->numbers, &work) == TUNE_DIRECT)
		return tcp_direct_reduce(w);
	if (!has_out && c->count) {
		room = malloc(c->count * w->size);
		if (!room)
			return tcp_fail(w->t, BERTH_MEMORY, w->t->rank[w->t->me]);
	}
	rc = reduce_begin(&r, w, has_out ? c->out : room);
	if (!rc)
		rc = by_tree(&r);
	free(room);
	return rc;
}
