/* net.h - messages between ranks over TCP.
 *
 * A connection between two ranks is made when first needed, by the lower rank.  The
 * upper rank has a door for all its nets (net_door.h), which accepts it at once.  Each
 * side proves that it has the job's key before the other side reads anything else of it
 * (net_key.h):
 *   lower   HELLO = magic, both ranks, lane, net, epoch, number of ranks, its own
 *           number, nonce, then the keyed hash of all that
 *   upper   a verdict, its nonce, then the keyed hash of that and both nonces
 *   lower   a seal: the same hash with the nonces in the other order
 * The hash is libsodium's generichash (BLAKE2b).  From there on each direction has
 * keys.
 *
 * A message is a head of 64 bytes, its data, and a tail of 8 bytes.  The head has a
 * MAC, and the tail is the MAC of the data (net_mac.h).  With NET_GUARD_AEAD all bytes
 * are encrypted, and there is no tail (net_box.h).  A wrong MAC ends the connection:
 * BERTH_AUTH, and net_fault().  An exchange returns BERTH_OK only after the tail of
 * each message was good.  Until then, data that have come may be anybody's.  A receiver
 * knows the message that has to come.  Any other head, or more data than there is room
 * for, ends the connection as well.
 *
 * Sockets do not block.  An exchange spins, then sleeps in poll().  If others want the
 * core, a spinning wait is interrupted, and the exchange sleeps at once (8 bytes
 * between 4 hosts on 2 cores: 35 us; 2 ms if all spin).
 *
 * A congestion control that paces (bbr) is replaced on connections of less than 1 ms
 * (there 2 MiB between 4 hosts take 3 times as long with it). */
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
	unsigned rank, size;      /* of this process, and of all */
	const unsigned char *key; /* NET_KEY_BYTES, the same on all ranks */
	/* "10.0.0.0/8,fd00::/8": only interfaces with an address in one of them;
	 * NULL: all that are up, loopback only if there is no other */
	const char *range;
	/* "eth0,eth1": if RANGE is NULL, only these; NULL: as with RANGE */
	const char *interfaces;
};

/* NULL, with WHY: out of memory, no such interface, a system call. */
struct net_door *net_door_open(const struct net_door_config *config, char *why,
			       size_t why_bytes);
/* Call it when all nets of D are closed. */
void net_door_close(struct net_door *d);
/* The addresses of this process, as text of less than NET_ADDRESS_BYTES for the
 * net_door_peer() of the others. */
const char *net_door_address(const struct net_door *d);
/* ADDRESS is such a text of RANK.  BERTH_INVALID: it is not, or there is no such
 * rank. */
berth_result net_door_peer(struct net_door *d, unsigned rank, const char *address);

/* The protection of the bytes that go over connections. */
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
	/* All ranks use this number for the net, and for no other net of these
	 * processes.  No rank begins a connection before all ranks have opened the net.
	 * A rank that has not opened it counts as one that has left. */
	uint64_t id;
	const unsigned char *key; /* as net_door_config */
	const char *range, *interfaces;
	unsigned spins; /* looks before it sleeps */
	/* The result of an exchange with a rank that has left by itself, or no longer
	 * listens: BERTH_ABORTED, or BERTH_PEER_LOST for anything else. */
	berth_result leaver;
};

/* NULL, with WHY: out of memory, no such interface, a system call. */
struct net *net_open(const struct net_config *config, char *why, size_t why_bytes);
/* Tells the peers first that this rank leaves. */
void net_close(struct net *n);

/* As net_door_address() and net_door_peer(), of the net's door. */
const char *net_address(const struct net *n);
berth_result net_peer(struct net *n, unsigned rank, const char *address);

/* The door's thread calls TEND about once a second.  TEND may call net_tidy().  NULL:
 * it is no longer called, and does not run after this. */
void net_tend(struct net *n, void (*tend)(void *ctx), void *ctx);
/* Close the connections that have not been used for a while.  No exchange may be in
 * progress or begin meanwhile.  The next exchange makes new connections. */
void net_tidy(struct net *n);

/* The identity of a message.  The receiver expects the tag that was sent. */
struct net_tag {
	uint32_t group, seq, step;
};

/* The words that a message carries beside its data. */
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
	size_t hashed;  /* of the data; no data go before they are hashed */
	size_t tailing; /* bytes of the tail */
	uint64_t tail;  /* when all data are hashed */
	bool failed;    /* the last word of the peer has been read */
	struct net_mark mark;
};

struct net_receive {
	unsigned peer, lane;
	struct net_tag tag;
	struct net_note note; /* the one that came */
	void *data;           /* room for BYTES, the size that has to come */
	size_t bytes;
	/* Not NULL: called when the head has come, with its note in NOTE, and with the
	 * BYTES that follow.  It may set all members above but peer and tag.  It may
	 * set DROP: then any data may follow, and are thrown away until the deadline.
	 * Any result but BERTH_OK ends the exchange.  NULL: NOTE has to come. */
	berth_result (*begin)(void *ctx, struct net_receive *in, uint64_t bytes);
	bool drop;
	/* Not NULL: called with each piece when it comes, before its tail was seen.  A
	 * piece is a multiple of UNIT bytes, at OFFSET of the data.  DATA is not
	 * written then. */
	void (*take)(void *ctx, size_t offset, const void *piece, size_t bytes);
	void *ctx;
	size_t unit;
	/* Not NULL: a byte is received only after BEHIND has sent its byte at the same
	 * place.  So the received data may overwrite those of BEHIND. */
	const struct net_send *behind;
	/* internal */
	size_t got, held;
	unsigned char part[16];
	bool has_head;
	bool is_small;  /* the data are taken when all of them have come */
	bool is_proved; /* the data are the peer's, or have no tail */
	size_t tailing; /* bytes of the tail that have not been taken */
	struct net_mark mark;
};

/* Send OUT and receive IN at the same time, NOUT and NIN of them, all on different
 * connections.
 * BERTH_PEER_LOST: *LOST is the rank that is lost.  BERTH_MISMATCH: *LOST has sent a
 * head that was not expected.  BERTH_TIMEOUT: the deadline of this rank, or of a peer,
 * has passed.  BERTH_ABORTED: *LOST has left, or has broken the net for this reason.
 * If *LOST is this rank, its watcher has said so.  BERTH_AUTH: see net_fault().
 * DEADLINE_NS is of CLOCK_MONOTONIC; 0: there is no deadline. */
berth_result net_exchange(struct net *n, struct net_send *out, size_t nout,
			  struct net_receive *in, size_t nin, uint64_t deadline_ns,
			  unsigned *lost);

/* Put the sockets on which peers may say something into P, size * NET_LANES at most.
 * Returns how many.  If one is readable between two exchanges, a peer has begun one. */
struct pollfd;
size_t net_sockets(struct net *n, struct pollfd *p);

/* LOOK is called now and then while an exchange waits.  Any result but BERTH_OK ends
 * the exchange.  LOOK may call net_break() to say which rank is gone.
 * DONE: the number of operations that this rank has finished, or NULL.  An operation
 * takes one exchange or several.  A peer that gives up says how many it has finished.
 * If the peer has finished more operations than this rank, the current operation
 * continues. */
void net_watch(struct net *n, berth_result (*look)(void *ctx),
	       const _Atomic uint32_t *done, void *ctx);
/* For LOOK: the peer that the exchange waits for. */
unsigned net_waits_for(const struct net *n);

/* After BERTH_PEER_LOST: the rank that is gone, as some rank said.  If it is not below
 * the number of ranks, it is not known. */
unsigned net_lost(const struct net *n);
/* After BERTH_PEER_LOST, if that peer could not be reached and nobody knows that it is
 * gone: "can't be reached at 10.0.0.2: Connection refused".  Else NULL. */
const char *net_unreached(const struct net *n);

/* A fault of the connection between BY and PEER.  BY has seen it, and is perhaps not
 * this rank. */
struct net_fault {
	enum {
		NET_FORGED = 1, /* it carried something that PEER did not say */
		NET_STRANGER,   /* the other end does not have the key */
		NET_UNLIKE,     /* PEER has the key, but is not like BY, as TEXT says */
		NET_CUT         /* it ended, and nobody knows that PEER is gone */
	} kind;
	unsigned by, peer;
	/* The address of the other end, if one end is this rank's; else "". */
	char address[NET_TEXT_BYTES];
	char text[96];
};
/* After BERTH_AUTH, or BERTH_PEER_LOST (NET_CUT).  NULL: nothing is known. */
const struct net_fault *net_fault(const struct net *n);

/* Tell all peers that this rank gives up because of rank LOST, and close all
 * connections.  At the peers net_exchange() returns WHY: BERTH_TIMEOUT, BERTH_ABORTED,
 * BERTH_AUTH, or for anything else BERTH_PEER_LOST. */
void net_break(struct net *n, unsigned lost, berth_result why);

/* ---- for a caller that reads and writes connections itself (p2p.h) ---- */

/* For use in place of exchanges; no call blocks.  Each of two ranks may begin a
 * connection: the lower rank that of lane 0, the upper rank that of lane 1.
 * BERTH_MEMORY. */
berth_result net_open_both(struct net *n);
/* Begin a connection to PEER, or go on with it.  BERTH_BUSY: it is not made yet.
 * BERTH_PEER_LOST: refused twice at all addresses.  BERTH_AUTH, BERTH_MEMORY,
 * BERTH_SYSTEM. */
berth_result net_begin(struct net *n, unsigned peer);
/* Drop the connection that this rank has begun.  The peer has begun one. */
void net_begin_not(struct net *n, unsigned peer);
/* Take the connections that have come.  Was one taken? */
bool net_serve(struct net *n);
/* Have connections come that net_serve() has not taken? */
bool net_has_come(const struct net *n);
/* The door's thread calls WAKE when a connection comes.  WAKE must not call functions
 * of net.h.  NULL: nothing is called. */
void net_wake(struct net *n, void (*wake)(void *ctx), void *ctx);
/* The socket of a connection that is made.  It does not block.  -1: there is no such
 * connection. */
int net_socket(const struct net *n, unsigned peer, unsigned lane);
/* The connection itself. */
struct net_channel *net_channel(struct net *n, unsigned peer, unsigned lane);
/* Note for net_fault(): the connection has carried bytes that PEER did not send. */
void net_is_forged(struct net *n, unsigned peer, unsigned lane);
/* Put the sockets for which net_begin() waits into P, one a peer at most.  Returns how
 * many. */
size_t net_polls(const struct net *n, struct pollfd *p);
/* A waiting thread has looked at LOOKED_NS and at NOW.  May it look again at once, or
 * do others want this core?  One thread at a time. */
bool net_may_spin(struct net *n, uint64_t looked_ns, uint64_t now);
/* Close the connections to PEER. */
void net_drop(struct net *n, unsigned peer);

#endif
