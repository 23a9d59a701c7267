/* nccl.h - device.h by NCCL: libnccl.so.2, 2.18 or later, and libcuda.so.1 (cuda.h),
 * both loaded at the first operation on a GPU's memory.  NCCL is that which the process
 * has already (PyTorch loads its own), or BERTH_NCCL, or what the loader finds, or that
 * of a wheel in the Python environment.
 *
 * Each group has a communicator.  All are non-blocking, so that a rank that does not
 * come holds up no thread.  Works of all groups of a GPU are on one stream of it: where
 * they wait for their marks, those behind them do, too.  A kernel
 * (move.h) packs arrays that are fused into one room per GPU, which grows in the order
 * of that stream.  It also scales arrays, and divides sums that NCCL does not average
 * exactly.  Each of its passes over an array rounds to the array's type.
 *
 * Which call of NCCL is made depends on what the ranks have agreed on, and on nothing
 * else: not on where this rank's arrays lie, nor on a count of its own.
 *
 * A thread per communicator ends it, since NCCL waits for other ranks there, or for
 * the device; nobody waits for that thread.  After ncclCommAbort() there is no call of
 * that communicator.  If it has not ended what runs in 10 s, that is given up, and what
 * it holds is never freed. */
#ifndef BERTH_LIB_NCCL_H
#define BERTH_LIB_NCCL_H

#include "lib/backend/device.h"

struct nccl_id {
	char bytes[128];
};

/* That of 2.17.  Each later version takes it, and fills in what it has more. */
struct nccl_config {
	size_t size;
	unsigned magic, version;
	int blocking, cga, min_ctas, max_ctas;
	const char *net;
	int split_share;
};

extern const struct device_backend nccl_backend;

#endif
