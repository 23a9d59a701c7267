/* heap.h - which parts of a range are taken: first fit, in an array of its own, so that
 * nothing that anybody writes into the range can harm it.
 *
 * Taking costs a look at each part that is taken, 1 ns each; tensors are few.  Not
 * thread-safe. */
#ifndef BERTH_LIB_HEAP_H
#define BERTH_LIB_HEAP_H

#include <stdbool.h>
#include <stddef.h>

struct heap {
	struct heap_part {
		size_t at, bytes;
		bool is_callers; /* of the library's caller; not used here */
	} * part;                /* in the order of AT */
	size_t n, room;
	size_t bytes; /* of the range */
};

enum { HEAP_ALIGN = 64, HEAP_ALIGN_LARGE = 4096, HEAP_LARGE = 1 << 20 };

/* BYTES, rounded up to HEAP_ALIGN, at a multiple of it; of HEAP_ALIGN_LARGE from
 * HEAP_LARGE on.  False: there is no such place, or no memory for the array. */
bool heap_take(struct heap *h, size_t bytes, size_t *at);
/* The part that begins at AT, or NULL.  Valid until the next call. */
struct heap_part *heap_find(const struct heap *h, size_t at);
void heap_give(struct heap *h, size_t at);
void heap_free(struct heap *h);

#endif
