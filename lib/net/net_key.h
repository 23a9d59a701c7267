/* net_key.h - who connects proves that it has the job's key: the messages, without the
 * sockets (net.c). */
#ifndef BERTH_LIB_NET_KEY_H
#define BERTH_LIB_NET_KEY_H

#include <stdbool.h>
#include <stdint.h>

enum { NET_NONCE_BYTES = 32, NET_PROOF_BYTES = 32 };

/* Integers are in the machine's order: all hosts of a job are little-endian. */
struct net_hello {
	uint32_t magic, from, to, lane; /* ranks of the net */
	uint64_t net;
	uint32_t at; /* the rank whose door this is to be */
	uint32_t unused;
	unsigned char nonce[NET_NONCE_BYTES];
	unsigned char proof[NET_PROOF_BYTES]; /* of all that is in front of it */
};

/* What the side that is connected to says of a hello. */
enum net_verdict { NET_WELCOME, NET_LEFT };

struct net_answer {
	uint32_t verdict, unused;
	unsigned char nonce[NET_NONCE_BYTES];
	unsigned char proof[NET_PROOF_BYTES]; /* of hello's nonce, then all of this */
};

struct net_seal {
	unsigned char proof[NET_PROOF_BYTES]; /* of answer's nonce, then hello's */
};

/* 0, or -1: libsodium can't be initialised. */
int net_key_init(void);
/* H, of which all in front of the nonce but the magic is there, is made whole. */
void net_hello_make(struct net_hello *h, const unsigned char *key);
bool net_hello_is_good(const struct net_hello *h, const unsigned char *key);
/* The same with A. */
void net_answer_make(struct net_answer *a, const unsigned char *key,
		     const struct net_hello *h);
bool net_answer_is_good(const struct net_answer *a, const unsigned char *key,
			const struct net_hello *h);
void net_seal_make(struct net_seal *s, const unsigned char *key,
		   const struct net_hello *h, const struct net_answer *a);
bool net_seal_is_good(const struct net_seal *s, const unsigned char *key,
		      const struct net_hello *h, const struct net_answer *a);

#endif
