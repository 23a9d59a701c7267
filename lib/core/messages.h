/* messages.h - the sends and receives of all sets of a world, by p2p.h.
 *
 * A thread that waits for one makes progress for all.  Otherwise the thread of all sets
 * does (turns.h).  It stays while there are connections, on which ranks of other hosts
 * may say something. */
#ifndef BERTH_LIB_MESSAGES_H
#define BERTH_LIB_MESSAGES_H

#include "lib/core/bounce.h"
#include "lib/core/set.h"
#include "lib/p2p/p2p.h"

struct messages;

/* One that is in flight, until DONE is called: in any thread that makes progress.  WHY
 * is set where RC is not BERTH_OK. */
struct message {
	const struct op *op;
	void *owner;
	void (*done)(struct message *m, berth_result rc, const struct failure *why);
	struct bounce bounce; /* BACK and READY of one on a device; else 0 */
	/* internal */
	const struct comm *comm;
	struct p2p_message p2p;
};

/* Messages of all ranks of W.  REGION: p2p_bytes() of those here, whose BELLS are
 * rung.  NET becomes the messages' own unless it fails; NULL: all are on this host.
 * NULL: out of memory, or no socket. */
struct messages *messages_open(struct world *w, void *region, struct bell *bells,
			       struct net *net);
/* When all sets have left. */
void messages_close(struct messages *m);

/* The set of C has messages from here on.  BERTH_MEMORY. */
berth_result messages_join(struct comm *c);
/* All messages of C's set, in flight and new ones, end with BERTH_ABORTED.  If C has
 * not joined, there are none. */
void messages_stop(const struct comm *c);
/* This rank has aborted C's set.  Its members of other hosts are told, also after
 * messages_leave(). */
void messages_abort(const struct comm *c);
/* When no call uses messages of C's set any more. */
void messages_leave(struct comm *c);

/* The messages have turns, until the caller has posted its own and nothing is in
 * flight.  FALSE: there is no thread, and nothing may be posted. */
bool messages_begin(struct messages *m);
/* After messages_begin(): N of them, whose OP, OWNER and DONE are set, until
 * DEADLINE_NS (0: none).  BOUNCE.READY is its operation's mark, and the message's from
 * now on.  DONE may be called before it returns; that of the last
 * one may free them all. */
void messages_post(const struct comm *c, struct message *message, size_t n,
		   uint64_t deadline_ns);
/* The caller of messages_begin() has posted. */
void messages_end(struct messages *m);
/* Make progress until IS_OVER, or until UNTIL_NS (0: no limit). */
void messages_wait(struct messages *m, bool (*is_over)(void *ctx), void *ctx,
		   uint64_t until_ns);
/* Each thread that waits asks IS_OVER again. */
void messages_wake(struct messages *m);

#endif
