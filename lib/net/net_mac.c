#include "lib/net/net_mac.h"

#include <sodium.h>
#include <string.h>

_Static_assert(crypto_shorthash_siphash24_KEYBYTES == 16, "of net_mac");
_Static_assert(crypto_shorthash_siphash24_BYTES == NET_TAIL_BYTES, "of a MAC");
_Static_assert(NET_WAY_KEY_BYTES == 16 + 16 + randombytes_SEEDBYTES, "of one way");

enum { LABEL_DATA = 0x61746164 }; /* heads begin with labels of their own */

void net_mac_begin(struct net_mac *m, const unsigned char key[NET_WAY_KEY_BYTES],
		   uint64_t set, uint64_t covered)
{
	m->number = 0;
	m->set = set;
	m->covered = covered;
	memcpy(m->head_key, key, sizeof m->head_key);
	memcpy(m->data_key, key + 16, sizeof m->data_key);
	randombytes_buf_deterministic(&m->key, sizeof m->key, key + 32);
}

static uint64_t mac_siphash(const unsigned char key[16], const void *data, size_t bytes)
{
	uint64_t mac;

	crypto_shorthash_siphash24((unsigned char *)&mac, data, bytes, key);
	return mac;
}

static uint64_t head_mac(const struct net_mac *m, const void *head, uint64_t number)
{
	struct {
		unsigned char head[NET_HEAD_BYTES];
		uint64_t set, number;
	} all = { .set = m->set, .number = number };

	memcpy(all.head, head, sizeof all.head);
	return mac_siphash(m->head_key, &all, sizeof all);
}

struct net_mark net_mark(const struct net_mac *m, const void *head)
{
	return (struct net_mark){ .set = m->set,
				  .number = m->number,
				  .mac = head_mac(m, head, m->number) };
}

bool net_mark_is_good(const struct net_mac *m, const struct net_mark *k,
		      const void *head, bool later)
{
	return (later ? k->number >= m->number : k->number == m->number) &&
	       k->set == m->set && k->mac == head_mac(m, head, k->number);
}

/* The bytes that the MAC of data covers. */
struct covered {
	uint64_t label, set, number, bytes;
	unsigned char hash[NET_HASH_BYTES];
};

uint64_t net_tail(const struct net_mac *m, uint64_t number, const void *data,
		  uint64_t bytes)
{
	struct covered all = { LABEL_DATA, m->set, number, bytes, { 0 } };

	net_hash_once(&m->key, data, bytes, all.hash);
	return mac_siphash(m->data_key, &all, sizeof all);
}

uint64_t net_tail_end(struct net_mac *m, uint64_t number, uint64_t bytes)
{
	struct covered all = { LABEL_DATA, m->set, number, bytes, { 0 } };

	net_hash_end(&m->hash, &m->key, all.hash);
	return mac_siphash(m->data_key, &all, sizeof all);
}
