/* net_mac.h - the MACs of one direction of a connection: of each head, and of the data
 * behind it.  It does not use sockets.
 *
 * Each head carries a number, which its MAC covers.  The receiver takes only the next
 * number.  So it does not take a head that was changed, repeated or moved, or a head
 * after a missing one.  The data have a MAC of their own behind them, their tail.  So a
 * head can be believed before its data have come.  Data that come in pieces are hashed
 * while they are in the cache.
 *
 * A MAC is libsodium's SipHash-2-4, of 8 bytes, with a key for each use and each
 * direction.  The MAC of the data covers their hash (net_hash.h), their length, the
 * number of their head and the set.  Two texts of one length have the same hash with a
 * chance of less than 2^-63, and nobody sees the hash.  So a forger that does not break
 * SipHash succeeds once in 2^62 tries.  The first failure ends the connection. */
#ifndef BERTH_LIB_NET_MAC_H
#define BERTH_LIB_NET_MAC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/net/net_hash.h"

enum {
	NET_SMALL_BYTES = 1024, /* data of this size, or less, are taken in one piece */
	NET_WAY_KEY_BYTES = 64,
	NET_HEAD_BYTES = 40, /* of a head, in front of its mark */
	NET_TAIL_BYTES = 8
};

/* The mark behind each head. */
struct net_mark {
	uint64_t set; /* net_config's id */
	uint64_t number;
	uint64_t mac; /* of the head, the set and the number */
};

/* One direction of a connection. */
struct net_mac {
	uint64_t number; /* of the next head */
	uint64_t set;
	uint64_t covered; /* data of so many bytes, or fewer, have a tail */
	unsigned char head_key[16], data_key[16];
	struct net_hash_key key;
	struct net_hash hash; /* of the data that are on their way */
};

void net_mac_begin(struct net_mac *m, const unsigned char key[NET_WAY_KEY_BYTES],
		   uint64_t set, uint64_t covered);

/* The mark of HEAD, of NET_HEAD_BYTES, as the next one.  When some of it is on its way,
 * the sender counts it: M->number++. */
struct net_mark net_mark(const struct net_mac *m, const void *head);
/* Did the peer say HEAD as the next one?  LATER: or as a later one. */
bool net_mark_is_good(const struct net_mac *m, const struct net_mark *k,
		      const void *head, bool later);

/* The size of the tail behind BYTES of data: NET_TAIL_BYTES, or 0. */
static inline size_t net_tail_bytes(const struct net_mac *m, uint64_t bytes)
{
	return bytes && bytes <= m->covered ? NET_TAIL_BYTES : 0;
}

/* The tail of the BYTES of DATA behind the head NUMBER. */
uint64_t net_tail(const struct net_mac *m, uint64_t number, const void *data,
		  uint64_t bytes);
/* The tail of data that go through M->hash in pieces. */
static inline void net_tail_begin(struct net_mac *m)
{
	net_hash_begin(&m->hash);
}
static inline void net_tail_add(struct net_mac *m, const void *piece, size_t bytes)
{
	net_hash_add(&m->hash, &m->key, piece, bytes);
}
uint64_t net_tail_end(struct net_mac *m, uint64_t number, uint64_t bytes);

#endif
