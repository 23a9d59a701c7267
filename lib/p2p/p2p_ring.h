/* p2p_ring.h - frames (p2p_internal.h) from one rank to another of the same host.
 *
 * A ring has P2P_CELLS cells of two cache lines.  A frame takes one cell, with up to
 * P2P_CELL_BYTES of its body.  A longer body lies in the bytes of the ring.  The writer
 * stamps a cell with the number of its frame, so one line changes hands for a small
 * message.  The reader says how much it has taken.
 *
 * All positions are the rank's own.  What the other side says is a length that is
 * checked, or how much it has taken, which only ever rises, up to what there is. */
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
	/* of the writer: as the reader said last */
	uint64_t cells_taken, bytes_taken;
	/* of the reader: what is left of the body of the frame in hand */
	struct p2p_frame frame;
	uint64_t body;
	bool is_inside, is_bad;
};

size_t p2p_ring_bytes(uint64_t size);

/* All of it, or nothing: there is no room.  IS_BAD: the reader says what cannot be. */
bool p2p_ring_put(struct p2p_ring_end *e, const struct p2p_frame *f, const void *body,
		  size_t bytes);
/* How much of a body of BYTES could be put now; 0: nothing, not even a frame. */
size_t p2p_ring_room(struct p2p_ring_end *e, size_t bytes);

bool p2p_ring_is_empty(const struct p2p_ring_end *e);
/* The next frame, or the one that has been begun (*FRESH says which).  1; 0: there is
 * none; -1: it cannot be. */
int p2p_ring_head(struct p2p_ring_end *e, struct p2p_frame *f, bool *fresh);
/* All that is left of the body of that frame, to TO (NULL: nowhere). */
void p2p_ring_body(struct p2p_ring_end *e, void *to);
/* The frame has been read. */
void p2p_ring_next(struct p2p_ring_end *e);
/* Whether the writer waits for the room that this reader has made. */
bool p2p_ring_is_awaited(const struct p2p_ring_end *e);

#endif
