#include "lib/net/net_key.h"

#include <sodium.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>

#include "lib/base/clock.h"

enum { MAGIC = 0x33485442 };

/* It stands in front of the bytes that are hashed, with all its zeros. */
typedef char label[16];
static const label of_hello = "berth, hello", of_answer = "berth, answer",
		   of_seal = "berth, seal";

int net_key_init(void)
{
	return sodium_init() < 0 ? -1 : 0;
}

static void key_prove(unsigned char *proof, const unsigned char *key, const label what,
		      const void *data, size_t bytes)
{
	crypto_generichash_state state;

	crypto_generichash_init(&state, key, NET_PROOF_BYTES, NET_PROOF_BYTES);
	crypto_generichash_update(&state, (const unsigned char *)what, sizeof(label));
	crypto_generichash_update(&state, data, bytes);
	crypto_generichash_final(&state, proof, NET_PROOF_BYTES);
}

static bool is_proof(const unsigned char *proof, const unsigned char *key,
		     const label what, const void *data, size_t bytes)
{
	unsigned char want[NET_PROOF_BYTES];

	key_prove(want, key, what, data, bytes);
	return !sodium_memcmp(want, proof, sizeof want);
}

/* Numbers begin at the time of day.  So a later process of a job with the same key is
 * ahead of all hellos that were recorded of this one. */
void net_hello_make(struct net_hello *h, const unsigned char *key)
{
	static _Atomic uint64_t last;
	const uint64_t now = clock_read(CLOCK_REALTIME);
	uint64_t was = atomic_load(&last);

	h->magic = MAGIC;
	do
		h->number = was < now ? now : was + 1;
	while (!atomic_compare_exchange_weak(&last, &was, h->number));
	randombytes_buf(h->nonce, sizeof h->nonce);
	key_prove(h->proof, key, of_hello, h, offsetof(struct net_hello, proof));
}

bool net_hello_is_good(const struct net_hello *h, const unsigned char *key)
{
	return is_proof(h->proof, key, of_hello, h,
			offsetof(struct net_hello, proof)) &&
	       h->magic == MAGIC;
}

/* Both nonces.  Their order says which side proves something. */
struct pair {
	unsigned char first[NET_NONCE_BYTES], second[NET_NONCE_BYTES];
	uint32_t verdict, secure;
};

static struct pair key_pair(const unsigned char *first, const unsigned char *second,
			    const struct net_answer *a)
{
	struct pair p = { .verdict = a->verdict, .secure = a->secure };

	memcpy(p.first, first, sizeof p.first);
	memcpy(p.second, second, sizeof p.second);
	return p;
}

void net_answer_make(struct net_answer *a, const unsigned char *key,
		     const struct net_hello *h)
{
	struct pair p;

	randombytes_buf(a->nonce, sizeof a->nonce);
	p = key_pair(h->nonce, a->nonce, a);
	key_prove(a->proof, key, of_answer, &p, sizeof p);
}

bool net_answer_is_good(const struct net_answer *a, const unsigned char *key,
			const struct net_hello *h)
{
	struct pair p = key_pair(h->nonce, a->nonce, a);

	return is_proof(a->proof, key, of_answer, &p, sizeof p);
}

void net_seal_make(struct net_seal *s, const unsigned char *key,
		   const struct net_hello *h, const struct net_answer *a)
{
	struct pair p = key_pair(a->nonce, h->nonce, a);

	key_prove(s->proof, key, of_seal, &p, sizeof p);
}

bool net_seal_is_good(const struct net_seal *s, const unsigned char *key,
		      const struct net_hello *h, const struct net_answer *a)
{
	struct pair p = key_pair(a->nonce, h->nonce, a);

	return is_proof(s->proof, key, of_seal, &p, sizeof p);
}

void net_way_key(unsigned char way[NET_WAY_KEY_BYTES], const unsigned char *key,
		 const struct net_hello *h, const struct net_answer *a,
		 enum net_use use, bool back)
{
	struct {
		label label;
		struct pair pair;
		uint64_t net;
		uint32_t from, to, lane, at, epoch, ranks, use, back;
	} of = { .label = "berth, one way",
		 .pair = key_pair(h->nonce, a->nonce, a),
		 .net = h->net,
		 .from = h->from,
		 .to = h->to,
		 .lane = h->lane,
		 .at = h->at,
		 .epoch = h->epoch,
		 .ranks = h->ranks,
		 .use = use,
		 .back = back };

	crypto_generichash(way, NET_WAY_KEY_BYTES, (const unsigned char *)&of,
			   sizeof of, key, NET_PROOF_BYTES);
}
