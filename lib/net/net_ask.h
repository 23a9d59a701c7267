/* net_ask.h - a question at the door of a peer whose connection does not come, or has
 * ended without a word: has the peer left the net, or is it gone?
 *
 * A peer that gives up says so on its connections before it closes them.  It cannot say
 * so in the middle of a message.  And a close resets a connection on which something is
 * unread or still comes: if the network then loses the word, nobody sends it again. */
#ifndef BERTH_LIB_NET_ASK_H
#define BERTH_LIB_NET_ASK_H

#include "lib/net/net_state.h"

struct net_ask {
	int fd;           /* -1: no question is on its way */
	uint64_t next_ns; /* no question begins before */
	size_t refused;   /* addresses in a row that refused */
	bool said;        /* HELLO has been sent */
	bool left;        /* the peer says that it has left the net */
	size_t got;       /* of ANSWER */
	struct net_hello hello;
	struct net_answer answer;
};

/* Go on with the question K, without a wait.  TRUE: PEER has left the net, or nobody
 * listens at any of its addresses. */
bool net_ask_left(struct net *n, unsigned peer, struct net_ask *k);
void net_ask_end(struct net_ask *k);

#endif
