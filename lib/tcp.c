#include "lib/tcp_way.h"

#include <stdlib.h>
#include <string.h>

enum {
	EXPLANATION = 0x45585031, /* signature of what is no operation */
	LANES_BYTES = 128 << 10   /* of a message that goes over several connections */
};

/* ---- joining ---- */

static void leave(void *group)
{
	struct tcp *t = group;

	if (!t)
		return;
	free(t->rank);
	free(t->texts);
	free(t);
}

struct tcp *tcp_join(const struct tcp_config *config)
{
	struct tcp *t = calloc(1, sizeof *t);

	if (!t)
		return NULL;
	t->net = config->net;
	t->group = config->group;
	t->n = config->n;
	t->me = config->me;
	t->rank = malloc(t->n * sizeof *t->rank);
	t->numbers = tune_guess;
	if (!t->rank) {
		leave(t);
		return NULL;
	}
	memcpy(t->rank, config->rank, t->n * sizeof *t->rank);
	return t;
}

/* ---- messages ---- */

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

/* At the first operation of the group. */
static berth_result ready(struct tcp *t, uint64_t deadline_ns)
{
	if (t->broken)
		return t->why;
	if (t->probed || t->n == 1)
		return BERTH_OK;
	t->probed = true;
	return tcp_probe(t, deadline_ns);
}

static berth_result exchange(struct tcp *t, struct net_send *out, size_t nout,
			     struct net_receive *in, size_t nin, uint64_t deadline_ns)
{
	unsigned lost;
	berth_result rc = net_exchange(t->net, out, nout, in, nin, deadline_ns, &lost);

	return rc ? tcp_fail(t, rc, lost) : BERTH_OK;
}

struct way tcp_way(struct tcp *t, const struct coll *c, uint64_t deadline_ns)
{
	return (struct way){ .t = t,
			     .c = c,
			     .reduce = kern_reduce_of(c->type, c->op),
			     .size = kern_size(c->type),
			     .deadline_ns = deadline_ns,
			     .lanes = 1 };
}

/* Where pieces that come are reduced to: DST = OWN op piece, or piece op OWN. */
struct sink {
	const struct way *w;
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

static struct net_send sending(const struct way *w, const struct leg *l)
{
	return (struct net_send){ .peer = w->t->rank[l->place],
				  .tag = tag(w->t),
				  .note = { { w->c->signature } },
				  .data = l->data,
				  .bytes = l->bytes };
}

static struct net_receive receiving(const struct way *w, const struct leg *l,
				    struct sink *k)
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
static struct leg lane(const struct way *w, const struct leg *l, unsigned lanes,
		       unsigned i)
{
	uint64_t n = l->bytes / w->size, from = n * i / lanes * w->size;
	struct leg part = *l;

	part.bytes = n * (i + 1) / lanes * w->size - from;
	part.data = part.data ? (const char *)part.data + from : NULL;
	part.dst = part.dst ? (char *)part.dst + from : NULL;
	return part;
}

static unsigned lanes_of(const struct way *w, const struct leg *l)
{
	return l->bytes >= LANES_BYTES ? w->lanes : 1;
}

berth_result tcp_exchange(struct way *w, const struct leg *out, const struct leg *in)
{
	struct net_send s[NET_LANES];
	struct net_receive r[NET_LANES];
	struct sink k[NET_LANES];
	unsigned ns = out && out->bytes ? lanes_of(w, out) : 0;
	unsigned nr = in && in->bytes ? lanes_of(w, in) : 0;

	_Static_assert((int)TUNE_LANES <= (int)NET_LANES, "each has its own");
	for (unsigned i = 0; i < ns; i++) {
		struct leg l = lane(w, out, ns, i);

		s[i] = sending(w, &l);
		s[i].lane = i;
	}
	for (unsigned i = 0; i < nr; i++) {
		struct leg l = lane(w, in, nr, i);

		r[i] = receiving(w, &l, &k[i]);
		r[i].lane = i;
		r[i].behind = in->behind ? &s[i] : NULL;
	}
	w->t->step++;
	return exchange(w->t, s, ns, r, nr, w->deadline_ns);
}

berth_result tcp_swap(struct way *w, unsigned to, const void *out, uint64_t n,
		      unsigned from, void *in, uint64_t m)
{
	struct leg o = { .place = to, .data = out, .bytes = n };
	struct leg i = { .place = from, .dst = in, .bytes = m };

	return tcp_exchange(w, &o, &i);
}

berth_result tcp_swap_reduce(struct way *w, unsigned to, const void *out, uint64_t n,
			     unsigned from, void *dst, const void *own, uint64_t m)
{
	struct leg o = { .place = to, .data = out, .bytes = n };
	struct leg i = {
		.place = from, .data = own, .dst = dst, .bytes = m, .reduces = true
	};

	return tcp_exchange(w, &o, &i);
}

/* ---- the agreement ---- */

static void hear(struct tcp_heard *know, const struct tcp_heard *came)
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
	struct tcp_heard came;

	(void)bytes;
	memcpy(&came, &in->note, sizeof came);
	hear(&t->heard, &came);
	in->drop = tcp_differs(t);
	return BERTH_OK;
}

berth_result tcp_trade(struct way *w, const struct leg *out, const struct leg *in)
{
	struct net_send s;
	struct net_receive r;
	struct sink k;

	_Static_assert(sizeof w->t->heard == sizeof s.note, "what is heard is a note");
	if (!w->hears)
		return tcp_exchange(w, out, in);
	w->t->step++;
	if (out) {
		s = sending(w, out);
		memcpy(&s.note, &w->t->heard, sizeof s.note);
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

berth_result tcp_agree(struct tcp *t, const struct coll *c, struct tcp_heard *heard,
		       void *data, size_t bytes, uint64_t deadline_ns)
{
	struct coll small = *c;
	struct way w = tcp_way(t, &small, deadline_ns);
	berth_result rc = ready(t, deadline_ns);

	if (rc)
		return rc;
	small.in = small.out = data;
	small.count = bytes / w.size;
	t->seq++;
	t->step = 0;
	t->has_other = false;
	t->heard = *heard;
	w.hears = true;
	rc = tcp_round(&w, bytes ? TUNE_DOUBLE : TUNE_WAYS);
	*heard = t->heard;
	return rc;
}

/* ---- the back end ---- */

static struct tune_plan plan_of(const struct tcp *t, const struct coll *c)
{
	return tune_choose(&t->numbers, t->n, c->count * kern_size(c->type));
}

static berth_result data(struct way *w)
{
	const struct coll *c = w->c;

	switch (w->t->n == 1 ? BERTH_KINDS : c->kind) {
	case BERTH_ALLREDUCE:
		return tcp_round(w, plan_of(w->t, c).way);
	case BERTH_REDUCE:
		return tcp_reduce(w);
	case BERTH_REDUCESCATTER:
		return tcp_reducescatter(w);
	case BERTH_ALLGATHER:
		return tcp_allgather(w);
	case BERTH_BROADCAST:
		return tcp_broadcast(w);
	case BERTH_ALLTOALL:
		return tcp_alltoall(w);
	case BERTH_KINDS: /* alone */
		if (c->count && c->out != c->in)
			memmove(c->out, c->in, c->count * w->size);
		return BERTH_OK;
	default:
		return BERTH_OK;
	}
}

berth_result tcp_data(struct tcp *t, const struct coll *c, uint64_t deadline_ns)
{
	struct way w = tcp_way(t, c, deadline_ns);
	berth_result rc = t->broken ? t->why : BERTH_OK;

	if (c->kind == BERTH_ALLREDUCE)
		rc = ready(t, deadline_ns);
	if (rc)
		return rc;
	t->seq++;
	t->step = 0;
	w.lanes = plan_of(t, c).lanes;
	return data(&w);
}

static berth_result run(void *group, const struct coll *c, uint64_t deadline_ns)
{
	struct tcp *t = group;
	struct way w = tcp_way(t, c, deadline_ns);
	struct tune_plan plan = { TUNE_WAYS, 1 };
	berth_result rc = ready(t, deadline_ns);

	if (rc)
		return rc;
	if (c->kind == BERTH_ALLREDUCE && c->count && t->n > 1)
		plan = plan_of(t, c);
	/* of two, each has heard all when the first data comes */
	if (plan.way == TUNE_RING || plan.lanes > 1 ||
	    (t->n > 2 && c->count * w.size > BACKEND_EARLY_BYTES))
		plan.way = TUNE_WAYS;
	t->seq++;
	t->step = 0;
	t->has_other = false;
	t->heard = (struct tcp_heard){ c->signature, c->signature, t->me, t->me };
	w.hears = true;
	rc = tcp_round(&w, plan.way);
	if (!rc && tcp_differs(t)) {
		t->has_other = true;
		t->other = t->heard.low == c->signature ? t->heard.high_at
							: t->heard.low_at;
		return BERTH_MISMATCH;
	}
	w.hears = false;
	w.lanes = plan.lanes;
	return rc || plan.way != TUNE_WAYS ? rc : data(&w);
}

static size_t others(const void *group, unsigned *which, size_t most)
{
	const struct tcp *t = group;

	if (t->has_other && most)
		*which = t->other;
	return t->has_other;
}

static berth_result explain(void *group, const char *text, const char **said)
{
	struct tcp *t = group;
	struct coll c = { .kind = BERTH_ALLGATHER,
			  .type = BERTH_U8,
			  .count = BACKEND_TEXT_BYTES,
			  .signature = EXPLANATION };
	struct way w = tcp_way(t, &c, 0);
	char *own;

	if (!t->texts)
		t->texts = malloc((size_t)t->n * BACKEND_TEXT_BYTES);
	if (!t->texts)
		return tcp_fail(t, BERTH_MEMORY, t->rank[t->me]);
	t->seq++;
	t->step = 0;
	own = t->texts + (size_t)t->me * BACKEND_TEXT_BYTES;
	memset(own, 0, BACKEND_TEXT_BYTES);
	memcpy(own, text, strnlen(text, BACKEND_TEXT_BYTES - 1));
	c.in = own;
	c.out = t->texts;
	for (unsigned i = 0; i < t->n; i++)
		said[i] = t->texts + (size_t)i * BACKEND_TEXT_BYTES;
	return tcp_allgather(&w);
}

/* Who goes by itself says so as it closes its connections, and what it has sent before
 * still counts: others may need it to hear why. */
static void end(void *group, berth_result result, unsigned lost)
{
	struct tcp *t = group;

	t->broken = true;
	t->why = result;
	if (result != BERTH_ABORTED)
		net_break(t->net, lost < t->n ? t->rank[lost] : lost);
}

static size_t ways(const void *group, char *text, size_t bytes)
{
	const struct tcp *t = group;

	return tune_table(text, bytes, &t->numbers, t->n);
}

const struct backend tcp_backend = { "tcp", run,  others, explain, end,
				     leave, ways, false,  0 };
