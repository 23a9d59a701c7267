#include "lib/backend/tcp_internal.h"

#include <string.h>

enum { LANES_BYTES = 128 << 10 /* of a message that goes over several connections */ };

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

uint64_t tcp_bound(const struct tcp_op *w, unsigned n, unsigned i)
{
	return even_at(w->c->count, n, i) * w->size;
}

static unsigned place_of(const struct tcp *t, unsigned rank)
{
	for (unsigned i = 0; i < t->n; i++)
		if (t->rank[i] == rank)
			return i;
	return t->n;
}

berth_result tcp_fail(struct tcp *t, berth_result rc, unsigned lost)
{
	t->other = place_of(t, lost);
	t->has_other = t->other < t->n;
	t->broken = true;
	/* A head that was not expected in the middle of an operation: the stream is
	 * lost. */
	t->why = rc == BERTH_MISMATCH ? BERTH_PEER_LOST : rc;
	net_break(t->net, lost);
	return t->why;
}

static berth_result exchange(struct tcp *t, struct net_send *out, size_t nout,
			     struct net_receive *in, size_t nin, uint64_t deadline_ns)
{
	unsigned lost;
	berth_result rc = net_exchange(t->net, out, nout, in, nin, deadline_ns, &lost);

	return rc ? tcp_fail(t, rc, lost) : BERTH_OK;
}

struct tcp_op tcp_op(struct tcp *t, const struct coll *c, uint64_t deadline_ns)
{
	return (struct tcp_op){ .t = t,
				.c = c,
				.reduce = kern_reduce_of(c->type, c->op),
				.size = kern_size(c->type),
				.deadline_ns = deadline_ns,
				.lanes = 1 };
}

/* Where pieces that come are reduced to: DST = OWN op piece, or piece op OWN. */
struct sink {
	const struct tcp_op *w;
	unsigned char *dst;
	const unsigned char *own;
	bool own_first;
};

static void take_piece(void *ctx, size_t offset, const void *piece, size_t bytes)
{
	const struct sink *k = ctx;
	const void *src[2] = { k->own + offset, piece };

	if (!k->own_first) {
		src[0] = piece;
		src[1] = k->own + offset;
	}
	k->w->reduce(&(void *){ k->dst + offset }, 1, src, 2, bytes / k->w->size,
		     false);
}

static struct net_tag tag(const struct tcp *t)
{
	return (struct net_tag){ t->group, t->seq, t->step };
}

static struct net_send sending(const struct tcp_op *w, const struct tcp_transfer *l)
{
	return (struct net_send){ .peer = w->t->rank[l->place],
				  .tag = tag(w->t),
				  .note = { { w->c->signature } },
				  .data = l->data,
				  .bytes = l->bytes };
}

static struct net_receive receiving(const struct tcp_op *w,
				    const struct tcp_transfer *l, struct sink *k)
{
	struct net_receive r = { .peer = w->t->rank[l->place],
				 .tag = tag(w->t),
				 .note = { { w->c->signature } },
				 .data = l->dst,
				 .bytes = l->bytes,
				 .ctx = k,
				 .unit = w->size };

	*k = (struct sink){ w, l->dst, l->data, w->t->me < l->place };
	if (l->reduces)
		r.take = take_piece;
	return r;
}

/* ---- data, over several connections where they are large ---- */

/* Lane I's part of L. */
static struct tcp_transfer lane(const struct tcp_op *w, const struct tcp_transfer *l,
				unsigned lanes, unsigned i)
{
	uint64_t n = l->bytes / w->size, from = n * i / lanes * w->size;
	struct tcp_transfer part = *l;

	part.bytes = n * (i + 1) / lanes * w->size - from;
	part.data = part.data ? (const char *)part.data + from : NULL;
	part.dst = part.dst ? (char *)part.dst + from : NULL;
	return part;
}

static unsigned lanes_of(const struct tcp_op *w, const struct tcp_transfer *l)
{
	return l->bytes >= LANES_BYTES ? w->lanes : 1;
}

berth_result tcp_exchange(struct tcp_op *w, const struct tcp_transfer *out,
			  const struct tcp_transfer *in)
{
	struct net_send s[NET_LANES];
	struct net_receive r[NET_LANES];
	struct sink k[NET_LANES];
	unsigned ns = out && out->bytes ? lanes_of(w, out) : 0;
	unsigned nr = in && in->bytes ? lanes_of(w, in) : 0;

	_Static_assert((int)TUNE_LANES <= (int)NET_LANES, "each has its own");
	for (unsigned i = 0; i < ns; i++) {
		struct tcp_transfer l = lane(w, out, ns, i);

		s[i] = sending(w, &l);
		s[i].lane = i;
	}
	for (unsigned i = 0; i < nr; i++) {
		struct tcp_transfer l = lane(w, in, nr, i);

		r[i] = receiving(w, &l, &k[i]);
		r[i].lane = i;
		r[i].behind = in->behind ? &s[i] : NULL;
	}
	w->t->step++;
	return exchange(w->t, s, ns, r, nr, w->deadline_ns);
}

berth_result tcp_sendrecv(struct tcp_op *w, unsigned to, const void *out, uint64_t n,
			  unsigned from, void *in, uint64_t m)
{
	struct tcp_transfer o = { .place = to, .data = out, .bytes = n };
	struct tcp_transfer i = { .place = from, .dst = in, .bytes = m };

	return tcp_exchange(w, &o, &i);
}

berth_result tcp_sendrecv_reduce(struct tcp_op *w, unsigned to, const void *out,
				 uint64_t n, unsigned from, void *dst, const void *own,
				 uint64_t m)
{
	struct tcp_transfer o = { .place = to, .data = out, .bytes = n };
	struct tcp_transfer i = {
		.place = from, .data = own, .dst = dst, .bytes = m, .reduces = true
	};

	return tcp_exchange(w, &o, &i);
}

/* ---- with the agreement ---- */

static void learn(struct tcp_signatures *know, const struct tcp_signatures *came)
{
	if (came->low < know->low) {
		know->low = came->low;
		know->low_at = came->low_at;
	}
	if (came->high > know->high) {
		know->high = came->high;
		know->high_at = came->high_at;
	}
}

static berth_result begin(void *ctx, struct net_receive *in, uint64_t bytes)
{
	const struct sink *k = ctx;
	struct tcp *t = k->w->t;
	struct tcp_signatures came;

	(void)bytes;
	memcpy(&came, &in->note, sizeof came);
	learn(&t->signatures, &came);
	in->drop = tcp_differs(t);
	return BERTH_OK;
}

berth_result tcp_sendrecv_agree(struct tcp_op *w, const struct tcp_transfer *out,
				const struct tcp_transfer *in)
{
	struct net_send s;
	struct net_receive r;
	struct sink k;

	_Static_assert(sizeof w->t->signatures == sizeof s.note,
		       "signatures fit into a note");
	if (!w->agrees)
		return tcp_exchange(w, out, in);
	w->t->step++;
	if (out) {
		s = sending(w, out);
		memcpy(&s.note, &w->t->signatures, sizeof s.note);
		if (tcp_differs(w->t))
			s.bytes = 0;
	}
	if (in) {
		r = receiving(w, in, &k);
		r.begin = begin;
		r.behind = in->behind ? &s : NULL;
	}
	return exchange(w->t, &s, out != NULL, &r, in != NULL, w->deadline_ns);
}
