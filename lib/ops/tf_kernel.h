/* tf_kernel.h - a kernel: what stays the same in all calls of one node of a graph, or,
 * in eager mode, of all calls with the same attributes. */
#ifndef BERTH_OPS_TF_KERNEL_H
#define BERTH_OPS_TF_KERNEL_H

#include "lib/ops/tf_abi.h"
#include "lib/ops/tf_op.h"

struct tf_kernel {
	const struct tf_op *op;
	int64_t attribute[TF_ATTRIBUTES]; /* those that the op has */
	double prescale, postscale;
	/* "allreduce.NODE": ranks meet by the names of nodes, as with Horovod.  A name
	 * that is fixed at trace time would be the same for two calls of a function. */
	char *label;
};

/* NULL: C has failed. */
struct tf_kernel *tf_kernel_make(TF_OpKernelConstruction *c, const struct tf_op *op);
void tf_kernel_drop(void *kernel);

#endif
