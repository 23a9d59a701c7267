/* trace.h - what this rank has done and does: the ring of records that outlives it
 * (boot.def), the timeline, the counters, and the words for an operation.
 *
 * Writing an op record takes 8 ns, in a program with threads 14; the ring is in the
 * host's memory, where the agent reads it after the rank has died or while it hangs. */
#ifndef BERTH_LIB_TRACE_H
#define BERTH_LIB_TRACE_H

#include <stdio.h>
#include <string.h>

#include "lib/backend/coll.h"
#include "lib/base/clock.h"
#include "lib/base/one_thread.h"
#include "lib/boot/memory.h"

/* The next number. */
static inline uint64_t trace_number(struct boot_rank *me)
{
	if (one_thread()) {
		uint64_t number = me->number + 1;

		atomic_store_explicit(&me->number, number, memory_order_relaxed);
		return number;
	}
	return atomic_fetch_add_explicit(&me->number, 1, memory_order_relaxed) + 1;
}

/* Two threads may write one entry: the second is a whole ring ahead of the first, which
 * has not had the core for so long. */
#define TRACE_PUT(member, value) __atomic_store_n(&(member), (value), __ATOMIC_RELAXED)

/* The next entry of this rank's ring.  Any thread. */
static inline struct boot_record *trace_begin(struct memory *m, const struct coll *c,
					      const char *name, uint32_t set,
					      uint32_t seq,
					      enum boot_record_state state)
{
	uint64_t number = trace_number(&m->rank[m->local_rank]);
	struct boot_record *f = &m->records[(number - 1) % BOOT_RECORDS];
	size_t n = name ? strnlen(name, sizeof f->name - 1) : 0;

	/* after who wrote it before, a whole ring ago: perhaps another thread */
	(void)atomic_load_explicit(&f->number, memory_order_acquire);
	atomic_store_explicit(&f->number, 0, memory_order_relaxed);
	atomic_thread_fence(memory_order_release);
	TRACE_PUT(f->count, c->count);
	TRACE_PUT(f->begun, clock_coarse_ns());
	TRACE_PUT(f->ended, 0);
	TRACE_PUT(f->set, set);
	TRACE_PUT(f->seq, seq);
	TRACE_PUT(f->kind, (uint8_t)c->kind);
	TRACE_PUT(f->type, (uint8_t)c->type);
	TRACE_PUT(f->op, (uint8_t)c->op);
	atomic_store_explicit(&f->state, (uint8_t)state, memory_order_relaxed);
	if (n)
		memcpy(f->name, name, n);
	TRACE_PUT(f->name[n], '\0');
	atomic_store_explicit(&f->number, number, memory_order_release);
	return f;
}

/* A queued one begins to run. */
static inline void trace_runs(struct boot_record *f)
{
	atomic_store_explicit(&f->state, BOOT_RECORD_RUNS, memory_order_relaxed);
}

/* One that was told of waits for ranks that have not called for it. */
static inline void trace_queued(struct boot_record *f)
{
	atomic_store_explicit(&f->state, BOOT_RECORD_QUEUED, memory_order_relaxed);
}

/* Ends the record of an operation that took a moment: its beginning says when. */
static inline void trace_end(struct boot_record *f, berth_result rc)
{
	atomic_store_explicit(&f->state, rc ? BOOT_RECORD_FAILED : BOOT_RECORD_DONE,
			      memory_order_release);
}

/* Ends the record of an operation that was queued, or slept for others: it notes the
 * time, too (4 ns). */
static inline void trace_end_late(struct boot_record *f, berth_result rc)
{
	TRACE_PUT(f->ended, clock_coarse_ns());
	trace_end(f, rc);
}

/* A counter that one thread at a time writes and any may read meanwhile. */
static inline void trace_count(uint64_t *counter, uint64_t n)
{
	__atomic_store_n(counter, *counter + n, __ATOMIC_RELAXED);
}

static inline uint64_t trace_counted(const uint64_t *counter)
{
	return __atomic_load_n(counter, __ATOMIC_RELAXED);
}

/* The operation that local rank LOCAL is in, or did last: `allreduce "grad" of 1024
 * f32, sum, done 31 s ago`. */
void trace_last(char *text, size_t bytes, const struct memory *m, unsigned local);

/* ---- the timeline: Chrome's trace format ---- */

/* Bits of timeline_runs: which there are. */
enum timeline_of { TIMELINE_CALLER, TIMELINE_JOB, TIMELINES };

/* An operation that all ranks of a set do together. */
struct timeline_op {
	uint32_t set, seq, part; /* the same on all of them; PART: of what is fused */
	uint32_t of;             /* ranks */
	uint64_t world;          /* its epoch */
	uint64_t called_ns;      /* by this rank; 0: as it began */
	uint64_t bytes;
	uint64_t like; /* without a name: the same in each step */
};

/* One for the process, from any thread; a child of it writes nothing.  Rank 0 writes
 * PATH, rank N PATH.N, times on the job's clock.  It is made of whole events at any
 * time, up to 64 KiB behind; what ends it properly is timeline_stop(). */
berth_result timeline_start(const char *path, unsigned rank, int64_t clock_offset_ns,
			    char *why, size_t why_bytes);
/* BERTH_STATE: none is written; BERTH_SYSTEM: not all of it could be. */
berth_result timeline_stop(enum timeline_of which, char *why, size_t why_bytes);
/* The one of the job, for runner --timeline.  GIVEN is BERTH_RANK_TIMELINE, steps and
 * a path: "1-20:FILE".  False: it can't be written. */
bool timeline_start_job(const char *given, unsigned rank, int64_t clock_offset_ns);
/* After fork(2) in the child: what its parent writes is not the child's. */
void timeline_in_child(void);
/* 0.6 ns where none is written; where one is 0.7 us and some 95 bytes.  WHAT:
 * "ALLREDUCE", "NEGOTIATE", "QUEUE", "MEMCPY_IN_FUSION_BUFFER", ...; NAME: of
 * the tensor, the row that it stands in, or NULL; times of CLOCK_MONOTONIC.  Any
 * thread. */
extern _Atomic int timeline_runs;
void timeline_event(const char *name, const char *what, uint64_t begun_ns,
		    uint64_t ended_ns);
/* An event that is the operation itself.  It may begin a step: one begins with an
 * operation that the step before it had, too. */
void timeline_operation(const char *name, const char *what, uint64_t begun_ns,
			uint64_t ended_ns, const struct timeline_op *op);

#endif
