/* comm.h - the ranks of a set, joined to run operations one after the other: a
 * back end's group with its memory and connections.  One thread at a time.
 *
 * While an operation waits, the comm looks now and then (each 50 ms, asleep) for
 * ranks that are gone, and for a stall worth a report. */
#ifndef BERTH_LIB_COMM_H
#define BERTH_LIB_COMM_H

#include "lib/core/set.h"

struct comm_config {
	struct world *world;
	const struct members *members; /* stays the owner's; this rank is one */
	uint32_t id;
	const struct work_hooks *hooks; /* of works on devices */
	void *region;                   /* region_bytes(members on this host) */
	/* Opened by comm_net(); becomes the comm's.  NULL: all on this host */
	struct net *net;
};

/* A net of the set of M.  ID: as net.h.  ALL: it is the set of all ranks, and a rank
 * that leaves it is lost. */
struct net *comm_net(struct world *w, const struct members *m, uint64_t id, bool all,
		     char *why, size_t why_bytes);
/* BERTH_MEMORY */
berth_result comm_open(struct comm *c, const struct comm_config *config);
void comm_close(struct comm *c);

/* The bare operation: no scaling, no op record.  BERTH_MISMATCH is left to the
 * caller. */
berth_result comm_step(struct comm *c, const struct coll *coll, uint64_t deadline_ns);
/* After BERTH_MISMATCH, all ranks: what each says, until the next operation. */
berth_result comm_explain(struct comm *c, const char *text, const char ***said);
/* OP runs on a device since BEGUN_NS: what ends it, or BERTH_OK.  The comm is broken
 * then. */
berth_result comm_watch(struct comm *c, const struct op *op, uint64_t begun_ns,
			uint64_t deadline_ns);
/* WHY becomes what RC of an operation called WORDS means. */
berth_result comm_failed(struct comm *c, berth_result rc, const struct op *op,
			 struct failure *why);
/* C's operation waits since BEGUN_NS for N PLACEs: say so, if it is time after what was
 * said at *REPORTED_NS. */
void comm_stalled(struct comm *c, uint64_t begun_ns, uint64_t *reported_ns,
		  const unsigned *place, size_t n);
/* Has what waits since BEGUN_NS waited for too long? */
bool comm_is_over(const struct comm *c, uint64_t begun_ns, uint64_t deadline_ns);
/* Is it broken for good?  Then *WHY is the reason.  Any thread. */
berth_result comm_broken(const struct comm *c, struct failure *why);
/* RC is this thread's last error, for the reason *WHY, which may be NULL.  RC. */
berth_result comm_note_failure(berth_result rc, const struct failure *why);
/* Memory of BYTES until the next call; NULL: out of memory. */
void *comm_scratch(struct comm *c, size_t bytes);
/* When OP has to be done, by CLOCK_MONOTONIC; 0: never. */
uint64_t comm_deadline(const struct comm *c, const struct op *op);
/* The rank of PLACE has told what no rank can: it is taken for lost, on all ranks.
 * BERTH_PEER_LOST. */
berth_result comm_refuse(struct comm *c, unsigned place);
/* *WHY, after WORDS of what ran: who left the set, aborted it or shut down. */
void comm_say_end(const struct comm *c, struct failure *why, const char *words);
/* Aborts the set, for the reason WHY, or NULL; any thread.  What runs here ends within
 * 50 ms. */
void comm_say_abort(struct comm *c, const char *why);
/* The rank of PLACE, of another host, has aborted it. */
void comm_hear_abort(struct comm *c, unsigned place, const char *why);
/* As comm_say_abort(), in the thread that may run operations: it acts at once. */
void comm_abort(struct comm *c);
/* Nobody is to wait for this rank any more. */
void comm_end(struct comm *c, berth_result rc);

#endif
