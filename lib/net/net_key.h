/* net_key.h - the handshake, in which both sides prove that they have the job's key:
 * its messages, without the sockets (net.c).
 *
 * A hello says which rank begins the connection, how many ranks there are, and the
 * epoch.  It also says the net, the lane, the door, and the protection of the
 * connection.  Nobody without the key can make a hello.  The answer says whether all
 * that is right.  Each side believes a proof of the other only if it covers a nonce of
 * this side. */
#ifndef BERTH_LIB_NET_KEY_H
#define BERTH_LIB_NET_KEY_H

#include <stdbool.h>
#include <stdint.h>

#include "lib/net/net_mac.h"

/* Each of these proofs, and each key that follows from them, covers a label of its own
 * first.  So none can stand for another. */
enum { NET_NONCE_BYTES = 32, NET_PROOF_BYTES = 32 };

/* Integers are in the machine's order: all hosts of a job are little-endian. */
struct net_hello {
	uint32_t magic, from, to, lane; /* ranks of the net */
	uint64_t net;
	uint32_t at; /* the rank whose door this is to be */
	uint32_t epoch, ranks;
	uint32_t secure; /* of enum net_secure; with NET_AEAD, all that this host has */
	uint64_t number; /* higher than in all earlier hellos of this process */
	unsigned char nonce[NET_NONCE_BYTES];
	unsigned char proof[NET_PROOF_BYTES]; /* of all members in front of it */
};

enum net_secure { NET_MAC = 1, NET_AEAD = 2, NET_AES = 4, NET_HEADS = 8 };

/* The verdict of the accepting side on a hello.  NET_LEFT: this side does not have such
 * a net, or no longer has it. */
enum net_verdict {
	NET_WELCOME,
	NET_OTHER_EPOCH,
	NET_OTHER_RANKS,
	NET_OTHER_SECURE,
	NET_LEFT
};

struct net_answer {
	uint32_t verdict;
	uint32_t secure; /* the protection from here on */
	unsigned char nonce[NET_NONCE_BYTES];
	unsigned char proof[NET_PROOF_BYTES]; /* of hello's nonce, then all of this */
};

struct net_seal {
	unsigned char proof[NET_PROOF_BYTES]; /* as there, with the nonces exchanged */
};

/* 0, or -1: libsodium can't be initialised. */
int net_key_init(void);
/* Complete H: set its magic, number, nonce and proof.  The caller has set the rest.
 * Any thread. */
void net_hello_make(struct net_hello *h, const unsigned char *key);
bool net_hello_is_good(const struct net_hello *h, const unsigned char *key);
/* Complete A: set its nonce and proof.  The caller has set the rest. */
void net_answer_make(struct net_answer *a, const unsigned char *key,
		     const struct net_hello *h);
bool net_answer_is_good(const struct net_answer *a, const unsigned char *key,
			const struct net_hello *h);
void net_seal_make(struct net_seal *s, const unsigned char *key,
		   const struct net_hello *h, const struct net_answer *a);
bool net_seal_is_good(const struct net_seal *s, const unsigned char *key,
		      const struct net_hello *h, const struct net_answer *a);

/* The uses for which each direction of a connection has a key. */
enum net_use { NET_FOR_MAC, NET_FOR_AEAD };

/* The key of the bytes that go to the accepting side, or, if BACK, come from it. */
void net_way_key(unsigned char way[NET_WAY_KEY_BYTES], const unsigned char *key,
		 const struct net_hello *h, const struct net_answer *a,
		 enum net_use use, bool back);

#endif
