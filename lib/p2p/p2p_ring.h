/* p2p_ring.h - frames (p2p_internal.h) from one rank to another of the same host.
 *
 * A ring has P2P_CELLS cells of two cache lines.  A frame takes one cell, with up to
 * P2P_CELL_BYTES of its body.  A longer body lies in the bytes of the ring.  The writer
 * stamps a cell with the number of its frame, so one line changes hands for a small
 * message.  The reader says how much it has taken.
 *
 * Each rank keeps its own positions.  The other side says only a length, which is
 * checked, or how much it has taken.  That only ever rises, up to the amount that there
 * is. */
#ifndef BERTH_LIB_P2P_RING_H
#define BERTH_LIB_P2P_RING_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/p2p/p2p_frame.h"

enum { P2P_CELLS = 64, P2P_CELL_BYTES = 80, P2P_LINE_BYTES = 128 };

struct p2p_cell {
	_Alignas(P2P_LINE_BYTES) _Atomic uint64_t stamp;
	struct p2p_frame frame;
	unsigned char body[P2P_CELL_BYTES];
};

/* In the region; BYTES follow. */
struct p2p_ring {
	/* the reader's */
	_Alignas(P2P_LINE_BYTES) _Atomic uint64_t cells_taken;
	_Atomic uint64_t bytes_taken;
	/* the writer's: it waits for room */
	_Alignas(P2P_LINE_BYTES) _Atomic uint32_t is_full;
	struct p2p_cell cell[P2P_CELLS];
	unsigned char bytes[];
};

/* One side of a ring. */
struct p2p_ring_end {
	struct p2p_ring *ring;
	uint64_t size;         /* of bytes[], a power of 2 */
	uint64_t cells, bytes; /* written, or taken */
	/* of the writer: the last numbers that the reader said */
	uint64_t cells_taken, bytes_taken;
	/* of the reader: the current frame, and how much is left of its body */
	struct p2p_frame frame;
	uint64_t body;
	bool is_inside, is_bad;
};

size_t p2p_ring_bytes(uint64_t size);

/* Put all of the frame, or nothing if there is no room (FALSE).  IS_BAD: the reader
 * says something that cannot be. */
bool p2p_ring_put(struct p2p_ring_end *e, const struct p2p_frame *f, const void *body,
		  size_t bytes);
/* How much of a body of BYTES could be put now; 0: nothing, not even a frame. */
size_t p2p_ring_room(struct p2p_ring_end *e, size_t bytes);

bool p2p_ring_is_empty(const struct p2p_ring_end *e);
/* A number for what the reader has taken, if this writer has not heard of it yet; else
 * 0. */
uint64_t p2p_ring_drained(const struct p2p_ring_end *e);
/* The next frame, or the one that has been begun (*FRESH says which).  1: it is there;
 * 0: there is no frame; -1: the frame cannot be. */
int p2p_ring_head(struct p2p_ring_end *e, struct p2p_frame *f, bool *fresh);
/* Copy all of the body of that frame to TO (NULL: nowhere). */
void p2p_ring_body(struct p2p_ring_end *e, void *to);
/* The frame has been read. */
void p2p_ring_next(struct p2p_ring_end *e);
/* Does the writer wait for the room that this reader has made? */
bool p2p_ring_is_awaited(const struct p2p_ring_end *e);

#endif
