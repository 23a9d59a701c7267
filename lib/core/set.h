/* set.h - a set of ranks: what the files of its operations share.
 *
 *   request   what was submitted, until its owner ends it
 *   queue     the requests that are pending, and what the plan says of them
 *   schedule  decides whether it is time for a bucket, a round, or a rest
 *   progress  does that, step by step
 *   round     ranks tell each other what they have
 *   run       an operation, or a bucket of requests
 *   comm      the bare operation, and what ends it
 *   rest      waiting until there is something new
 *   turns     the thread of all sets
 *   engine    blocking operations, submitting, waiting, joining
 *   set_make  makes sets; sets.h has all of them, and ends them
 *
 * This file has data alone. */
#ifndef BERTH_LIB_SET_H
#define BERTH_LIB_SET_H

#include <pthread.h>
#include <stdlib.h>

#include "lib/backend/backend.h"
#include "lib/base/bell.h"
#include "lib/base/members.h"
#include "lib/core/op.h"
#include "lib/core/plan.h"
#include "lib/core/region.h"
#include "lib/core/schedule.h"
#include "lib/core/turns.h"
#include "lib/net/net.h"

struct berth_request;
struct rest;
struct world;

#define COMM_ENDED                                                                     \
	"the set was removed, or the library shut down or changed its world, "         \
	"meanwhile"

/* Why an operation failed, apart from the thread that ran it. */
struct failure {
	berth_result rc;
	char tensor[80];
	unsigned missing[64]; /* ranks of the job */
	size_t nmissing;
	char text[1024];
};

/* The ranks of a set, joined to run operations one after the other: a back end's group
 * with its memory and connections (comm.h). */
struct comm {
	struct world *world;
	const struct members *members; /* the set's */
	uint32_t id;                   /* in records: the set's number; 0: all ranks */
	struct region_shared *shared;
	struct p2p_group *messages; /* of messages.c */
	const struct backend *back;
	void *group;
	struct net *net;    /* NULL: all on this host */
	struct bells bells; /* of the set's ranks on this host */
	const char **said;
	void *scratch;
	size_t scratch_bytes;
	void *kept;            /* of run.c */
	uint32_t seq;          /* of the operation in progress, or of the last one */
	_Atomic uint32_t done; /* of the last one that this rank is done with */
	_Atomic berth_result broken; /* for good, for the reason FINALLY */
	struct failure finally;
	/* of the operation that runs */
	const struct op *op;
	struct boot_record *record;
	uint64_t begun_ns;    /* since when it has been looked at; 0: not yet */
	uint64_t reported_ns; /* last stall's */
	uint64_t deadline_ns;
	unsigned lost;     /* place of who is gone; N: nobody */
	unsigned gone[64]; /* ranks of the job that were when it was noticed */
	size_t ngone;
	/* place of who has left the set or aborted it; N: nobody.  Messages that end
	 * ask, in any thread. */
	_Atomic unsigned left;
	bool refused;      /* GONE[0] has ended nothing: it told what cannot be */
	unsigned late[64]; /* places that let time pass, where that was told */
	size_t nlate;
	bool no_stall_check;  /* waits for no operation: no stall */
	_Atomic bool aborted; /* by any thread: what waits comes back, BERTH_ABORTED */
	_Atomic bool aborts;  /* the same; and so does what waits on other ranks */
	struct berth_metrics count;
	/* for operations on devices (comm_device.h) */
	struct comm_device *_Atomic device; /* NULL: there was none yet */
	struct work *work;              /* that the last operation has begun, or NULL */
	const struct work_hooks *hooks; /* of its works */
	const char *reason;             /* of BERTH_UNSUPPORTED */
	unsigned closed; /* how often in a row a connection was, in comm_watch() */
};

enum { SET_TABLE = 1024, SET_PENDING_MOST = 16384, SET_PIECES = 4096 };

/* Requests that are pending, in the order of submission, and by their keys. */
struct pending {
	struct berth_request *first, **last, *table[SET_TABLE];
};

/* Memory in which arrays of several requests are one. */
struct fusion {
	unsigned char *at;
	size_t bytes;
	bool is_heap;
};

/* A rank that has joined tells this when all have. */
struct joiner {
	uint64_t taken;   /* requests of the others since it joined */
	uint64_t time_ns; /* when it joined, by the clock of rank 0's host */
};

struct berth_set {
	struct world *world;
	struct handle_slot *slot; /* NULL: no caller has the set yet */
	struct berth_set *next;   /* of world->sets */
	uint32_t number;          /* the same on all members; 0: all ranks */
	struct members members;
	/* The memory of the members of this host, in this rank's part of the heap, if
	 * it is the first of them; else NULL. */
	void *region;
	struct comm comm;
	bool is_open;           /* it takes operations: this rank is a member */
	unsigned forks;         /* request_forks() when it was made */
	_Atomic uint32_t users; /* its maker and each request; the last frees it */
	_Atomic uint32_t collectives; /* requests with collectives; not freed yet */
	pthread_mutex_t work;         /* its holder runs operations */

	/* For all members from here to PLAN, and for changes of PLAN. */
	pthread_mutex_t queue;
	struct pending pending;
	struct schedule schedule;
	size_t have; /* lines of the plan in front of this one have their requests */
	uint64_t unnamed;            /* requests without a name, so far */
	uint64_t entered;            /* requests that were ever pending */
	const void *submitter;       /* the thread that submitted last (engine.c) */
	_Atomic bool dozes;          /* the set has no turn before it is rung */
	unsigned last_joined;        /* the place of the rank that joined last */
	_Atomic uint32_t all_joined; /* how often all ranks had joined */

	/* of the holder of WORK */
	struct plan plan;
	/* The request whose operations run one by one: the work that begins is its. */
	struct berth_request *beginning;
	bool called; /* a rank whose operation differs has called a round */
	/* The request that this rank had blocked on, in the round that begins. */
	struct berth_request *direct;
	struct coll_piece *piece; /* SET_PIECES; NULL: no collective was pending yet */
	struct fusion fusion;
	/* The requests at hand, SET_PENDING_MOST at most; NULL as PIECE is. */
	struct berth_request **list;
	struct op idle; /* the operation where no request is at hand */
	struct joiner joiner;
	uint64_t *lists; /* of all ranks, in a round */
	size_t lists_bytes;
	bool is_idle;      /* the last step had nothing to do until there is news */
	struct rest *rest; /* rest.h; QUEUE guards whether there is one */
	struct turn turn;
	_Atomic bool awaited; /* its turn has tried to take WORK, and could not */
	uint64_t seen;        /* ENTERED, in its last turn without work */
	uint64_t reported_ns; /* the last report of requests that some ranks lack */
	struct berth_metrics count; /* of requests; of blocking ones: comm.count */
};

/* The outcome of a step of a set: it did something, has nothing to do, or will have. */
enum progress { PROGRESS_DID, PROGRESS_IDLE, PROGRESS_SOON };

/* The set of which C is the comm. */
static inline struct berth_set *set_of(struct comm *c)
{
	return (struct berth_set *)((char *)c - offsetof(struct berth_set, comm));
}

/* There may be something to do.  No lock is held. */
static inline void set_ring(struct berth_set *s)
{
	turn_ring(&s->turn);
}

/* The end of what holds WORK.  The set's turn may wait for it: it marks that, and tries
 * again.  So the release has to come before the look at the mark.  On x86 no load runs
 * ahead of it. */
static inline void set_release(struct berth_set *s)
{
	pthread_mutex_unlock(&s->work);
#if !defined(__x86_64__)
	atomic_thread_fence(memory_order_seq_cst);
#endif
	if (atomic_load_explicit(&s->awaited, memory_order_relaxed))
		set_ring(s);
}

/* The maker of S, or a request, does not need it any more. */
static inline void set_let_go(struct berth_set *s)
{
	if (atomic_fetch_sub(&s->users, 1) > 1)
		return;
	pthread_mutex_destroy(&s->work);
	pthread_mutex_destroy(&s->queue);
	free(s);
}

#endif
