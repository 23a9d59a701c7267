#include "lib/net/net_state.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>

/* Begin connections without a step that blocks.  net_connect.c begins those of
 * exchanges. */

enum {
	TURNS = 2,     /* at all addresses, before a peer that refuses is gone */
	AGAIN_MS = 100 /* from one turn to the next */
};

berth_result net_open_both(struct net *n)
{
	n->begun = calloc(n->config.size, sizeof *n->begun);
	if (!n->begun)
		return BERTH_MEMORY;
	for (size_t i = 0; i < n->config.size; i++)
		n->begun[i].fd = -1;
	return BERTH_OK;
}

int net_socket(const struct net *n, unsigned peer, unsigned lane)
{
	return net_link(n, peer, lane)->channel.fd;
}

struct net_channel *net_channel(struct net *n, unsigned peer, unsigned lane)
{
	return &net_link(n, peer, lane)->channel;
}

size_t net_sockets(struct net *n, struct pollfd *p)
{
	size_t k = 0;

	for (unsigned i = 0; i < n->config.size; i++)
		for (unsigned lane = 0; lane < NET_LANES; lane++) {
			struct link *l = net_link(n, i, lane);

			if (i == n->config.rank)
				continue;
			if (l->releasing) { /* it ends, although no rank is gone */
				if (l->have < sizeof(struct head))
					net_fill(l);
				net_is_settled(l);
			}
			if (l->channel.fd >= 0)
				p[k++] = (struct pollfd){ l->channel.fd, POLLIN, 0 };
		}
	return k;
}

static void begin_stop(struct begun *b)
{
	if (b->fd >= 0)
		descriptor_close(b->fd);
	b->fd = -1;
	b->greeted = false;
	b->got = 0;
}

void net_begin_not(struct net *n, unsigned peer)
{
	begin_stop(&n->begun[peer]);
}

void net_drop(struct net *n, unsigned peer)
{
	for (unsigned lane = 0; lane < NET_LANES; lane++) {
		net_close_link(net_link(n, peer, lane));
	}
	if (n->begun)
		begin_stop(&n->begun[peer]);
}

size_t net_polls(const struct net *n, struct pollfd *p)
{
	size_t k = 0;

	for (size_t i = 0; i < n->config.size; i++)
		if (n->begun[i].fd >= 0)
			p[k++] =
				(struct pollfd){ n->begun[i].fd,
						 n->begun[i].greeted ? POLLIN : POLLOUT,
						 0 };
	return k;
}

/* This address has failed.  A peer that refuses at all addresses in two turns is gone.
 * A silent peer may be busy. */
static berth_result begin_fail(struct net *n, unsigned peer, bool refused)
{
	struct begun *b = &n->begun[peer];
	const size_t addresses = net_where_is(n, peer)->n;

	begin_stop(b);
	b->next++;
	b->refused = refused ? b->refused + 1 : 0;
	if (!addresses || b->refused >= TURNS * addresses)
		return BERTH_PEER_LOST;
	b->again_ns = b->next % addresses ? 0 : clock_ns() + AGAIN_MS * 1000000ull;
	return BERTH_BUSY;
}

static berth_result begin_dial(struct net *n, unsigned peer)
{
	struct begun *b = &n->begun[peer];
	const struct net_where *w = net_where_is(n, peer);
	const struct sockaddr_storage *at;
	uint64_t now = clock_ns();

	if (!w->n)
		return BERTH_PEER_LOST;
	if (now < b->again_ns)
		return BERTH_BUSY;
	at = &w->at[b->next % w->n];
	b->until_ns = now + HANDSHAKE_MS * 1000000ull;
	b->fd = descriptor_socket(at->ss_family, SOCK_STREAM | SOCK_NONBLOCK, 0);
	if (b->fd < 0)
		return BERTH_SYSTEM;
	net_disable_pacing(NULL, net_set_up(b->fd));
	if (connect(b->fd, (const struct sockaddr *)at, net_address_size(at)) &&
	    errno != EINPROGRESS)
		return begin_fail(n, peer, errno == ECONNREFUSED);
	return BERTH_BUSY;
}

/* An empty socket takes a whole message of a handshake. */
static bool begin_say(int fd, const void *data, size_t bytes)
{
	return send(fd, data, bytes, MSG_NOSIGNAL) == (ssize_t)bytes;
}

static berth_result begin_greet(struct net *n, unsigned peer, unsigned lane)
{
	struct begun *b = &n->begun[peer];
	struct pollfd p = { b->fd, POLLOUT, 0 };
	socklen_t size = sizeof(int);
	int error = 0;

	if (poll(&p, 1, 0) <= 0)
		return BERTH_BUSY;
	getsockopt(b->fd, SOL_SOCKET, SO_ERROR, &error, &size);
	if (error)
		return begin_fail(n, peer, error == ECONNREFUSED);
	b->hello = net_own_hello(n, peer, lane);
	net_hello_make(&b->hello, n->door->key);
	if (!begin_say(b->fd, &b->hello, sizeof b->hello))
		return begin_fail(n, peer, true);
	b->greeted = true;
	return BERTH_BUSY;
}

/* The other end has acted like one that does not have the key. */
static berth_result begin_refuse(struct net *n, unsigned peer)
{
	if (begin_fail(n, peer, true) == BERTH_BUSY)
		return BERTH_BUSY;
	net_note_fault(n, NET_STRANGER, peer, NULL, NULL);
	return BERTH_AUTH;
}

static berth_result begin_finish(struct net *n, unsigned peer, unsigned lane)
{
	struct begun *b = &n->begun[peer];
	struct net_seal seal;

	if (!net_answer_is_good(&b->answer, n->door->key, &b->hello))
		return begin_refuse(n, peer);
	if (b->answer.verdict == NET_LEFT) {
		begin_stop(b);
		return BERTH_PEER_LOST;
	}
	net_seal_make(&seal, n->door->key, &b->hello, &b->answer);
	if (!begin_say(b->fd, &seal, sizeof seal))
		return begin_fail(n, peer, true);
	if (b->answer.verdict) {
		net_note_verdict(n, peer, b->fd, b->answer.verdict);
		begin_stop(b);
		return BERTH_AUTH;
	}
	if (net_open_link(n, peer, lane, b->fd, &b->hello, &b->answer))
		return BERTH_MEMORY;
	b->fd = -1;
	begin_stop(b);
	return BERTH_OK;
}

berth_result net_begin(struct net *n, unsigned peer)
{
	struct begun *b = &n->begun[peer];
	unsigned lane = n->config.rank > peer;
	ssize_t k;

	if (net_socket(n, peer, lane) >= 0)
		return BERTH_OK;
	if (b->fd < 0)
		return begin_dial(n, peer);
	if (clock_ns() > b->until_ns)
		return begin_fail(n, peer, false);
	if (!b->greeted)
		return begin_greet(n, peer, lane);
	k = recv(b->fd, (char *)&b->answer + b->got, sizeof b->answer - b->got, 0);
	if (k == 0 || (k < 0 && errno != EAGAIN && errno != EINTR))
		return begin_refuse(n, peer);
	if (k > 0)
		b->got += (size_t)k;
	return b->got == sizeof b->answer ? begin_finish(n, peer, lane) : BERTH_BUSY;
}
