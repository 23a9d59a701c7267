/* net_key.h - who connects proves that it has the job's key: the messages, without the
 * sockets (net.c). */
#ifndef BERTH_LIB_NET_KEY_H
#define BERTH_LIB_NET_KEY_H

#include <stdbool.h>
#include <stdint.h>

enum { NET_NONCE_BYTES = 32, NET_PROOF_BYTES = 32 };

/* Integers are in the machine's order: all hosts of a job are little-endian. */
struct net_hello {
	uint32_t magic, from, to, lane;
	unsigned char nonce[NET_NONCE_BYTES];
	unsigned char proof[NET_PROOF_BYTES]; /* of all that is in front of it */
};

struct net_answer {
	unsigned char nonce[NET_NONCE_BYTES];
	unsigned char proof[NET_PROOF_BYTES]; /* of hello's nonce, then this */
};

struct net_seal {
	unsigned char proof[NET_PROOF_BYTES]; /* of answer's nonce, then hello's */
};

/* 0, or -1: libsodium can't be initialised. */
int net_key_init(void);
void net_hello_make(struct net_hello *h, const unsigned char *key, uint32_t from,
		    uint32_t to, uint32_t lane);
bool net_hello_is_good(const struct net_hello *h, const unsigned char *key);
void net_answer_make(struct net_answer *a, const unsigned char *key,
		     const struct net_hello *h);
bool net_answer_is_good(const struct net_answer *a, const unsigned char *key,
			const struct net_hello *h);
void net_seal_make(struct net_seal *s, const unsigned char *key,
		   const struct net_hello *h, const struct net_answer *a);
bool net_seal_is_good(const struct net_seal *s, const unsigned char *key,
		      const struct net_hello *h, const struct net_answer *a);

#endif
