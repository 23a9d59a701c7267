/* memory.h - the memory that all ranks of a host map: their states, op records, the
 * windows of operations (shm.h), and a heap in which each rank has a part.
 *
 * It is one sealed memfd.  It is sparse: only written parts take memory.  If all of it
 * cannot be mapped (ulimit -v), the rank goes on without the heap.
 *
 * A rank holds a POSIX lock on its byte of the memfd.  The lock goes with the process,
 * however that ends, and a fork does not inherit it.  A child of a rank may read and
 * write the memory that its parent allocated.  It gets nothing of its own, and frees
 * nothing.  When it unmaps, the parent stays in.
 *
 * Windows and heap are not in core dumps, since the kernel would fill the sparse
 * parts. */
#ifndef BERTH_LIB_MEMORY_H
#define BERTH_LIB_MEMORY_H

#include <pthread.h>

#include "lib/base/heap.h"
#include "lib/boot/boot.h"

struct memory {
	int fd; /* kept: a lock on byte LOCAL_RANK says that the rank is alive */
	unsigned local_rank, local_size, size;
	unsigned char *at;
	size_t bytes;
	struct boot_memory *head;
	struct boot_rank *rank;        /* one for each local rank */
	unsigned char *lost;           /* one for each rank of the job */
	struct boot_record *records;   /* BOOT_RECORDS of this rank */
	void *heap;                    /* of all local ranks, HEAP_BYTES; or NULL */
	size_t heap_bytes, part_bytes; /* part_bytes for each rank */
	size_t heap_at;                /* its offset in the memfd */
	unsigned char *region;
	int pid;              /* a child of this process has another */
	pthread_mutex_t lock; /* of parts */
	struct heap parts;
};

/* Bytes that a host with LOCAL_SIZE ranks of a job of SIZE needs, the same on all ranks
 * of the host.  The heap has room for half of the host's memory for each rank.
 * REGION_BYTES: of memory_region(). */
size_t memory_bytes(unsigned size, unsigned local_size, size_t region_bytes);
/* Maps W's memory and takes its descriptor.  0, or -1 with errno.  EBUSY: another
 * process is this rank.  EPROTO: the memory is of another version or of other sizes.
 * After an error M is all zero, and there is nothing to unmap. */
int memory_map(struct memory *m, struct boot_world *w, size_t region_bytes);
/* Says that this rank has left, and lets the lock go.  M is all zero then. */
void memory_unmap(struct memory *m);
/* For retired.h.  memory_say_left() only says that this rank has left.  memory_part()
 * is this rank's part of the heap.  It is NULL if there is no heap, or if M is its
 * parent's. */
void memory_say_left(struct memory *m);
unsigned char *memory_part(const struct memory *m);

/* The region, for the set of all ranks of the job. */
void *memory_region(const struct memory *m);
/* The records of local rank LOCAL. */
struct boot_record *memory_records(const struct memory *m, unsigned local);

/* Has rank RANK of the job ended without having left?  LOCAL: its number on this host,
 * or -1.  It sees deaths here by the lock, and others by what the agent wrote. */
bool memory_is_lost(const struct memory *m, unsigned rank, int local);

/* RANK ended after it had given up because another rank was lost. */
bool memory_is_secondary(const struct memory *m, unsigned rank);

/* Allocates BYTES, rounded up and zero, in this rank's part of the heap.  NULL: it is
 * full, or there is no heap.  Freed memory goes back to the system.  Thread-safe. */
void *memory_alloc(struct memory *m, size_t bytes);
/* memory_alloc() for the library's caller, to whom the memory belongs also when the
 * world is left. */
void *memory_give(struct memory *m, size_t bytes);
/* False: P is not a block of this heap. */
bool memory_free(struct memory *m, void *p);
/* The memory that another rank of the host has allocated there, as it says: BYTES at AT
 * of the heap, at a multiple of ALIGN.  NULL: they do not lie there. */
void *memory_at(const struct memory *m, uint64_t at, size_t bytes, size_t align);

#endif
