/* messages.h - the sends and receives of a set, by p2p.h.
 *
 * Who waits for one makes progress for all.  While nobody waits, a thread does, which
 * ends when there has been nothing to do for 2 s. */
#ifndef BERTH_LIB_MESSAGES_H
#define BERTH_LIB_MESSAGES_H

#include "lib/core/comm.h"
#include "lib/p2p/p2p.h"

struct messages;

/* One that is in flight, until DONE is called: in any thread that makes progress.  WHY
 * is set where RC is not BERTH_OK. */
struct message {
	const struct op *op;
	void *owner;
	void (*done)(struct message *m, berth_result rc, const struct failure *why);
	/* internal */
	struct messages *messages;
	struct p2p_message p2p;
};

/* Messages between C's ranks.  They own C's region and net for messages from here on.
 * NULL: out of memory, or no socket. */
struct messages *messages_make(struct comm *c);
/* A use begins, of who knows that M is there; until messages_leave() it stays. */
void messages_enter(struct messages *m);
void messages_leave(struct messages *m);
/* The thread runs, until the caller's use ends and nothing is in flight.  FALSE: there
 * is none. */
bool messages_start(struct messages *m);
/* All messages, in flight and new ones, end with BERTH_ABORTED. */
void messages_stop(struct messages *m);
/* After messages_start(): this rank has aborted the set.  Ranks of other hosts are
 * told, while M is there. */
void messages_abort(struct messages *m);
/* Has another host's rank done so?  C knows it then. */
void messages_hear(struct messages *m);
/* About once a second, while no use begins: what is not used costs no descriptor. */
void messages_tidy(struct messages *m);
/* After messages_stop(), when no use begins any more; waits for those that have. */
void messages_free(struct messages *m);

/* This rank leaves the set of C, and never had any messages in it. */
void messages_decline(const struct comm *c);

/* After messages_start(): N of them, whose OP, OWNER and DONE are set, until
 * DEADLINE_NS (0: none).  DONE may be called before it returns; that of the last one
 * may free them all. */
void messages_post(struct messages *m, struct message *message, size_t n,
		   uint64_t deadline_ns);
/* Make progress until IS_OVER, or until UNTIL_NS (0: no limit). */
void messages_wait(struct messages *m, bool (*is_over)(void *ctx), void *ctx,
		   uint64_t until_ns);
/* Each thread that waits asks IS_OVER again. */
void messages_wake(struct messages *m);

#endif
