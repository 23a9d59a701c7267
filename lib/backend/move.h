/* move.h - copies pieces of a GPU's memory, and scales them on the way, in one launch
 * for up to MOVE_PIECES.  (Copies by cuMemcpyAsync() are 10 to 20 times slower, since
 * each is a launch.)
 *
 * The kernel (move.cu) is in the library as PTX text, which the driver compiles.  So
 * nothing of NVIDIA's is needed to build the library. */
#ifndef BERTH_LIB_MOVE_H
#define BERTH_LIB_MOVE_H

#include <stddef.h>
#include <stdint.h>

#include "lib/base/kern.h"

enum { MOVE_PIECES = 128, MOVE_THREADS = 256 };

enum move_type { MOVE_BYTES, MOVE_F32, MOVE_F64, MOVE_F16, MOVE_BF16 };

/* The kernel's argument. */
struct move_args {
	uint32_t type, pieces;
	double times, divide; /* each element is divided, then multiplied */
	struct {
		uint64_t from, to, bytes;
	} piece[MOVE_PIECES];
};

struct move {
	int device;
	void *stream;
	uint64_t most_bytes; /* of a piece */
	struct move_args args;
};

/* Makes the kernel ready on DEVICE, whose context is this thread's, by a launch on
 * STREAM.  It may wait for the device.  All functions return a result of CUDA, 0 if all
 * is right. */
int move_load(int device, void *stream);
/* The floats that it can scale; MOVE_BYTES: another type. */
enum move_type move_type(berth_type type);

/* Pieces of M follow, which go onto STREAM.  Nothing is allocated. */
void move_begin(struct move *m, int device, void *stream, enum move_type type,
		double times, double divide);
int move_add(struct move *m, uint64_t from, uint64_t to, uint64_t bytes);
int move_end(struct move *m);

#endif
