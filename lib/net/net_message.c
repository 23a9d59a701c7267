#include "lib/net/net_state.h"

#include <errno.h>
#include <sched.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include "lib/base/fiber.h"

enum {
	SPIN_NS = 200000, /* without a byte, before a rank sleeps */
	YIELD_NS = 5000,  /* between two yields of a spinning rank */
	AWAY_NS = 50000,  /* between two looks: another process has run on this core */
	OVERSUBSCRIBED_MS =
		10, /* it is taken to be oversubscribed for so long, then twice, ... */
	OVERSUBSCRIBED_MOST_MS = 2000,
	NO_PACING_MS = 200 /* if it shows again so soon; else from the beginning */
};

/* ---- sending ---- */

static bool sent_all(const struct net_send *out)
{
	return out->sent == sizeof(struct head) + out->bytes + out->tailing;
}

/* Send a small message in one piece.  The socket may take less. */
static ssize_t push_small(struct link *l, struct net_send *out, const struct head *h)
{
	struct {
		struct head head;
		unsigned char data[NET_SMALL_BYTES + NET_TAIL_BYTES];
	} all;

	all.head = *h;
	if (out->bytes)
		memcpy(all.data, out->data, out->bytes);
	if (out->tailing)
		out->tail =
			net_tail(l->channel.out, h->mark.number, all.data, out->bytes);
	memcpy(all.data + out->bytes, &out->tail, out->tailing);
	out->hashed = out->bytes;
	return net_channel_send(
		&l->channel,
		&(struct iovec){ &all, sizeof *h + out->bytes + out->tailing }, 1);
}

/* Hash the next bytes, from BODY on.  Returns how many bytes may go. */
static size_t hash_ahead(struct net_mac *m, struct net_send *out, size_t body)
{
	const size_t to =
		out->bytes - body < PIECE_BYTES ? out->bytes : body + PIECE_BYTES;

	if (!out->tailing || out->hashed == out->bytes)
		return to - body;
	if (!out->hashed)
		net_tail_begin(m);
	net_tail_add(m, (const char *)out->data + out->hashed, to - out->hashed);
	out->hashed = to;
	if (to == out->bytes)
		out->tail = net_tail_end(m, out->mark.number, out->bytes);
	return to - body;
}

/* Send the next piece, behind the rest of the head.  The tail goes behind the last
 * piece. */
static ssize_t push_piece(struct link *l, struct net_send *out, const struct head *h)
{
	const size_t head = out->sent < sizeof *h ? sizeof *h - out->sent : 0,
		     at = out->sent + head - sizeof *h,
		     body = at < out->bytes ? at : out->bytes, tail = at - body,
		     data = hash_ahead(l->channel.out, out, body);
	struct iovec v[3];
	size_t n = 0;

	if (head)
		v[n++] =
			(struct iovec){ (char *)(uintptr_t)h + sizeof *h - head, head };
	if (data)
		v[n++] = (struct iovec){ (char *)(uintptr_t)out->data + body, data };
	if (body + data == out->bytes && out->tailing > tail)
		v[n++] = (struct iovec){ (char *)&out->tail + tail,
					 out->tailing - tail };
	return net_channel_send(&l->channel, v, n);
}

/* Send as much as the socket takes, PIECE_BYTES at most, so that the incoming bytes are
 * taken meanwhile.  1: something went, 0: nothing, -1: the peer is gone. */
static int message_push(struct net *n, struct net_send *out)
{
	struct head h = { HEAD_MAGIC, out->tag, out->note, out->bytes, out->mark };
	struct link *l = net_link(n, out->peer, out->lane);
	ssize_t k;

	if (!out->sent) {
		h.mark = net_mark(l->channel.out, &h);
		if (h.mark.number != out->mark.number)
			out->hashed = 0; /* the tail would be that of another head */
		out->mark = h.mark;
	}
	k = out->sent || out->bytes > NET_SMALL_BYTES ? push_piece(l, out, &h)
						      : push_small(l, out, &h);
	if (k > 0 && !out->sent)
		l->channel.out->number++;
	if (k > 0)
		out->sent += (size_t)k;
	l->half = out->sent && !sent_all(out);
	l->sent += k > 0 && sent_all(out);
	return k > 0 ? 1 : errno == EAGAIN || errno == EINTR ? 0 : -1;
}

/* ---- receiving ---- */

static bool got_all(const struct net_receive *in)
{
	return in->has_head && in->got == in->bytes && !in->tailing;
}

static berth_result message_forged(struct net *n, const struct net_receive *in)
{
	net_is_forged(n, in->peer, in->lane);
	return BERTH_AUTH;
}

/* The head H has come.  Is it the expected one? */
static berth_result message_take_head(struct net *n, struct link *l,
				      struct net_receive *in, const struct head *h,
				      unsigned *lost)
{
	berth_result rc;
	bool same = !memcmp(&in->note, &h->note, sizeof in->note);

	if (!net_is_said(l, h, false))
		return message_forged(n, in);
	l->channel.in->number++;
	if (h->tag.group == GROUP_RELEASE) {
		net_keep(l, h);
		return BERTH_OK;
	}
	rc = net_given_up(n, in->peer, h, lost);
	if (rc)
		return rc;
	if (h->tag.group == GROUP_LEAVES)
		return net_of_leaver(n);
	if (memcmp(&h->tag, &in->tag, sizeof h->tag))
		return BERTH_MISMATCH;
	in->mark = h->mark;
	in->tailing = net_tail_bytes(l->channel.in, h->bytes);
	in->is_small = in->tailing && h->bytes <= NET_SMALL_BYTES;
	in->is_proved = !in->tailing;
	if (in->tailing && !in->is_small)
		net_tail_begin(l->channel.in);
	in->note = h->note;
	if (in->begin)
		rc = in->begin(in->ctx, in, h->bytes);
	else if (!same)
		rc = BERTH_MISMATCH;
	if (!rc && !in->drop && h->bytes != in->bytes)
		rc = BERTH_MISMATCH;
	in->bytes = h->bytes;
	in->has_head = true;
	return rc;
}

/* How many bytes may be taken now. */
static size_t message_wanted(const struct net_receive *in)
{
	const size_t piece = in->take || in->drop ? TAKE_BYTES : PIECE_BYTES;
	const struct net_send *s = in->behind;
	size_t most = in->bytes - in->got;

	if (s && !in->drop && s->sent < sizeof(struct head) + in->got + most)
		most = s->sent > sizeof(struct head) + in->got
			       ? s->sent - sizeof(struct head) - in->got
			       : 0;
	return most < piece ? most : piece;
}

/* MOST bytes or fewer to TO, from those that have been read already, else from the
 * socket.  LAST: these are the last ones of a message, and the bytes behind them go to
 * the stash, which is empty. */
static ssize_t message_some(struct link *l, void *to, size_t most, bool last)
{
	const struct iovec v[2] = { { to, most }, { l->stash, STASH_BYTES } };
	const size_t have = l->have < most ? l->have : most;
	ssize_t k;

	if (have) {
		memcpy(to, l->stash + l->at, have);
		l->at += have;
		l->have -= have;
		return (ssize_t)have;
	}
	k = net_channel_receive(&l->channel, v, last ? 2 : 1);
	l->drained = k >= 0 && (size_t)k < most + (last ? STASH_BYTES : 0);
	if (k <= (ssize_t)most)
		return k;
	l->at = 0;
	l->have = (size_t)k - most;
	return (ssize_t)most;
}

/* The result of a receive of K bytes for IN.  *RC becomes BERTH_AUTH if the peer did
 * not send them. */
static int message_came(struct net *n, const struct net_receive *in, ssize_t k,
			berth_result *rc)
{
	if (k >= 0 || errno != EBADMSG)
		return k > 0                                          ? 1
		       : k < 0 && (errno == EAGAIN || errno == EINTR) ? 0
								      : -1;
	*rc = message_forged(n, in);
	return 1;
}

/* Receive a head and the bytes that come with it: one call for a small message. */
static int pull_head(struct net *n, struct link *l, struct net_receive *in,
		     unsigned *lost, berth_result *rc)
{
	struct head h;
	ssize_t k = l->have < sizeof h ? net_fill(l) : 1;

	if (k <= 0)
		return message_came(n, in, k, rc);
	if (l->have >= sizeof h) {
		memcpy(&h, l->stash + l->at, sizeof h);
		l->at += sizeof h;
		l->have -= sizeof h;
		*rc = message_take_head(n, l, in, &h, lost);
	}
	return 1;
}

/* The data are the peer's if the tail that it SAID is TAIL. */
static void message_prove(struct net *n, struct net_receive *in, uint64_t tail,
			  const unsigned char *said, berth_result *rc)
{
	in->is_proved = !memcmp(&tail, said, sizeof tail);
	if (!in->is_proved)
		*rc = message_forged(n, in);
}

/* Small data are looked at when all of them have come. */
static int pull_small(struct net *n, struct link *l, struct net_receive *in,
		      berth_result *rc)
{
	const size_t all = in->bytes + in->tailing;
	const ssize_t k = l->have < all ? net_fill(l) : 1;
	const unsigned char *data = l->stash + l->at;

	if (k <= 0)
		return message_came(n, in, k, rc);
	if (l->have >= all)
		message_prove(n, in,
			      net_tail(l->channel.in, in->mark.number, data, in->bytes),
			      data + in->bytes, rc);
	return 1;
}

/* Receive the tail behind the data. */
static int pull_tail(struct net *n, struct link *l, struct net_receive *in,
		     berth_result *rc)
{
	const ssize_t k = l->have < in->tailing ? net_fill(l) : 1;

	if (k <= 0)
		return message_came(n, in, k, rc);
	if (l->have < in->tailing)
		return 1;
	if (!in->is_proved)
		message_prove(n, in,
			      net_tail_end(l->channel.in, in->mark.number, in->bytes),
			      l->stash + l->at, rc);
	l->at += in->tailing;
	l->have -= in->tailing;
	in->tailing = 0;
	return 1;
}

static int pull_data(struct net *n, struct link *l, struct net_receive *in,
		     berth_result *rc)
{
	unsigned char *to = n->piece;
	size_t most, have, whole;
	ssize_t k;

	if (in->drop && n->deadline_ns && clock_ns() >= n->deadline_ns) {
		*rc = BERTH_TIMEOUT; /* the peer alone says how long it goes on */
		return 1;
	}
	most = message_wanted(in);
	if (!most)
		return 0;
	if (!in->take && !in->drop)
		to = (unsigned char *)in->data + in->got;
	else if (in->take && in->held)
		memcpy(to, in->part, in->held);
	k = message_some(l, to + in->held, most, most == in->bytes - in->got);
	if (k <= 0)
		return message_came(n, in, k, rc);
	if (!in->is_proved)
		net_tail_add(l->channel.in, to + in->held, (size_t)k);
	if (in->take && !in->drop) { /* whole units; the rest for the next time */
		have = in->held + (size_t)k;
		whole = have / in->unit * in->unit;
		if (whole)
			in->take(in->ctx, in->got - in->held, to, whole);
		in->held = have - whole;
		memmove(in->part, to + whole, in->held);
	}
	in->got += (size_t)k;
	return 1;
}

/* Receive as far as possible.  1: something came, 0: nothing, -1: the peer is gone. */
static int message_pull(struct net *n, struct net_receive *in, unsigned *lost,
			berth_result *rc)
{
	struct link *l = net_link(n, in->peer, in->lane);
	int moved = in->has_head ? 0 : pull_head(n, l, in, lost, rc), k = 0;

	if (in->has_head && in->is_small && !in->is_proved && !*rc)
		k = pull_small(n, l, in, rc);
	moved |= k;
	if (!in->has_head || (in->is_small && !in->is_proved) || k < 0 || *rc ||
	    got_all(in))
		return moved;
	if (in->got < in->bytes)
		k = pull_data(n, l, in, rc);
	if (k >= 0 && !*rc && in->got == in->bytes && in->tailing) {
		moved |= k;
		k = pull_tail(n, l, in, rc);
	}
	return k < 0 ? k : moved | k;
}

/* A message is complete.  Does the head behind it say that the peer has given up since,
 * and had not done this operation?  The head may have been read long ago, together with
 * the message before. */
static berth_result has_given_up(struct net *n, unsigned peer, struct link *l,
				 unsigned *lost)
{
	struct head h;

	if (l->have < sizeof h && !l->drained)
		net_fill(l);
	if (l->have < sizeof h)
		return BERTH_OK;
	memcpy(&h, l->stash + l->at, sizeof h);
	if (h.tag.group != GROUP_LOST || net_is_beyond(n, &h) ||
	    !net_is_said(l, &h, false))
		return BERTH_OK;
	return net_given_up(n, peer, &h, lost);
}

/* A send to PEER has failed.  The last head that PEER said is behind all that it sent
 * before.  Nobody will read those bytes. */
static berth_result last_word(struct net *n, unsigned peer, struct link *l,
			      unsigned *lost)
{
	struct head h;
	ssize_t k;

	do {
		if (l->have > sizeof h) {
			l->at += l->have - sizeof h;
			l->have = sizeof h;
		}
		k = net_fill(l);
	} while (k > 0 || (k < 0 && errno == EINTR));
	if (l->have < sizeof h)
		return BERTH_OK;
	memcpy(&h, l->stash + l->at + l->have - sizeof h, sizeof h);
	if (!net_is_said(l, &h, true))
		return BERTH_OK;
	return h.tag.group == GROUP_LEAVES ? net_of_leaver(n)
					   : net_given_up(n, peer, &h, lost);
}

/* ---- both at the same time ---- */

struct exchange {
	struct net *n;
	struct net_send *out;
	struct net_receive *in;
	size_t nout, nin;
	unsigned *lost;
	bool ended; /* the stream of *LOST has ended, and nobody said why */
	/* Looks in a row that moved nothing, the time of the first, and of the last. */
	unsigned idle;
	uint64_t idle_ns, looked_ns, yielded_ns;
};

static bool is_done(const struct exchange *x)
{
	for (size_t i = 0; i < x->nout; i++)
		if (!sent_all(&x->out[i]))
			return false;
	for (size_t i = 0; i < x->nin; i++)
		if (!got_all(&x->in[i]))
			return false;
	return true;
}

/* Has a send on the connection of IN failed?  Then the bytes that came there are gone,
 * but for the last head. */
static bool has_failed(const struct exchange *x, const struct net_receive *in)
{
	for (size_t i = 0; i < x->nout; i++)
		if (x->out[i].failed && x->out[i].peer == in->peer &&
		    x->out[i].lane == in->lane)
			return true;
	return false;
}

/* Look at all messages once.  Did anything move?  The last head of a peer that is gone
 * counts, since it says which rank was gone first. */
static bool message_move(struct exchange *x, berth_result *rc)
{
	bool moved = false;

	for (size_t i = 0; i < x->nout; i++) {
		int k = sent_all(&x->out[i]) ? 0 : message_push(x->n, &x->out[i]);

		moved |= k > 0;
		if (k < 0) {
			struct link *l = net_link(x->n, x->out[i].peer, x->out[i].lane);
			berth_result why;

			x->out[i].failed = true;
			*x->lost = x->out[i].peer;
			why = last_word(x->n, x->out[i].peer, l, x->lost);
			*rc = why ? why : BERTH_PEER_LOST;
			x->ended = why == BERTH_OK;
		}
	}
	for (size_t i = 0; i < x->nin; i++) {
		berth_result why = BERTH_OK;
		unsigned lost = x->in[i].peer;
		struct link *l = net_link(x->n, lost, x->in[i].lane);
		int k = 0;

		if (!got_all(&x->in[i]) && !(*rc && has_failed(x, &x->in[i])))
			k = message_pull(x->n, &x->in[i], &lost, &why);
		moved |= k > 0;
		if (k > 0 && !why && got_all(&x->in[i])) {
			l->got++;
			why = has_given_up(x->n, lost, l, &lost);
		}
		if (k >= 0 && !why)
			continue;
		*rc = why ? why : BERTH_PEER_LOST;
		*x->lost = lost;
		x->ended = why == BERTH_OK;
		if (why)
			break;
	}
	return moved;
}

/* Has another process taken this core from this thread since the last look?  The kernel
 * also interrupts a spin, and a virtual machine's core is taken as a whole.  These do
 * not count (if they do, 16 KiB between 2 ranks on 2 cores take 43 us instead of 9). */
static bool was_pushed_aside(struct net *n)
{
	struct rusage r;
	long before = n->pushed_aside;

	if (getrusage(RUSAGE_THREAD, &r))
		return false;
	n->pushed_aside = r.ru_nivcsw;
	return r.ru_nivcsw != before;
}

bool net_may_spin(struct net *n, uint64_t looked_ns, uint64_t now)
{
	/* Others want this core, perhaps the peers for which this rank waits.  A
	 * spinning rank keeps the core from them for milliseconds. */
	if (now - looked_ns > AWAY_NS && was_pushed_aside(n)) {
		if (now - n->oversubscribed_until_ns > NO_PACING_MS * 1000000ull)
			n->oversubscribed_ms = OVERSUBSCRIBED_MS;
		else if (n->oversubscribed_ms < OVERSUBSCRIBED_MOST_MS)
			n->oversubscribed_ms *= 2;
		n->oversubscribed_until_ns = now + n->oversubscribed_ms * 1000000ull;
		n->oversubscribed = true;
	}
	if (n->oversubscribed && now >= n->oversubscribed_until_ns) {
		n->oversubscribed = false; /* spinning is tried anew */
		was_pushed_aside(n);
	}
	return !n->oversubscribed;
}

static berth_result sleep_for(struct exchange *x, uint64_t deadline_ns)
{
	struct pollfd p[2 * NET_MESSAGES];
	nfds_t np = 0;

	for (size_t i = 0; i < x->nout; i++)
		if (!sent_all(&x->out[i]))
			p[np++] = (struct pollfd){
				net_fd(x->n, x->out[i].peer, x->out[i].lane), POLLOUT, 0
			};
	for (size_t i = 0; i < x->nin; i++)
		/* may more of it be taken from its socket? */
		if (!got_all(&x->in[i]) &&
		    (!x->in[i].has_head || x->in[i].got == x->in[i].bytes ||
		     message_wanted(&x->in[i])))
			p[np++] = (struct pollfd){
				net_fd(x->n, x->in[i].peer, x->in[i].lane), POLLIN, 0
			};
	return net_sleep(x->n, p, np, deadline_ns);
}

/* Nothing has moved.  After its first sleep the rank sleeps until something moves (1.7
 * ms of CPU a second; 128 if it spins after each sleep). */
static berth_result message_rest(struct exchange *x, uint64_t deadline_ns)
{
	uint64_t now = clock_ns();
	berth_result rc;
	bool spins;

	if (!x->idle)
		x->idle_ns = x->yielded_ns = x->looked_ns = now;
	spins = net_may_spin(x->n, x->looked_ns, now);
	x->looked_ns = now;
	/* beside others it sleeps, since one poll() looks for all of them */
	spins = spins && (!fiber_runs() || fiber_is_alone());
	if (++x->idle <= x->n->config.spins && now - x->idle_ns < SPIN_NS && spins) {
		/* When the kernel woke the peer for which this rank waits, it may have
		 * put that peer on this core.  So this rank yields (2 hosts on 2 cores:
		 * 8 bytes that come 20 ms late end 0.13 ms after they were sent;
		 * without the yields 0.34). */
		if (now - x->yielded_ns >= YIELD_NS) {
			x->yielded_ns = now;
			sched_yield();
		}
		if (fiber_runs())
			fiber_pass();
		return BERTH_OK;
	}
	x->idle = x->n->config.spins + 1;
	rc = sleep_for(x, deadline_ns);
	x->looked_ns = clock_ns();
	return rc;
}

static berth_result connect_all(struct exchange *x, uint64_t deadline_ns)
{
	berth_result rc = BERTH_OK;

	for (size_t i = 0; i < x->nout && !rc; i++) {
		x->out[i].sent = x->out[i].hashed = 0;
		x->out[i].failed = false;
		*x->lost = x->out[i].peer;
		rc = net_have(x->n, x->out[i].peer, x->out[i].lane, deadline_ns);
		if (!rc)
			x->out[i].tailing = net_tail_bytes(
				net_link(x->n, x->out[i].peer, x->out[i].lane)
					->channel.out,
				x->out[i].bytes);
	}
	for (size_t i = 0; i < x->nin && !rc; i++) {
		x->in[i].has_head = x->in[i].is_small = x->in[i].is_proved = false;
		x->in[i].held = x->in[i].got = 0;
		*x->lost = x->in[i].peer;
		rc = net_have(x->n, x->in[i].peer, x->in[i].lane, deadline_ns);
		net_link(x->n, x->in[i].peer, x->in[i].lane)->drained = false;
	}
	return rc;
}

berth_result net_exchange(struct net *n, struct net_send *out, size_t nout,
			  struct net_receive *in, size_t nin, uint64_t deadline_ns,
			  unsigned *lost)
{
	struct exchange x = {
		.n = n, .out = out, .in = in, .nout = nout, .nin = nin, .lost = lost
	};
	berth_result rc, known;
	bool is_new;

	if (nin || nout)
		n->waits_for = nin ? in->peer : out->peer;
	n->deadline_ns = deadline_ns;
	n->exchanges++;
	rc = connect_all(&x, deadline_ns);
	is_new = x.ended = rc == BERTH_PEER_LOST || rc == BERTH_AUTH;
	while (!rc && !is_done(&x)) {
		if (message_move(&x, &rc))
			x.idle = 0;
		else if (!rc)
			rc = message_rest(&x, deadline_ns);
	}
	if (rc && x.ended && is_new && rc == BERTH_AUTH)
		net_note_fault(n, NET_STRANGER, *lost, NULL, NULL);
	else if (rc && x.ended && !is_new && !n->broken)
		net_note_fault(n, NET_CUT, *lost, net_link_address(n, *lost), NULL);
	if (rc && x.ended) {
		if (is_new && n->refused && rc == BERTH_PEER_LOST)
			rc = net_of_leaver(n);
		known = net_ended(n, *lost, rc);
		n->unreached = is_new && !known && rc == BERTH_PEER_LOST;
		if (known == BERTH_PEER_LOST) /* the peer had no time for our proof */
			rc = BERTH_PEER_LOST;
		else if (rc == BERTH_PEER_LOST && n->why == BERTH_ABORTED)
			rc = BERTH_ABORTED; /* the peer has left, and lives */
		/* the peer has seen the same fault, and may have ended since */
		if (n->fault.kind == NET_UNLIKE && n->fault.peer == *lost)
			rc = BERTH_AUTH;
	}
	if (n->broken)
		*lost = n->lost;
	else if (rc == BERTH_ABORTED && n->ends_here)
		*lost = n->config.rank;
	if (rc && *lost > n->config.size) /* a peer said so */
		*lost = n->config.size;
	return rc;
}

unsigned net_lost(const struct net *n)
{
	return n->broken ? n->lost : n->config.size;
}

unsigned net_waits_for(const struct net *n)
{
	return n->waits_for;
}

const char *net_unreached(const struct net *n)
{
	return n->unreached && *n->refusal ? n->refusal : NULL;
}
