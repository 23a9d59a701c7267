#include "lib/backend/tcp_internal.h"

#include <stdlib.h>
#include <string.h>

enum {
	LANES_BYTES = 128 << 10, /* of a message that goes over several connections */
	LINE_BYTES = 64,
	LINES_LEAST = 64 /* of a part */
};

unsigned tcp_power(unsigned n)
{
	unsigned p = 1;

	while (p <= n / 2)
		p *= 2;
	return p;
}

/* Large parts begin at whole cache lines, since the kernel copies those faster.  (1 MiB
 * and 4 bytes between 2 hosts: 375 us before, 280 now.) */
uint64_t tcp_first(const struct tcp_op *w, unsigned n, unsigned i)
{
	const uint64_t count = w->c->count, line = LINE_BYTES / w->size,
		       at = count / n * i + (i < count % n ? i : count % n);

	return i == n || count / n < LINES_LEAST * line ? at : at / line * line;
}

uint64_t tcp_bound(const struct tcp_op *w, unsigned n, unsigned i)
{
	return tcp_first(w, n, i) * w->size;
}

struct tune_work tcp_work(const struct tcp *t, const struct coll *c)
{
	const unsigned bytes = (unsigned)kern_size(c->type),
		       partial = (unsigned)kern_size(kern_accumulator(c->type));

	return (struct tune_work){ .ranks = t->n,
				   .count = c->count,
				   .first =
					   c->in_form == KERN_PARTIAL ? partial : bytes,
				   .partial = partial,
				   .result = bytes };
}

berth_result tcp_fail(struct tcp *t, berth_result rc, unsigned lost)
{
	t->other = 0;
	while (t->other < t->n && t->rank[t->other] != lost)
		t->other++;
	t->has_other = t->other < t->n && t->other != t->me;
	t->broken = true;
	/* An unexpected head came in the middle of an operation, so the stream is
	 * lost. */
	t->why = rc == BERTH_MISMATCH ? BERTH_PEER_LOST : rc;
	/* A rank that leaves by itself says so as it closes its connections. */
	if (rc != BERTH_ABORTED || lost != t->rank[t->me])
		t->lanes->end(t->net, lost, t->why);
	return t->why;
}

static berth_result transfer_exchange(struct tcp *t, struct net_send *out, size_t nout,
				      struct net_receive *in, size_t nin,
				      uint64_t deadline_ns)
{
	unsigned lost;
	berth_result rc =
		t->lanes->exchange(t->net, out, nout, in, nin, deadline_ns, &lost);

	return rc ? tcp_fail(t, rc, lost) : BERTH_OK;
}

struct tcp_op tcp_op(struct tcp *t, const struct coll *c, uint64_t deadline_ns)
{
	return (struct tcp_op){ .t = t,
				.c = c,
				.size = kern_size(c->type),
				.deadline_ns = deadline_ns,
				.lanes = 1 };
}

berth_result tcp_need_room(struct tcp *t, size_t bytes)
{
	if (bytes <= t->room_bytes)
		return BERTH_OK;
	free(t->room);
	t->room = aligned_alloc(64, (bytes + 63) / 64 * 64);
	t->room_bytes = t->room ? bytes : 0;
	return t->room ? BERTH_OK : tcp_fail(t, BERTH_MEMORY, t->rank[t->me]);
}

/* Reduces the pieces that come: DST = OWN op piece, or piece op OWN. */
struct sink {
	const struct tcp_op *w;
	const struct kern *kern;
	unsigned char *dst;
	const unsigned char *own;
	bool own_first;
};

static void take_piece(void *ctx, size_t offset, const void *piece, size_t bytes)
{
	const struct sink *k = ctx;
	const uint64_t at = offset / k->kern->in_bytes;
	const void *src[2] = { k->own + offset, piece };

	if (!k->own_first) {
		src[0] = piece;
		src[1] = k->own + offset;
	}
	kern_reduce(k->kern, &(void *){ k->dst + at * k->kern->out_bytes }, 1, src, 2,
		    bytes / k->kern->in_bytes, false);
}

static struct net_tag transfer_tag(const struct tcp *t)
{
	return (struct net_tag){ t->group, t->seq, t->step };
}

static struct net_send transfer_sending(const struct tcp_op *w,
					const struct tcp_transfer *l)
{
	return (struct net_send){ .peer = w->t->rank[l->place],
				  .tag = transfer_tag(w->t),
				  .note = { { w->c->signature } },
				  .data = l->data,
				  .bytes = l->bytes };
}

static struct net_receive
transfer_receiving(const struct tcp_op *w, const struct tcp_transfer *l, struct sink *k)
{
	struct net_receive r = { .peer = w->t->rank[l->place],
				 .tag = transfer_tag(w->t),
				 .note = { { w->c->signature } },
				 .data = l->dst,
				 .bytes = l->bytes,
				 .ctx = k };

	*k = (struct sink){ w, l->kern, l->dst, l->data, w->t->me < l->place };
	if (l->kern) {
		r.take = take_piece;
		r.unit = l->kern->in_bytes;
	}
	return r;
}

/* ---- data, over several connections where they are large ---- */

/* Lane I's part of L. */
static struct tcp_transfer transfer_lane(const struct tcp_op *w,
					 const struct tcp_transfer *l, unsigned lanes,
					 unsigned i)
{
	size_t unit = l->kern ? l->kern->in_bytes : w->size;
	size_t dst_unit = l->kern ? l->kern->out_bytes : unit;
	uint64_t n = l->bytes / unit, from = n * i / lanes;
	struct tcp_transfer part = *l;

	part.bytes = (n * (i + 1) / lanes - from) * unit;
	part.data = part.data ? (const char *)part.data + from * unit : NULL;
	part.dst = part.dst ? (char *)part.dst + from * dst_unit : NULL;
	return part;
}

static unsigned lanes_of(const struct tcp_op *w, const struct tcp_transfer *l)
{
	return !l || !l->bytes ? 0 : l->bytes >= LANES_BYTES ? w->lanes : 1;
}

/* The messages that go and come at the same time. */
struct batch {
	struct net_send send[NET_MESSAGES];
	struct net_receive receive[NET_MESSAGES];
	struct sink sink[NET_MESSAGES];
	size_t nsend, nreceive;
};

static void transfer_add(struct batch *b, const struct tcp_op *w,
			 const struct tcp_transfer *out, const struct tcp_transfer *in)
{
	const struct net_send *first = &b->send[b->nsend];
	const unsigned outs = lanes_of(w, out), ins = lanes_of(w, in);

	for (unsigned i = 0; i < outs; i++) {
		struct tcp_transfer l = transfer_lane(w, out, outs, i);
		struct net_send *s = &b->send[b->nsend++];

		*s = transfer_sending(w, &l);
		s->lane = i;
	}
	for (unsigned i = 0; i < ins; i++) {
		struct tcp_transfer l = transfer_lane(w, in, ins, i);
		struct net_receive *r = &b->receive[b->nreceive];

		*r = transfer_receiving(w, &l, &b->sink[b->nreceive++]);
		r->lane = i;
		r->behind = in->behind ? &first[i] : NULL;
	}
}

static berth_result run_batch(struct tcp_op *w, struct batch *b)
{
	_Static_assert((int)TUNE_LANES <= (int)NET_LANES, "each has its own");
	w->t->step++;
	return transfer_exchange(w->t, b->send, b->nsend, b->receive, b->nreceive,
				 w->deadline_ns);
}

berth_result tcp_exchange(struct tcp_op *w, const struct tcp_transfer *out,
			  const struct tcp_transfer *in)
{
	struct batch b;

	b.nsend = b.nreceive = 0;
	transfer_add(&b, w, out, in);
	return run_batch(w, &b);
}

berth_result tcp_exchange_all(struct tcp_op *w, const struct tcp_transfer *out,
			      const struct tcp_transfer *in, size_t n)
{
	struct batch b;

	b.nsend = b.nreceive = 0;
	for (size_t i = 0; i < n; i++)
		transfer_add(&b, w, &out[i], &in[i]);
	return run_batch(w, &b);
}

berth_result tcp_sendrecv(struct tcp_op *w, unsigned to, const void *out, uint64_t n,
			  unsigned from, void *in, uint64_t m)
{
	struct tcp_transfer o = { .place = to, .data = out, .bytes = n };
	struct tcp_transfer i = { .place = from, .dst = in, .bytes = m };

	return tcp_exchange(w, &o, &i);
}

/* ---- with the agreement ---- */

static berth_result transfer_begin(void *ctx, struct net_receive *in, uint64_t bytes)
{
	const struct sink *k = ctx;
	struct tcp *t = k->w->t;
	struct signatures came, *know = &t->signatures;

	(void)bytes;
	memcpy(&came, &in->note, sizeof came);
	if (came.low < know->low) {
		know->low = came.low;
		know->low_at = came.low_at;
	}
	if (came.high > know->high) {
		know->high = came.high;
		know->high_at = came.high_at;
	}
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
		s = transfer_sending(w, out);
		memcpy(&s.note, &w->t->signatures, sizeof s.note);
		if (tcp_differs(w->t))
			s.bytes = 0;
	}
	if (in) {
		r = transfer_receiving(w, in, &k);
		r.begin = transfer_begin;
		r.behind = in->behind ? &s : NULL;
	}
	return transfer_exchange(w->t, &s, out != NULL, &r, in != NULL, w->deadline_ns);
}
