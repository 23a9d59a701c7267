/* libFuzzer on lib/net: what a connection may bring.  The first byte says what: the
 * stream of a peer that has the key, of which a message is awaited as further bytes of
 * the input ask; or a hello, whose proof is made good; or an address.
 *
 * A stream is made of parts, each of which begins with a byte: a head whose MAC is made
 * good, with data, up to a size, and their tail; the same, with one bit
 * that changes on the way; or bytes as they are. */
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "lib/net/net_door.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { RANKS = 4, MOST = 70000 };

static unsigned char room[MOST];

/* A door that nobody but us looks at. */
static struct net_where peer[RANKS];
static struct net_door door = { .rank = 1,
				.size = RANKS,
				.key = "fuzz",
				.peer = peer,
				.lock = PTHREAD_MUTEX_INITIALIZER };

static struct net *open_net(void)
{
	const struct net_config config = {
		.rank = 1, .size = RANKS, .door = &door, .spins = 1
	};
	char why[64];
	struct net *n = net_open(&config, why, sizeof why);

	if (!n || net_key_init())
		abort();
	return n;
}

/* Our end of a socket that brings DATA and ends. */
static int stream_of(const uint8_t *data, size_t size)
{
	int pair[2];

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair) ||
	    (size && send(pair[1], data, size, MSG_NOSIGNAL) != (ssize_t)size))
		abort();
	close(pair[1]);
	return pair[0];
}

static void take(void *ctx, size_t offset, const void *piece, size_t bytes)
{
	if (offset + bytes > *(size_t *)ctx || bytes % 4)
		abort();
	memcpy(room + offset, piece, bytes);
}

static berth_result begin(void *ctx, struct net_receive *in, uint64_t bytes)
{
	(void)ctx;
	in->drop = bytes % 3 == 0;
	return BERTH_OK;
}

/* The keys of a connection that rank 0 has begun; those of the peer are in PEER. */
static void open_channel(struct net *n, struct link *l, int fd,
			 struct net_channel *peer)
{
	struct net_hello h = { .to = 1, .ranks = RANKS, .secure = NET_MAC };
	struct net_answer a = { .secure = NET_MAC };

	/* the same each time: nonces are not random here */
	if (net_channel_open(&l->channel, fd, door.key, &h, &a, false) ||
	    net_channel_open(peer, -1, door.key, &h, &a, true))
		abort();
}

struct stream {
	uint8_t bytes[MOST + 4096];
	size_t n;
};

static void put(struct stream *s, const void *data, size_t size)
{
	if (size > sizeof s->bytes - s->n)
		size = sizeof s->bytes - s->n;
	memcpy(s->bytes + s->n, data, size);
	s->n += size;
}

static size_t least(size_t a, size_t b)
{
	return a < b ? a : b;
}

/* A head, data and their tail: how much of DATA they are. */
static size_t put_message(struct stream *s, struct net_mac *mac, const uint8_t *data,
			  size_t size, bool changes)
{
	static uint8_t body[MOST];
	struct head h = { 0 };
	size_t at = least(size, NET_HEAD_BYTES), begun = s->n, n = 0;
	uint64_t tail;

	memcpy(&h, data, at);
	h.magic = HEAD_MAGIC;
	memset(body, 0, sizeof body);
	if (h.bytes <= sizeof body) {
		n = h.bytes;
		memcpy(body, data + at, least(size - at, n));
		at += least(size - at, n);
	}
	h.mark = net_mark(mac, &h);
	mac->number++;
	tail = net_tail(mac, h.mark.number, body, n);
	put(s, &h, sizeof h);
	put(s, body, n);
	put(s, &tail, n ? sizeof tail : 0);
	if (changes && at < size && s->n > begun) {
		s->bytes[begun + data[at] * 4u % (s->n - begun)] ^= 4;
		at++;
	}
	return at;
}

static void make_stream(struct stream *s, struct net_mac *mac, const uint8_t *data,
			size_t size)
{
	for (size_t at = 0; at < size && s->n < MOST;) {
		const uint8_t part = data[at++];
		size_t k = least(size - at, part / 4 + 1u);

		if (part % 4 < 2) {
			at += put_message(s, mac, data + at, size - at, part % 4 == 1);
			continue;
		}
		for (unsigned i = 0; i < (part % 4 == 2 ? 1u : 64u); i++)
			put(s, data + at, k);
		at += k;
	}
}

static void message(const uint8_t *data, size_t size)
{
	static struct stream s;
	struct net *n = open_net();
	struct net_receive in = { .tag = { 1, 2, 3 }, .note = { { 4 } } };
	size_t bytes;
	unsigned lost;
	struct link *l = net_link(n, 0, 0);
	struct net_channel peer;

	if (size >= 2) {
		bytes = in.bytes = (data[0] % 16) * (data[1] * 4u);
		in.data = room;
		in.begin = data[0] & 16 ? begin : NULL;
		in.take = data[0] & 32 ? take : NULL;
		in.ctx = &bytes;
		in.unit = 4;
		l->stash = malloc(STASH_BYTES);
		open_channel(n, l, -1, &peer);
		s.n = 0;
		make_stream(&s, peer.out, data + 2, size - 2);
		net_channel_free(&peer);
		l->channel.fd = stream_of(s.bytes, least(s.n, MOST));
		while (!net_exchange(n, NULL, 0, &in, 1, 1, &lost))
			in = (struct net_receive){ .tag = in.tag,
						   .note = { { 4 } },
						   .data = room,
						   .bytes = bytes,
						   .begin = in.begin,
						   .take = in.take,
						   .ctx = &bytes,
						   .unit = 4 };
		if (lost > RANKS)
			abort();
	}
	net_close(n);
}

static void hello(const uint8_t *data, size_t size)
{
	struct net *n = open_net();
	struct net_receive in = { .peer = 0 };
	struct net_hello h;
	unsigned lost;
	int fd;

	if (size >= sizeof h) { /* this part is the key's owner's */
		memcpy(&h, data, sizeof h);
		h.at = door.rank;
		net_hello_make(&h, door.key);
		fd = stream_of((const uint8_t *)&h, sizeof h);
	} else {
		fd = stream_of(data, size);
	}
	door.coming[door.ncoming++] = (struct net_coming){ .fd = fd, .until_ns = 1 };
	net_door_serve(&door);
	if (door.ncoming)
		abort();
	net_exchange(n, NULL, 0, &in, 1, 1, &lost);
	net_close(n);
}

static void address(const uint8_t *data, size_t size)
{
	char text[NET_ADDRESS_BYTES];
	struct net_where w;

	if (size >= sizeof text)
		return;
	memcpy(text, data, size);
	text[size] = '\0';
	if (!net_where(&w, text) && (w.n == 0 || w.n > NET_WHERE_MAX))
		abort();
	net_range_check(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (!size)
		return 0;
	switch (data[0] % 3) {
	case 0:
		message(data + 1, size - 1);
		break;
	case 1:
		hello(data + 1, size - 1);
		break;
	default:
		address(data + 1, size - 1);
	}
	return 0;
}
