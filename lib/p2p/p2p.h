/* p2p.h - messages from one rank to another: the base of send and receive.
 *
 * The ranks of a world have one p2p.  The sets of these ranks are its groups.  A
 * receive matches a message of its group by sender and tag, in the order in which
 * messages were posted.  It names a sender, or takes a message of any sender.  The
 * messages of all peers and groups move together, so that the order in which a rank
 * posts them cannot block it.
 *
 * Ranks of one host have a ring for each direction of each pair, in memory that they
 * share (p2p_ring.h).  Ranks of different hosts have a connection (p2p_stream.h).  Both
 * carry the same frames (p2p_frame.h), which name their group:
 *   to P2P_EAGER_BYTES   the data go at once, and wait with the receiver until they
 *                        match; P2P_ROOM_BYTES of one sender in one group at most
 *   above, or no room    only the head of the message goes.  The receiver asks for the
 *                        data when it matches.
 * A receiver keeps P2P_HEADS heads of one sender in one group that match nothing yet.
 * The sender's further messages wait with the sender.  A receive that only they match
 * waits, too, until its deadline.  So a group that receives nothing holds up no other.
 * A message that a peer announced before it was gone keeps its place: the receive that
 * matches it ends with BERTH_PEER_LOST.
 *
 * A rank that leaves a group, or ends it, drops the frames of this group that still
 * come.  It answers the first frames of a message with P2P_LEAVE.
 *
 * A thread makes progress in any of the calls below, one thread at a time.  Other
 * threads return, or sleep if they wait.  The thread that makes progress calls the
 * functions of a message and of a config.  Of these only done() may call functions of
 * p2p.h.
 *
 * A rank believes nothing that a peer says.  A frame that cannot be ends the peer, as
 * if it were lost.  A frame that the peer did not say ends it with BERTH_AUTH. */
#ifndef BERTH_LIB_P2P_H
#define BERTH_LIB_P2P_H

#include <poll.h>
#include <stdbool.h>

#include "lib/base/bell.h"
#include "lib/base/members.h"
#include "lib/berth.h"
#include "lib/net/net.h"

struct p2p;
struct p2p_group;

enum {
	P2P_ANY = -1,
	P2P_EAGER_BYTES = 8 << 10,
	P2P_ROOM_BYTES = 256 << 10,
	P2P_HEADS = 65536,
	P2P_REASON_BYTES = 200,
	P2P_MESSAGES = 65536 /* in flight, of one rank in one group */
};

struct p2p_config {
	const struct members *members; /* all ranks; stays the caller's */
	/* p2p_bytes() of the ranks of this host, which all of them map.  It is zero
	 * before the first one.  NULL: this rank is alone on its host. */
	void *region;
	/* It knows all addresses, and its ranks are the places.  p2p_close() closes it.
	 * NULL: all ranks are on this host. */
	struct net *net;
	/* Asked each 50 ms about peers with messages in flight.  It must not call
	 * p2p. */
	bool (*is_lost)(void *ctx, unsigned rank);
	/* Progress is needed: a connection has come, or this rank listens
	 * (p2p_listen()).  Called in any thread.  It must not call p2p.  NULL: nobody
	 * asks. */
	void (*wake)(void *ctx);
	void *ctx;
	/* For each rank of this host, the bell of its thread that listens.  NULL: none
	 * does. */
	struct bell *threads;
	unsigned cores; /* that the ranks of this host may use */
};

struct p2p_group_config {
	/* Its ranks are places of the p2p's members; stays the caller's. */
	const struct members *members;
	uint32_t number; /* the same on all members, and of no other group */
	/* Asked each 50 ms while messages are in flight: any result but BERTH_OK ends
	 * the group.  It must not call p2p. */
	berth_result (*look)(void *ctx);
	/* Has PLACE, of this host, left the group?  Asked as LOOK is. */
	bool (*has_left)(void *ctx, unsigned place);
	/* PLACE has ended the group, for the reason TEXT, before all messages end with
	 * BERTH_ABORTED.  It must not call p2p. */
	void (*aborted)(void *ctx, unsigned place, const char *text);
	void *ctx;
};

/* It belongs to p2p from p2p_post() until done() is called.  A send ends when the
 * receiver has matched it, and all has been sent. */
struct p2p_message {
	bool sends;
	int peer; /* place; P2P_ANY: a receive from any */
	uint64_t tag;
	/* The signature of the type.  BERTH_MISMATCH on both sides if that of the other
	 * side differs. */
	uint32_t signature;
	const void *in;
	void *out; /* unchanged after BERTH_MISMATCH */
	/* The bytes to send, or the room at OUT.  BERTH_MISMATCH on both sides if more
	 * come. */
	uint64_t bytes;
	/* If OUT is NULL, it is called for memory, without a lock, by a thread that
	 * makes progress, as soon as the size is known, if that is not 0.  BYTES is not
	 * a limit then.  If it returns NULL: BERTH_MEMORY on both sides.  It must not
	 * call p2p. */
	void *(*alloc)(void *ctx, uint64_t bytes);
	void *alloc_ctx;
	uint64_t deadline_ns; /* of CLOCK_MONOTONIC; 0: none; then BERTH_TIMEOUT */
	/* Called once, without a lock, perhaps before p2p_post() returns. */
	void (*done)(struct p2p_message *m);
	void *ctx; /* for DONE */

	berth_result rc;
	unsigned from; /* of a receive: the sender of the message that it matched */
	uint64_t got;  /* the bytes of that message */

	/* internal */
	struct p2p_group *group;
	struct p2p_message *next, *prev;
	struct p2p_list *list;
	struct p2p_entry *entry; /* what it has matched, while ALLOC is called */
	bool has_asked;          /* ALLOC has been called */
	uint64_t moved;
	uint32_t slot;
};

/* For NLOCAL ranks of one host; sparse. */
size_t p2p_bytes(unsigned nlocal);
/* NULL: out of memory, no socket, or no way to a peer; NET remains the caller's. */
struct p2p *p2p_open(const struct p2p_config *config);
/* When all groups are left.  What is still to be said is said, for 1 s at most.  For
 * peers that have messages with this rank, it is lost afterwards. */
void p2p_close(struct p2p *p);

/* NULL: out of memory. */
struct p2p_group *p2p_join(struct p2p *p, const struct p2p_group_config *config);
/* Messages in flight end with BERTH_ABORTED.  For peers that have messages with this
 * rank in G, it is lost afterwards. */
void p2p_leave(struct p2p_group *g);

/* Post N messages, in this order.  BERTH_MEMORY: more than P2P_MESSAGES in flight.
 * BERTH_INVALID: there is no such place, or there are no data.  After p2p_end(): its
 * WHY.  If it fails, none of them has been posted. */
berth_result p2p_post(struct p2p_group *g, struct p2p_message *m, size_t n);
/* Move all that can be moved.  Did anything move? */
bool p2p_progress(struct p2p *p);
/* As p2p_progress(), also if another thread makes progress.  From then on this rank
 * listens: what comes rings the bell of its thread, or wakes it (config), until
 * p2p_listen_no_more().  For a thread that also sleeps for other reasons.  It looks
 * again soon after the first time, since a peer may have missed that it listens. */
bool p2p_listen(struct p2p *p);
void p2p_listen_no_more(struct p2p *p);
/* Has something come from a rank of this host?  For the last look of a thread that
 * listens, when its bell shows that it sleeps. */
bool p2p_has_come(struct p2p *p);
/* Sockets on which something may come, to POLLS.  How many.  POLLS NULL: at most. */
size_t p2p_sockets(struct p2p *p, struct pollfd *polls);
/* When a thread that listens has to look again, after NOW; 0: never. */
uint64_t p2p_next_look(const struct p2p *p, uint64_t now);
/* Make progress until IS_OVER, or until UNTIL_NS (0: no limit), asleep while nothing
 * moves.  IS_OVER is called without a lock. */
void p2p_wait(struct p2p *p, bool (*is_over)(void *ctx), void *ctx, uint64_t until_ns);
/* After BERTH_PEER_LOST or BERTH_AUTH: the fault of the connection to PLACE, if
 * that is known; else NULL.  P2P_ANY: after BERTH_AUTH. */
const struct net_fault *p2p_fault(const struct p2p_group *g, int place);
/* Is there something that only this rank can send, and that does not belong to a
 * message in flight?  Peers may wait for it, so this rank must go on making progress.
 * Any thread. */
bool p2p_owes(const struct p2p *p);
/* Is there a connection, on which a peer may say something at any time? */
bool p2p_is_connected(struct p2p *p);
/* Waiting threads look again.  Any thread. */
void p2p_wake(struct p2p *p);
/* All messages of G in flight end with WHY, and so do all that are posted later. */
void p2p_end(struct p2p_group *g, berth_result why);
/* After p2p_end(): tells all members of other hosts that this rank ends the group, for
 * the reason TEXT, of which P2P_REASON_BYTES count.  p2p_owes() until they are told. */
void p2p_abort(struct p2p_group *g, const char *text);

#endif
