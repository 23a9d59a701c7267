/* net_channel.h - a connection after its handshake: its socket, and the keys of both
 * directions.  Bytes go as they are, or in a box, as the handshake says. */
#ifndef BERTH_LIB_NET_CHANNEL_H
#define BERTH_LIB_NET_CHANNEL_H

#include <sys/types.h>
#include <sys/uio.h>

#include "lib/net/net_box.h"
#include "lib/net/net_key.h"

enum { NET_TEXT_BYTES = 48 };

struct net_channel {
	int fd; /* -1: none */
	/* The MACs of both directions; NULL if FD is -1. */
	struct net_mac *out, *in;
	const char *address; /* of the other end, as text */
	struct net_box *box; /* NULL: bytes go as they are */
};

/* From here on FD, which does not block, belongs to this channel.  BEGUN: this rank has
 * said H.  0, or -1: out of memory. */
int net_channel_open(struct net_channel *c, int fd, const unsigned char *key,
		     const struct net_hello *h, const struct net_answer *a, bool begun);
/* Free all but the socket, which stays open. */
void net_channel_free(struct net_channel *c);

/* The address of the other end of FD, as far as that is known. */
void net_channel_name(char text[NET_TEXT_BYTES], int fd);

/* As sendmsg() and recvmsg() of a socket that does not block; net_box.h says more.
 * EBADMSG: the peer did not send the bytes that came. */
ssize_t net_channel_send(struct net_channel *c, const struct iovec *v, size_t n);
ssize_t net_channel_receive(struct net_channel *c, const struct iovec *v, size_t n);
/* A sealed record has not gone completely, so nothing else can go. */
bool net_channel_is_half(const struct net_channel *c);
/* As recv() with MSG_PEEK, of BYTES that were sent in one piece; else -1. */
ssize_t net_channel_peek(struct net_channel *c, void *to, size_t bytes);
/* The last BYTES that have come and are kept here, to TO.  FALSE: there are no such
 * bytes. */
bool net_channel_last(const struct net_channel *c, void *to, size_t bytes);

#endif
