/* net_box.h - BERTH_NET_SECURE=aead: all bytes of a connection, encrypted and
 * authenticated.
 *
 * The bytes of each direction go as records of NET_RECORD_BYTES at most.  A record is a
 * size with its MAC, then AES-256-GCM, or ChaCha20-Poly1305 if one of the hosts has no
 * AES (net_cipher.h).  The number of the record is its nonce, and is not sent.  So a
 * record that was changed, repeated or moved does not open, nor does one after a
 * missing one.  The size has a MAC of its own (SipHash-2-4, with the number), so that
 * no receiver waits for bytes that do not come. */
#ifndef BERTH_LIB_NET_BOX_H
#define BERTH_LIB_NET_BOX_H

#include <stdbool.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "lib/net/net_mac.h"

/* Each record takes one system call.  64 KiB between two ranks take longer than without
 * a box (1.83 times as long; with records of 32 KiB 2.07 times). */
enum { NET_RECORD_BYTES = 64 << 10 };

struct net_box;

/* OUT, IN: the keys of both directions.  NULL: out of memory. */
struct net_box *net_box_make(const unsigned char out[NET_WAY_KEY_BYTES],
			     const unsigned char in[NET_WAY_KEY_BYTES], bool aes);
void net_box_free(struct net_box *b);

/* As sendmsg() of a socket that does not block, with one record at most.  A sealed
 * record goes unchanged, and counts when all of it has gone.  Until then the error is
 * EAGAIN, and V has to begin with the same bytes. */
ssize_t net_box_send(struct net_box *b, int fd, const struct iovec *v, size_t n);
/* A sealed record has gone in part, or not at all. */
bool net_box_is_half(const struct net_box *b);
/* As recvmsg().  If fewer bytes come than there is room for, there are no more.
 * EBADMSG: the peer did not send the bytes that came. */
ssize_t net_box_receive(struct net_box *b, int fd, const struct iovec *v, size_t n);
/* If a record of BYTES, which are few, is all that waits: copy those to TO.  0: the
 * stream has ended; -1. */
ssize_t net_box_peek(struct net_box *b, int fd, void *to, size_t bytes);
/* The last BYTES that have been read from the socket and have not been received. */
bool net_box_last(const struct net_box *b, void *to, size_t bytes);

#endif
