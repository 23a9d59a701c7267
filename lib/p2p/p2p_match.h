/* p2p_match.h - receives that wait for their message, and messages that wait for their
 * receive: the first that match in the order of posting.
 *
 * Both lie in buckets by tag. */
#ifndef BERTH_LIB_P2P_MATCH_H
#define BERTH_LIB_P2P_MATCH_H

#include <stddef.h>

#include "lib/p2p/p2p.h"

enum { P2P_BUCKETS = 1024 };

struct p2p_list {
	struct p2p_message *first, *last;
};

void p2p_list_add(struct p2p_list *l, struct p2p_message *m);
/* Remove M from its list, if it is in a list. */
void p2p_list_remove(struct p2p_message *m);

/* A message that matches nothing yet. */
struct p2p_entry {
	struct p2p_entry *next, *prev;
	unsigned from;
	uint32_t id, signature;
	uint64_t tag, bytes;
	struct p2p_message *self; /* this rank sends it to itself, from where it lies */
	bool has_data;
	bool is_asked; /* it has matched a receive, for which memory is asked */
	bool is_over;  /* its sender has ended it meanwhile */
	unsigned char data[];
};

struct p2p_entries {
	struct p2p_entry *first, *last;
};

struct p2p_match {
	struct p2p_list receives[P2P_BUCKETS];
	struct p2p_entries entries[P2P_BUCKETS];
};

unsigned p2p_bucket(uint64_t tag);

void p2p_match_add(struct p2p_match *t, struct p2p_message *receive);
/* The first receive of a message from FROM with TAG, or NULL.  It stays. */
struct p2p_message *p2p_match_receive(const struct p2p_match *t, unsigned from,
				      uint64_t tag);

/* Add an entry with room for DATA_BYTES; NULL: out of memory. */
struct p2p_entry *p2p_match_keep(struct p2p_match *t, unsigned from, uint64_t tag,
				 size_t data_bytes);
/* The first message for a receive of PEER, or P2P_ANY, and TAG, or NULL.  It stays. */
struct p2p_entry *p2p_match_entry(const struct p2p_match *t, int peer, uint64_t tag);
void p2p_match_drop(struct p2p_match *t, struct p2p_entry *e);
void p2p_match_free(struct p2p_match *t);

#endif
