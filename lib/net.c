#include "lib/net.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "lib/net_address.h"
#include "lib/net_key.h"

enum {
	COMING_MOST = 64,    /* connections that have not proved anything yet */
	HANDSHAKE_MS = 5000, /* in which they have to */
	PIECE_BYTES = 256 << 10,
	WATCH_MS = 50, /* from one look at what may end a wait to the next */
	HEAD_MAGIC = 0x4d485442
};

/* In the machine's order: all hosts of a job are little-endian. */
struct head {
	uint32_t magic, group, seq, step, signature, state;
	uint64_t bytes;
};

/* Heads that are no message's: rank `signature` is gone; this rank goes, having done
 * its part. */
enum { STATE_LOST = 0xffffffff, STATE_LEAVES = 0xfffffffe };

/* A connection that somebody began. */
struct coming {
	int fd;
	uint64_t until_ns;
	bool answered;
	size_t got;
	struct net_hello hello;
	struct net_answer answer;
	struct net_seal seal;
};

struct net {
	struct net_config config;
	unsigned char key[NET_KEY_BYTES];
	char address[NET_ADDRESS_BYTES];
	int listener;
	int *fd; /* one a rank, -1: none yet */
	struct net_where *peer;
	struct coming coming[COMING_MOST];
	size_t ncoming;
	unsigned char *piece;
	berth_result (*look)(void *ctx);
	void *ctx;
	uint64_t looked_ns; /* at all peers */
	bool broken;
	unsigned lost;
};

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* ---- opening and closing ---- */

static int set_up(int fd)
{
	int on = 1;

	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
	return fd;
}

struct net *net_open(const struct net_config *config, char *why, size_t why_bytes)
{
	struct net *n = calloc(1, sizeof *n);

	snprintf(why, why_bytes, "out of memory");
	if (!n)
		return NULL;
	n->config = *config;
	n->listener = -1;
	memcpy(n->key, config->key, sizeof n->key);
	n->config.key = n->key;
	n->fd = malloc(config->size * sizeof *n->fd);
	n->peer = calloc(config->size, sizeof *n->peer);
	n->piece = aligned_alloc(64, PIECE_BYTES + 64);
	for (unsigned r = 0; n->fd && r < config->size; r++)
		n->fd[r] = -1;
	if (!n->fd || !n->peer || !n->piece) {
		net_close(n);
		return NULL;
	}
	if (net_key_init())
		snprintf(why, why_bytes, "libsodium can't be used");
	else
		n->listener = net_listen(config->range, n->address, why, why_bytes);
	if (n->listener < 0) {
		net_close(n);
		return NULL;
	}
	return n;
}

static void close_all(struct net *n)
{
	for (unsigned r = 0; n->fd && r < n->config.size; r++) {
		if (n->fd[r] >= 0)
			close(n->fd[r]);
		n->fd[r] = -1;
	}
	for (size_t i = 0; i < n->ncoming; i++)
		close(n->coming[i].fd);
	n->ncoming = 0;
	if (n->listener >= 0)
		close(n->listener);
	n->listener = -1;
}

/* Between two messages it is read; in the middle of one the end of the stream says that
 * somebody is gone, but not who. */
static void tell_all(struct net *n, uint32_t state, unsigned rank)
{
	struct head h = { .magic = HEAD_MAGIC, .signature = rank, .state = state };

	for (unsigned r = 0; n->fd && r < n->config.size; r++)
		if (n->fd[r] >= 0)
			send(n->fd[r], &h, sizeof h, MSG_DONTWAIT | MSG_NOSIGNAL);
}

void net_close(struct net *n)
{
	if (!n)
		return;
	tell_all(n, STATE_LEAVES, n->config.rank);
	close_all(n);
	free(n->fd);
	free(n->peer);
	free(n->piece);
	explicit_bzero(n->key, sizeof n->key);
	free(n);
}

const char *net_address(const struct net *n)
{
	return n->address;
}

berth_result net_peer(struct net *n, unsigned rank, const char *address)
{
	if (rank >= n->config.size || net_where(&n->peer[rank], address))
		return BERTH_INVALID;
	return BERTH_OK;
}

void net_watch(struct net *n, berth_result (*look)(void *ctx), void *ctx)
{
	n->look = look;
	n->ctx = ctx;
}

void net_break(struct net *n, unsigned lost)
{
	if (n->broken)
		return;
	n->broken = true;
	n->lost = lost;
	tell_all(n, STATE_LOST, lost);
	close_all(n);
}

/* ---- connections that come ---- */

static void drop(struct net *n, size_t i, bool keep_fd)
{
	if (!keep_fd)
		close(n->coming[i].fd);
	n->coming[i] = n->coming[--n->ncoming];
}

static void accept_all(struct net *n)
{
	while (n->ncoming < COMING_MOST) {
		int fd = accept4(n->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

		if (fd < 0)
			return;
		n->coming[n->ncoming++] =
			(struct coming){ .fd = set_up(fd),
					 .until_ns =
						 now_ns() + HANDSHAKE_MS * 1000000ull };
	}
}

/* WANT bytes in all; -1: it ended, 0: not yet. */
static int fill(struct coming *c, void *to, size_t want)
{
	ssize_t n = recv(c->fd, (char *)to + c->got, want - c->got, 0);

	if (n > 0)
		c->got += (size_t)n;
	else if (n == 0 || (errno != EAGAIN && errno != EINTR))
		return -1;
	return c->got == want;
}

static bool is_expected(const struct net *n, const struct net_hello *h)
{
	return h->to == n->config.rank && h->from < n->config.rank && h->lane == 0 &&
	       n->fd[h->from] < 0;
}

/* -1: it is to be dropped, 1: it is a peer's now. */
static int advance(struct net *n, struct coming *c)
{
	int rc;

	if (!c->answered) {
		rc = fill(c, &c->hello, sizeof c->hello);
		if (rc <= 0)
			return rc;
		if (!net_hello_is_good(&c->hello, n->key) || !is_expected(n, &c->hello))
			return -1;
		net_answer_make(&c->answer, n->key, &c->hello);
		/* an empty socket takes 64 bytes */
		if (send(c->fd, &c->answer, sizeof c->answer, MSG_NOSIGNAL) !=
		    sizeof c->answer)
			return -1;
		c->answered = true;
		c->got = 0;
	}
	rc = fill(c, &c->seal, sizeof c->seal);
	if (rc <= 0)
		return rc;
	if (!net_seal_is_good(&c->seal, n->key, &c->hello, &c->answer) ||
	    !is_expected(n, &c->hello))
		return -1;
	n->fd[c->hello.from] = c->fd;
	return 1;
}

static void serve(struct net *n)
{
	uint64_t now = now_ns();

	accept_all(n);
	for (size_t i = n->ncoming; i-- > 0;) {
		int rc = advance(n, &n->coming[i]);

		if (rc == 0 && now > n->coming[i].until_ns)
			rc = -1;
		if (rc)
			drop(n, i, rc > 0);
	}
}

/* ---- waiting ---- */

/* A peer that we do not wait for may be gone as well, and with it who waits for it.
 * One that has said that it goes has something to read. */
static void look_at_peers(struct net *n)
{
	uint64_t now = now_ns();
	struct head h;

	if (now - n->looked_ns < WATCH_MS * 1000000ull)
		return;
	n->looked_ns = now;
	for (unsigned r = 0; r < n->config.size && !n->broken; r++) {
		ssize_t k = n->fd[r] < 0 ? (ssize_t)sizeof h
					 : recv(n->fd[r], &h, sizeof h,
						MSG_PEEK | MSG_DONTWAIT);

		if (k == 0 || (k < 0 && errno != EAGAIN && errno != EINTR))
			net_break(n, r);
		else if (k == sizeof h && n->fd[r] >= 0 && h.magic == HEAD_MAGIC &&
			 h.state == STATE_LOST)
			net_break(n, h.signature);
	}
}

static berth_result look_around(struct net *n, uint64_t deadline_ns)
{
	look_at_peers(n);
	if (n->broken)
		return BERTH_PEER_LOST;
	if (deadline_ns && now_ns() >= deadline_ns)
		return BERTH_TIMEOUT;
	return n->look ? n->look(n->ctx) : BERTH_OK;
}

static berth_result sleep_on(struct net *n, struct pollfd *p, nfds_t np,
			     uint64_t deadline_ns)
{
	berth_result rc = look_around(n, deadline_ns);

	if (!rc)
		poll(p, np, WATCH_MS);
	return rc;
}

static berth_result await_peer(struct net *n, unsigned peer, uint64_t deadline_ns)
{
	berth_result rc = BERTH_OK;

	serve(n);
	while (!rc && n->fd[peer] < 0) {
		struct pollfd p[COMING_MOST + 1] = { { .fd = n->listener,
						       .events = POLLIN } };

		for (size_t i = 0; i < n->ncoming; i++)
			p[i + 1] = (struct pollfd){ n->coming[i].fd, POLLIN, 0 };
		rc = sleep_on(n, p, n->ncoming + 1, deadline_ns);
		serve(n);
	}
	return rc;
}

/* ---- connections that we begin ---- */

/* BYTES to or from FD, of which an empty socket has room. */
static berth_result whole(struct net *n, int fd, void *data, size_t bytes, bool out,
			  uint64_t deadline_ns)
{
	size_t done = 0;

	while (done < bytes) {
		char *at = (char *)data + done;
		ssize_t k = out ? send(fd, at, bytes - done, MSG_NOSIGNAL)
				: recv(fd, at, bytes - done, 0);
		struct pollfd p = { fd, out ? POLLOUT : POLLIN, 0 };
		berth_result rc;

		if (k > 0) {
			done += (size_t)k;
			continue;
		}
		if (k == 0 || (errno != EAGAIN && errno != EINTR && errno != ENOTCONN))
			return BERTH_PEER_LOST;
		rc = sleep_on(n, &p, 1, deadline_ns);
		if (rc)
			return rc;
	}
	return BERTH_OK;
}

static berth_result greet(struct net *n, int fd, unsigned peer, uint64_t deadline_ns)
{
	struct net_hello hello;
	struct net_answer answer;
	struct net_seal seal;
	berth_result rc;

	net_hello_make(&hello, n->key, n->config.rank, peer, 0);
	rc = whole(n, fd, &hello, sizeof hello, true, deadline_ns);
	if (!rc)
		rc = whole(n, fd, &answer, sizeof answer, false, deadline_ns);
	if (rc)
		return rc;
	if (!net_answer_is_good(&answer, n->key, &hello))
		return BERTH_AUTH;
	net_seal_make(&seal, n->key, &hello, &answer);
	return whole(n, fd, &seal, sizeof seal, true, deadline_ns);
}

/* 0: connected, else an errno. */
static int finish_connect(struct net *n, int fd, uint64_t deadline_ns)
{
	struct pollfd p = { fd, POLLOUT, 0 };
	socklen_t size = sizeof(int);
	int error = 0;

	while (poll(&p, 1, 0) == 0)
		if (sleep_on(n, &p, 1, deadline_ns))
			return ETIMEDOUT;
	getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size);
	return error;
}

/* The peer's addresses in turn: the first that answers and has the key. */
static berth_result begin_peer(struct net *n, unsigned peer, uint64_t deadline_ns)
{
	const struct net_where *w = &n->peer[peer];
	berth_result rc = BERTH_PEER_LOST;

	for (size_t i = 0; i < w->n; i++) {
		uint64_t until = now_ns() + HANDSHAKE_MS * 1000000ull;
		int fd = socket(w->at[i].ss_family,
				SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

		if (fd < 0)
			return BERTH_SYSTEM;
		if (deadline_ns && deadline_ns < until)
			until = deadline_ns;
		set_up(fd);
		if ((connect(fd, (const struct sockaddr *)&w->at[i],
			     net_address_size(&w->at[i])) &&
		     errno != EINPROGRESS) ||
		    finish_connect(n, fd, until)) {
			close(fd);
			continue;
		}
		rc = greet(n, fd, peer, until);
		if (!rc) {
			n->fd[peer] = fd;
			return BERTH_OK;
		}
		close(fd);
	}
	return rc;
}

static berth_result have_peer(struct net *n, unsigned peer, uint64_t deadline_ns)
{
	if (n->broken)
		return BERTH_PEER_LOST;
	if (n->fd[peer] >= 0)
		return BERTH_OK;
	return n->config.rank < peer ? begin_peer(n, peer, deadline_ns)
				     : await_peer(n, peer, deadline_ns);
}

/* ---- messages ---- */

/* As much as the socket takes.  1: something went, 0: nothing, -1: the peer is gone. */
static int push(struct net *n, struct net_send *out)
{
	struct head h = { HEAD_MAGIC,    out->tag.group,     out->tag.seq,
			  out->tag.step, out->tag.signature, out->state,
			  out->bytes };
	struct iovec v[2] = { { &h, sizeof h }, { (void *)out->data, out->bytes } };
	struct msghdr m = { .msg_iov = v, .msg_iovlen = out->bytes ? 2 : 1 };
	size_t body;
	ssize_t k;

	if (out->sent < sizeof h) {
		v[0].iov_base = (char *)&h + out->sent;
		v[0].iov_len = sizeof h - out->sent;
	} else {
		body = out->sent - sizeof h;
		v[0].iov_base = (char *)(uintptr_t)out->data + body;
		v[0].iov_len = out->bytes - body;
		m.msg_iovlen = 1;
	}
	/* so much at a time that what comes is taken meanwhile */
	if (v[m.msg_iovlen - 1].iov_len > PIECE_BYTES)
		v[m.msg_iovlen - 1].iov_len = PIECE_BYTES;
	k = sendmsg(n->fd[out->peer], &m, MSG_DONTWAIT | MSG_NOSIGNAL);
	if (k > 0)
		out->sent += (size_t)k;
	return k > 0 ? 1 : errno == EAGAIN || errno == EINTR ? 0 : -1;
}

static bool sent_all(const struct net_send *out)
{
	return !out || out->sent == sizeof(struct head) + out->bytes;
}

static bool got_all(const struct net_receive *in)
{
	return !in || (in->has_head && in->got == in->bytes);
}

/* A head has come: is it the one? */
static berth_result take_head(struct net_receive *in, const struct head *h,
			      unsigned *lost)
{
	if (h->magic == HEAD_MAGIC && h->state == STATE_LOST) {
		*lost = h->signature;
		return BERTH_PEER_LOST;
	}
	if (h->magic != HEAD_MAGIC || h->group != in->tag.group ||
	    h->seq != in->tag.seq || h->step != in->tag.step ||
	    (!in->any_signature && h->signature != in->tag.signature) ||
	    (in->up_to ? h->bytes > in->bytes : h->bytes != in->bytes))
		return BERTH_MISMATCH;
	in->tag.signature = h->signature;
	in->state = h->state;
	in->bytes = h->bytes;
	in->has_head = true;
	in->got = 0;
	return BERTH_OK;
}

/* The head is put together in the piece buffer. */
static int pull_head(struct net *n, struct net_receive *in, unsigned *lost,
		     berth_result *rc)
{
	struct head h;
	ssize_t k = recv(n->fd[in->peer], n->piece + in->held, sizeof h - in->held,
			 MSG_DONTWAIT);

	if (k <= 0)
		return k < 0 && (errno == EAGAIN || errno == EINTR) ? 0 : -1;
	in->held += (size_t)k;
	if (in->held == sizeof h) {
		memcpy(&h, n->piece, sizeof h);
		in->held = 0;
		*rc = take_head(in, &h, lost);
	}
	return 1;
}

/* Hand over whole units, keep the rest for the next piece. */
static void hand_over(struct net *n, struct net_receive *in, size_t have)
{
	size_t whole_bytes = have / in->unit * in->unit;

	if (whole_bytes)
		in->take(in->ctx, in->got, n->piece, whole_bytes);
	in->got += whole_bytes;
	in->held = have - whole_bytes;
	memmove(n->piece, n->piece + whole_bytes, in->held);
}

static int pull(struct net *n, struct net_receive *in, unsigned *lost, berth_result *rc)
{
	size_t left;
	ssize_t k;

	if (!in->has_head)
		return pull_head(n, in, lost, rc);
	left = in->bytes - in->got;
	if (!in->take) {
		k = recv(n->fd[in->peer], (char *)in->data + in->got,
			 left < PIECE_BYTES ? left : PIECE_BYTES, MSG_DONTWAIT);
		if (k > 0)
			in->got += (size_t)k;
	} else {
		left = left < PIECE_BYTES ? left : PIECE_BYTES;
		k = recv(n->fd[in->peer], n->piece + in->held, left - in->held,
			 MSG_DONTWAIT);
		if (k > 0)
			hand_over(n, in, in->held + (size_t)k);
	}
	return k > 0 ? 1 : k < 0 && (errno == EAGAIN || errno == EINTR) ? 0 : -1;
}

static berth_result sleep_for(struct net *n, const struct net_send *out,
			      const struct net_receive *in, uint64_t deadline_ns)
{
	struct pollfd p[2];
	nfds_t np = 0;

	if (!sent_all(out))
		p[np++] = (struct pollfd){ n->fd[out->peer], POLLOUT, 0 };
	if (!got_all(in))
		p[np++] = (struct pollfd){ n->fd[in->peer], POLLIN, 0 };
	return sleep_on(n, p, np, deadline_ns);
}

/* One look at both directions.  1: something moved, 0: nothing did. */
static int move(struct net *n, struct net_send *out, struct net_receive *in,
		unsigned *lost, berth_result *rc)
{
	int moved = 0, k;

	if (!sent_all(out)) {
		k = push(n, out);
		moved |= k > 0;
		if (k < 0) {
			*rc = BERTH_PEER_LOST;
			*lost = out->peer;
		}
	}
	/* What a peer that is gone said last tells who was first. */
	if (!got_all(in)) {
		k = pull(n, in, lost, rc);
		moved |= k > 0;
		if (k < 0) {
			*rc = BERTH_PEER_LOST;
			*lost = in->peer;
		} else if (*rc == BERTH_MISMATCH) {
			*lost = in->peer;
		}
	}
	return moved;
}

berth_result net_exchange(struct net *n, struct net_send *out, struct net_receive *in,
			  uint64_t deadline_ns, unsigned *lost)
{
	berth_result rc = BERTH_OK;
	unsigned idle = 0;

	if (!out && !in)
		return BERTH_OK;
	if (out) {
		out->sent = 0;
		*lost = out->peer;
		rc = have_peer(n, out->peer, deadline_ns);
	}
	if (in) {
		in->has_head = false;
		in->held = in->got = 0;
		if (!rc) {
			*lost = in->peer;
			rc = have_peer(n, in->peer, deadline_ns);
		}
	}
	while (!rc && !(sent_all(out) && got_all(in))) {
		if (move(n, out, in, lost, &rc))
			idle = 0;
		else if (!rc && ++idle > n->config.spins) {
			rc = sleep_for(n, out, in, deadline_ns);
			idle = 0;
		}
	}
	if (n->broken)
		*lost = n->lost;
	return rc;
}
