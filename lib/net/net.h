/* net.h - messages between ranks over TCP.
 *
 * A connection between two ranks is made when first needed, by the lower rank.  The
 * upper one has a door for all its nets (net_door.h), which accepts it at once.  Each
 * side proves that it has the job's key before anything else that it says is read
 * (net_key.h):
 *   lower   HELLO = magic, both ranks, lane, net, epoch, number of ranks, its own
 *           number, nonce, then the keyed hash of all that
 *   upper   a verdict, its nonce, then the keyed hash of that and both nonces
 *   lower   the same with the nonces in the other order
 * (libsodium's generichash, BLAKE2b.)  Each direction has keys from there on.
 *
 * Messages are a head of 64 bytes, data, and their tail of 8 bytes.  The head has a
 * MAC, and the tail is that of the data (net_mac.h); with NET_GUARD_AEAD all bytes are
 * encrypted, and there is no tail (net_box.h).  A wrong one ends the connection:
 * BERTH_AUTH, and net_fault().  An exchange returns BERTH_OK only after the tail of
 * each message was good: until then, data that have come may be anybody's.  A receiver
 * knows what has to come: a head that says anything else, or more data than there is
 * room for, ends the connection as well.
 *
 * Sockets do not block: an exchange spins, then sleeps in poll(); where others want the
 * core (a spinning wait is interrupted) it sleeps at once.  Of 4 hosts on 2 cores 8
 * bytes take 35 us so, 2 ms if all spin.
 *
 * Congestion control that paces (bbr) is replaced on connections of less than 1 ms,
 * where it takes 3 times as long for 2 MiB between 4 hosts. */
#ifndef BERTH_LIB_NET_H
#define BERTH_LIB_NET_H

#include <stdbool.h>

#include "lib/berth.h"
#include "lib/net/net_channel.h"

struct net;
struct net_door;

enum {
	NET_KEY_BYTES = 32,
	NET_ADDRESS_BYTES = 512,
	NET_LANES = 4,    /* connections between two ranks, at most */
	NET_MESSAGES = 32 /* that an exchange sends at most, and receives at most */
};

struct net_door_config {
	unsigned rank, size;      /* of all that there are */
	const unsigned char *key; /* NET_KEY_BYTES, the same on all ranks */
	/* "10.0.0.0/8,fd00::/8": only interfaces with an address in one of them;
	 * NULL: all that are up, loopback only if there is no other */
	const char *range;
	/* "eth0,eth1": where RANGE is NULL, these alone; NULL: as there */
	const char *interfaces;
};

/* NULL, with WHY: out of memory, no such interface, a system call. */
struct net_door *net_door_open(const struct net_door_config *config, char *why,
			       size_t why_bytes);
/* When all its nets are closed. */
void net_door_close(struct net_door *d);
/* Where this process can be reached: text of less than NET_ADDRESS_BYTES for the
 * others' net_door_peer(). */
const char *net_door_address(const struct net_door *d);
/* BERTH_INVALID: no such text. */
berth_result net_door_peer(struct net_door *d, unsigned rank, const char *address);

/* How what goes over connections is guarded. */
enum net_guard {
	NET_GUARD_MAC,  /* heads and data have MACs */
	NET_GUARD_AEAD, /* all is encrypted and authenticated */
	NET_GUARD_HEADS /* heads, and data up to NET_SMALL_BYTES, have MACs */
};

struct net_config {
	unsigned rank, size;
	uint32_t epoch;       /* of the world; the same on all ranks */
	enum net_guard guard; /* the same on all ranks */
	/* NULL: the net has one of its own, by KEY, RANGE and INTERFACES */
	struct net_door *door;
	/* Not NULL: each rank's number at the door; stays the caller's */
	const unsigned *ranks;
	/* The same on all ranks, and no other net's of these processes.  No rank begins
	 * a connection before all have opened the net: one who has not is taken to have
	 * left it. */
	uint64_t id;
	const unsigned char *key; /* as net_door_config */
	const char *range, *interfaces;
	unsigned spins; /* looks before it sleeps */
	/* What an exchange with a rank that has gone by itself, or listens no more,
	 * returns: BERTH_ABORTED, or BERTH_PEER_LOST for anything else. */
	berth_result leaver;
};

/* NULL, with WHY: out of memory, no such interface, a system call. */
struct net *net_open(const struct net_config *config, char *why, size_t why_bytes);
/* Tells peers first that this rank goes. */
void net_close(struct net *n);

/* As net_door_address() and net_door_peer(), of the net's door. */
const char *net_address(const struct net *n);
berth_result net_peer(struct net *n, unsigned rank, const char *address);

/* TEND is called by the door's thread about once a second, and may call net_tidy().
 * NULL: not any more; it does not run then. */
void net_tend(struct net *n, void (*tend)(void *ctx), void *ctx);
/* While no exchange is in progress, and none begins: connections that have not been
 * used for a while are closed.  The next exchange makes new ones. */
void net_tidy(struct net *n);

/* What a message is about; sent as it is, and expected so. */
struct net_tag {
	uint32_t group, seq, step;
};

/* What it says beside its data. */
struct net_note {
	uint32_t word[4];
};

struct net_send {
	unsigned peer, lane;
	struct net_tag tag;
	struct net_note note;
	const void *data;
	size_t bytes;
	/* internal */
	size_t sent;    /* of head, data and tail */
	size_t hashed;  /* of the data; what goes has been hashed */
	size_t tailing; /* bytes of the tail */
	uint64_t tail;  /* when all data are hashed */
	bool failed;    /* the last word of the peer has been read */
	struct net_mark mark;
};

struct net_receive {
	unsigned peer, lane;
	struct net_tag tag;
	struct net_note note; /* what came */
	void *data;           /* room for BYTES, which are what has to come */
	size_t bytes;
	/* Not NULL: called when the head has come, with what it says in NOTE and how
	 * much follows; may set all above but peer and tag, or DROP, so that
	 * anything may follow and is thrown away, until the deadline.  What it returns,
	 * if not BERTH_OK, ends the exchange.  NULL: NOTE has to come. */
	berth_result (*begin)(void *ctx, struct net_receive *in, uint64_t bytes);
	bool drop;
	/* Not NULL: called with each piece as it comes, before its tail was seen, a
	 * multiple of UNIT bytes, at OFFSET; DATA is not written then. */
	void (*take)(void *ctx, size_t offset, const void *piece, size_t bytes);
	void *ctx;
	size_t unit;
	/* Not NULL: nothing is taken in front of what this has sent, so that its data
	 * may be overwritten. */
	const struct net_send *behind;
	/* internal */
	size_t got, held;
	unsigned char part[16];
	bool has_head;
	bool is_small;  /* the data are taken when all of them have come */
	bool is_proved; /* the data, by their tail */
	size_t tailing; /* bytes of the tail that have not been taken */
	struct net_mark mark;
};

/* Send OUT and receive IN at the same time, NOUT and NIN of them, all on different
 * connections.  BERTH_PEER_LOST: *LOST is who.  BERTH_MISMATCH: a head that was not
 * expected, from *LOST.  BERTH_TIMEOUT: also where it was a peer's time that was over.
 * BERTH_ABORTED: *LOST has left, or has broken the net for this reason; this rank: its
 * watcher has said so.
 * BERTH_AUTH: net_fault().
 * DEADLINE_NS: of CLOCK_MONOTONIC, 0: none. */
berth_result net_exchange(struct net *n, struct net_send *out, size_t nout,
			  struct net_receive *in, size_t nin, uint64_t deadline_ns,
			  unsigned *lost);

/* The sockets on which peers may say something, size * NET_LANES at most: into P, how
 * many.  Between two exchanges: a peer has begun one. */
struct pollfd;
size_t net_sockets(struct net *n, struct pollfd *p);

/* LOOK is called now and then while an exchange waits; anything but BERTH_OK ends it.
 * It may call net_break() to say which rank is gone.
 * DONE: how many operations, of one exchange or several, this rank is done with; or
 * NULL.  A peer that gives up says how many it is done with.  If those are more, it has
 * done its part of the operation that is in progress here, which goes on. */
void net_watch(struct net *n, berth_result (*look)(void *ctx),
	       const _Atomic uint32_t *done, void *ctx);
/* For LOOK: the peer that the exchange waits for. */
unsigned net_waits_for(const struct net *n);

/* After BERTH_PEER_LOST: who is gone, as somebody said; not below the number of ranks:
 * not known. */
unsigned net_lost(const struct net *n);
/* After BERTH_PEER_LOST: that peer could not be connected to, and nobody knows that it
 * is gone; "can't be reached at 10.0.0.2: Connection refused".  Else NULL. */
const char *net_unreached(const struct net *n);

/* What is wrong with the connection between BY and PEER.  BY, perhaps not this rank,
 * has seen that. */
struct net_fault {
	enum {
		NET_FORGED = 1, /* it carried something that PEER did not say */
		NET_STRANGER,   /* who is at the other end does not have the key */
		NET_UNLIKE,     /* PEER has the key, and TEXT of it is not as BY's */
		NET_CUT         /* it ended, and nobody knows that PEER is gone */
	} kind;
	unsigned by, peer;
	/* Of the other end, where one end is this rank's; else "". */
	char address[NET_TEXT_BYTES];
	char text[96];
};
/* After BERTH_AUTH, or BERTH_PEER_LOST (NET_CUT).  NULL: nothing is known. */
const struct net_fault *net_fault(const struct net *n);

/* Tell all peers that this rank gives up because of rank LOST, and close.  For them
 * net_exchange() returns WHY: BERTH_TIMEOUT, BERTH_ABORTED, BERTH_AUTH, or for anything
 * else BERTH_PEER_LOST. */
void net_break(struct net *n, unsigned lost, berth_result why);

/* ---- for who reads and writes connections, and does not block (p2p.h) ---- */

/* In place of exchanges: each of two ranks may begin a connection, the lower one that
 * of lane 0, the upper one that of lane 1.  BERTH_MEMORY. */
berth_result net_open_both(struct net *n);
/* Begin a connection to PEER, or go on with it.  BERTH_BUSY: it is not made yet.
 * BERTH_PEER_LOST: refused twice at all addresses.  BERTH_AUTH, BERTH_MEMORY,
 * BERTH_SYSTEM. */
berth_result net_begin(struct net *n, unsigned peer);
/* What has been begun is not needed: the peer has begun one. */
void net_begin_not(struct net *n, unsigned peer);
/* Take the connections that have come.  Did one? */
bool net_serve(struct net *n);
/* Have some come that net_serve() has not taken? */
bool net_has_come(const struct net *n);
/* WAKE is called by the door's thread when one comes, and calls nothing of net.h.
 * NULL: nothing is. */
void net_wake(struct net *n, void (*wake)(void *ctx), void *ctx);
/* The socket of a connection that is made, which does not block; -1: there is none. */
int net_socket(const struct net *n, unsigned peer, unsigned lane);
/* The connection itself. */
struct net_channel *net_channel(struct net *n, unsigned peer, unsigned lane);
/* It has carried something that PEER did not say: net_fault(). */
void net_is_forged(struct net *n, unsigned peer, unsigned lane);
/* What net_begin() waits for, 1 a peer at most. */
size_t net_polls(const struct net *n, struct pollfd *p);
/* One who waits has looked at LOOKED_NS, and NOW: may it look again at once, or do
 * others want this core?  One thread at a time. */
bool net_may_spin(struct net *n, uint64_t looked_ns, uint64_t now);
/* Close the connections to PEER. */
void net_drop(struct net *n, unsigned peer);
/* The connections to PEER, which PEER closes: a new one of its takes their place. */
void net_end(struct net *n, unsigned peer);
/* Has it done so? */
bool net_is_renewed(const struct net *n, unsigned peer);

#endif
