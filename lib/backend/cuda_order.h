/* cuda_order.h - marks, which are events of CUDA, and copies between the host and a GPU
 * in the order of a stream: what device.h has of both. */
#ifndef BERTH_LIB_CUDA_ORDER_H
#define BERTH_LIB_CUDA_ORDER_H

#include "lib/backend/device.h"

berth_result cuda_mark(int device, void *stream, void *ready, void **mark,
		       const char **why);
berth_result cuda_passed(void *mark);
berth_result cuda_await(void *mark, void *stream);
/* STREAM, of this thread's context, waits for N marks.  A result of CUDA. */
int cuda_await_all(void *stream, void *const *mark, size_t n);

/* A stage that is closed is kept for the next one of its device: to free its memory
 * would wait for all that the device does. */
berth_result cuda_stage(int device, size_t bytes, void **stage, void **room,
			const char **why);
void cuda_unstage(void *stage);
berth_result cuda_copy(void *stage, const struct device_copy *copy, size_t n,
		       void *const *ready, size_t nready, void **mark);

#endif
