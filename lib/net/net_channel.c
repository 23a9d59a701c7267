#include "lib/net/net_channel.h"

#include <netdb.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

/* In one piece. */
struct ways {
	struct net_mac out, in;
	char address[NET_TEXT_BYTES];
};

void net_channel_name(char text[NET_TEXT_BYTES], int fd)
{
	struct sockaddr_storage at;
	socklen_t size = sizeof at;

	*text = '\0';
	if (!getpeername(fd, (struct sockaddr *)&at, &size))
		getnameinfo((struct sockaddr *)&at, size, text, NET_TEXT_BYTES, NULL, 0,
			    NI_NUMERICHOST);
	/* of an IPv4 connection to a socket of IPv6 */
	if (!strncmp(text, "::ffff:", 7) && strchr(text, '.'))
		memmove(text, text + 7, strlen(text + 7) + 1);
}

/* Data of so many bytes, or fewer, have a MAC of their own. */
static uint64_t channel_covered(uint32_t secure)
{
	if (secure & NET_AEAD)
		return 0; /* all bytes are in a box */
	return secure & NET_HEADS ? NET_SMALL_BYTES : UINT64_MAX;
}

int net_channel_open(struct net_channel *c, int fd, const unsigned char *key,
		     const struct net_hello *h, const struct net_answer *a, bool begun)
{
	struct ways *w = aligned_alloc(_Alignof(struct ways), sizeof *w);
	unsigned char way[NET_WAY_KEY_BYTES], in[NET_WAY_KEY_BYTES];

	if (!w)
		return -1;
	*c = (struct net_channel){
		.fd = fd, .out = &w->out, .in = &w->in, .address = w->address
	};
	net_channel_name(w->address, fd);
	net_way_key(way, key, h, a, NET_FOR_MAC, !begun);
	net_mac_begin(c->out, way, h->net, channel_covered(a->secure));
	net_way_key(way, key, h, a, NET_FOR_MAC, begun);
	net_mac_begin(c->in, way, h->net, channel_covered(a->secure));
	if (a->secure & NET_AEAD) {
		net_way_key(way, key, h, a, NET_FOR_AEAD, !begun);
		net_way_key(in, key, h, a, NET_FOR_AEAD, begun);
		c->box = net_box_make(way, in, a->secure & NET_AES);
	}
	sodium_memzero(way, sizeof way);
	sodium_memzero(in, sizeof in);
	if (c->box || !(a->secure & NET_AEAD))
		return 0;
	net_channel_free(c);
	return -1;
}

void net_channel_free(struct net_channel *c)
{
	if (c->out)
		sodium_memzero(c->out, sizeof(struct ways));
	free(c->out);
	net_box_free(c->box);
	*c = (struct net_channel){ .fd = -1 };
}

ssize_t net_channel_send(struct net_channel *c, const struct iovec *v, size_t n)
{
	struct msghdr m = { .msg_iov = (struct iovec *)(uintptr_t)v, .msg_iovlen = n };

	if (c->box)
		return net_box_send(c->box, c->fd, v, n);
	if (n == 1)
		return send(c->fd, v->iov_base, v->iov_len,
			    MSG_DONTWAIT | MSG_NOSIGNAL);
	return sendmsg(c->fd, &m, MSG_DONTWAIT | MSG_NOSIGNAL);
}

ssize_t net_channel_receive(struct net_channel *c, const struct iovec *v, size_t n)
{
	struct msghdr m = { .msg_iov = (struct iovec *)(uintptr_t)v, .msg_iovlen = n };

	if (c->box)
		return net_box_receive(c->box, c->fd, v, n);
	if (n == 1)
		return recv(c->fd, v->iov_base, v->iov_len, MSG_DONTWAIT);
	return recvmsg(c->fd, &m, MSG_DONTWAIT);
}

ssize_t net_channel_peek(struct net_channel *c, void *to, size_t bytes)
{
	if (c->box)
		return net_box_peek(c->box, c->fd, to, bytes);
	return recv(c->fd, to, bytes, MSG_PEEK | MSG_DONTWAIT);
}

bool net_channel_is_half(const struct net_channel *c)
{
	return c->box && net_box_is_half(c->box);
}

bool net_channel_last(const struct net_channel *c, void *to, size_t bytes)
{
	return c->box && net_box_last(c->box, to, bytes);
}
