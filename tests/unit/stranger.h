/* stranger.h - for tests of lib/net: a peer that speaks byte by byte, with the key or
 * without, to a net in this process. */
#ifndef BERTH_TESTS_STRANGER_H
#define BERTH_TESTS_STRANGER_H

#include <check.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/base/descriptor.h"
#include "lib/net/net_state.h"

/* As lib/core/api.c does: the door's thread may hold this lock while a test forks.  But
 * these children keep the descriptors. */
__attribute__((constructor)) static void stranger_forks(void)
{
	pthread_atfork(descriptor_lock, descriptor_unlock, descriptor_unlock);
}

static const unsigned char stranger_key[NET_KEY_BYTES] = "the key of these tests";

static struct net *stranger_net(unsigned rank, unsigned size)
{
	struct net_config c = { .rank = rank,
				.size = size,
				.key = stranger_key,
				.range = "127.0.0.1",
				.spins = 10 };
	char why[128];
	struct net *n = net_open(&c, why, sizeof why);

	ck_assert_msg(n != NULL, "%s", why);
	return n;
}

/* A socket connected to N. */
static int stranger_connect(const struct net *n)
{
	struct sockaddr_in to = { .sin_family = AF_INET,
				  .sin_port = htons((uint16_t)atoi(net_address(n))),
				  .sin_addr = { htonl(INADDR_LOOPBACK) } };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;

	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
	if (connect(fd, (struct sockaddr *)&to, sizeof to))
		_exit(9);
	return fd;
}

static void stranger_say(int fd, const void *data, size_t bytes)
{
	for (size_t done = 0; done < bytes;) {
		ssize_t k =
			send(fd, (const char *)data + done, bytes - done, MSG_NOSIGNAL);

		if (k <= 0)
			return;
		done += (size_t)k;
	}
}

/* Bytes that came before the end of the stream. */
static size_t stranger_hear(int fd, void *data, size_t bytes)
{
	size_t done = 0;
	ssize_t k = 1;

	while (done < bytes && k > 0) {
		k = recv(fd, (char *)data + done, bytes - done, 0);
		done += k > 0 ? (size_t)k : 0;
	}
	return done;
}

/* It belongs to a world of three ranks. */
static struct net_hello stranger_hello(uint32_t from, uint32_t to, uint32_t lane)
{
	struct net_hello h = { .from = from,
			       .to = to,
			       .lane = lane,
			       .at = to,
			       .ranks = 3,
			       .secure = NET_MAC };

	net_hello_make(&h, stranger_key);
	return h;
}

/* The connection that this process has begun last, and its keys. */
static struct net_channel stranger_channel;

/* The verdict of the door on H.  A hello that is not answered: -1. */
static int stranger_prove_by(int fd, const struct net_hello *h)
{
	struct net_answer a;
	struct net_seal s;

	stranger_say(fd, h, sizeof *h);
	if (stranger_hear(fd, &a, sizeof a) != sizeof a)
		return -1;
	net_seal_make(&s, stranger_key, h, &a);
	stranger_say(fd, &s, sizeof s);
	if (net_channel_open(&stranger_channel, fd, stranger_key, h, &a, true))
		_exit(9);
	return (int)a.verdict;
}

/* As rank FROM says it to rank TO. */
static inline int stranger_prove(int fd, uint32_t from, uint32_t to)
{
	const struct net_hello h = stranger_hello(from, to, 0);

	return stranger_prove_by(fd, &h);
}

/* H as the next head on it. */
static inline struct head stranger_mark(struct head h)
{
	h.mark = net_mark(stranger_channel.out, &h);
	stranger_channel.out->number++;
	return h;
}

/* The tail behind DATA of H. */
static inline uint64_t stranger_tail(const struct head *h, const void *data)
{
	return net_tail(stranger_channel.out, h->mark.number, data, h->bytes);
}

/* N waits for 12 bytes of rank 0. */
static berth_result stranger_wait(struct net *n, char *to, unsigned ms)
{
	struct net_receive in = {
		.tag = { 1, 2, 3 }, .note = { { 4 } }, .data = to, .bytes = 12
	};
	unsigned lost;

	return net_exchange(n, NULL, 0, &in, 1, clock_ns() + ms * 1000000ull, &lost);
}

#endif
