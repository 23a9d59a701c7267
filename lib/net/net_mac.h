/* net_mac.h - MACs of what goes over a connection in one direction: of each head, and
 * of data up to NET_COVERED_BYTES.  No socket is known here.
 *
 * Each head has a number, which it says and which its MAC covers.  The receiver takes
 * only the next one, so a head that was changed, left out, said before or moved is not
 * taken.  The data have a MAC of their own, with the same number, so that a head can be
 * believed before they have come.
 *
 * A MAC is libsodium's SipHash-2-4, of 8 bytes.  Data are hashed first, by NH (RFC
 * 4418, with words of 64 bits): two texts of the same size have the same hash with a
 * chance of 2^-64, and nobody sees it.  (1 KiB: 40 ns; by SipHash 380, by BLAKE2b
 * 1100.) */
#ifndef BERTH_LIB_NET_MAC_H
#define BERTH_LIB_NET_MAC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	NET_COVERED_BYTES = 1024, /* data of this size, or less, have a MAC */
	NET_WAY_KEY_BYTES = 64,
	NET_HEAD_BYTES = 40 /* of what a mark stands behind */
};

/* What stands behind each head. */
struct net_mark {
	uint64_t number;
	uint64_t head; /* MAC of the head and the number */
	uint64_t data; /* MAC of the data and the number; 0: they are not covered */
};

/* One direction of a connection. */
struct net_mac {
	uint64_t number; /* of the next head */
	unsigned char head_key[16], data_key[16];
	uint64_t words[NET_COVERED_BYTES / 8];
};

static inline bool net_is_covered(uint64_t bytes)
{
	return bytes > 0 && bytes <= NET_COVERED_BYTES;
}

void net_mac_begin(struct net_mac *m, const unsigned char key[NET_WAY_KEY_BYTES]);

/* The mark of the next head, NET_HEAD_BYTES, and of BYTES of DATA.  The sender counts
 * it once some of it is on its way: M->number++. */
struct net_mark net_mark(const struct net_mac *m, const void *head, const void *data,
			 uint64_t bytes);
/* Did the peer say HEAD, as the next one?  LATER: or as one of those that follow. */
bool net_mark_is_good(const struct net_mac *m, const struct net_mark *k,
		      const void *head, bool later);
/* Are DATA those of the head that was good with K?  BYTES are covered. */
bool net_mark_has_data(const struct net_mac *m, const struct net_mark *k,
		       const void *data, uint64_t bytes);

#endif
