#include "lib/backend/tcp_internal.h"

#include <stdlib.h>
#include <string.h>

/* By recursive doubling and halving: places that are a power of two apart combine what
 * they have.  Elements travel as the first message needs them, partial sums from then
 * on, and the last step makes the result. */

/* What this place has so far: COUNT elements of C, all of them or some. */
struct share {
	const unsigned char *at; /* where the first element of C lies or would lie */
	enum kern_form form;
};

struct reduction {
	struct tcp_op *w;
	unsigned p;             /* places that combine: a power of 2 */
	unsigned char *partial; /* of partial sums: OUT where they fit */
	unsigned char *out;
	size_t partial_bytes; /* of an element */
	struct share own;
};

/* Are C's elements partial sums as they are? */
static bool is_partial(const struct coll *c)
{
	return kern_accumulator(c->type) == c->type && !c->scale.has_prescale;
}

/* The result goes to OUT, and anything may until then. */
static berth_result begin(struct reduction *r, struct tcp_op *w, unsigned char *out)
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
	if (is_partial(c))
		r->own.form = KERN_PARTIAL;
	if (bytes != w->size) {
		rc = tcp_need_room(w->t, c->count * bytes);
		r->partial = w->t->room;
	}
	return rc;
}

static size_t unit(const struct reduction *r, enum kern_form form)
{
	return form == KERN_PARTIAL ? r->partial_bytes : r->w->size;
}

/* Elements from part FIRST to END of P, in the form and at the place of S. */
static struct tcp_transfer parts(const struct reduction *r, struct share s,
				 unsigned place, unsigned first, unsigned end)
{
	uint64_t at = tcp_first(r->w, r->p, first);

	return (struct tcp_transfer){ .place = place,
				      .data = s.at + at * unit(r, s.form),
				      .bytes = (tcp_first(r->w, r->p, end) - at) *
					       unit(r, s.form) };
}

/* The parts from GIVE on, N of them, go to PLACE; what comes becomes those from KEEP on
 * of what this place has: the result if it is the LAST step. */
static berth_result combine(struct reduction *r, unsigned place, unsigned give,
			    unsigned keep, unsigned n, bool last)
{
	struct tcp_op *w = r->w;
	struct tcp_transfer out = parts(r, r->own, place, give, give + n);
	struct tcp_transfer in = parts(r, r->own, place, keep, keep + n);
	struct share then = { last ? r->out : r->partial,
			      last ? KERN_ELEMENTS : KERN_PARTIAL };
	struct kern kern;

	coll_kern(&kern, w->c, r->own.form, then.form);
	in.kern = &kern;
	in.dst = (unsigned char *)(uintptr_t)then.at +
		 tcp_first(w, r->p, keep) * unit(r, then.form);
	in.behind = give == keep && in.dst == in.data;
	r->own = then;
	return tcp_sendrecv_agree(w, &out, &in);
}

/* Each of P places gets part `me` of the result. */
static berth_result halve(struct reduction *r)
{
	unsigned me = r->w->t->me, first = 0;
	berth_result rc = BERTH_OK;

	for (unsigned half = r->p / 2; !rc && half; half /= 2) {
		unsigned keep = me & half ? first + half : first;
		unsigned give = me & half ? first : first + half;

		rc = combine(r, me ^ half, give, keep, half, half == 1);
		first = keep;
	}
	return rc;
}

/* And back: everybody gets all parts. */
static berth_result give_back(struct reduction *r)
{
	unsigned me = r->w->t->me;
	berth_result rc = BERTH_OK;

	for (unsigned half = 1; !rc && half < r->p; half *= 2) {
		unsigned mine = me & ~(half - 1), theirs = mine ^ half;
		struct share all = { r->out, KERN_ELEMENTS };
		struct tcp_transfer out = parts(r, all, me ^ half, mine, mine + half);
		struct tcp_transfer in =
			parts(r, all, me ^ half, theirs, theirs + half);

		in.dst = (void *)(uintptr_t)in.data;
		rc = tcp_exchange(r->w, &out, &in);
	}
	return rc;
}

/* Each of P places gets all of the result. */
static berth_result double_up(struct reduction *r)
{
	berth_result rc = BERTH_OK;

	for (unsigned half = r->p / 2; !rc && half; half /= 2)
		rc = combine(r, r->w->t->me ^ half, 0, 0, r->p, half == 1);
	return rc;
}

/* Nothing but what ranks hear. */
static berth_result agree(struct reduction *r)
{
	berth_result rc = BERTH_OK;

	for (unsigned half = r->p / 2; !rc && half; half /= 2) {
		struct tcp_transfer l = { .place = r->w->t->me ^ half };

		rc = tcp_sendrecv_agree(r->w, &l, &l);
	}
	return rc;
}

enum { /* of the first and last messages, where ranks are no power of 2 */
       FOLD_STEP = 1 << 16,
       MIDDLE_STEP,
       UNFOLD_STEP = 1 << 17,
       NEXT_STEP = 1 << 18 /* not all ranks have done equally many */
};

/* One of the rest, which gives all it has to a place below P, and gets the result. */
static berth_result be_spoken_for(struct reduction *r, bool has_data)
{
	struct tcp_op *w = r->w;
	struct share all = { r->out, KERN_ELEMENTS };
	struct tcp_transfer out = { .place = w->t->me - r->p }, in = out;
	berth_result rc;

	if (has_data) {
		out = parts(r, r->own, out.place, 0, r->p);
		in = parts(r, all, in.place, 0, r->p);
		in.dst = (void *)(uintptr_t)in.data;
	}
	w->t->step = FOLD_STEP;
	rc = tcp_sendrecv_agree(w, &out, NULL);
	w->t->step = UNFOLD_STEP;
	return rc ? rc : tcp_sendrecv_agree(w, NULL, &in);
}

/* What one of the rest has, if this place has one to speak for.  The others make
 * partial sums of their own: all send the same form from then on. */
static berth_result fold(struct reduction *r, bool has_rest, bool has_data)
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
		in = parts(r, r->own, in.place, 0, r->p);
		in.kern = &kern;
		in.dst = r->partial;
		r->own = then;
	}
	w->t->step = FOLD_STEP;
	return tcp_sendrecv_agree(w, NULL, &in);
}

static berth_result unfold(struct reduction *r, bool has_data)
{
	struct tcp_op *w = r->w;
	struct share all = { r->out, KERN_ELEMENTS };
	struct tcp_transfer out = { .place = w->t->me + r->p };

	if (has_data)
		out = parts(r, all, out.place, 0, r->p);
	w->t->step = UNFOLD_STEP;
	return tcp_sendrecv_agree(w, &out, NULL);
}

static berth_result in_middle(struct reduction *r, enum tune_algorithm algorithm)
{
	struct tcp_op *w = r->w;
	const bool has_data = algorithm != TUNE_ALGORITHMS;
	bool has_rest = w->t->me + r->p < w->t->n;
	berth_result rc = BERTH_OK;

	if (r->p != w->t->n)
		rc = fold(r, has_rest, has_data);
	w->t->step = MIDDLE_STEP;
	if (!rc)
		rc = algorithm == TUNE_DOUBLE  ? double_up(r)
		     : algorithm == TUNE_HALVE ? halve(r)
					       : agree(r);
	if (!rc && algorithm == TUNE_HALVE && !(w->agrees && tcp_differs(w->t)))
		rc = give_back(r);
	return rc || !has_rest ? rc : unfold(r, has_data);
}

berth_result tcp_round(struct tcp_op *w, enum tune_algorithm algorithm)
{
	const bool has_data = algorithm != TUNE_ALGORITHMS;
	struct reduction r = { .w = w, .p = tcp_power(w->t->n) };
	berth_result rc = BERTH_OK;

	if (algorithm == TUNE_DIRECT)
		return tcp_direct_allreduce(w);
	if (has_data)
		rc = begin(&r, w, w->c->out);
	if (!rc)
		rc = w->t->me >= r.p ? be_spoken_for(&r, has_data)
				     : in_middle(&r, algorithm);
	w->t->step = NEXT_STEP;
	return rc;
}

/* ---- to one place ---- */

/* Each step leaves the places that are the root's partners of the later steps. */
static berth_result up_tree(struct reduction *r, unsigned root)
{
	struct tcp_op *w = r->w;
	unsigned me = w->t->me;
	berth_result rc = BERTH_OK;

	for (unsigned half = r->p / 2; !rc && half; half /= 2) {
		const bool last = half == 1;
		struct tcp_transfer l = parts(r, r->own, me ^ half, 0, r->p);
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

/* ROOT stands below P for one of the rest. */
static berth_result by_tree(struct reduction *r)
{
	struct tcp_op *w = r->w;
	struct tcp *t = w->t;
	const unsigned root = w->c->root, below = root < r->p ? root : root - r->p;
	struct tcp_transfer l;
	berth_result rc;

	if (t->me >= r->p) {
		l = parts(r, r->own, t->me - r->p, 0, r->p);
		t->step = FOLD_STEP;
		rc = tcp_exchange(w, &l, NULL);
	} else {
		rc = r->p == t->n ? BERTH_OK : fold(r, t->me + r->p < t->n, true);
		if (!rc)
			rc = up_tree(r, below);
	}
	if (rc || below == root || (t->me != root && t->me != below))
		return rc;
	l = parts(r, (struct share){ r->out, KERN_ELEMENTS },
		  t->me == root ? below : root, 0, r->p);
	l.dst = (void *)(uintptr_t)l.data;
	t->step = UNFOLD_STEP;
	return tcp_exchange(w, t->me == root ? NULL : &l, t->me == root ? &l : NULL);
}

/* OUT of the others than the root is theirs. */
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
	rc = begin(&r, w, has_out ? c->out : room);
	if (!rc)
		rc = by_tree(&r);
	free(room);
	return rc;
}
