/* relay.h - carries what ranks of this machine say to each other, which have been told
 * its ports; counts the bytes of data, and changes one bit of them.
 *
 * It reads the handshake and the heads (net.h, p2p_frame.h), and passes all on at once.
 * The program makes connections go through it: the ranks' bootstrap. */
#ifndef BERTH_TESTS_RELAY_H
#define BERTH_TESTS_RELAY_H

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "lib/net/net_state.h"
#include "lib/p2p/p2p_frame.h"

enum {
	RELAY_RANKS_MOST = 4,
	RELAY_LINKS_MOST = 256,
	RELAY_PIECE = 256 << 10,
	RELAY_TAG_BYTES = 8 /* behind data, if something is */
};

/* What comes next: of the handshake, of a head, of its data; the first bytes behind
 * those, which begin a head or a tag; the rest of a tag. */
enum state { GREETING, HEAD, DATA, BEHIND, TAG };

/* One direction of a connection. */
struct way {
	int from, to;
	enum state state;
	size_t left; /* bytes of that */
	unsigned char head[sizeof(struct head)];
	size_t have; /* of it */
	unsigned char piece[RELAY_PIECE];
	size_t at, n; /* what has gone of it, and what has come */
	bool ended;
};

static struct relay {
	struct way *way[RELAY_LINKS_MOST][2];
	size_t links;
	int listener[RELAY_RANKS_MOST],
		port[RELAY_RANKS_MOST]; /* instead of each rank's */
	_Atomic int *real;              /* the port of each */
	_Atomic int *armed;             /* bytes of data count from here on */
	uint64_t seen;                  /* bytes of data */
	uint64_t place;                 /* of the one to change; UINT64_MAX: none */
	unsigned bit;
	bool changed;
} relay;

/* How many bytes of data follow a head, of an exchange or of messages. */
static uint64_t data_behind(const unsigned char *head)
{
	struct p2p_frame f;
	struct head h;
	uint64_t bytes = 0;

	memcpy(&h, head, sizeof h);
	memcpy(&f, head, sizeof f);
	if (h.magic == HEAD_MAGIC)
		return h.bytes;
	return p2p_frame_body(&f, &bytes) ? bytes : 0;
}

/* What is behind data is a tag, or else the next head. */
static bool begins_head(const unsigned char *p)
{
	uint32_t word;

	memcpy(&word, p, sizeof word);
	return word == HEAD_MAGIC || (word >= P2P_EAGER && word <= P2P_ABORT);
}

static void count_data(unsigned char *p, size_t n)
{
	if (!atomic_load(relay.armed))
		return;
	if (relay.place >= relay.seen && relay.place - relay.seen < n) {
		p[relay.place - relay.seen] ^= (unsigned char)(1u << relay.bit);
		relay.changed = true;
	}
	relay.seen += n;
}

static void await(struct way *w, enum state state, size_t bytes)
{
	w->state = state;
	w->left = bytes;
}

/* All of a part has come. */
static void next_part(struct way *w)
{
	uint64_t bytes;

	switch (w->state) {
	case DATA:
		w->have = 0;
		await(w, BEHIND, sizeof(uint32_t));
		return;
	case BEHIND:
		if (begins_head(w->head))
			await(w, HEAD, sizeof w->head - w->have);
		else
			await(w, TAG, RELAY_TAG_BYTES - w->have);
		return;
	case HEAD:
		bytes = data_behind(w->head);
		w->have = 0;
		if (bytes)
			await(w, DATA, bytes);
		else
			await(w, HEAD, sizeof w->head);
		return;
	default:
		w->have = 0;
		await(w, HEAD, sizeof w->head);
	}
}

/* N bytes have come along W. */
static void follow(struct way *w, unsigned char *p, size_t n)
{
	size_t k;

	for (; n; p += k, n -= k) {
		k = n < w->left ? n : w->left;
		if (w->state == HEAD || w->state == BEHIND) {
			memcpy(w->head + w->have, p, k);
			w->have += k;
		} else if (w->state == DATA) {
			count_data(p, k);
		}
		w->left -= k;
		if (!w->left)
			next_part(w);
	}
}

static void close_link(size_t i)
{
	close(relay.way[i][0]->from);
	close(relay.way[i][0]->to);
	free(relay.way[i][0]);
	free(relay.way[i][1]);
	relay.links--;
	memcpy(relay.way[i], relay.way[relay.links], sizeof relay.way[i]);
}

/* FALSE: the connection is over. */
static bool carry(struct way *w, short come, short go)
{
	ssize_t k;

	if (come && w->at == w->n && !w->ended) {
		k = read(w->from, w->piece, sizeof w->piece);
		if (k < 0 && errno != EAGAIN)
			return false;
		if (!k) {
			w->ended = true;
			shutdown(w->to, SHUT_WR);
		}
		w->at = 0;
		w->n = k > 0 ? (size_t)k : 0;
		follow(w, w->piece, w->n);
		go = 1;
	}
	if (go && w->at < w->n) {
		k = send(w->to, w->piece + w->at, w->n - w->at, MSG_NOSIGNAL);
		if (k < 0 && errno != EAGAIN)
			return false;
		w->at += k > 0 ? (size_t)k : 0;
	}
	return true;
}

static void begin_link(int rank)
{
	struct sockaddr_in to = { .sin_family = AF_INET,
				  .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
				  .sin_port = htons(
					  (uint16_t)atomic_load(&relay.real[rank])) };
	const int fd = accept4(relay.listener[rank], NULL, NULL, SOCK_CLOEXEC);
	const int out = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	const int on = 1;
	struct way **w = relay.way[relay.links];

	if (fd < 0 || relay.links == RELAY_LINKS_MOST ||
	    connect(out, (struct sockaddr *)&to, sizeof to)) {
		close(fd);
		close(out);
		return;
	}
	for (int i = 0; i < 2; i++) {
		w[i] = calloc(1, sizeof *w[i]);
		if (!w[i])
			abort();
		w[i]->from = i ? out : fd;
		w[i]->to = i ? fd : out;
		w[i]->left = i ? sizeof(struct net_answer)
			       : sizeof(struct net_hello) + sizeof(struct net_seal);
		fcntl(w[i]->from, F_SETFL, O_NONBLOCK);
		setsockopt(w[i]->from, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
	}
	relay.links++;
}

/* What comes within MS. */
static void relay_turn(int ranks, int ms)
{
	struct pollfd p[RELAY_RANKS_MOST + 2 * RELAY_LINKS_MOST];
	const size_t links = relay.links;
	nfds_t n = 0;

	for (int r = 0; r < ranks; r++)
		p[n++] = (struct pollfd){ relay.listener[r], POLLIN, 0 };
	for (size_t i = 0; i < links; i++) {
		for (int k = 0; k < 2; k++) {
			const struct way *in = relay.way[i][k],
					 *back = relay.way[i][!k];

			p[n++] = (struct pollfd){
				in->ended && back->at == back->n ? -1 : in->from,
				(short)((in->at == in->n && !in->ended ? POLLIN : 0) |
					(back->at < back->n ? POLLOUT : 0)),
				0
			};
		}
	}
	if (poll(p, n, ms) <= 0)
		return;
	for (size_t i = links; i--;) {
		const struct pollfd *q = p + ranks + 2 * i;
		struct way *w = relay.way[i][0], *b = relay.way[i][1];

		if (!carry(w, q[0].revents, q[1].revents) ||
		    !carry(b, q[1].revents, q[0].revents) ||
		    (w->ended && b->ended && w->at == w->n && b->at == b->n))
			close_link(i);
	}
	for (int r = 0; r < ranks; r++)
		if (p[r].revents)
			begin_link(r);
}

static void relay_open(void)
{
	for (int r = 0; r < RELAY_RANKS_MOST; r++) {
		struct sockaddr_in at = { .sin_family = AF_INET,
					  .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
		socklen_t size = sizeof at;
		const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

		if (fd < 0 || bind(fd, (struct sockaddr *)&at, sizeof at) ||
		    listen(fd, 64) || getsockname(fd, (struct sockaddr *)&at, &size)) {
			perror("flip: listen");
			exit(2);
		}
		fcntl(fd, F_SETFL, O_NONBLOCK);
		relay.listener[r] = fd;
		relay.port[r] = ntohs(at.sin_port);
	}
}

#endif
