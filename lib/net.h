/* net.h - messages between ranks over TCP.
 *
 * A connection between two ranks is made when first needed, by the lower rank; the
 * upper one accepts it when it needs it.  Each side proves that it has the job's key
 * before anything else that it says is read:
 *   lower   HELLO = magic, ranks, lane, nonce, then its keyed hash
 *   upper   its nonce, then the keyed hash of both nonces
 *   lower   the keyed hash of both nonces in the other order
 * (libsodium's generichash, BLAKE2b.)  The data are not encrypted.  A connection
 * that has not come so far after 5 s is closed; 64 may be at it at a time, others
 * wait in the kernel's queue.
 *
 * Messages are a head of 32 bytes and data.  A receiver knows what has to come: a
 * head that says anything else, or more data than there is room for, ends the
 * connection. Sockets do not block: an exchange spins, then sleeps in poll(). */
#ifndef BERTH_LIB_NET_H
#define BERTH_LIB_NET_H

#include <stdbool.h>

#include "lib/berth.h"

struct net;

enum { NET_KEY_BYTES = 32, NET_ADDRESS_BYTES = 512, NET_LANES_MAX = 8 };

struct net_config {
	unsigned rank, size;
	const unsigned char *key; /* NET_KEY_BYTES, the same on all ranks */
	/* "10.0.0.0/8,fd00::/8": only interfaces with an address in one of them;
	 * NULL: all that are up, loopback only if there is no other */
	const char *range;
	unsigned spins; /* looks before it sleeps */
};

/* NULL, with WHY: out of memory, no such interface, a system call. */
struct net *net_open(const struct net_config *config, char *why, size_t why_bytes);
/* Tells peers first that this rank goes. */
void net_close(struct net *n);

/* Where this rank can be reached: text of less than NET_ADDRESS_BYTES for the others'
 * net_peer(). */
const char *net_address(const struct net *n);
/* BERTH_INVALID: no such text. */
berth_result net_peer(struct net *n, unsigned rank, const char *address);

/* What a message is about; sent as it is, and expected so. */
struct net_tag {
	uint32_t group, seq, step, signature;
};

struct net_send {
	unsigned peer;
	struct net_tag tag;
	uint32_t state; /* for the receiver to look at */
	const void *data;
	size_t bytes;
	/* internal */
	size_t sent;
};

struct net_receive {
	unsigned peer;
	struct net_tag tag; /* .signature: what came, where any_signature */
	bool any_signature;
	bool up_to; /* BYTES or less: they become what came */
	void *data; /* room for BYTES */
	size_t bytes;
	uint32_t state; /* what came */
	/* Not NULL: called with each piece as it comes, a multiple of UNIT bytes, at
	 * OFFSET; DATA is not written then. */
	void (*take)(void *ctx, size_t offset, const void *piece, size_t bytes);
	void *ctx;
	size_t unit;
	/* internal */
	size_t got, held;
	bool has_head;
};

/* Send OUT and receive IN at the same time; either may be NULL.  BERTH_PEER_LOST: *LOST
 * is who.  BERTH_MISMATCH: a head that was not expected, from *LOST.  DEADLINE_NS: of
 * CLOCK_MONOTONIC, 0: none. */
berth_result net_exchange(struct net *n, struct net_send *out, struct net_receive *in,
			  uint64_t deadline_ns, unsigned *lost);

/* Called now and then while an exchange waits; anything but BERTH_OK ends it. */
void net_watch(struct net *n, berth_result (*look)(void *ctx), void *ctx);

/* Tell all peers that rank LOST is gone (for them net_exchange() returns it), and
 * close. */
void net_break(struct net *n, unsigned lost);

#endif
