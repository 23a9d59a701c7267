#include "lib/p2p/p2p_ring.h"

#include <string.h>

size_t p2p_ring_bytes(uint64_t size)
{
	return sizeof(struct p2p_ring) + size;
}

/* This rank writes at AT next.  It takes the cache line from the rank that read it
 * last. */
static void ring_own(const void *at)
{
#if defined(__x86_64__)
	__asm__ volatile("prefetchw %0" : : "m"(*(const char *)at));
#else
	__builtin_prefetch(at, 1);
#endif
}

/* Bodies in the bytes begin on cache lines. */
static uint64_t whole_lines(uint64_t bytes)
{
	return (bytes + 63) & ~(uint64_t)63;
}

/* ---- the writer ---- */

static bool has_room(const struct p2p_ring_end *e, uint64_t bytes)
{
	return e->cells - e->cells_taken < P2P_CELLS &&
	       (bytes <= P2P_CELL_BYTES ||
		e->size - (e->bytes - e->bytes_taken) >= whole_lines(bytes));
}

/* Hear how much the reader has taken.  This rank says first that it waits, so that the
 * reader may see that. */
static void ring_hear(struct p2p_ring_end *e)
{
	uint64_t cells, bytes;

	atomic_store(&e->ring->is_full, 1);
	bytes = atomic_load(&e->ring->bytes_taken);
	cells = atomic_load(&e->ring->cells_taken);
	if (cells - e->cells_taken > e->cells - e->cells_taken ||
	    bytes - e->bytes_taken > e->bytes - e->bytes_taken || bytes % 64) {
		e->is_bad = true;
		return;
	}
	e->cells_taken = cells;
	e->bytes_taken = bytes;
}

static bool find_room(struct p2p_ring_end *e, uint64_t bytes)
{
	if (has_room(e, bytes))
		return true;
	ring_hear(e);
	if (e->is_bad || !has_room(e, bytes))
		return false;
	atomic_store_explicit(&e->ring->is_full, 0, memory_order_relaxed);
	return true;
}

size_t p2p_ring_room(struct p2p_ring_end *e, size_t bytes)
{
	uint64_t free_bytes;

	/* a piece of a quarter at least, so that there are not many small ones */
	if (!find_room(e, bytes < e->size / 4 ? bytes : e->size / 4))
		return 0;
	free_bytes = e->size - (e->bytes - e->bytes_taken);
	return bytes <= P2P_CELL_BYTES || bytes < free_bytes ? bytes : free_bytes;
}

static void copy_in(struct p2p_ring_end *e, const void *from, size_t bytes)
{
	size_t at = e->bytes & (e->size - 1), first = e->size - at;

	if (first > bytes)
		first = bytes;
	memcpy(e->ring->bytes + at, from, first);
	if (bytes > first)
		memcpy(e->ring->bytes, (const unsigned char *)from + first,
		       bytes - first);
	e->bytes += whole_lines(bytes);
}

bool p2p_ring_put(struct p2p_ring_end *e, const struct p2p_frame *f, const void *body,
		  size_t bytes)
{
	struct p2p_cell *c = &e->ring->cell[e->cells % P2P_CELLS];

	if (!find_room(e, bytes))
		return false;
	c->frame = *f;
	if (bytes > P2P_CELL_BYTES)
		copy_in(e, body, bytes);
	else if (bytes)
		memcpy(c->body, body, bytes);
	e->cells++;
	atomic_store_explicit(&c->stamp, e->cells, memory_order_release);
	ring_own(&e->ring->cell[e->cells % P2P_CELLS]);
	return true;
}

/* ---- the reader ---- */

bool p2p_ring_is_empty(const struct p2p_ring_end *e)
{
	return !e->is_inside &&
	       atomic_load(&e->ring->cell[e->cells % P2P_CELLS].stamp) != e->cells + 1;
}

uint64_t p2p_ring_drained(const struct p2p_ring_end *e)
{
	const uint64_t cells = atomic_load(&e->ring->cells_taken),
		       bytes = atomic_load(&e->ring->bytes_taken);

	return cells != e->cells_taken || bytes != e->bytes_taken ? cells + bytes + 1
								  : 0;
}

int p2p_ring_head(struct p2p_ring_end *e, struct p2p_frame *f, bool *fresh)
{
	struct p2p_cell *c = &e->ring->cell[e->cells % P2P_CELLS];

	*fresh = !e->is_inside;
	if (e->is_inside) {
		*f = e->frame;
		return 1;
	}
	if (atomic_load_explicit(&c->stamp, memory_order_acquire) != e->cells + 1)
		return 0;
	e->frame = c->frame;
	/* from here on the copy counts: the writer does not reach it */
	__asm__ volatile("" : : : "memory");
	if (!p2p_frame_body(&e->frame, &e->body) || whole_lines(e->body) > e->size)
		return -1;
	e->is_inside = true;
	*f = e->frame;
	return 1;
}

void p2p_ring_body(struct p2p_ring_end *e, void *to)
{
	const struct p2p_cell *c = &e->ring->cell[e->cells % P2P_CELLS];
	size_t at = e->bytes & (e->size - 1), first = e->size - at;

	if (!to || !e->body)
		return;
	if (e->body <= P2P_CELL_BYTES) {
		memcpy(to, c->body, e->body);
		return;
	}
	if (first > e->body)
		first = e->body;
	memcpy(to, e->ring->bytes + at, first);
	if (e->body > first)
		memcpy((unsigned char *)to + first, e->ring->bytes, e->body - first);
}

void p2p_ring_next(struct p2p_ring_end *e)
{
	if (e->body > P2P_CELL_BYTES) {
		e->bytes += whole_lines(e->body);
		atomic_store_explicit(&e->ring->bytes_taken, e->bytes,
				      memory_order_release);
	}
	e->cells++;
	e->is_inside = false;
	atomic_store_explicit(&e->ring->cells_taken, e->cells, memory_order_release);
}

bool p2p_ring_is_awaited(const struct p2p_ring_end *e)
{
	return atomic_load_explicit(&e->ring->is_full, memory_order_relaxed);
}
