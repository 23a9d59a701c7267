#include "lib/net/net_state.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

int net_open_link(struct net *n, unsigned peer, unsigned lane, int fd,
		  const struct net_hello *h, const struct net_answer *a)
{
	struct link l = { .stash = malloc(STASH_BYTES) };

	if (!l.stash ||
	    net_channel_open(&l.channel, fd, n->key, h, a, h->from == n->config.rank)) {
		free(l.stash);
		return -1;
	}
	net_settle(n, fd);
	*net_link(n, peer, lane) = l;
	return 0;
}

/* ---- connections that come ---- */

static void drop(struct net *n, size_t i, bool keep_fd)
{
	if (!keep_fd)
		descriptor_close(n->coming[i].fd);
	n->coming[i] = n->coming[--n->ncoming];
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
	bool begins = h->from < n->config.rank && h->lane < NET_LANES;

	if (n->begun)
		begins = h->from != n->config.rank && h->from < n->config.size &&
			 h->lane == (h->from > n->config.rank);
	return h->to == n->config.rank && begins && net_fd(n, h->from, h->lane) < 0;
}

/* -1: it is to be dropped, 1: it is a peer's now. */
static int advance(struct net *n, struct coming *c)
{
	struct net_hello own;
	int rc;

	if (!c->answered) {
		rc = fill(c, &c->hello, sizeof c->hello);
		if (rc <= 0)
			return rc;
		if (!net_hello_is_good(&c->hello, n->key) || !is_expected(n, &c->hello))
			return -1;
		c->answer.verdict = net_judge(n, &c->hello);
		own = net_own_hello(n, c->hello.from, c->hello.lane);
		c->answer.secure = net_common(&own, &c->hello);
		net_answer_make(&c->answer, n->key, &c->hello);
		/* an empty socket takes 72 bytes */
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
	/* A rank of another epoch may come, as long as ours come as well. */
	if (c->answer.verdict == NET_OTHER_SECURE)
		net_note_verdict(n, c->hello.from, c->fd, c->answer.verdict);
	return c->answer.verdict || net_open_link(n, c->hello.from, c->hello.lane,
						  c->fd, &c->hello, &c->answer)
		       ? -1
		       : 1;
}

static void attend(struct net *n, size_t i, uint64_t now)
{
	int rc = advance(n, &n->coming[i]);

	if (rc == 0 && now > n->coming[i].until_ns)
		rc = -1;
	if (rc)
		drop(n, i, rc > 0);
}

/* Who has said nothing, or least, for longest goes. */
static void make_room(struct net *n)
{
	size_t oldest = 0;

	for (size_t i = 1; i < n->ncoming; i++) {
		const struct coming *c = &n->coming[i], *o = &n->coming[oldest];

		if (c->answered != o->answered ? o->answered
					       : c->until_ns < o->until_ns)
			oldest = i;
	}
	drop(n, oldest, false);
}

bool net_serve(struct net *n)
{
	uint64_t now = clock_ns();
	size_t before = n->ncoming;
	bool came = false;
	int fd;

	for (size_t i = n->ncoming; i-- > 0;)
		attend(n, i, now);
	while ((fd = descriptor_accept(n->listener, SOCK_NONBLOCK)) >= 0) {
		if (n->ncoming == COMING_MOST)
			make_room(n);
		n->coming[n->ncoming++] =
			(struct coming){ .fd = net_set_up(fd),
					 .until_ns = now + HANDSHAKE_MS * 1000000ull };
		attend(n, n->ncoming - 1, now);
		came = true;
	}
	return came || n->ncoming != before;
}

/* At the door of a peer that is to come and does not: who has left for good, with
 * nobody to tell of it, listens no more. */
struct listener_probe {
	int fd; /* -1: none on its way */
	uint64_t next_ns;
	size_t refused; /* addresses, one after the other */
};

static void take_answer(struct listener_probe *k, int error)
{
	k->refused = error == ECONNREFUSED ? k->refused + 1 : 0;
	if (k->refused)
		k->next_ns = 0; /* the next address at once */
	descriptor_close(k->fd);
	k->fd = -1;
}

static void probe_listener(struct net *n, unsigned peer, struct listener_probe *k)
{
	const struct net_where *w = &n->peer[peer];
	const struct sockaddr_storage *at = &w->at[k->refused % w->n];

	k->next_ns = clock_ns() + LISTENER_PROBE_MS * 1000000ull;
	k->fd = descriptor_socket(at->ss_family, SOCK_STREAM | SOCK_NONBLOCK, 0);
	if (k->fd >= 0 &&
	    connect(k->fd, (const struct sockaddr *)at, net_address_size(at)) &&
	    errno != EINPROGRESS)
		take_answer(k, errno);
}

static bool has_left(struct net *n, unsigned peer, struct listener_probe *k)
{
	struct pollfd p = { k->fd, POLLOUT, 0 };
	socklen_t size = sizeof(int);
	int error = 0;

	if (k->fd < 0 && clock_ns() >= k->next_ns && n->peer[peer].n) {
		probe_listener(n, peer, k);
	} else if (k->fd >= 0 && poll(&p, 1, 0) > 0) {
		getsockopt(k->fd, SOL_SOCKET, SO_ERROR, &error, &size);
		take_answer(k, error);
	}
	return k->refused && k->refused >= n->peer[peer].n;
}

static berth_result await_peer(struct net *n, unsigned peer, unsigned lane,
			       uint64_t deadline_ns)
{
	struct listener_probe k = { -1, clock_ns() + LISTENER_PROBE_MS * 1000000ull,
				    0 };
	berth_result rc = BERTH_OK;

	net_serve(n);
	while (!rc && net_fd(n, peer, lane) < 0) {
		struct pollfd p[COMING_MOST + 1] = { { .fd = n->listener,
						       .events = POLLIN } };

		for (size_t i = 0; i < n->ncoming; i++)
			p[i + 1] = (struct pollfd){ n->coming[i].fd, POLLIN, 0 };
		rc = net_sleep(n, p, n->ncoming + 1, deadline_ns);
		net_serve(n);
		if (!rc && n->fault.kind && n->fault.peer == peer)
			rc = BERTH_AUTH;
		if (!rc && net_fd(n, peer, lane) < 0 && has_left(n, peer, &k)) {
			rc = BERTH_PEER_LOST;
			n->refused = true;
		}
	}
	if (k.fd >= 0)
		descriptor_close(k.fd);
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
		rc = net_sleep(n, &p, 1, deadline_ns);
		if (rc)
			return rc;
	}
	return BERTH_OK;
}

/* Up to where B has the peer's answer, which is good, and the peer our seal. */
static berth_result greet(struct net *n, struct begun *b, unsigned peer, unsigned lane,
			  uint64_t deadline_ns)
{
	struct net_seal seal;
	berth_result rc;

	b->hello = net_own_hello(n, peer, lane);
	net_hello_make(&b->hello, n->key);
	rc = whole(n, b->fd, &b->hello, sizeof b->hello, true, deadline_ns);
	if (!rc)
		rc = whole(n, b->fd, &b->answer, sizeof b->answer, false, deadline_ns);
	if (rc) /* who ends it without a word did not like our proof */
		return rc == BERTH_PEER_LOST && !n->broken ? BERTH_AUTH : rc;
	if (!net_answer_is_good(&b->answer, n->key, &b->hello))
		return BERTH_AUTH;
	net_seal_make(&seal, n->key, &b->hello, &b->answer);
	rc = whole(n, b->fd, &seal, sizeof seal, true, deadline_ns);
	if (rc || !b->answer.verdict)
		return rc;
	net_note_verdict(n, peer, b->fd, b->answer.verdict);
	return BERTH_AUTH;
}

static berth_result refused(struct net *n, const struct sockaddr_storage *at, int error)
{
	char address[INET6_ADDRSTRLEN] = "?";

	getnameinfo((const struct sockaddr *)at, net_address_size(at), address,
		    sizeof address, NULL, 0, NI_NUMERICHOST);
	snprintf(n->refusal, sizeof n->refusal, "can't be reached at %s: %s", address,
		 strerror(error));
	n->refused = error == ECONNREFUSED;
	return BERTH_PEER_LOST;
}

static berth_result finish_connect(struct net *n, int fd,
				   const struct sockaddr_storage *at,
				   uint64_t deadline_ns)
{
	struct pollfd p = { fd, POLLOUT, 0 };
	socklen_t size = sizeof(int);
	berth_result rc = BERTH_OK;
	int error = 0;

	while (!rc && poll(&p, 1, 0) == 0)
		rc = net_sleep(n, &p, 1, deadline_ns);
	getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size);
	return !rc && error ? refused(n, at, error) : rc;
}

static berth_result begin_at(struct net *n, unsigned peer, unsigned lane,
			     const struct sockaddr_storage *at, uint64_t deadline_ns)
{
	struct begun b = { .fd = descriptor_socket(at->ss_family,
						   SOCK_STREAM | SOCK_NONBLOCK, 0) };
	berth_result rc;

	if (b.fd < 0)
		return BERTH_SYSTEM;
	net_disable_pacing(n, net_set_up(b.fd));
	if (!connect(b.fd, (const struct sockaddr *)at, net_address_size(at)) ||
	    errno == EINPROGRESS)
		rc = finish_connect(n, b.fd, at, deadline_ns);
	else
		rc = refused(n, at, errno);
	if (!rc)
		rc = greet(n, &b, peer, lane, deadline_ns);
	if (!rc && net_open_link(n, peer, lane, b.fd, &b.hello, &b.answer))
		rc = BERTH_MEMORY;
	if (rc)
		descriptor_close(b.fd);
	return rc;
}

/* All addresses once.  EACH_NS: for each, where there are others to try. */
static berth_result begin_once(struct net *n, unsigned peer, unsigned lane,
			       uint64_t each_ns, uint64_t deadline_ns)
{
	const struct net_where *w = &n->peer[peer];
	berth_result rc = BERTH_PEER_LOST, worst = BERTH_PEER_LOST;

	for (size_t i = 0; i < w->n; i++) {
		uint64_t until = clock_ns() + each_ns;

		if (w->n == 1 || (deadline_ns && deadline_ns < until))
			until = deadline_ns;
		rc = begin_at(n, peer, lane, &w->at[i], until);
		if (!rc || n->broken || rc == BERTH_MEMORY || rc == BERTH_SYSTEM ||
		    n->fault.kind)
			return rc;
		if (rc != BERTH_PEER_LOST && worst != BERTH_TIMEOUT)
			worst = rc;
	}
	return worst;
}

/* A peer that is busy answers late; at an address that is somebody else's nobody who
 * has the key answers.  Who is not there twice is gone. */
static berth_result begin_peer(struct net *n, unsigned peer, unsigned lane,
			       uint64_t deadline_ns)
{
	uint64_t each_ns = HANDSHAKE_MS * 1000000ull;
	berth_result rc = BERTH_OK;

	for (unsigned turn = 0; turn < 2; turn++) {
		rc = begin_once(n, peer, lane, each_ns, deadline_ns);
		while (rc == BERTH_TIMEOUT &&
		       (!deadline_ns || clock_ns() < deadline_ns)) {
			each_ns *= 2;
			rc = begin_once(n, peer, lane, each_ns, deadline_ns);
		}
		if (rc != BERTH_AUTH && rc != BERTH_PEER_LOST)
			break;
		if (n->broken || n->fault.kind) /* it has said why not */
			break;
	}
	return rc;
}

berth_result net_have(struct net *n, unsigned peer, unsigned lane, uint64_t deadline_ns)
{
	if (n->broken)
		return n->why;
	if (net_fd(n, peer, lane) >= 0)
		return BERTH_OK;
	n->refused = false;
	return n->config.rank < peer ? begin_peer(n, peer, lane, deadline_ns)
				     : await_peer(n, peer, lane, deadline_ns);
}
