/* backend.h - a way to do collectives, for the ranks of one group.
 *
 * All back ends have begin, test, end and revoke.  One for the memory of the host does
 * all of an operation in begin(), so that it has neither test() nor end().  device.h
 * has these, and what else memory of a device needs.
 *
 * All ranks of a group begin the same operations in the same order.  A back end for the
 * host notices a difference before it uses any data.  It makes no threads.  Once
 * begin() has returned, it keeps nothing of the operation.  One thread at a time calls
 * it. */
#ifndef BERTH_LIB_BACKEND_H
#define BERTH_LIB_BACKEND_H

#include <stdbool.h>

#include "lib/backend/coll.h"

/* The lowest and the highest signature that a rank knows, and the places of their
 * ranks. */
struct signatures {
	uint32_t low, high, low_at, high_at;
};

struct backend {
	const char *name;
	/* DEADLINE_NS is a time of CLOCK_MONOTONIC, or 0 for none.  BERTH_MISMATCH: the
	 * ranks called for different operations.  No data of one were mixed with
	 * another's.  OUT may have been written.  The group goes on, and others() names
	 * the ranks that differ from this one.  BERTH_TIMEOUT, BERTH_PEER_LOST:
	 * others() names the ranks that did not come.  The group is broken for all of
	 * its ranks. */
	berth_result (*begin)(void *group, const struct coll *c, uint64_t deadline_ns);
	/* begin() for an operation with rows (coll_rows.h).  NULL: in two steps. */
	berth_result (*begin_rows)(void *group, const struct coll *c,
				   uint64_t deadline_ns);
	/* After such a result: writes places in the group to WHICH, at most MOST.
	 * Returns how many there are. */
	size_t (*others)(const void *group, unsigned *which, size_t most);
	/* All ranks call this after BERTH_MISMATCH, to tell in words what each called
	 * for.  TEXT is this rank's, of at most 4095 bytes.  SAID[i] is rank i's, valid
	 * until the next operation. */
	berth_result (*explain)(void *group, const char *text, const char **said);
	/* Ends all waits, for the reason RESULT.  LOST is the place of the lost
	 * rank. */
	void (*revoke)(void *group, berth_result result, unsigned lost);
	/* Has another rank of this host ended them?  Its reason, or BERTH_OK.  NULL: a
	 * rank that does not wait can't tell. */
	berth_result (*ended)(const void *group);
	void (*leave)(void *group);
	/* Writes to TEXT, in lines, how an allreduce of each size is done.  The text is
	 * cut at BYTES.  Returns its whole length. */
	size_t (*algorithms)(const void *group, char *text, size_t bytes);
	/* The two parts of begin(), for a back end that agrees in another way (hier.h);
	 * NULL: it has none.
	 *
	 * The agreement.  SIGNATURES becomes the least and the greatest that all ranks
	 * of the group know.  C travels with it, a small allreduce or one of no
	 * elements.  OUT of C may hold anything unless LOW and HIGH are the same. */
	berth_result (*agree)(void *group, const struct coll *c,
			      struct signatures *signatures, uint64_t deadline_ns);
	/* The data of an operation that has been agreed. */
	berth_result (*data)(void *group, const struct coll *c, uint64_t deadline_ns);
	/* After BERTH_MISMATCH, OUT is unchanged.  If this is false, OUT of an
	 * allreduce is unchanged if it is of more than BACKEND_EARLY_BYTES, or of two
	 * ranks. */
	bool leaves_out;
	/* An allreduce may have pieces if it is of more than this many bytes.  0:
	 * never. */
	size_t pieces_bytes;
};

enum { BACKEND_TEXT_BYTES = 4096, BACKEND_EARLY_BYTES = 128 << 10 };

extern const struct backend shm_backend, tcp_backend;

#endif
