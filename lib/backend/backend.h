/* backend.h - a way to do collectives, for the ranks of one group.
 *
 * All ranks of a group call run() with the same operations in the same order; what
 * differs is noticed before any data is used.  A back end makes no threads and keeps
 * no operation once run() has returned.  One thread at a time. */
#ifndef BERTH_LIB_BACKEND_H
#define BERTH_LIB_BACKEND_H

#include <stdbool.h>

#include "lib/backend/coll.h"

struct backend {
	const char *name;
	/* DEADLINE_NS: of CLOCK_MONOTONIC, 0 for none.  BERTH_MISMATCH: the ranks
	 * called for different things, nothing of one was mixed with another's, OUT
	 * may have been written, and the group goes on; others() says who differs
	 * from this rank.  BERTH_TIMEOUT, BERTH_PEER_LOST:
	 * others() says who did not come; the group is broken, for all of its ranks. */
	berth_result (*run)(void *group, const struct coll *c, uint64_t deadline_ns);
	/* The same of an operation with rows (coll_rows.h).  NULL: in two steps. */
	berth_result (*run_rows)(void *group, const struct coll *c,
				 uint64_t deadline_ns);
	/* After such a result: places in the group into WHICH, MOST of them.  How
	 * many. */
	size_t (*others)(const void *group, unsigned *which, size_t most);
	/* After BERTH_MISMATCH, all ranks: what each called for, in words.  TEXT: of
	 * this one, 4095 bytes at most; SAID[i]: of rank i, valid until the next
	 * operation. */
	berth_result (*explain)(void *group, const char *text, const char **said);
	/* Nobody is to wait any more, for the reason RESULT; LOST: who is gone. */
	void (*end)(void *group, berth_result result, unsigned lost);
	void (*leave)(void *group);
	/* How an allreduce of which size is done, in lines: TEXT of BYTES, cut to fit;
	 * its whole length. */
	size_t (*algorithms)(const void *group, char *text, size_t bytes);
	/* After BERTH_MISMATCH, OUT is as it was.  Where not, that of an allreduce of
	 * more than BACKEND_EARLY_BYTES, or of two ranks, is. */
	bool leaves_out;
	/* An allreduce of more than this many bytes may be in pieces; 0: none. */
	size_t pieces_bytes;
};

enum { BACKEND_TEXT_BYTES = 4096, BACKEND_EARLY_BYTES = 128 << 10 };

extern const struct backend shm_backend, tcp_backend;

#endif
