/* set.h - sets of ranks.  A set has a comm for blocking calls and, once something
 * asynchronous was submitted, an engine with a comm of its own. */
#ifndef BERTH_LIB_SET_H
#define BERTH_LIB_SET_H

#include <pthread.h>

#include "lib/core/comm.h"
#include "lib/core/handle.h"
#include "lib/core/world.h"

struct engine;

struct berth_set {
	struct world *world;
	struct handle_slot *slot; /* NULL: no caller has it yet */
	struct berth_set *next;   /* of world->sets */
	uint32_t number;          /* the same on all members; 0: all ranks */
	unsigned n;
	int me;                    /* place of this rank, or -1 */
	unsigned *rank;            /* of the job, for each place */
	unsigned nlocal, local_me; /* of its members on this host */
	pthread_mutex_t lock;      /* of NOW: one blocking call at a time */
	struct comm now, later;
	struct engine *_Atomic engine; /* has LATER; NULL until it is needed */
	void *region[2];        /* of the two comms, in our part of the heap: where this
				 rank is the first of the host; else NULL */
	_Atomic uint32_t *gone; /* members on this host that use the regions no more */
};

enum { SET_NOW, SET_LATER };

/* The set of all ranks, at berth_init().  Fences once. */
berth_result set_of_all(struct world *w, struct berth_set **set);
/* All ranks of PARENT: a set for each COLOR >= 0, in the order of KEY, then rank.
 * *SET: that of color SEEN, in which this rank need not be; NULL for a negative one.
 * NAME: the same on all ranks. */
berth_result set_split(struct berth_set *parent, const char *name, int color, int key,
		       int seen, struct berth_set **set);
/* A blocking operation in SET, in which this rank is, with the thread's last error.
 * D's set is not looked at. */
berth_result set_run(struct berth_set *set, enum berth_kind kind,
		     const struct berth_desc *d);
/* Notes the last error: TEXT is what op_make() has against D; WHY is why RC. */
berth_result set_refuse(enum berth_kind kind, const struct berth_desc *d,
			const char *text);
berth_result set_tell(berth_result rc, const struct failure *why);
/* What threads wait for in any of them ends with BERTH_ABORTED. */
void set_stop_all(struct world *w);
/* When no call is in them: handle_wait_all().  The other ranks are not told. */
void set_free_all(struct world *w);
/* After fork(2) in the child: the sets are its parent's. */
void set_in_child(void);
/* That of SET, made if this is the first call.  With the thread's last error. */
berth_result set_engine(struct berth_set *set, struct engine **engine);
/* What was done in all sets, those that are gone too. */
void set_count_all(struct world *w, struct berth_metrics *sum);
/* All members, of a set whose handle is closed.  Calls that are in it end with
 * BERTH_ABORTED. */
berth_result set_remove(struct berth_set *set);

#endif
