/* p2p_internal.h - the state and functions that the files of p2p.h share: p2p.c
 * (opening, posting, waiting), p2p_leave.c (ending and leaving a group), p2p_move.c
 * (frames that go and come), p2p_group.c (the groups, and members to whom there is
 * something to say), p2p_end.c (messages that end otherwise), p2p_peer.c (one peer, by
 * ring or stream, and the numbers of messages). */
#ifndef BERTH_LIB_P2P_INTERNAL_H
#define BERTH_LIB_P2P_INTERNAL_H

#include <pthread.h>

#include "lib/base/bell.h"
#include "lib/base/wait.h"
#include "lib/p2p/p2p_match.h"
#include "lib/p2p/p2p_ring.h"
#include "lib/p2p/p2p_stream.h"

enum { P2P_TABLE = 64, P2P_ANSWERS = 4 * P2P_HEADS };

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
	bool is_kept;  /* of a send: the peer keeps it, and has not answered */
	uint32_t room; /* bytes of its data that the peer keeps with it */
	struct p2p_pair *pair;
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

/* A member of a group. */
struct p2p_pair {
	struct p2p_group *group;
	struct p2p_peer *peer;
	unsigned place;
	bool gone;  /* nothing of the group goes or comes from now on */
	bool left;  /* it has said itself that it leaves */
	bool met;   /* something of the group has been said, by either side */
	bool tells; /* it is to be told that this rank ends the group */
	bool is_busy;
	struct p2p_pair *next;   /* of PEER's that have something to say */
	uint32_t pending;        /* messages in flight that name it */
	unsigned silent;         /* looks in a row without a word */
	struct p2p_list waiting; /* sends that have not been announced */
	struct p2p_list sending; /* sends whose data have been asked for */
	/* Heads, and bytes of data.  OUT: the peer keeps them of this rank, and has not
	 * answered.  IN: this rank keeps them of the peer. */
	uint32_t heads_out, room_out, heads_in, room_in;
};

struct p2p_group {
	struct p2p *p2p;
	struct p2p_group_config config;
	unsigned n, me;         /* of the config's members, which may be gone */
	struct p2p_group *next; /* of the p2p's */
	struct p2p_group *same; /* of the same place in the table */
	_Atomic bool has_begun;
	struct p2p_pair *pair; /* NULL: it has not begun: there was no message yet */
	struct p2p_match *match;
	bool any_lost;        /* a message from any member may no longer come */
	unsigned others;      /* members that are not gone */
	uint32_t any_pending; /* receives from any that match nothing yet */
	uint32_t slots;
	_Atomic uint32_t in_flight;
	_Atomic uint32_t calls; /* of done() of its messages that have not returned */
	_Atomic uint32_t over;  /* why it has ended, or BERTH_OK */
	bool aborts;            /* this rank ends it, for the reason WHY */
	bool has_left;          /* this rank has; it is freed when all are told */
	unsigned telling;       /* pairs with TELLS */
	char why[P2P_REASON_BYTES + 1];
};

struct p2p_peer {
	unsigned rank;
	int local;
	bool gone;              /* nothing goes or comes from now on */
	bool left;              /* it has said itself that it leaves */
	struct net_fault fault; /* why it is gone, if a connection was wrong */
	bool said_last;         /* it has been told that this rank leaves */
	bool owed;              /* counted in OWING */
	unsigned telling;       /* its pairs with TELLS */
	struct p2p_answers answers;
	struct p2p_pair *busy, **last_busy;
	unsigned nbusy;
	const struct p2p_message *sends; /* whose data the stream sends */
	struct p2p_ring_end out, in;
	struct p2p_stream *stream;  /* NULL: the peer is on this host */
	struct bell *bell, *thread; /* THREAD: of its thread that may listen */
	uint64_t news;              /* of p2p_has_come() */
};

struct p2p {
	struct p2p_config config;
	struct p2p_peer *peer;
	struct p2p_group *groups, *table[P2P_TABLE];
	struct bell *bell, own; /* OWN: of a rank that is alone on its host */
	int bell_fd;            /* -1: no connections */
	struct p2p_slot *slot;
	uint32_t slots, free_slot; /* P2P_NO_ID: none */
	/* of the message whose deadline comes first; 0: there is no deadline */
	_Atomic uint64_t deadline_ns;
	uint64_t tick_ns, watched_ns;
	struct wait wait; /* how long to spin */
	struct p2p_list done;
	struct p2p_list asks; /* receives whose alloc() is to be called */
	struct pollfd *polls; /* of the polling thread */
	_Atomic bool is_polled;
	_Atomic uint32_t in_flight;
	_Atomic uint32_t owing; /* peers with p2p_owes() */
	pthread_mutex_t moving; /* guards all above */
	pthread_mutex_t posting;
	struct p2p_list posted; /* guarded by POSTING */
	_Atomic bool has_posted;
};

/* ---- p2p.c ---- */

/* Release the lock, and call done() of the messages that have ended, and alloc() of
 * those that wait for memory.  SELF: how many of the sleepers the calling thread is. */
void p2p_release(struct p2p *p, uint32_t self);

/* ---- p2p_group.c ---- */

/* The group of NUMBER; NULL: this rank is in none, or has left it. */
struct p2p_group *p2p_group_of(const struct p2p *p, uint32_t number);
/* There are messages from now on.  FALSE: out of memory. */
bool p2p_group_begin(struct p2p_group *g);
/* P has something to say to its peer. */
void p2p_is_busy(struct p2p_pair *pair);
/* The first of Q's busy pairs goes to the end, if it STAYS busy. */
void p2p_next_busy(struct p2p_peer *q, bool stays);
/* Tell PAIR that this rank ends the group.  Has it been said? */
bool p2p_tell_abort(struct p2p_pair *pair);
/* PAIR has ended the group, in the frame that comes. */
void p2p_hear_abort(struct p2p_pair *pair);
/* Frames of G are frames of no group from here on. */
void p2p_group_forget(struct p2p_group *g);
/* Free the groups that this rank has left, and of which all others are told. */
void p2p_free_groups(struct p2p *p);

/* ---- p2p_peer.c ---- */

/* A number for M; P2P_NO_ID: there are no more. */
uint32_t p2p_slot_take(struct p2p_pair *pair, struct p2p_message *m,
		       enum p2p_state state);
void p2p_slot_free(struct p2p *p, uint32_t id);
/* The slot that PAIR means by ID, if it may speak of it; else NULL. */
struct p2p_slot *p2p_slot_of(const struct p2p_pair *pair, uint32_t id);

/* F goes to PAIR when it can.  FALSE: out of memory, or the peer takes none. */
bool p2p_answer(struct p2p_pair *pair, struct p2p_frame f);
/* As p2p_answer(), of any group. */
bool p2p_peer_answer(struct p2p_peer *q, const struct p2p_frame *f);
/* Send the answers that can go.  Did any go? */
bool p2p_push_answers(struct p2p_peer *q);
/* Send a frame now.  FALSE: there is no room for it. */
bool p2p_peer_put(struct p2p_pair *pair, struct p2p_frame f, const void *body,
		  size_t bytes);
/* Say to Q that this rank leaves.  FALSE: there is no room for it. */
bool p2p_peer_put_last(struct p2p_peer *q);
/* Send a piece of M's data.  Returns its size; 0: there is no room. */
size_t p2p_peer_put_data(struct p2p_pair *pair, const struct p2p_message *m,
			 uint32_t to);
/* PAIR, which was to be told that this rank ends the group, is told, or gone. */
void p2p_is_told(struct p2p_pair *pair);
/* As p2p_ring.h and p2p_stream.h. */
int p2p_peer_head(struct p2p_peer *q, struct p2p_frame *f, bool *fresh);
size_t p2p_peer_body(struct p2p_peer *q, void *to);
void p2p_peer_next(struct p2p *p, struct p2p_peer *q);
/* Ring the bell of Q if Q sleeps. */
void p2p_peer_wake(struct p2p *p, struct p2p_peer *q);

/* ---- p2p_end.c ---- */

/* M ends with RC.  done() is called when the lock has been released. */
void p2p_finish(struct p2p_message *m, berth_result rc);
/* All messages of G for which IS says so end with RC. */
void p2p_finish_all(struct p2p_group *g,
		    bool (*is)(const struct p2p_message *m, bool matched,
			       const void *ctx),
		    const void *ctx, berth_result rc);
/* The group ends, and so do all its messages, with WHY. */
void p2p_give_up(struct p2p_group *g, berth_result why);
/* Has Q ended without having left the job? */
bool p2p_is_lost(const struct p2p *p, const struct p2p_peer *q);
/* Nothing more of the group comes from PAIR, or goes to it.  Messages that end for that
 * reason end with BERTH_PEER_LOST, or with BERTH_AUTH if its peer's fault says so. */
void p2p_lose_pair(struct p2p_pair *pair);
/* Q is gone, in all groups. */
void p2p_lose(struct p2p *p, struct p2p_peer *q);
berth_result p2p_why(const struct p2p_peer *q);
/* End the messages whose deadline has passed, those of peers that are gone, and those
 * of groups that have ended. */
void p2p_look(struct p2p *p);

/* ---- p2p_move.c ---- */

/* Begin N messages, all of an array. */
void p2p_start(struct p2p_message *m, size_t n);
/* M's alloc() has been called: it goes on with the message that it has matched. */
void p2p_go_on(struct p2p_message *m);
/* Begin the messages that have been posted.  Were there any? */
bool p2p_start_posted(struct p2p *p);
/* Send to Q what can be sent.  Did anything move? */
bool p2p_push(struct p2p *p, struct p2p_peer *q);
/* Look at everything once.  Did anything move? */
bool p2p_pass(struct p2p *p);

#endif
