/* p2p.h - messages from one rank of a group to another: what send and receive are made
 * of.
 *
 * A receive matches a message by its sender and its tag, in the order in which messages
 * were posted; it names a sender, or takes a message of any.  The messages of all peers
 * move together, so that the order in which a rank posts them cannot block it.
 *
 * Ranks of one host have a ring for each direction of each pair, in memory that they
 * share (p2p_ring.h).  Ranks of different hosts have a connection (p2p_stream.h).  Both
 * carry the same frames (p2p_internal.h):
 *   to P2P_EAGER_BYTES   the data go at once, and wait with the receiver until they
 *                        match; P2P_ROOM_BYTES of one sender at most
 *   above, or no room    only the head of the message goes.  The receiver asks for the
 *                        data when it matches.
 * A receiver keeps P2P_HEADS heads of one sender that match nothing yet.  A sender has
 * more only if early sends have ended.  Its further messages wait with it, and so does
 * a receive that only they match, until its deadline.  What was announced by a peer
 * that is gone keeps its place: the receive that matches it ends with BERTH_PEER_LOST.
 *
 * A thread makes progress in any of the calls below, one at a time.  Others return, or
 * sleep if they wait.  The functions of a message and of a config are called by that
 * thread.  Only done() may call functions of p2p.h.
 *
 * Nothing that a peer says is believed: what cannot be ends that peer, as if it were
 * lost.  What it did not say at all does so with BERTH_AUTH. */
#ifndef BERTH_LIB_P2P_H
#define BERTH_LIB_P2P_H

#include <stdbool.h>

#include "lib/base/members.h"
#include "lib/berth.h"
#include "lib/net/net.h"

struct p2p;

enum {
	P2P_ANY = -1,
	P2P_EAGER_BYTES = 8 << 10,
	P2P_ROOM_BYTES = 256 << 10,
	P2P_HEADS = 65536,
	P2P_REASON_BYTES = 200,
	P2P_MESSAGES = 65536 /* in flight, of one rank */
};

struct p2p_config {
	const struct members *members; /* stays the caller's; this rank is one */
	/* p2p_bytes() of those here, which all of them map, zero before the first;
	 * NULL: this rank is alone on its host. */
	void *region;
	/* Knows all addresses; its ranks are the places.  p2p_leave() closes it.  NULL:
	 * all ranks are on this host. */
	struct net *net;
	/* Called each 50 ms or so in p2p_wait(), which returns if it says anything but
	 * BERTH_OK.  No lock is held. */
	berth_result (*look)(void *ctx);
	/* Asked each 50 ms about peers with messages in flight.  It must not call
	 * p2p. */
	bool (*is_lost)(void *ctx, unsigned place);
	/* PLACE has ended the group, for the reason TEXT, before all messages end with
	 * BERTH_ABORTED.  It must not call p2p.  NULL: nobody asks. */
	void (*aborted)(void *ctx, unsigned place, const char *text);
	void *ctx;
	unsigned cores; /* that the ranks of this host may use */
};

/* It belongs to p2p from p2p_post() until done() is called. */
struct p2p_message {
	bool sends;
	/* A send that may end as soon as its data are kept elsewhere; then it ends with
	 * BERTH_OK even if they match nothing.  Else a send ends when the receiver has
	 * matched it, and all has been sent. */
	bool early;
	int peer; /* place; P2P_ANY: a receive from any */
	uint64_t tag;
	/* Of the type.  BERTH_MISMATCH on both sides if that of the other differs. */
	uint32_t signature;
	const void *in;
	void *out; /* unchanged after BERTH_MISMATCH */
	/* To send, or room at OUT.  BERTH_MISMATCH on both sides if more comes. */
	uint64_t bytes;
	/* OUT is NULL: asked for memory as soon as the size is known, if that is not
	 * 0; BYTES is no limit then.  NULL: BERTH_MEMORY on both sides.  It must not
	 * call p2p. */
	void *(*alloc)(void *ctx, uint64_t bytes);
	void *alloc_ctx;
	uint64_t deadline_ns; /* of CLOCK_MONOTONIC; 0: none; then BERTH_TIMEOUT */
	/* Called once, without a lock, perhaps before p2p_post() returns. */
	void (*done)(struct p2p_message *m);
	void *ctx; /* for DONE */

	berth_result rc;
	unsigned from; /* of a receive: whose message it matched */
	uint64_t got;  /* the bytes of that message */

	/* internal */
	struct p2p_message *next, *prev;
	struct p2p_list *list;
	uint64_t moved;
	uint32_t slot;
};

/* For NLOCAL ranks of one host; sparse. */
size_t p2p_bytes(unsigned nlocal);
/* NULL: out of memory, no socket, or no way to a peer; NET remains the caller's. */
struct p2p *p2p_join(const struct p2p_config *config);
/* What is in flight ends with BERTH_ABORTED.  Early sends that have ended are still
 * sent, for 1 s at most.  For peers that have messages with it, this rank is lost
 * afterwards. */
void p2p_leave(struct p2p *p);

/* Of the LOCAL. rank of a host, which leaves without having joined: the others see that
 * it has left. */
void p2p_decline(void *region, unsigned local);

/* N messages, in this order.  BERTH_MEMORY: more than P2P_MESSAGES in flight;
 * BERTH_INVALID: no such place, or no data; or what p2p_end() said: none of them has
 * been posted. */
berth_result p2p_post(struct p2p *p, struct p2p_message *m, size_t n);
/* Move what can be moved.  Did anything move? */
bool p2p_progress(struct p2p *p);
/* Make progress until IS_OVER, or until UNTIL_NS (0: no limit), asleep while nothing
 * moves.  IS_OVER is called without a lock. */
void p2p_wait(struct p2p *p, bool (*is_over)(void *ctx), void *ctx, uint64_t until_ns);
/* After BERTH_PEER_LOST or BERTH_AUTH: what was wrong with the connection to PLACE, if
 * that is known; else NULL.  P2P_ANY: after BERTH_AUTH. */
const struct net_fault *p2p_fault(const struct p2p *p, int place);
/* Is there something that only this rank can send, and that no message in flight stands
 * for: an answer to a message that has ended, or the rest of an early send?  Peers may
 * wait for it, so this rank must go on making progress.  Any thread. */
bool p2p_owes(const struct p2p *p);
/* About once a second, while no other call runs, nor begins: connections that have not
 * been used for a while are closed, and so is what wakes this rank. */
void p2p_tidy(struct p2p *p);
/* After that, before any other call.  FALSE: there is no descriptor. */
bool p2p_ready(struct p2p *p);
/* Who waits looks again.  Any thread. */
void p2p_wake(struct p2p *p);
/* All messages in flight end with WHY, and so do all that are posted later. */
void p2p_end(struct p2p *p, berth_result why);
/* After p2p_end(): go on with telling all ranks of other hosts that this rank ends the
 * group, for the reason TEXT, of which P2P_REASON_BYTES count.  Those that wait for
 * nothing hear of it when they wait the next time.  TRUE: there is nobody left who has
 * not been told. */
bool p2p_abort(struct p2p *p, const char *text);

#endif
