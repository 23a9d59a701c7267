/* net_key.h - who connects proves that it has the job's key: the messages, without the
 * sockets (net.c).
 *
 * A hello says which rank of how many, in which epoch, begins which connection of which
 * net, at whose door, and how what goes over it is to be kept safe.  The answer says
 * whether that is right, for a hello that nobody without the key can make.  Either side
 * believes the other one only where its proof covers a nonce of its own. */
#ifndef BERTH_LIB_NET_KEY_H
#define BERTH_LIB_NET_KEY_H

#include <stdbool.h>
#include <stdint.h>

#include "lib/net/net_mac.h"

/* Each of these proofs, and each key that follows from them, is of a label of its own
 * first: none can stand for another. */
enum { NET_NONCE_BYTES = 32, NET_PROOF_BYTES = 32 };

/* Integers are in the machine's order: all hosts of a job are little-endian. */
struct net_hello {
	uint32_t magic, from, to, lane; /* ranks of the net */
	uint64_t net;
	uint32_t at; /* the rank whose door this is to be */
	uint32_t epoch, ranks;
	uint32_t secure; /* of enum net_secure; with NET_AEAD, what this host has */
	uint64_t number; /* higher than that of any hello before, of this process */
	unsigned char nonce[NET_NONCE_BYTES];
	unsigned char proof[NET_PROOF_BYTES]; /* of all that is in front of it */
};

enum net_secure { NET_MAC = 1, NET_AEAD = 2, NET_AES = 4, NET_HEADS = 8 };

/* What the side that is connected to says of a hello.  NET_LEFT: it has no such net,
 * or not any more. */
enum net_verdict {
	NET_WELCOME,
	NET_OTHER_EPOCH,
	NET_OTHER_RANKS,
	NET_OTHER_SECURE,
	NET_LEFT
};

struct net_answer {
	uint32_t verdict;
	uint32_t secure; /* what both do from here on */
	unsigned char nonce[NET_NONCE_BYTES];
	unsigned char proof[NET_PROOF_BYTES]; /* of hello's nonce, then all of this */
};

struct net_seal {
	unsigned char proof[NET_PROOF_BYTES]; /* the same, with the nonces exchanged */
};

/* 0, or -1: libsodium can't be initialised. */
int net_key_init(void);
/* H, of which all in front of the number but the magic is there, is made whole.  Any
 * thread. */
void net_hello_make(struct net_hello *h, const unsigned char *key);
bool net_hello_is_good(const struct net_hello *h, const unsigned char *key);
/* The same with A, up to its nonce. */
void net_answer_make(struct net_answer *a, const unsigned char *key,
		     const struct net_hello *h);
bool net_answer_is_good(const struct net_answer *a, const unsigned char *key,
			const struct net_hello *h);
void net_seal_make(struct net_seal *s, const unsigned char *key,
		   const struct net_hello *h, const struct net_answer *a);
bool net_seal_is_good(const struct net_seal *s, const unsigned char *key,
		      const struct net_hello *h, const struct net_answer *a);

/* For which each direction of a connection has a key. */
enum net_use { NET_FOR_MAC, NET_FOR_AEAD };

/* The key of what goes to, or, BACK, comes from the side that is connected to. */
void net_way_key(unsigned char way[NET_WAY_KEY_BYTES], const unsigned char *key,
		 const struct net_hello *h, const struct net_answer *a,
		 enum net_use use, bool back);

#endif
