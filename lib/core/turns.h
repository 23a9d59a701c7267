/* turns.h - one thread of the process, in which the sets take turns.
 *
 * In its turn a set takes all steps that it can take.  It does so in a fiber
 * (fiber.h): where a step waits for other ranks, other sets have their turns.  So no
 * set holds up another one, and ranks need no common order of their sets.  (With
 * A = {0, 1}, B = {0, 2}, C = {1, 2} and one thread a rank, steps that wait would block
 * all three.)  The messages of all sets take turns, too, and so do works on devices.
 *
 * The first set starts the thread.  It spins for a moment where a step waits in memory.
 * Then it sleeps until its bell is rung (bell.h), something comes on a socket, or a
 * turn is due.  It ends after 2 s in which no set has work. */
#ifndef BERTH_LIB_TURNS_H
#define BERTH_LIB_TURNS_H

#include <poll.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/bell.h"

struct fiber;
struct post;
struct turn;

/* Called by the thread.  SOCKETS, IS_CALLED and DROPPED may be NULL. */
struct turn_hooks {
	/* In a fiber: takes the steps of T, and sets T->until_ns.  False: it cannot; it
	 * rings when it can. */
	bool (*take)(struct turn *t);
	/* Between two turns: sockets on which something may come for T, to P.  How
	 * many; P NULL: at most. */
	size_t (*sockets)(struct turn *t, struct pollfd *p);
	/* Between two turns: is T due, because of what another rank of this host
	 * does? */
	bool (*is_called)(struct turn *t);
	/* If T has no work, and none can come meanwhile, calls turn_drop(T). */
	void (*retire)(struct turn *t);
	/* T has no more turns, unless turn_start() is called again. */
	void (*dropped)(struct turn *t);
};

/* All zero at first, but HOOKS. */
struct turn {
	const struct turn_hooks *hooks;
	_Atomic uint32_t served; /* the thread looks at it */
	_Atomic bool rung;       /* it is due */
	_Atomic bool leaves;     /* it is to be dropped */
	/* of the thread */
	struct turn *_Atomic next;
	uint64_t until_ns;    /* when it is due by itself; 0: never */
	struct fiber *fiber;  /* in which a step waits; NULL: none does */
	struct post *counted; /* T is among the sleepers of the post for which it waits
			       */
	bool did;             /* TAKE's last result */
	bool heard;           /* something came on one of its sockets */
	size_t nsockets;      /* of it in the thread's list, which is in their order */
};

/* T has turns from now on.  False: there is no thread, or no world. */
bool turn_start(struct turn *t);
/* T is due.  Any thread. */
void turn_ring(struct turn *t);
/* T has no more turns; none is under way afterwards. */
void turn_leave(struct turn *t);
/* For RETIRE. */
void turn_drop(struct turn *t);
/* In TAKE: is there another set? */
bool turn_has_others(const struct turn *t);

/* BELL: this rank's, whose socket is FD; -1: it has none.  RANKS share CORES. */
void turns_open(struct bell *bell, int fd, unsigned ranks, unsigned cores);
/* No set is left; the socket is closed. */
void turns_close(void);
/* After fork(2) in the child: it has no such thread. */
void turns_in_child(void);

#endif
