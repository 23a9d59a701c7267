/* channel.h - the ranks of a set, joined to run operations one after the other: a
 * back end's group with its memory and connections.  A set has two, one for blocking
 * calls and one for its engine; they know nothing of each other.  One thread at a
 * time.
 *
 * While an operation waits, the channel looks now and then (each 50 ms, asleep) for
 * ranks that are gone, and for a stall worth a report. */
#ifndef BERTH_LIB_CHANNEL_H
#define BERTH_LIB_CHANNEL_H

#include "lib/backend.h"
#include "lib/net.h"
#include "lib/op.h"
#include "lib/trace.h"

struct world;

#define CHANNEL_ENDED "the set was removed, or the library shut down, meanwhile"

/* Why an operation failed, apart from the thread that ran it. */
struct failure {
	berth_result rc;
	char tensor[80];
	unsigned missing[64]; /* ranks of the job */
	size_t nmissing;
	char text[1024];
};

struct channel {
	struct world *world;
	unsigned n, me;
	const unsigned *rank; /* of the job, for each place; the set's */
	uint32_t id;          /* in flights: the set's number; top bit: asynchronous */
	const struct backend *back;
	void *group;
	struct net *net; /* NULL: all on this host */
	const char **said;
	void *scratch;
	size_t scratch_bytes;
	void *kept; /* of call.c */
	uint32_t turn;
	_Atomic berth_result broken; /* for good, for the reason FINALLY */
	struct failure finally;
	/* of the operation that runs */
	const char *name;
	const struct op *op;
	struct boot_flight *flight;
	uint64_t begun_ns;    /* since when it has been looked at; 0: not yet */
	uint64_t reported_ns; /* last stall's */
	uint64_t deadline_ns;
	unsigned lost;     /* place of who is gone; N: nobody */
	unsigned gone[64]; /* ranks of the job that were when it was noticed */
	size_t ngone;
	unsigned late[64]; /* places that let time pass, where that was told */
	size_t nlate;
	bool patient;       /* waits for no operation: no stall */
	_Atomic bool ends;  /* by any thread: what waits comes back, BERTH_ABORTED */
	_Atomic bool parts; /* the same: who leaves from now on is not lost */
	struct {
		uint64_t operations, bytes, stalls, errors, wait_ns;
	} count;
};

struct channel_config {
	struct world *world;
	unsigned n, me;
	const unsigned *rank; /* stays the owner's */
	uint32_t id;
	void *region; /* shm_bytes(members on this host); NULL: they are alone */
	/* Of each place, what its channel_address() says; NULL: all on this host */
	char *const *address;
	struct net *net; /* opened by channel_net(); becomes the channel's */
};

/* A listening socket for the channel of a set of N in which this rank has place ME. */
struct net *channel_net(struct world *w, unsigned n, unsigned me, char *why,
			size_t why_bytes);
/* BERTH_MEMORY, or BERTH_INVALID for an address. */
berth_result channel_open(struct channel *c, const struct channel_config *config);
void channel_close(struct channel *c);

/* Run OP; *WHY is set where it returns anything but BERTH_OK.  BERTH_MISMATCH: all
 * ranks get it, and the channel goes on; the other errors are for good, and TIMEOUT
 * and PEER_LOST reach all ranks. */
berth_result channel_run(struct channel *c, const struct op *op, struct failure *why);
/* The bare operation: no scaling, no flight.  BERTH_MISMATCH is left to the caller. */
berth_result channel_step(struct channel *c, const struct coll *coll,
			  uint64_t deadline_ns);
/* After BERTH_MISMATCH, all ranks: what each says, until the next operation. */
berth_result channel_explain(struct channel *c, const char *text, const char ***said);
/* WHY becomes what RC of an operation called WORDS means. */
berth_result channel_failed(struct channel *c, berth_result rc, const struct op *op,
			    struct failure *why);
/* C's operation waits since BEGUN_NS for N PLACEs: say so, if it is time after what was
 * said at *REPORTED_NS. */
void channel_stalled(struct channel *c, uint64_t begun_ns, uint64_t *reported_ns,
		     const unsigned *place, size_t n);
/* Has what waits since BEGUN_NS waited for too long? */
bool channel_is_over(const struct channel *c, uint64_t begun_ns, uint64_t deadline_ns);
/* Is it broken for good?  Then *WHY is the reason.  Any thread. */
berth_result channel_broken(const struct channel *c, struct failure *why);
/* Memory of BYTES until the next call; NULL: out of memory. */
void *channel_scratch(struct channel *c, size_t bytes);
/* When OP has to be done, by CLOCK_MONOTONIC; 0: never. */
uint64_t channel_deadline(const struct channel *c, const struct op *op);
/* It is broken, since this rank has no more to do with it. */
void channel_abort(struct channel *c);
/* Nobody is to wait for this rank any more. */
void channel_end(struct channel *c, berth_result rc);

#endif
