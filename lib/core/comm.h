/* comm.h - the ranks of a set, joined to run operations one after the other: a
 * back end's group with its memory and connections.  One thread at a time.
 *
 * While an operation waits, the comm looks now and then (each 50 ms, asleep) for
 * ranks that are gone, and for a stall worth a report. */
#ifndef BERTH_LIB_COMM_H
#define BERTH_LIB_COMM_H

#include "lib/backend/backend.h"
#include "lib/base/members.h"
#include "lib/core/op.h"
#include "lib/core/region.h"
#include "lib/core/trace.h"
#include "lib/net/net.h"

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
	const char *name;
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
	struct work *work; /* that the last operation has begun, or NULL */
	const struct work_hooks *hooks;
	void *owner;
	const char *reason; /* of BERTH_UNSUPPORTED */
	unsigned closed;    /* how often in a row a connection was, in comm_watch() */
};

struct comm_config {
	struct world *world;
	const struct members *members; /* stays the owner's; this rank is one */
	uint32_t id;
	void *region; /* region_bytes(members on this host) */
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
