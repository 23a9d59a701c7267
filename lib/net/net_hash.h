/* net_hash.h - a keyed hash of data that go over a connection.  No socket is known here.
 *
 * Each block of 1 KiB is hashed by NH (nh.h), to 16 bytes: its two sums, little-endian;
 * the last block is what is left.  Of data up to one block that is the hash.  Of more,
 * the hash is Poly1305 (RFC 8439, with s = 0) of the blocks' hashes in their order.
 *
 * The hash does not know how many bytes it is of, and is not secret enough to be sent:
 * what stands on the wire is a MAC of it and of the number of bytes (net_mac.h).
 *
 * Two different data of the same size, 2^32 bytes or less, have the same hash with a
 * chance of at most 2^-64 + 2^-81, if the key is random and nobody has seen a hash:
 *   2^-64  one of the blocks in which they differ has the same NH in both (nh.h);
 *   2^-81  else: Bernstein, "The Poly1305-AES message-authentication code" (FSE 2005),
 *          theorem 3.3: 8 * L / 2^106 for L blocks of 16 bytes, here 2^22.
 * VMAC and UMAC are made like this as well. */
#ifndef BERTH_LIB_NET_HASH_H
#define BERTH_LIB_NET_HASH_H

#include <sodium.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/nh.h"

enum {
	NET_HASH_BLOCK_BYTES = NH_MOST_BYTES,
	NET_HASH_NH_KEY_BYTES = NH_KEY_WORDS * 4,
	NET_HASH_KEY_BYTES = NET_HASH_NH_KEY_BYTES + 16,
	NET_HASH_BYTES = NH_BYTES
};

/* Any NET_HASH_KEY_BYTES that are random. */
struct net_hash_key {
	_Alignas(64) uint32_t nh[NH_KEY_WORDS];
	unsigned char r[16]; /* of Poly1305; its bits are cleared here */
};

struct net_hash {
	uint64_t blocks; /* so far */
	unsigned char first[NH_BYTES];
	crypto_onetimeauth_poly1305_state poly; /* of them all */
	size_t held;                            /* of the next one */
	_Alignas(64) unsigned char part[NET_HASH_BLOCK_BYTES];
};

void net_hash_begin(struct net_hash *h);
/* The next BYTES, any number.  A multiple of NET_HASH_BLOCK_BYTES is faster: the rest is
 * copied. */
void net_hash_add(struct net_hash *h, const struct net_hash_key *k, const void *data,
		  size_t bytes);
void net_hash_end(struct net_hash *h, const struct net_hash_key *k,
		  unsigned char out[NET_HASH_BYTES]);

/* The same of all BYTES at once. */
void net_hash_once(const struct net_hash_key *k, const void *data, size_t bytes,
		   unsigned char out[NET_HASH_BYTES]);

#endif
