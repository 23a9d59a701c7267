/* far_end.h - the far end of a connection of a net (net_state.h): a peer that has the
 * job's key, and says what an input asks.
 *
 * What it says waits in a queue, since a socket takes only so much. */
#ifndef BERTH_TESTS_FAR_END_H
#define BERTH_TESTS_FAR_END_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "lib/net/net_state.h"
#include "lib/p2p/p2p_frame.h"

enum { QUEUE_BYTES = 3 << 20 };

/* The far end of a connection. */
struct far_end {
	int fd;
	struct net_channel channel;
	unsigned char *queue; /* what is to go, at AT */
	size_t at, have;
	bool forged; /* something has been said that its MAC is not of */
	bool ends;   /* something that cannot be */
	size_t heard;
	unsigned char in[sizeof(struct p2p_wire) + P2P_EAGER_BYTES + NET_TAIL_BYTES];
	/* Of what comes: the rest of a body of BYTES, and its tail. */
	uint64_t skip, bytes;
	bool tailing;
};

static inline void must_at(bool so, int line)
{
	if (so)
		return;
	fprintf(stderr, "line %d\n", line);
	abort();
}
#define must(so) must_at(so, __LINE__)

/* Its keys follow from SEED. */
static inline void far_connect(struct far_end *e, struct net *n, unsigned peer,
			       unsigned lane, bool aead, uint64_t seed)
{
	const uint32_t secure = aead ? NET_AEAD : NET_MAC;
	struct net_hello h = { .from = lane ? n->config.rank : peer,
			       .to = lane ? peer : n->config.rank,
			       .lane = lane,
			       .secure = secure };
	struct net_answer a = { .secure = secure };
	int pair[2];

	memcpy(h.nonce, &seed, sizeof seed);
	must(!socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair));
	must(!net_open_link(n, peer, lane, pair[0], &h, &a));
	must(!net_channel_open(&e->channel, pair[1], n->door->key, &h, &a,
			       h.from == peer));
	e->fd = pair[1];
}

static inline void far_say(struct far_end *e, const void *p, size_t n)
{
	if (n > QUEUE_BYTES - e->have)
		n = QUEUE_BYTES - e->have;
	if (!e->queue)
		e->queue = malloc(QUEUE_BYTES);
	must(e->queue != NULL);
	memcpy(e->queue + e->have, p, n);
	e->have += n;
}

/* As much of MOST as goes. */
static inline void far_push(struct far_end *e, size_t most)
{
	while (e->fd >= 0 && e->at < e->have && most) {
		size_t n = e->have - e->at < most ? e->have - e->at : most;
		ssize_t k = net_channel_send(&e->channel,
					     &(struct iovec){ e->queue + e->at, n }, 1);

		if (k <= 0)
			break;
		e->at += (size_t)k;
		most -= (size_t)k;
	}
	if (e->at == e->have)
		e->at = e->have = 0;
}

static inline void far_close(struct far_end *e)
{
	if (e->fd < 0)
		return;
	close(e->fd);
	e->fd = e->channel.fd = -1;
}

static inline void far_free(struct far_end *e)
{
	net_channel_free(&e->channel);
	free(e->queue);
}

#endif
