/* net_hash.h - a keyed hash of data that go over a connection.  It does not use
 * sockets.
 *
 * Each block of 4 KiB is hashed by NH (nh.h) to its two sums, 16 bytes.  The last block
 * is the rest.  If there is one block, its NH is the hash.  Else the hash is Poly1305
 * (RFC 8439, with s = 0) of the NH of all blocks, in their order.
 *
 * The hash does not cover the number of bytes, and it must stay secret.  A MAC of the
 * hash and of the number of bytes is sent.
 *
 * Two different data of the same size, 2^32 bytes at most, have the same hash with a
 * chance of at most 2^-64 + 2^-83, if the key is random and no hash has been seen:
 *   2^-64   a block in which they differ has the same NH in both (nh.h);
 *   2^-83   if not: Bernstein, "The Poly1305-AES message-authentication code" (FSE
 *           2005), theorem 3.3: 8 * L / 2^106 for L parts of 16 bytes, here 2^20.
 *
 * libsodium's Poly1305 has its fast form only after sodium_init().  (256 KiB with AVX2:
 * 39 GB/s, 41 without Poly1305; in blocks of 1 KiB, as UMAC has, 30.  1 KiB: 31 ns.  8
 * bytes: 5 ns.) */
#ifndef BERTH_LIB_NET_HASH_H
#define BERTH_LIB_NET_HASH_H

#include <sodium.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/nh.h"

enum {
	NET_HASH_BLOCK_BYTES = NH_MOST_BYTES,
	NET_HASH_NH_KEY_BYTES = NH_KEY_WORDS * 4,
	NET_HASH_BYTES = NH_BYTES
};

/* All its bytes are random. */
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
/* Hash the next BYTES, any number.  Multiples of NET_HASH_BLOCK_BYTES are not
 * copied. */
void net_hash_add(struct net_hash *h, const struct net_hash_key *k, const void *data,
		  size_t bytes);
void net_hash_end(struct net_hash *h, const struct net_hash_key *k,
		  unsigned char out[NET_HASH_BYTES]);

/* The hash of all BYTES at once. */
void net_hash_once(const struct net_hash_key *k, const void *data, size_t bytes,
		   unsigned char out[NET_HASH_BYTES]);

#endif
