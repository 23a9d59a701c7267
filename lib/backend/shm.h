/* shm.h - collectives between ranks that share memory: those of one host.
 *
 * Each rank posts a line for each operation: a sequence number, the operation's
 * signature and, if they fit, its data.  A rank that has seen the lines of all others
 * knows two things.  All of them called for the same.  No rank still reads the
 * operation before the last.  So two sets of lines are enough, and no operation has to
 * be closed.
 *
 *   to 48 bytes    the data are in the line: one hand-over of one cache line
 *   to 32 KiB      (4 ranks: 16, 16 and more: 4) in a slot beside it; every rank reads
 *                  of all slots what it needs.  Only to 4 KiB if just one of two ranks
 *                  gives data (reduce, broadcast, gather, scatter)
 *   above          through a window of 1 MiB a rank in chunks of 16 to 256 KiB, the
 *                  next being staged while one is reduced; rank i reduces part i of
 *                  each chunk and the others copy it ("two-shot"); two ranks: in
 *                  chunks of 128 KiB, all of which both read
 *   in the heap    nothing is staged: rank i reads part i of all inputs and stores it
 *                  into all outputs; past the caches when the arrays exceed them.
 *                  the other kinds read the others' inputs; alltoall never does
 *
 * All ways sum in the order of ranks, so every rank gets the same bits.
 * The method: DPML (SC'17) for the window, YHCCL (SC'23) for the sliding of it and
 * the stores that stream; single-writer flags as in XHC (CLUSTER'22). */
#ifndef BERTH_LIB_SHM_H
#define BERTH_LIB_SHM_H

#include "lib/backend/backend.h"
#include "lib/base/wait.h"

struct shm;

/* How a rank stores data that the others read. */
enum shm_staging {
	SHM_STAGING_FOUND, /* the faster way, tried out each 100 ms */
	SHM_STAGING_NEAR,
	SHM_STAGING_PAST /* past the caches */
};

struct shm_config {
	unsigned n, me;
	void *region;   /* shm_bytes(n), the same on all ranks, zero before the first */
	unsigned cores; /* that these ranks may use */
	/* Memory in which all ranks of the host can find each other's buffers:
	 * HEAP_BYTES at HEAP, mapped anywhere.  NULL: none. */
	void *heap;
	size_t heap_bytes;
	size_t cache_bytes; /* the last level cache that these ranks share; 0: 32 MiB */
	size_t chunk_bytes; /* of the window, at most; 0: as it is fastest */
	enum shm_staging staging;
	const _Atomic uint32_t *done; /* wait.h */
	const struct bells *bells;    /* of these ranks; NULL: none sleeps there */
	void (*idle)(void *ctx);      /* called while it waits long (wait.h) */
	void *ctx;
};

size_t shm_bytes(unsigned n);
/* NULL: out of memory. */
struct shm *shm_join(const struct shm_config *config);

#endif
