/* standin.h - a stand-in of one GPU in each process: libcuda.so.1 (cuda.c) and
 * libnccl.so.2 (nccl.c), by the real names and arguments.  It finds what a GPU would
 * let pass, and waits wherever a real one may.
 *
 * Device memory is mapped twice.  The addresses that are handed out can't be used by
 * the host: a look is a SIGSEGV.  Streams are threads, which use the other mapping.
 * What was freed, or was never allocated, is an error there.  New memory is full of
 * NaN.  A stream sleeps at random before each item.  Stream 0 is the legacy one: it
 * waits for all blocking streams, and they for it.
 *
 * A kernel of NCCL holds the GPU until all ranks have come.  Kernels of several streams
 * get the GPU as they get ready.  Two ranks of which each holds its GPU for what the
 * other waits for are found, and named.  What ranks launch has to match.  A
 * communicator is an error if two threads use it at once, or if it is used before it is
 * whole, while it launches or once its end has been called for.
 *
 * All communicators are non-blocking, but with STANDIN_BLOCKING.  To make one waits for
 * the device.  A group is launched by a thread of its own.  The first launch of a call
 * waits for all ranks.  ncclCommDestroy() waits for all ranks to call it, and
 * ncclCommAbort() for what is launched.  There is no symbol of a later version than the
 * oldest that the library takes: CUDA 12.0, NCCL 2.18.
 *
 * Memory of the host that cuMemHostAlloc() has not made is pageable.  counts.h has what
 * the stand-in counts.
 *
 * An error ends the process: "STANDIN: TEXT", status 97.  In the environment:
 *   STANDIN_SEED, STANDIN_DELAY_US     of the streams' sleep; 0: nothing is late
 *   STANDIN_GPU                        the name of this GPU; two ranks can't share it
 *   STANDIN_BUS                        ranks have parts of one GPU (MIG)
 *   STANDIN_UNIFIED                    the GPU can use the host's memory, too
 *   STANDIN_DRIVER, STANDIN_NCCL       their versions: 12000 and 21800
 *   STANDIN_BLOCKING                   there are blocking communicators, too
 *   STANDIN_NCCL_FAIL=RANK:OP:CODE     this kernel never ends; the error is CODE
 *   STANDIN_MISTAKE                    that a back end makes with it: checked.h */
#ifndef BERTH_TESTS_STANDIN_H
#define BERTH_TESTS_STANDIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tests/standin/counts.h"

enum { STANDIN_EXIT = 97, STANDIN_RANKS = 9 };

/* ---- libcuda; its header has the names with _v2, too ---- */

#define cuMemGetInfo cuMemGetInfo_v2
#define cuMemAlloc cuMemAlloc_v2
#define cuMemFree cuMemFree_v2
#define cuMemHostRegister cuMemHostRegister_v2
#define cuStreamDestroy cuStreamDestroy_v2
#define cuEventDestroy cuEventDestroy_v2
#define cuStreamBeginCapture cuStreamBeginCapture_v2
#define cuDeviceGetUuid cuDeviceGetUuid_v2
#define cuCtxPushCurrent cuCtxPushCurrent_v2
#define cuCtxPopCurrent cuCtxPopCurrent_v2

enum {
	CUDA_SUCCESS,
	CUDA_ERROR_INVALID_VALUE = 1,
	CUDA_ERROR_INVALID_DEVICE = 101,
	CUDA_ERROR_NOT_FOUND = 500,
	CUDA_ERROR_NOT_READY = 600,
	CUDA_ERROR_CAPTURE_INVALIDATED = 901
};
enum { CU_STREAM_NON_BLOCKING = 1 };

#define CALL(name, version, arguments) int name arguments;
#include "lib/backend/cuda_calls.def"
#include "tests/standin/cuda_calls.def"
#undef CALL
int cuGetProcAddress_v2(const char *name, void **call, int version, uint64_t flags,
			int *status);
int cuGetProcAddress(const char *name, void **call, int version, uint64_t flags);

/* ---- libnccl ---- */

enum {
	NCCL_SUCCESS,
	NCCL_SYSTEM_ERROR = 2,
	NCCL_INVALID_ARGUMENT = 4,
	NCCL_INVALID_USAGE = 5,
	NCCL_REMOTE_ERROR = 6,
	NCCL_IN_PROGRESS = 7
};

struct nccl_id;
struct nccl_config;

/* ---- the stand-in's own ---- */

__attribute__((noreturn)) void standin_fail(const char *text);
long standin_number(const char *name, long otherwise);
bool standin_makes(const char *mistake);
/* Where a stream finds P. */
void *standin_touch(const void *p, size_t bytes);
bool standin_is_device(const void *p);
void standin_enqueue(void *stream, void (*run)(void *arg), const void *arg,
		     size_t bytes);
/* Until all streams have done what they have. */
void standin_wait_all(void);
/* Frees the newest allocation of cuMemAllocAsync(), long before it is asked to. */
void standin_free_early(void *stream);
/* How many communicators of this process have come to their end. */
unsigned standin_ended(void);
/* A context in this thread, for what a program itself does. */
void standin_enter(void);

/* For programs: memory of the device, and copies in the order of STREAM. */
static inline void *standin_alloc(size_t bytes)
{
	uint64_t p = 0;

	cuMemAlloc(&p, bytes);
	return (void *)(uintptr_t)p;
}

static inline void standin_copy(void *to, const void *from, size_t bytes, void *stream)
{
	cuMemcpyAsync((uintptr_t)to, (uintptr_t)from, bytes, stream);
}

#endif
