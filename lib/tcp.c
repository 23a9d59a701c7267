#include "lib/tcp.h"

#include <stdlib.h>
#include <string.h>

#include "lib/kern.h"

enum {
	TREE_BYTES = 64 << 10, /* of a broadcast along a tree */
	/* Of a broadcast, in which ranks do not send and receive equally often. */
	TREE_STEP = 1 << 20,
	PARTS_STEP,
	RING_STEP,
	AGREEMENT = 0x41475231, /* signatures of messages that are no one operation's */
	EXPLANATION = 0x45585031
};

struct tcp {
	struct net *net;
	uint32_t group, seq, step;
	unsigned n, me;
	unsigned *rank;
	/* a heard, then the data of a small allreduce: what we know, what came */
	unsigned char *know, *came;
	char *texts;
	unsigned other; /* who differs, or is gone */
	bool has_other, broken;
	berth_result why;
};

/* One operation on its way. */
struct way {
	struct tcp *t;
	const struct coll *c;
	kern_reduce *reduce;
	size_t size;
	uint64_t deadline_ns;
};

/* ---- joining ---- */

static void leave(void *group)
{
	struct tcp *t = group;

	if (!t)
		return;
	free(t->rank);
	free(t->know);
	free(t->came);
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
	t->know = malloc(sizeof(struct tcp_heard) + TCP_SMALL_BYTES);
	t->came = malloc(sizeof(struct tcp_heard) + TCP_SMALL_BYTES);
	if (!t->rank || !t->know || !t->came) {
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

static berth_result fail(struct tcp *t, berth_result rc, unsigned lost)
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

static berth_result exchange(struct tcp *t, struct net_send *out,
			     struct net_receive *in, uint64_t deadline_ns)
{
	unsigned lost;
	berth_result rc = net_exchange(t->net, out, in, deadline_ns, &lost);

	return rc ? fail(t, rc, lost) : BERTH_OK;
}

static struct net_tag tag(const struct tcp *t, uint32_t signature)
{
	return (struct net_tag){ t->group, t->seq, t->step, signature };
}

/* N bytes at OUT to place TO while M bytes come from place FROM to IN. */
static berth_result swap(struct way *w, unsigned to, const void *out, uint64_t n,
			 unsigned from, void *in, uint64_t m)
{
	struct tcp *t = w->t;
	struct net_send s = { .peer = t->rank[to],
			      .tag = tag(t, w->c->signature),
			      .data = out,
			      .bytes = n };
	struct net_receive r = {
		.peer = t->rank[from], .tag = s.tag, .data = in, .bytes = m
	};

	t->step++;
	return exchange(t, n ? &s : NULL, m ? &r : NULL, w->deadline_ns);
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

/* The same, but what comes is reduced with OWN into DST. */
static berth_result swap_reduce(struct way *w, unsigned to, const void *out, uint64_t n,
				unsigned from, void *dst, const void *own, uint64_t m)
{
	struct tcp *t = w->t;
	struct sink sink = { w, dst, own, t->me < from };
	struct net_send s = { .peer = t->rank[to],
			      .tag = tag(t, w->c->signature),
			      .data = out,
			      .bytes = n };
	struct net_receive r = { .peer = t->rank[from],
				 .tag = s.tag,
				 .bytes = m,
				 .take = take_piece,
				 .ctx = &sink,
				 .unit = w->size };

	t->step++;
	return exchange(t, n ? &s : NULL, m ? &r : NULL, w->deadline_ns);
}

/* ---- the agreement ---- */

/* The greatest power of 2 that is no more than N. */
static unsigned power_below(unsigned n)
{
	unsigned p = 1;

	while (p <= n / 2)
		p *= 2;
	return p;
}

static void hear(struct tcp_heard *know, const struct tcp_heard *came)
{
	if (came->most > know->most)
		know->most = came->most;
	if (came->low < know->low) {
		know->low = came->low;
		know->low_at = came->low_at;
	}
	if (came->high > know->high) {
		know->high = came->high;
		know->high_at = came->high_at;
	}
}

/* What came joins what is known: the data only while all call for the same. */
static void merge(struct way *w, unsigned from, size_t data, size_t came_bytes)
{
	struct tcp *t = w->t;
	struct tcp_heard *know = (struct tcp_heard *)t->know;
	unsigned char *mine = t->know + sizeof *know, *theirs = t->came + sizeof *know;
	const void *src[2] = { mine, theirs };

	hear(know, (struct tcp_heard *)t->came);
	if (!data || know->low != know->high || came_bytes != sizeof *know + data)
		return;
	if (from < t->me) {
		src[0] = theirs;
		src[1] = mine;
	}
	w->reduce(&(void *){ mine }, 1, src, 2, data / w->size, false);
}

/* Either with OUT, or IN, or both; what came is in t->came, and how much. */
static berth_result tell(struct way *w, unsigned peer, bool out, bool in, size_t bytes,
			 size_t *came)
{
	struct tcp *t = w->t;
	struct net_send s = { .peer = t->rank[peer],
			      .tag = tag(t, AGREEMENT),
			      .data = t->know,
			      .bytes = bytes };
	struct net_receive r = { .peer = t->rank[peer],
				 .tag = s.tag,
				 .up_to = true,
				 .data = t->came,
				 .bytes = sizeof(struct tcp_heard) + TCP_SMALL_BYTES };
	berth_result rc = exchange(t, out ? &s : NULL, in ? &r : NULL, w->deadline_ns);

	*came = r.bytes;
	if (!rc && in && r.bytes < sizeof(struct tcp_heard))
		return fail(t, BERTH_MISMATCH, t->rank[peer]);
	return rc;
}

/* DATA bytes of a small allreduce behind the heard; they become the result. */
static berth_result double_up(struct way *w, size_t data)
{
	struct tcp *t = w->t;
	unsigned p = power_below(t->n);
	size_t bytes = sizeof(struct tcp_heard) + data, came;
	berth_result rc = BERTH_OK;

	t->step = 0;
	if (t->me >= p) { /* one of the rest has somebody to speak for it */
		rc = tell(w, t->me - p, true, false, bytes, &came);
		t->step = 1000;
		if (!rc)
			rc = tell(w, t->me - p, false, true, 0, &came);
		if (!rc)
			memcpy(t->know, t->came, came < bytes ? came : bytes);
		return rc;
	}
	if (t->me + p < t->n) {
		rc = tell(w, t->me + p, false, true, 0, &came);
		if (!rc)
			merge(w, t->me + p, data, came);
	}
	for (unsigned mask = 1; !rc && mask < p; mask *= 2) {
		t->step = 1 + mask;
		rc = tell(w, t->me ^ mask, true, true, bytes, &came);
		if (!rc)
			merge(w, t->me ^ mask, data, came);
	}
	t->step = 1000;
	if (!rc && t->me + p < t->n)
		rc = tell(w, t->me + p, true, false, bytes, &came);
	return rc;
}

berth_result tcp_agree(struct tcp *t, const struct coll *c, struct tcp_heard *heard,
		       void *data, size_t bytes, uint64_t deadline_ns)
{
	struct way w = { t, c, kern_reduce_of(c->type, c->op), kern_size(c->type),
			 deadline_ns };
	berth_result rc;

	if (t->broken)
		return t->why;
	t->seq++;
	t->has_other = false;
	*(struct tcp_heard *)t->know = *heard;
	if (bytes)
		memcpy(t->know + sizeof *heard, data, bytes);
	rc = double_up(&w, bytes);
	*heard = *(struct tcp_heard *)t->know;
	if (!rc && bytes && heard->low == heard->high)
		memcpy(data, t->know + sizeof *heard, bytes);
	return rc;
}

/* ---- reductions ---- */

static uint64_t even_at(uint64_t count, unsigned n, unsigned i)
{
	return count / n * i + (i < count % n ? i : count % n);
}

/* Bytes in front of part I of N of the operation's elements. */
static uint64_t bound(const struct way *w, unsigned n, unsigned i)
{
	return even_at(w->c->count, n, i) * w->size;
}

/* Recursive halving: of P ranks each gets part `me` of the sum in OUT. */
static berth_result halve(struct way *w, unsigned p)
{
	struct tcp *t = w->t;
	unsigned char *out = w->c->out;
	const unsigned char *own = w->c->in;
	unsigned first = 0;
	berth_result rc = BERTH_OK;

	for (unsigned half = p / 2; !rc && half; half /= 2) {
		unsigned peer = t->me ^ half,
			 keep = t->me & half ? first + half : first;
		unsigned give = t->me & half ? first : first + half;
		uint64_t from = bound(w, p, keep), to = bound(w, p, keep + half);
		uint64_t give_at = bound(w, p, give),
			 give_end = bound(w, p, give + half);

		rc = swap_reduce(w, peer, own + give_at, give_end - give_at, peer,
				 out + from, own + from, to - from);
		own = out;
		first = keep;
	}
	return rc;
}

/* And back: everybody gets all parts. */
static berth_result give_back(struct way *w, unsigned p)
{
	struct tcp *t = w->t;
	unsigned char *out = w->c->out;
	berth_result rc = BERTH_OK;

	for (unsigned half = 1; !rc && half < p; half *= 2) {
		unsigned peer = t->me ^ half, mine = t->me & ~(half - 1);
		unsigned theirs = mine ^ half;
		uint64_t at = bound(w, p, mine), end = bound(w, p, mine + half);
		uint64_t in = bound(w, p, theirs), in_end = bound(w, p, theirs + half);

		rc = swap(w, peer, out + at, end - at, peer, out + in, in_end - in);
	}
	return rc;
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
		uint64_t at = bound(w, n, give), end = bound(w, n, give + 1);
		uint64_t to = bound(w, n, get), to_end = bound(w, n, get + 1);

		rc = swap_reduce(w, next, (k ? out : in) + at, end - at, before,
				 out + to, in + to, to_end - to);
	}
	return rc;
}

static berth_result ring_share(struct way *w)
{
	struct tcp *t = w->t;
	unsigned n = t->n, next = (t->me + 1) % n, before = (t->me + n - 1) % n;
	unsigned char *out = w->c->out;
	berth_result rc = BERTH_OK;

	for (unsigned k = 0; !rc && k + 1 < n; k++) {
		unsigned give = (t->me + n - k) % n, get = (t->me + 2 * n - k - 1) % n;
		uint64_t at = bound(w, n, give), end = bound(w, n, give + 1);
		uint64_t to = bound(w, n, get), to_end = bound(w, n, get + 1);

		rc = swap(w, next, out + at, end - at, before, out + to, to_end - to);
	}
	return rc;
}

static bool is_power(unsigned n)
{
	return power_below(n) == n;
}

static berth_result allreduce(struct way *w)
{
	unsigned n = w->t->n;
	berth_result rc = is_power(n) ? halve(w, n) : ring_reduce(w);

	if (rc)
		return rc;
	return is_power(n) ? give_back(w, n) : ring_share(w);
}

/* The root takes the others' parts of the sum. */
static berth_result collect(struct way *w)
{
	struct tcp *t = w->t;
	unsigned char *out = w->c->out;
	uint64_t at = bound(w, t->n, t->me), end = bound(w, t->n, t->me + 1);
	berth_result rc = BERTH_OK;

	if (t->me != w->c->root)
		return swap(w, w->c->root, out + at, end - at, w->c->root, NULL, 0);
	for (unsigned r = 0; !rc && r < t->n; r++) {
		at = bound(w, t->n, r);
		end = bound(w, t->n, r + 1);
		if (r != t->me) {
			rc = swap(w, r, NULL, 0, r, out + at, end - at);
			t->step--; /* the others have sent only one */
		}
	}
	return rc;
}

/* OUT of the others is theirs: they work in memory of their own. */
static berth_result reduce(struct way *w)
{
	struct coll c = *w->c;
	struct way inner = *w;
	void *room = NULL;
	berth_result rc;

	if (w->t->me != c.root) {
		room = malloc(c.count * w->size);
		if (!room)
			return fail(w->t, BERTH_MEMORY, w->t->rank[w->t->me]);
		c.out = room;
	}
	inner.c = &c;
	rc = is_power(w->t->n) ? halve(&inner, w->t->n) : ring_reduce(&inner);
	if (!rc)
		rc = collect(&inner);
	free(room);
	return rc;
}

/* As ring_reduce(), but OUT has room for one part only. */
static berth_result reducescatter(struct way *w)
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
		return fail(t, BERTH_MEMORY, t->rank[t->me]);
	room[1] = room[0] + largest * w->size;
	for (unsigned k = 0; !rc && k + 1 < n; k++) {
		unsigned give = (t->me + 2 * n - k - 1) % n;
		unsigned get = (t->me + 2 * n - k - 2) % n;
		const unsigned char *from =
			k ? room[(k + 1) % 2]
			  : in + coll_part_at(w->c, n, give) * w->size;

		rc = swap_reduce(w, next, from, coll_part(w->c, n, give) * w->size,
				 before, k + 2 == n ? w->c->out : room[k % 2],
				 in + coll_part_at(w->c, n, get) * w->size,
				 coll_part(w->c, n, get) * w->size);
	}
	free(room[0]);
	return rc;
}

/* ---- data that move ---- */

static berth_result allgather(struct way *w)
{
	struct tcp *t = w->t;
	unsigned n = t->n, next = (t->me + 1) % n, before = (t->me + n - 1) % n;
	unsigned char *out = w->c->out,
		      *own = out + coll_got_at(w->c, n, t->me) * w->size;
	berth_result rc = BERTH_OK;

	if (w->c->count && own != w->c->in)
		memmove(own, w->c->in, w->c->count * w->size);
	for (unsigned k = 0; !rc && k + 1 < n; k++) {
		unsigned give = (t->me + n - k) % n, get = (t->me + 2 * n - k - 1) % n;

		rc = swap(w, next, out + coll_got_at(w->c, n, give) * w->size,
			  coll_got(w->c, n, give) * w->size, before,
			  out + coll_got_at(w->c, n, get) * w->size,
			  coll_got(w->c, n, get) * w->size);
	}
	return rc;
}

static berth_result down_tree(struct way *w)
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
		rc = swap(w, from, NULL, 0, from, w->c->out, bytes);
	}
	for (mask /= 2; !rc && mask; mask /= 2)
		if (place + mask < n) {
			unsigned to = (place + mask + w->c->root) % n;

			t->step = TREE_STEP;
			rc = swap(w, to, w->c->out, bytes, to, NULL, 0);
		}
	return rc;
}

static berth_result broadcast(struct way *w)
{
	struct tcp *t = w->t;
	unsigned char *out = w->c->out;
	berth_result rc = BERTH_OK;

	if (t->me == w->c->root && w->c->in != w->c->out && w->c->count)
		memmove(w->c->out, w->c->in, w->c->count * w->size);
	if (w->c->count * w->size <= TREE_BYTES)
		return down_tree(w);
	for (unsigned r = 0; !rc && r < t->n; r++) {
		uint64_t at = bound(w, t->n, r), bytes = bound(w, t->n, r + 1) - at;

		t->step = PARTS_STEP;
		if (r == w->c->root)
			continue;
		if (t->me == w->c->root)
			rc = swap(w, r, out + at, bytes, r, NULL, 0);
		else if (r == t->me)
			rc = swap(w, w->c->root, NULL, 0, w->c->root, out + at, bytes);
	}
	t->step = RING_STEP;
	return rc ? rc : ring_share(w);
}

static berth_result alltoall(struct way *w)
{
	struct tcp *t = w->t;
	const struct coll *c = w->c;
	unsigned n = t->n;
	const unsigned char *in = c->in;
	unsigned char *out = c->out, *copy = NULL;
	uint64_t own = coll_part(c, n, t->me) * w->size;
	berth_result rc = BERTH_OK;

	if (c->in == c->out) { /* what is to be sent is overwritten by what comes */
		copy = malloc(c->count * w->size + 1);
		if (!copy)
			return fail(t, BERTH_MEMORY, t->rank[t->me]);
		memcpy(copy, in, c->count * w->size);
		in = copy;
	}
	if (own)
		memcpy(out + coll_got_at(c, n, t->me) * w->size,
		       in + coll_part_at(c, n, t->me) * w->size, own);
	for (unsigned k = 1; !rc && k < n; k++) {
		unsigned to = (t->me + k) % n, from = (t->me + n - k) % n;

		rc = swap(w, to, in + coll_part_at(c, n, to) * w->size,
			  coll_part(c, n, to) * w->size, from,
			  out + coll_got_at(c, n, from) * w->size,
			  coll_got(c, n, from) * w->size);
	}
	free(copy);
	return rc;
}

/* ---- the back end ---- */

berth_result tcp_data(struct tcp *t, const struct coll *c, uint64_t deadline_ns)
{
	struct way w = { t, c, kern_reduce_of(c->type, c->op), kern_size(c->type),
			 deadline_ns };

	if (t->broken)
		return t->why;
	t->seq++;
	t->step = 0;
	switch (t->n == 1 ? BERTH_KINDS : c->kind) {
	case BERTH_ALLREDUCE:
		return allreduce(&w);
	case BERTH_REDUCE:
		return reduce(&w);
	case BERTH_REDUCESCATTER:
		return reducescatter(&w);
	case BERTH_ALLGATHER:
		return allgather(&w);
	case BERTH_BROADCAST:
		return broadcast(&w);
	case BERTH_ALLTOALL:
		return alltoall(&w);
	case BERTH_KINDS: /* alone */
		if (c->count && c->out != c->in)
			memmove(c->out, c->in, c->count * w.size);
		return BERTH_OK;
	default:
		return BERTH_OK;
	}
}

static berth_result run(void *group, const struct coll *c, uint64_t deadline_ns)
{
	struct tcp *t = group;
	struct tcp_heard heard = { 0, c->signature, c->signature, t->me, t->me };
	size_t bytes = c->count * kern_size(c->type);
	bool small = c->kind == BERTH_ALLREDUCE && bytes <= TCP_SMALL_BYTES;
	berth_result rc;

	if (small && bytes && c->out != c->in)
		memmove(c->out, c->in, bytes);
	rc = tcp_agree(t, c, &heard, c->out, small ? bytes : 0, deadline_ns);
	if (!rc && heard.low != heard.high) {
		t->has_other = true;
		t->other = heard.low == c->signature ? heard.high_at : heard.low_at;
		return BERTH_MISMATCH;
	}
	return rc || small ? rc : tcp_data(t, c, deadline_ns);
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
	struct way w = { t, &c, NULL, 1, 0 };
	char *own;

	if (!t->texts)
		t->texts = malloc((size_t)t->n * BACKEND_TEXT_BYTES);
	if (!t->texts)
		return fail(t, BERTH_MEMORY, t->rank[t->me]);
	t->seq++;
	t->step = 0;
	own = t->texts + (size_t)t->me * BACKEND_TEXT_BYTES;
	memset(own, 0, BACKEND_TEXT_BYTES);
	memcpy(own, text, strnlen(text, BACKEND_TEXT_BYTES - 1));
	c.in = own;
	c.out = t->texts;
	for (unsigned i = 0; i < t->n; i++)
		said[i] = t->texts + (size_t)i * BACKEND_TEXT_BYTES;
	return allgather(&w);
}

static void end(void *group, berth_result result, unsigned lost)
{
	struct tcp *t = group;

	t->broken = true;
	t->why = result;
	net_break(t->net, lost < t->n ? t->rank[lost] : lost);
}

const struct backend tcp_backend = { "tcp", run, others, explain, end, leave };
