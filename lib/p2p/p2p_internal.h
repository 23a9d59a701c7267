/* p2p_internal.h - the state and functions that the files of p2p.h share: p2p.c
 * (joining, posting, waiting), p2p_move.c (frames that go and come), p2p_end.c
 * (messages that end otherwise), p2p_peer.c (one peer, by ring or stream, and the
 * numbers of messages), p2p_abort.c (the end of the group, told to others), p2p_rest.c
 * (connections that are not used). */
#ifndef BERTH_LIB_P2P_INTERNAL_H
#define BERTH_LIB_P2P_INTERNAL_H

#include <pthread.h>

#include "lib/base/bell.h"
#include "lib/p2p/p2p_match.h"
#include "lib/p2p/p2p_ring.h"
#include "lib/p2p/p2p_stream.h"
#include "lib/base/wait.h"

enum { P2P_WATCH_MS = 50 };

/* The state of a message number.  The peer may still speak of this number. */
enum p2p_state {
	P2P_FREE,
	P2P_SENT,      /* an EAGER that waits for its answer */
	P2P_OFFERED,   /* an OFFER that waits for its answer */
	P2P_SENDING,   /* its data go */
	P2P_WITHDRAWN, /* one of these has ended; its peer has not said so yet */
	P2P_RECEIVING, /* its data come */
	P2P_DISCARD    /* its data come, and are thrown away */
};

struct p2p_slot {
	enum p2p_state state;
	unsigned peer;
	struct p2p_message *m;
	uint32_t other; /* the number that the peer has given it */
	uint32_t next;  /* next free slot */
	uint64_t left;  /* bytes of data still to come */
};

/* N frames without a body that are to go to a peer.  They begin at AT + FIRST, in a
 * ring of ROOM frames, a power of 2. */
struct p2p_answers {
	struct p2p_frame *at;
	uint32_t first, n, room;
};

struct p2p_peer {
	unsigned place;
	int local;
	bool gone;              /* nothing goes or comes from now on */
	bool left;              /* it has said itself that it leaves */
	struct net_fault fault; /* why it is gone, if a connection was wrong */
	bool said_last;         /* it has been told that this rank leaves */
	bool said_abort;        /* or that this rank ends the group */
	/* p2p_rest.c: REST has been said, REST_TOO has; STAY is to be said. */
	bool asks, rests, stays;
	uint32_t pending;        /* messages in flight that name it */
	struct p2p_list waiting; /* sends that have not been announced */
	struct p2p_list sending; /* sends whose data have been asked for */
	struct p2p_answers answers;
	/* Heads, and bytes of data.  OUT: the peer keeps them of this rank.  IN: this
	 * rank keeps them of the peer.  OWED: the peer has not heard that they
	 * matched. */
	uint32_t heads_out, room_out, heads_in, room_in, heads_owed, room_owed;
	struct p2p_ring_end out, in;
	struct p2p_stream *stream; /* NULL: the peer is on this host */
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
	bool any_lost;             /* a message from any peer may no longer come */
	unsigned others;           /* peers that are not gone */
	uint32_t any_pending;      /* receives from any that match nothing yet */
	/* of the message whose deadline comes first; 0: there is no deadline */
	_Atomic uint64_t deadline_ns;
	uint64_t tick_ns, watched_ns;
	unsigned idle_looks; /* looks in a row with nothing in flight or moved */
	struct wait wait;    /* how long to spin */
	struct p2p_list done;
	berth_result ended;
	struct pollfd *polls; /* of the polling thread */
	_Atomic bool is_polled;
	_Atomic uint32_t in_flight;
	_Atomic uint32_t owing; /* peers with p2p_owes() */
	pthread_mutex_t moving; /* guards all above */
	pthread_mutex_t posting;
	struct p2p_list posted; /* guarded by POSTING */
	_Atomic bool has_posted;
	_Atomic uint32_t over; /* ENDED, for threads that post */
};

/* ---- p2p_peer.c ---- */

/* A number for M; P2P_NO_ID: there are no more. */
uint32_t p2p_slot_take(struct p2p *p, struct p2p_message *m, unsigned peer,
		       enum p2p_state state);
void p2p_slot_free(struct p2p *p, uint32_t id);
/* The slot that PEER means by ID, if PEER may speak of it; else NULL. */
struct p2p_slot *p2p_slot_of(struct p2p *p, unsigned peer, uint32_t id);

/* F goes to Q when it can.  FALSE: out of memory. */
bool p2p_answer(struct p2p_peer *q, const struct p2p_frame *f);
/* Send the answers that can go.  Did any go? */
bool p2p_push_answers(struct p2p *p, struct p2p_peer *q);
/* Send a frame now, with the heads and the room that are owed.  FALSE: there is no room
 * for it. */
bool p2p_peer_put(struct p2p *p, struct p2p_peer *q, struct p2p_frame *f,
		  const void *body, size_t bytes);
/* Send a piece of M's data.  Returns its size; 0: there is no room. */
size_t p2p_peer_put_data(struct p2p *p, struct p2p_peer *q, const struct p2p_message *m,
			 uint32_t to);
/* As p2p_ring.h and p2p_stream.h. */
int p2p_peer_head(struct p2p_peer *q, struct p2p_frame *f, bool *fresh);
size_t p2p_peer_body(struct p2p_peer *q, void *to);
void p2p_peer_next(struct p2p *p, struct p2p_peer *q);
/* Ring the bell of Q if Q sleeps. */
void p2p_peer_wake(struct p2p *p, struct p2p_peer *q);

/* ---- p2p_end.c ---- */

/* M ends with RC.  done() is called when the lock has been released. */
void p2p_finish(struct p2p *p, struct p2p_message *m, berth_result rc);
/* All messages for which IS says so end with RC. */
void p2p_finish_all(struct p2p *p,
		    bool (*is)(const struct p2p_message *m, bool matched,
			       const void *ctx),
		    const void *ctx, berth_result rc);
/* Has Q ended without having left the job? */
bool p2p_is_lost(const struct p2p *p, const struct p2p_peer *q);
/* Q is gone: nothing more comes from it, or goes to it.  Messages that end for that
 * reason end with BERTH_PEER_LOST, or with BERTH_AUTH if Q->fault says so. */
void p2p_lose(struct p2p *p, struct p2p_peer *q);
berth_result p2p_why(const struct p2p_peer *q);
/* The group ends, and so do all its messages, with WHY. */
void p2p_give_up(struct p2p *p, berth_result why);
/* End the messages whose deadline has passed, and those of peers that are gone. */
void p2p_look(struct p2p *p);

/* ---- p2p_abort.c ---- */

/* Q has ended the group, in the frame that comes. */
void p2p_hear_abort(struct p2p *p, struct p2p_peer *q);

/* ---- p2p_rest.c ---- */

/* May nothing be said to Q? */
static inline bool p2p_is_held(const struct p2p_peer *q)
{
	return q->asks || q->rests;
}
/* Q has said REST, REST_TOO or STAY.  FALSE: it may not say so now. */
bool p2p_take_rest(struct p2p *p, struct p2p_peer *q, uint32_t kind);
/* The connection to Q has ended (HAS_ENDED), or perhaps a new one has come.  Was that
 * to be, after REST_TOO? */
bool p2p_sees_rest(struct p2p *p, struct p2p_peer *q, bool has_ended);
/* As p2p_sees_rest(), of Q that rests, in a group that has ended.  All other frames
 * that come are thrown away. */
bool p2p_hear_rest(struct p2p *p, struct p2p_peer *q);
/* Called from time to time: ask idle peers to close their connections.  MOVED:
 * something has moved, or is in flight. */
void p2p_ask_to_rest(struct p2p *p, bool moved);
/* There is no connection, and nothing has moved for a while. */
bool p2p_all_rest(const struct p2p *p);

/* ---- p2p_move.c ---- */

/* Begin N messages, all of an array. */
void p2p_start(struct p2p *p, struct p2p_message *m, size_t n);
/* Begin the messages that have been posted.  Were there any? */
bool p2p_start_posted(struct p2p *p);
/* Look at everything once.  Did anything move? */
bool p2p_pass(struct p2p *p);

#endif
