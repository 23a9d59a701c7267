#include "lib/net/net_ask.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

static berth_result await_peer(struct net *n, unsigned peer, unsigned lane,
			       uint64_t deadline_ns)
{
	struct net_ask k = { .fd = -1,
			     .next_ns = clock_ns() + LISTENER_PROBE_MS * 1000000ull };
	berth_result rc = BERTH_OK;

	net_serve(n);
	while (!rc && net_fd(n, peer, lane) < 0) {
		rc = net_sleep_until(n, n->taken, deadline_ns);
		net_serve(n);
		if (!rc && n->fault.kind && n->fault.peer == peer)
			rc = BERTH_AUTH;
		if (!rc && net_fd(n, peer, lane) < 0 && net_ask_left(n, peer, &k)) {
			net_serve(n); /* the peer may have connected before it left */
			if (net_fd(n, peer, lane) >= 0)
				break;
			rc = BERTH_PEER_LOST;
			n->refused = true;
		}
	}
	net_ask_end(&k);
	return rc;
}

/* ---- connections that this rank begins ---- */

/* Send (OUT) or receive all BYTES of DATA.  An empty socket has room for them. */
static berth_result connect_whole(struct net *n, int fd, void *data, size_t bytes,
				  bool out, uint64_t deadline_ns)
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

/* Do the handshake until B has a good answer of the peer, and the peer has our seal. */
static berth_result connect_greet(struct net *n, struct begun *b, unsigned peer,
				  unsigned lane, uint64_t deadline_ns)
{
	struct net_seal seal;
	berth_result rc;

	b->hello = net_own_hello(n, peer, lane);
	net_hello_make(&b->hello, n->door->key);
	rc = connect_whole(n, b->fd, &b->hello, sizeof b->hello, true, deadline_ns);
	if (!rc)
		rc = connect_whole(n, b->fd, &b->answer, sizeof b->answer, false,
				   deadline_ns);
	if (rc) /* a peer that ends it without a word did not like our proof */
		return rc == BERTH_PEER_LOST && !n->broken ? BERTH_AUTH : rc;
	if (!net_answer_is_good(&b->answer, n->door->key, &b->hello))
		return BERTH_AUTH;
	if (b->answer.verdict == NET_LEFT) {
		*n->refusal = '\0';
		n->refused = n->left = true;
		return BERTH_PEER_LOST;
	}
	net_seal_make(&seal, n->door->key, &b->hello, &b->answer);
	rc = connect_whole(n, b->fd, &seal, sizeof seal, true, deadline_ns);
	if (rc || !b->answer.verdict)
		return rc;
	net_note_verdict(n, peer, b->fd, b->answer.verdict);
	return BERTH_AUTH;
}

static berth_result connect_refused(struct net *n, const struct sockaddr_storage *at,
				    int error)
{
	char address[INET6_ADDRSTRLEN] = "?";

	getnameinfo((const struct sockaddr *)at, net_address_size(at), address,
		    sizeof address, NULL, 0, NI_NUMERICHOST);
	snprintf(n->refusal, sizeof n->refusal, "can't be reached at %s: %s", address,
		 strerror(error));
	n->refused = error == ECONNREFUSED;
	return BERTH_PEER_LOST;
}

static berth_result begin_at(struct net *n, unsigned peer, unsigned lane,
			     const struct sockaddr_storage *at, uint64_t deadline_ns)
{
	struct begun b = { .fd = descriptor_socket(at->ss_family,
						   SOCK_STREAM | SOCK_NONBLOCK, 0) };
	struct pollfd p = { b.fd, POLLOUT, 0 };
	socklen_t size = sizeof(int);
	berth_result rc = BERTH_OK;
	int error = 0;

	if (b.fd < 0)
		return BERTH_SYSTEM;
	net_disable_pacing(NULL, net_set_up(b.fd));
	if (connect(b.fd, (const struct sockaddr *)at, net_address_size(at)) &&
	    errno != EINPROGRESS)
		error = errno;
	while (!rc && !error && poll(&p, 1, 0) == 0)
		rc = net_sleep(n, &p, 1, deadline_ns);
	if (!rc && !error)
		getsockopt(b.fd, SOL_SOCKET, SO_ERROR, &error, &size);
	if (error)
		rc = connect_refused(n, at, error);
	if (!rc)
		rc = connect_greet(n, &b, peer, lane, deadline_ns);
	if (!rc && net_open_link(n, peer, lane, b.fd, &b.hello, &b.answer))
		rc = BERTH_MEMORY;
	if (rc)
		descriptor_close(b.fd);
	return rc;
}

/* The peer has said why it refuses, or that it has left.  Another try, at this or
 * another address, would meet a door that is about to close, and that looks like a
 * stranger. */
static bool is_settled(const struct net *n)
{
	return n->broken || n->left || n->fault.kind;
}

/* Try all addresses once.  EACH_NS: the time for each, if there are others to try. */
static berth_result begin_once(struct net *n, unsigned peer, unsigned lane,
			       uint64_t each_ns, uint64_t deadline_ns)
{
	const struct net_where *w = net_where_is(n, peer);
	berth_result rc = BERTH_PEER_LOST, worst = BERTH_PEER_LOST;

	for (size_t i = 0; i < w->n; i++) {
		uint64_t until = clock_ns() + each_ns;

		if (w->n == 1 || (deadline_ns && deadline_ns < until))
			until = deadline_ns;
		rc = begin_at(n, peer, lane, &w->at[i], until);
		if (!rc || rc == BERTH_MEMORY || rc == BERTH_SYSTEM || is_settled(n))
			return rc;
		if (rc != BERTH_PEER_LOST && worst != BERTH_TIMEOUT)
			worst = rc;
	}
	return worst;
}

/* A busy peer answers late.  At an address of another host, nobody with the key
 * answers.  A peer that is not there twice is gone. */
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
		if (is_settled(n))
			break;
	}
	return rc;
}

/* This rank has said that it wants to release the connection, and needs it now.  A peer
 * whose net is idle looks at the connection when its door is asked. */
static berth_result connect_settle(struct net *n, unsigned peer, unsigned lane,
				   uint64_t deadline_ns)
{
	struct link *l = net_link(n, peer, lane);
	struct net_ask k = { .fd = -1 };
	berth_result rc = BERTH_OK;

	while (!rc && l->releasing) {
		ssize_t got = net_fill(l);

		if (net_is_settled(l))
			break;
		if (got < 0 && errno == EBADMSG) {
			net_is_forged(n, peer, lane);
			rc = BERTH_AUTH;
			break;
		}
		if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR) ||
		    net_ask_left(n, peer, &k)) {
			net_close_link(l); /* the peer's door says more */
			break;
		}
		rc = net_sleep(
			n,
			(struct pollfd[]){ { l->channel.fd, POLLIN, 0 },
					   { k.fd, k.said ? POLLIN : POLLOUT, 0 } },
			2, deadline_ns);
	}
	net_ask_end(&k);
	return rc;
}

berth_result net_have(struct net *n, unsigned peer, unsigned lane, uint64_t deadline_ns)
{
	berth_result rc = BERTH_OK;

	if (n->broken)
		return n->why;
	if (net_link(n, peer, lane)->releasing)
		rc = connect_settle(n, peer, lane, deadline_ns);
	if (rc)
		return rc;
	if (net_fd(n, peer, lane) >= 0)
		return BERTH_OK;
	n->refused = n->left = false;
	return n->config.rank < peer ? begin_peer(n, peer, lane, deadline_ns)
				     : await_peer(n, peer, lane, deadline_ns);
}
