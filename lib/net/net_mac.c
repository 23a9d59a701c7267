#include "lib/net/net_mac.h"

#include <sodium.h>
#include <string.h>

_Static_assert(crypto_shorthash_siphash24_KEYBYTES == 16, "of net_mac");
_Static_assert(crypto_shorthash_siphash24_BYTES == sizeof(uint64_t), "of a mark");
_Static_assert(NET_WAY_KEY_BYTES == 16 + 16 + randombytes_SEEDBYTES, "of one way");

void net_mac_begin(struct net_mac *m, const unsigned char key[NET_WAY_KEY_BYTES])
{
	m->number = 0;
	memcpy(m->head_key, key, sizeof m->head_key);
	memcpy(m->data_key, key + 16, sizeof m->data_key);
	randombytes_buf_deterministic(m->words, sizeof m->words, key + 32);
}

static uint64_t siphash(const unsigned char key[16], const void *data, size_t bytes)
{
	uint64_t mac;

	crypto_shorthash_siphash24((unsigned char *)&mac, data, bytes, key);
	return mac;
}

static uint64_t head_mac(const struct net_mac *m, const void *head, uint64_t number)
{
	unsigned char all[NET_HEAD_BYTES + sizeof number];

	memcpy(all, head, NET_HEAD_BYTES);
	memcpy(all + NET_HEAD_BYTES, &number, sizeof number);
	return siphash(m->head_key, all, sizeof all);
}

static unsigned __int128 nh(const uint64_t *key, const unsigned char *data,
			    size_t bytes)
{
	unsigned __int128 sum = 0;
	uint64_t w[2];

	for (; bytes >= sizeof w; bytes -= sizeof w, data += sizeof w, key += 2) {
		memcpy(w, data, sizeof w);
		sum += (unsigned __int128)(w[0] + key[0]) * (w[1] + key[1]);
	}
	if (bytes) {
		w[0] = w[1] = 0;
		memcpy(w, data, bytes);
		sum += (unsigned __int128)(w[0] + key[0]) * (w[1] + key[1]);
	}
	return sum;
}

static uint64_t data_mac(const struct net_mac *m, const void *data, uint64_t bytes,
			 uint64_t number)
{
	struct {
		unsigned __int128 hash;
		uint64_t number, bytes;
	} all = { nh(m->words, data, bytes), number, bytes };

	return siphash(m->data_key, &all, sizeof all);
}

struct net_mark net_mark(const struct net_mac *m, const void *head, const void *data,
			 uint64_t bytes)
{
	return (struct net_mark){ .number = m->number,
				  .head = head_mac(m, head, m->number),
				  .data = net_is_covered(bytes)
						  ? data_mac(m, data, bytes, m->number)
						  : 0 };
}

bool net_mark_is_good(const struct net_mac *m, const struct net_mark *k,
		      const void *head, bool later)
{
	return (later ? k->number >= m->number : k->number == m->number) &&
	       k->head == head_mac(m, head, k->number);
}

bool net_mark_has_data(const struct net_mac *m, const struct net_mark *k,
		       const void *data, uint64_t bytes)
{
	return k->data == data_mac(m, data, bytes, k->number);
}
