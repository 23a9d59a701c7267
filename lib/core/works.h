/* works.h - what runs on devices: works of all sets of this process, in the order in
 * which they are started, and their ends.
 *
 * A rank may be in several sets.  If two ranks start works of two sets in different
 * orders, each device waits for the other.  So a work has a time, on which its ranks
 * agree (comm_device.c): the highest number that any of them proposes, each one more
 * than the last that it has seen.  Works start in the order of (time, set).  What has
 * been proposed with a lower number, and has no time yet, holds back what comes after
 * it.  (This is Skeen's total order.)  A rank proposes only when all ranks of the set
 * have called for the work.  Then the time comes soon, whatever the program does: a
 * proposal in the call itself would hold back another set for which a rank waits that
 * has not called yet.  In a process that has one set there is none to hold back: it
 * proposes in the call, and starts the work with that number.
 *
 * A work may be on its way to its device for a while (device.h).  Nothing is started
 * meanwhile, so that devices get all works in that order.
 *
 * While anything runs, the works have turns (turns.h), in which they are tested.
 * Threads that wait test them, too.  In a turn they also look for ranks that are
 * gone. */
#ifndef BERTH_LIB_WORKS_H
#define BERTH_LIB_WORKS_H

#include "lib/backend/device.h"
#include "lib/core/set.h"

enum work_state { WORK_NEW, WORK_PROPOSED, WORK_AGREED, WORK_RUNS, WORK_OVER };

struct work;

/* The group of a comm's ranks on their devices. */
struct comm_device {
	const struct device_backend *back; /* NULL: as long as DEVICE is -1 */
	void *group;
	_Atomic int device;              /* -1: no array of one was seen yet */
	bool tried, whole;               /* all ranks have tried to join, and have */
	char why[DEVICE_WHY_BYTES + 64]; /* where they have not */
	struct staged *staged; /* on all ranks, or on none: what GROUP can't do */
	/* This rank's, for what other ranks have in other memories: where it has the
	 * host's, and where it has its device's. */
	struct staged *mixed[2];
	_Atomic uint32_t works; /* that are not over */
	_Atomic bool stopped;   /* they end with BERTH_ABORTED */
	bool revoked;
	_Atomic bool has_said; /* a line, that an end hangs */
	_Atomic bool cut; /* a work is not started here that others may have started */
	uint64_t leaves_ns; /* since when this rank leaves it */
};

/* Called for the works of a comm, while only the WORK of its set is held. */
struct work_hooks {
	/* W is about to be agreed on; it does not come. */
	void (*begins)(struct work *w);
	void (*withdrawn)(struct work *w);
	/* W->rc is what it came to, for the reason W->why. */
	void (*over)(struct work *w);
	/* It runs for a while, or is on its way: do all ranks still live? */
	void (*watch)(struct work *w);
	/* It failed on this rank alone. */
	void (*failed)(struct work *w, const char *why);
};

struct work {
	struct device_work device;
	/* what does it, and for which group, once it has been agreed on */
	const struct device_backend *back;
	void *group;
	struct comm *comm;
	struct comm_device *of;
	struct work *next;
	const struct work_hooks *hooks;
	_Atomic uint32_t state;  /* enum work_state; a futex */
	_Atomic uint32_t sleeps; /* somebody, on STATE */
	_Atomic uint32_t refs;
	uint64_t number; /* proposed, or its time */
	bool promised;   /* a stream waits for its end, not a thread */
	bool is_ours;    /* RC is an error of this rank */
	bool hangs;      /* its end does: the arrays stay in use */
	berth_result rc;
	struct failure *why;
	/* since when it is there, and since when it runs; 0: not seen yet */
	uint64_t begun_ns, runs_ns, watched_ns;
	uint64_t deadline_ns; /* until it is started; 0: none */
	uint64_t limit_ns;    /* from then on, of its run; 0: none */
	const struct op *op;  /* for messages: the caller's, or KEPT */
	struct coll *coll;
	void **ready;
	struct berth_request **request;
	size_t nrequests;
	struct op kept; /* not set before it is needed */
	char name[80];
	char said[DEVICE_WHY_BYTES]; /* by the back end, of an error that is ours */
};

/* ---- the order: WORK of its set is held ---- */

/* The number that this rank proposes for W, or now proposes. */
uint64_t works_propose(struct work *w);
/* W's time is NUMBER: it is started when it is its turn. */
void works_agree(struct work *w, uint64_t number);
/* W was started apart, where it waits for no other rank: it runs, or is over. */
void works_begun(struct work *w);
/* W does not come: if it was proposed, it holds back nothing any more. */
void works_withdraw(struct work *w);

/* ---- what runs ---- */

/* Back ends are called by who holds it. */
void works_lock(void);
void works_unlock(void);
/* Test all that run, and what is on its way.  False: another thread is at it. */
bool works_poll(void);
/* Until W is STATE or later; at most for NS. */
bool works_wait(struct work *w, enum work_state state, uint64_t ns);
/* W is there until works_let_go(). */
void works_hold(struct work *w);
void works_let_go(struct work *w);
/* STREAM waits for W, which has been started. */
berth_result works_follow(struct work *w, void *stream);
/* Does a stream of this rank's wait for one of D's? */
bool works_are_promised(const struct comm_device *d);
/* A thread that waits for a device sleeps for a moment, then looks again. */
void works_nap(void);
/* All works of D that are under way end with BERTH_ABORTED. */
void works_end(struct comm_device *d);

/* No set is left: there are no more turns. */
void works_stop(void);
/* After fork(2) in the child. */
void works_in_child(void);

#endif
