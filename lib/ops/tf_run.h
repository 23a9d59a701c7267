/* tf_run.h - what kernels do when they are called.  P is a struct tf_kernel.
 *
 * A graph takes the asynchronous ones: TensorFlow's threads begin many operations, in
 * any order, and none of them waits.  Eager mode takes those that block: there is one
 * thread and one order, and to wake two threads for each call takes time.
 * [8 B: 55 us instead of 89] */
#ifndef BERTH_OPS_TF_RUN_H
#define BERTH_OPS_TF_RUN_H

#include "lib/ops/tf_abi.h"

void tf_run_begin(void *p, TF_OpKernelContext *ctx, TF_AsyncOpKernelDoneCallback *done);
void tf_run_now(void *p, TF_OpKernelContext *ctx);
void tf_run_scalar(void *p, TF_OpKernelContext *ctx);

#endif
