/* engine_internal.h - an engine: what the files of a set's operations share.
 *
 *   request   what was submitted, until its owner ends it
 *   queue     the requests that are pending, and what the plan says of them
 *   rest      waiting until there is something new
 *   run       an operation, or a bucket of requests
 *   round     ranks tell each other what they have
 *   schedule  decides whether it is time for a bucket, a round, or a rest
 *   progress  does that, step by step
 *   turns     the thread of all sets
 *   engine    blocking operations, waiting, joining */
#ifndef BERTH_LIB_ENGINE_INTERNAL_H
#define BERTH_LIB_ENGINE_INTERNAL_H

#include <pthread.h>

#include "lib/base/sleep.h"
#include "lib/core/engine.h"
#include "lib/core/messages.h"
#include "lib/core/plan.h"
#include "lib/core/request.h"
#include "lib/core/schedule.h"
#include "lib/core/turns.h"
#include "lib/core/world.h"

enum { ENGINE_TABLE = 1024, ENGINE_PENDING_MOST = 16384, ENGINE_PIECES = 4096 };

struct engine {
	struct comm *comm;
	unsigned forks;         /* how often this process was forked from its parents */
	_Atomic uint32_t users; /* the set, and each request */
	_Atomic uint32_t collectives; /* requests that have some */
	pthread_mutex_t work;         /* who holds it does operations */
	pthread_mutex_t queue;        /* of all that follows, and of PLAN's changes */
	struct berth_request *first, **last, *table[ENGINE_TABLE];
	struct schedule schedule;
	size_t have; /* of the plan's next bucket, lines up to this one are here */
	uint64_t unnamed;
	uint64_t entered;            /* how many ever */
	const void *submitter;       /* the thread that submitted last (engine.c) */
	_Atomic bool dozes;          /* the thread, until it is woken */
	unsigned last_joined;        /* place */
	_Atomic uint32_t all_joined; /* how often */
	/* of the holder of WORK */
	struct plan plan;
	struct berth_request *beginning; /* one by one: the work that begins is its */
	bool called; /* a round, by a rank whose operation differs */
	struct berth_request
		*direct;          /* what this rank had blocked on, in the round that
					 begins */
	uint64_t fuse_bytes;      /* the least that any rank's parameter says */
	struct coll_piece *piece; /* ENGINE_PIECES; NULL: no collective was pending */
	unsigned char *fusion;
	size_t fusion_bytes;
	bool fusion_is_heap;
	struct berth_request **list; /* ENGINE_PENDING_MOST: those at hand; or NULL */
	struct op idle;              /* where none is at hand */
	struct joiner {
		uint64_t taken;   /* requests of the others since it joined */
		uint64_t time_ns; /* when it joined, by the clock of rank 0's host */
	} joiner;
	uint64_t *lists; /* of all ranks */
	size_t lists_bytes;
	bool is_idle;      /* by the last step: it rests until there is news */
	struct rest *rest; /* rest.h; QUEUE guards whether there is */
	struct turn turn;
	_Atomic bool awaited;       /* its turn could not have WORK */
	uint64_t seen;              /* ENTERED, in its last turn without work */
	uint64_t reported_ns;       /* the last stall of what some ranks lack */
	struct berth_metrics count; /* of requests; blocking ones: comm->count */
};

enum progress { PROGRESS_DID, PROGRESS_IDLE, PROGRESS_SOON };

/* There may be something to do.  No lock is held. */
static inline void engine_ring(struct engine *e)
{
	turn_ring(&e->turn);
}

/* The end of what holds WORK.  The set's turn may wait for it: it marks that, and tries
 * again.  So the release has to come before the look at the mark.  On x86 no load runs
 * ahead of it. */
static inline void engine_release(struct engine *e)
{
	pthread_mutex_unlock(&e->work);
#if !defined(__x86_64__)
	atomic_thread_fence(memory_order_seq_cst);
#endif
	if (atomic_load_explicit(&e->awaited, memory_order_relaxed))
		engine_ring(e);
}

/* engine_submit(), where the comm is whole and progress_start() is done. */
berth_result engine_enter_new(struct engine *e, const struct op *op, size_t n,
			      struct berth_request **request, struct failure *why);

#endif
