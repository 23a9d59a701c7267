/* heap.h - notes which parts of a range are taken, by first fit.  The notes are in an
 * array outside the range, so that writes into the range cannot harm them.
 *
 * Taking a part looks at each part that is taken (1 ns each), but tensors are few.  Not
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

/* Takes BYTES, rounded up to HEAP_ALIGN, at a multiple of it.  From HEAP_LARGE on it is
 * a multiple of HEAP_ALIGN_LARGE.  False: there is not enough room, or no memory for
 * the array. */
bool heap_take(struct heap *h, size_t bytes, size_t *at);
/* The part that begins at AT, or NULL.  Valid until the next call. */
struct heap_part *heap_find(const struct heap *h, size_t at);
void heap_give(struct heap *h, size_t at);
void heap_free(struct heap *h);

#endif
