/* shm_internal.h - shared by the parts of shm.c.  shm.c has the region, and shm_agree.c
 * the agreement.  shm_small.c has the data that each rank stores before the agreement.
 * shm_window.c moves data through the window.  shm_direct.c works in the heap. */
#ifndef BERTH_LIB_SHM_INTERNAL_H
#define BERTH_LIB_SHM_INTERNAL_H

#include "lib/backend/shm.h"
#include "lib/base/kern.h"

#include <string.h>

enum {
	LINE_BYTES = 128, /* two: the neighbour is fetched with it */
	INLINE_BYTES = 48,
	INLINE_ROOM_BYTES = 64, /* for whole vectors of them */
	FLAT_BYTES = 32 << 10,
	FLAT_NEAR_BYTES = 4096,
	GIVE_BYTES = 512,
	FLAT_SLOTS = 16,
	SLOTS = 4,             /* at least */
	SLOTS_BYTES = 2 << 20, /* of all ranks, if there are more */
	CHUNK_BYTES = 256 << 10,
	CHUNK_LEAST_BYTES = 16 << 10,
	PAIR_BYTES = 128 << 10, /* of a chunk of two ranks */
	PAIRS = 2,              /* pairs of rooms for them */
	PROBE_BYTES = 64 << 10,
	PART_BYTES = 64, /* parts of a chunk begin at a multiple */
	DIFFERENT_MOST = 64
};

/* The line of one rank for one operation. */
struct line {
	_Alignas(LINE_BYTES) struct post post; /* signature, sequence number */
	union {
		unsigned char data[INLINE_BYTES];
		struct {
			_Atomic uint64_t in, out; /* offsets in the heap, or NOWHERE */
			uint32_t past;            /* rank 0's: how all ranks stage */
			uint32_t probe;           /* rank 0's: find it out anew */
		} far;
	} u;
	unsigned char more[LINE_BYTES - 64]; /* continues DATA, for rows (shm_rows.c) */
};
#define NOWHERE UINT64_MAX

/* A rank's IN and OUT in the heap, read once, since its line may change at any time.
 * For rows: where this rank's part of that rank's data begins, and where the data
 * end. */
struct place {
	uint64_t in, out;
};

struct flag {
	_Alignas(LINE_BYTES) struct post post;
};

struct region {
	_Atomic uint64_t broken; /* wait.h */
	struct flag there, back; /* of shm_probe() */
	_Alignas(4096) unsigned char probe[PROBE_BYTES];
};

struct shm {
	struct shm_config config;
	unsigned n, me;
	struct region *region;
	struct line *line[2]; /* by the parity of SEQ, one for each rank */
	struct flag *staged, *reduced, *done; /* one a rank */
	unsigned char *flat, *window;
	size_t flat_bytes;   /* of one slot: the most that is summed flat */
	size_t chunk_bytes;  /* of the window, CHUNK_BYTES at most */
	uint32_t seq;        /* of the last operation */
	bool oversubscribed; /* more ranks than cores */
	bool past;           /* staging goes past the caches: of all ranks at once */
	bool found_past;     /* rank 0: PAST of its next line */
	uint64_t probed_ns;  /* when rank 0 has last tried; 0: never */
	uint32_t base;       /* chunks that have gone through the window */
	uint32_t told;       /* BASE, when all of this rank's flags last had it */
	struct wait wait;
	const void **src; /* room for one pointer a rank, and one more of dst */
	void **dst;
	struct place *place; /* one a rank, of an operation in the heap */
	char *texts;         /* of explain() */
	unsigned *different;
	size_t ndifferent;
};

static inline struct line *shm_own_line(struct shm *s)
{
	return &s->line[s->seq & 1][s->me];
}

/* Two ranks that store in their caches write where they have read last (see shm_flat()
 * and pair_room()). */
static inline bool shm_is_pair(const struct shm *s)
{
	return s->n == 2 && !s->past;
}

/* If inputs and outputs have this many bytes each, they fill 3/4 of the last cache.
 * From here on, results go past it. */
static inline size_t shm_stream_bytes(const struct shm *s)
{
	return s->config.cache_bytes / 8 * 3 / s->n;
}

/* ---- hints for the caches ---- */

/* This rank will write there soon.  Takes the cache lines from the ranks that read
 * them. */
static inline void cache_own(const void *at, size_t bytes)
{
	const unsigned char *p = at;

	for (size_t i = 0; i < bytes; i += 64)
#if defined(__x86_64__)
		__asm__ volatile("prefetchw %0" : : "m"(p[i]));
#else
		__builtin_prefetch(p + i, 1);
#endif
}

/* Others will read there.  Moves the cache lines to where others find them soonest.
 * Processors without this instruction ignore it. */
static inline void cache_give(const void *at, size_t bytes)
{
#if defined(__x86_64__)
	const unsigned char *p = at;

	for (size_t i = 0; i < bytes; i += 64)
		__asm__ volatile("cldemote %0" : : "m"(p[i]));
#else
	(void)at;
	(void)bytes;
#endif
}

/* ---- copies of what may be small ---- */

/* N is at most INLINE_BYTES. */
static inline void shm_copy_small(void *to, const void *from, size_t n)
{
	unsigned char *t = to;
	const unsigned char *f = from;

	if (n >= 16) {
		for (size_t i = 0; i + 16 < n; i += 16)
			memcpy(t + i, f + i, 16);
		memcpy(t + n - 16, f + n - 16, 16);
	} else if (n >= 8) {
		memcpy(t, f, 8);
		memcpy(t + n - 8, f + n - 8, 8);
	} else if (n >= 4) {
		memcpy(t, f, 4);
		memcpy(t + n - 4, f + n - 4, 4);
	} else {
		for (size_t i = 0; i < n; i++)
			t[i] = f[i];
	}
}

static inline void shm_copy(void *to, const void *from, size_t n)
{
	if (n <= INLINE_BYTES)
		shm_copy_small(to, from, n);
	else
		memcpy(to, from, n);
}

/* Tells SIGNATURE, and waits for those of all ranks. */
berth_result shm_agree(struct shm *s, uint32_t signature);
/* The two halves of shm_agree(): tell SIGNATURE, then wait until all ranks have told
 * theirs. */
void shm_say(struct shm *s, uint32_t signature);
berth_result shm_read_signatures(struct shm *s, uint32_t signature);
/* Returns WHY.  After BERTH_TIMEOUT, it notes the ranks that have not come to the
 * operation, and breaks the group. */
berth_result shm_late(struct shm *s, berth_result why);
/* Breaks the group for RESULT, unless it is broken already.  All waiting ranks wake up.
 * If a rank is in an operation that this rank is done with, it finishes that first. */
void shm_break(struct shm *s, berth_result result);

/* Rank R's room for BYTES in operation SEQ, beside its line. */
unsigned char *shm_flat(const struct shm *s, unsigned r, uint32_t seq, size_t bytes);

/* Bytes that each rank has to store for C, the same on all ranks that agree. */
size_t shm_small_bytes(const struct shm *s, const struct coll *c);
/* The most bytes that shm_run_small() takes. */
size_t shm_small_most(const struct shm *s, const struct coll *c);
/* Does C, whose shm_small_bytes() are BYTES. */
berth_result shm_run_small(struct shm *s, const struct coll *c, size_t bytes);
/* Is there room for each rank's row? */
bool shm_rows_fit(const struct shm *s, const struct coll_rows *rows);
/* Tells this rank's row, with the data if they are small.  SETTLED becomes C with the
 * counts of all rows.  MOVED: the operation is done.  If it is not, all rows are there,
 * and no more. */
berth_result shm_run_rows(struct shm *s, const struct coll *c, struct coll *settled,
			  bool *moved);

/* Does any operation on any number of elements.  This rank's line is not posted yet. */
berth_result shm_run_large(struct shm *s, const struct coll *c);
/* Moves the data of an alltoall, after the agreement. */
berth_result shm_run_window(struct shm *s, const struct coll *c);

/* ---- how to stage ---- */

/* Writes to MINE how all ranks stage.  Only the line of rank 0 counts. */
void shm_probe_say(struct shm *s, struct line *mine);
/* After the agreement: follows the line of rank 0. */
berth_result shm_probe_hear(struct shm *s);

/* ---- one operation that runs ---- */

struct shm_op {
	struct shm *s;
	const struct coll *c;
	struct kern kern;      /* of a reduction */
	size_t size, out_size; /* of an element, and of one of OUT */
	uint64_t each;         /* elements of a chunk, or of one rank's part of it */
	uint64_t rounds;
	size_t slot_bytes;
	uint32_t slots;
	bool stream;  /* results go past the caches */
	size_t piece; /* of C's pieces, the one that was found last */
};

static inline const unsigned char *shm_op_in(const struct shm_op *w, uint64_t element)
{
	return (const unsigned char *)w->c->in + element * w->size;
}

static inline unsigned char *shm_op_out(const struct shm_op *w, uint64_t element)
{
	return (unsigned char *)w->c->out + element * w->out_size;
}

static inline uint64_t least(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* Elements of ALL that round K has. */
static inline uint64_t shm_op_of_round(const struct shm_op *w, uint64_t all, uint64_t k)
{
	return all > k * w->each ? least(w->each, all - k * w->each) : 0;
}

/* Elements of each rank's part of LEN.  The last ranks may get fewer, or none. */
static inline uint64_t shm_op_part(const struct shm_op *w, uint64_t len)
{
	uint64_t step = PART_BYTES / w->size;

	return ((len + w->s->n - 1) / w->s->n + step - 1) / step * step;
}

/* Rank R's slot of round K in the window.  Small chunks have many slots, used in turn.
 * So the others have let go of a slot's cache lines when it is written again.  A rank
 * that has agreed to an operation is done with the one before, so each operation may
 * cut the window anew.  (32 KiB in two chunks took 7.4 us with 4 slots, 4.5 with
 * 64.) */
static inline unsigned char *shm_op_slot(const struct shm_op *w, unsigned r, uint64_t k)
{
	return w->s->window + (size_t)r * SLOTS * CHUNK_BYTES +
	       (w->s->base + (uint32_t)k) % w->slots * w->slot_bytes;
}

/* Waits until no rank reads the data that the slot of round K held before. */
berth_result shm_op_await_slot(struct shm_op *w, uint64_t k);
/* An allreduce or reduce through the window. */
berth_result shm_two_shot(struct shm_op *w);
/* An allreduce of two ranks through it. */
berth_result shm_pair(struct shm_op *w);

/* ---- in the heap ---- */

/* Writes to MINE where this rank's arrays lie in the heap. */
void shm_direct_say(const struct shm_op *w, struct line *mine);
/* After the agreement: do all arrays that others have to reach lie in the heap?
 * BERTH_PEER_LOST: a rank's array does not lie in the heap as the rank says. */
berth_result shm_direct_hear(const struct shm_op *w, bool *direct);
berth_result shm_run_direct(struct shm_op *w);

#endif
