/* p2p_internal.h - what the files of p2p.h share: p2p.c (joining, posting, waiting),
 * p2p_move.c (what goes and comes), p2p_end.c (messages that end otherwise),
 * p2p_peer.c (one peer, by ring or stream, and the numbers of messages), p2p_abort.c
 * (the end of the group, told to others), p2p_rest.c (connections that nobody
 * uses). */
#ifndef BERTH_LIB_P2P_INTERNAL_H
#define BERTH_LIB_P2P_INTERNAL_H

#include <pthread.h>

#include "lib/base/bell.h"
#include "lib/p2p/p2p_match.h"
#include "lib/p2p/p2p_ring.h"
#include "lib/p2p/p2p_stream.h"
#include "lib/base/wait.h"

enum { P2P_WATCH_MS = 50 };

/* What a number stands for, of which the peer may still speak. */
enum p2p_state {
	P2P_FREE,
	P2P_SENT,      /* an EAGER that waits for its answer */
	P2P_OFFERED,   /* an OFFER that does */
	P2P_SENDING,   /* its data go */
	P2P_WITHDRAWN, /* of these, it has ended; its peer has not said so yet */
	P2P_RECEIVING, /* its data come */
	P2P_DISCARD    /* the same, for nobody */
};

struct p2p_slot {
	enum p2p_state state;
	unsigned peer;
	struct p2p_message *m;
	uint32_t other; /* the number that the peer has given it */
	uint32_t next;  /* free one */
	uint64_t left;  /* bytes of data still to come */
};

/* Frames without a body that are to go to a peer: at AT + FIRST, N of them, in a ring
 * of ROOM, a power of 2. */
struct p2p_answers {
	struct p2p_frame *at;
	uint32_t first, n, room;
};

struct p2p_peer {
	unsigned place;
	int local;
	bool gone;              /* nothing goes or comes any more */
	bool left;              /* it has said so itself */
	struct net_fault fault; /* why it is gone, if a connection was wrong */
	bool said_last;         /* it knows that this rank leaves */
	bool said_abort;        /* or that it ends the group */
	/* p2p_rest.c: REST has been said, REST_TOO has; STAY is to be said. */
	bool asks, rests, stays;
	uint32_t pending;        /* messages in flight that name it */
	struct p2p_list waiting; /* sends of which nothing has been said */
	struct p2p_list sending; /* sends whose data have been asked for */
	struct p2p_answers answers;
	/* What it keeps of ours, what we keep of its, and what it has not heard of:
	 * heads, and bytes of data. */
	uint32_t heads_out, room_out, heads_in, room_in, heads_owed, room_owed;
	struct p2p_ring_end out, in;
	struct p2p_stream *stream; /* NULL: of this host */
	bool owed;                 /* counted in OWING */
	unsigned silent;           /* looks in a row at which there was no connection */
	struct bell *bell;
};

struct p2p {
	struct p2p_config config;
	struct p2p_peer *peer;
	struct bell *bell, own; /* OWN: of a rank that is alone on its host */
	_Atomic int bell_fd;    /* -1: no connections, or all rest */
	struct p2p_match match;
	struct p2p_slot *slot;
	uint32_t slots, free_slot; /* P2P_NO_ID: none */
	bool any_lost;             /* what any may send may not come any more */
	unsigned others;           /* peers that are not gone */
	uint32_t any_pending;      /* receives from any that match nothing yet */
	/* of the message whose is first; 0: none */
	_Atomic uint64_t deadline_ns;
	uint64_t tick_ns, watched_ns;
	unsigned idle_looks; /* in a row at which nothing was in flight, or moved */
	struct wait wait;    /* how long to spin */
	struct p2p_list done;
	berth_result ended;
	struct pollfd *polls; /* of who polls */
	_Atomic bool is_polled;
	_Atomic uint32_t in_flight;
	_Atomic uint32_t owing; /* peers with p2p_owes() */
	pthread_mutex_t moving; /* guards all above */
	pthread_mutex_t posting;
	struct p2p_list posted; /* guarded by POSTING */
	_Atomic bool has_posted;
	_Atomic uint32_t over; /* ENDED, for who posts */
};

/* ---- p2p_peer.c ---- */

/* A number for M; P2P_NO_ID: no more. */
uint32_t p2p_slot_take(struct p2p *p, struct p2p_message *m, unsigned peer,
		       enum p2p_state state);
void p2p_slot_free(struct p2p *p, uint32_t id);
/* The one that PEER means by ID, if it may; else NULL. */
struct p2p_slot *p2p_slot_of(struct p2p *p, unsigned peer, uint32_t id);

/* F goes when it can.  FALSE: out of memory. */
bool p2p_answer(struct p2p_peer *q, const struct p2p_frame *f);
/* Those that can go do.  Did any? */
bool p2p_push_answers(struct p2p *p, struct p2p_peer *q);
/* A frame now, with what is owed; FALSE: there is no room for it. */
bool p2p_peer_put(struct p2p *p, struct p2p_peer *q, struct p2p_frame *f,
		  const void *body, size_t bytes);
/* A piece of M's data.  How much; 0: there is no room. */
size_t p2p_peer_put_data(struct p2p *p, struct p2p_peer *q, const struct p2p_message *m,
			 uint32_t to);
/* As p2p_ring.h and p2p_stream.h. */
int p2p_peer_head(struct p2p_peer *q, struct p2p_frame *f, bool *fresh);
size_t p2p_peer_body(struct p2p_peer *q, void *to);
void p2p_peer_next(struct p2p *p, struct p2p_peer *q);
/* The bell of Q is rung if it sleeps. */
void p2p_peer_wake(struct p2p *p, struct p2p_peer *q);

/* ---- p2p_end.c ---- */

/* M is done with RC: done() is called when the lock has been released. */
void p2p_finish(struct p2p *p, struct p2p_message *m, berth_result rc);
/* All messages for which IS says so end with RC. */
void p2p_finish_all(struct p2p *p,
		    bool (*is)(const struct p2p_message *m, bool matched,
			       const void *ctx),
		    const void *ctx, berth_result rc);
/* Has it ended without having left the job? */
bool p2p_is_lost(const struct p2p *p, const struct p2p_peer *q);
/* Nothing more comes from Q, or goes there.  What ends for that reason does so with
 * BERTH_PEER_LOST, or with BERTH_AUTH where Q->fault says so. */
void p2p_lose(struct p2p *p, struct p2p_peer *q);
berth_result p2p_why(const struct p2p_peer *q);
/* The group is of no use any more. */
void p2p_give_up(struct p2p *p, berth_result why);
/* What time has ended, and which peers are gone. */
void p2p_look(struct p2p *p);

/* ---- p2p_abort.c ---- */

/* Q has said so, in the frame that comes. */
void p2p_hear_abort(struct p2p *p, struct p2p_peer *q);

/* ---- p2p_rest.c ---- */

/* May nothing be said to Q? */
static inline bool p2p_is_held(const struct p2p_peer *q)
{
	return q->asks || q->rests;
}
/* Q has said REST, REST_TOO or STAY.  FALSE: which it may not. */
bool p2p_take_rest(struct p2p *p, struct p2p_peer *q, uint32_t kind);
/* The connection to Q HAS ENDED, or perhaps a new one has come.  Was that to be, after
 * REST_TOO? */
bool p2p_sees_rest(struct p2p *p, struct p2p_peer *q, bool has_ended);
/* The same, of Q that rests, in a group that has ended: what else comes is nothing to
 * anybody. */
bool p2p_hear_rest(struct p2p *p, struct p2p_peer *q);
/* From time to time, while nothing is in flight.  MOVED: something has. */
void p2p_ask_to_rest(struct p2p *p, bool moved);
/* There is no connection, and has been none for a while. */
bool p2p_all_rest(const struct p2p *p);

/* ---- p2p_move.c ---- */

/* N messages begin, all of an array. */
void p2p_start(struct p2p *p, struct p2p_message *m, size_t n);
/* What has been posted begins.  Was there anything? */
bool p2p_start_posted(struct p2p *p);
/* Everything once.  Did anything move? */
bool p2p_pass(struct p2p *p);

#endif
