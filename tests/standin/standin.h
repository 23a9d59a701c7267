/* standin.h - a stand-in of one GPU in each process, with the parts of libcuda (cuda.c)
 * and libnccl (nccl.c) that a back end needs.  It finds what a GPU would let pass.
 *
 * Device memory is mapped twice.  The addresses that are handed out can't be used by
 * the host: a look is a SIGSEGV.  Streams are threads, which use the other mapping.
 * What was freed, or was never allocated, is an error there.  New memory is full of
 * NaN.  A stream sleeps at random before each item.  Stream 0 is the legacy one: it
 * waits for all blocking streams, and they for it.
 *
 * A kernel of NCCL holds the GPU until all ranks have come.  Kernels get the GPU in the
 * order in which they were launched, on whatever stream.  Two ranks of which each holds
 * its GPU for what the other waits for are found, and named.  What ranks launch has to
 * match.  Two threads in NCCL at a time, and a communicator that is used before it is
 * whole or after its end, are errors.
 *
 * An error ends the process: "STANDIN: TEXT", status 97.  In the environment:
 *   STANDIN_SEED, STANDIN_DELAY_US     of the streams' sleep
 *   STANDIN_GPU                        the name of this GPU; two ranks can't share it
 *   STANDIN_NCCL_FAIL=RANK:OP:CODE     this kernel never ends; the error is CODE
 *   STANDIN_LACKS                      the back end neither scales nor has an alltoall
 *   STANDIN_MISTAKE                    that the back end makes */
#ifndef BERTH_TESTS_STANDIN_H
#define BERTH_TESTS_STANDIN_H

#include "lib/base/kern.h"

enum { STANDIN_EXIT = 97, STANDIN_RANKS = 9, STANDIN_PIECES = 64 };

__attribute__((noreturn)) void standin_fail(const char *text);
/* Where a stream finds P. */
void *standin_touch(const void *p, size_t bytes);
bool standin_is_device(const void *p);
void standin_enqueue(void *stream, void (*run)(void *arg), const void *arg,
		     size_t bytes);
/* Calls in which this thread waited for the device. */
extern _Thread_local unsigned long standin_waits;

/* ---- libcuda ---- */

enum { CUDA_SUCCESS, CUDA_ERROR_INVALID_VALUE = 1, CUDA_ERROR_NOT_READY = 600 };
enum { CU_STREAM_NON_BLOCKING = 1 };

/* The parameter of the kernel "berth_move". */
struct standin_table {
	unsigned n;
	struct {
		const void *from;
		void *to;
		uint64_t bytes;
	} piece[STANDIN_PIECES];
};

int cuInit(unsigned flags);
int cuDevicePrimaryCtxRetain(void **context, int device);
int cuCtxGetCurrent(void **context);
int cuCtxSetCurrent(void *context);
int cuDeviceGetUuid(char uuid[16], int device);
int cuMemAlloc(void **p, size_t bytes);
int cuMemFree(void *p);
int cuMemAllocAsync(void **p, size_t bytes, void *stream);
int cuMemFreeAsync(void *p, void *stream);
int cuMemHostAlloc(void **p, size_t bytes);
int cuMemFreeHost(void *p);
int cuStreamCreate(void **stream, unsigned flags);
int cuStreamDestroy(void *stream);
int cuStreamSynchronize(void *stream);
int cuStreamWaitEvent(void *stream, void *event);
int cuEventCreate(void **event);
int cuEventDestroy(void *event);
int cuEventRecord(void *event, void *stream);
int cuEventQuery(void *event);
int cuMemcpyAsync(void *to, const void *from, size_t bytes, void *stream);
int cuMemsetAsync(void *to, int byte, size_t bytes, void *stream);
int cuLaunchMove(const struct standin_table *table, void *stream);

/* ---- libnccl ---- */

enum {
	NCCL_SUCCESS,
	NCCL_INVALID_ARGUMENT = 4,
	NCCL_INVALID_USAGE = 5,
	NCCL_IN_PROGRESS = 7
};

struct nccl_id {
	char name[128];
};

int ncclGetUniqueId(struct nccl_id *id);
/* BLOCKING: of the launches; the communicator is made meanwhile in any case. */
int ncclCommInitRank(void **comm, int n, struct nccl_id id, int me, bool blocking);
int ncclCommGetAsyncError(void *comm, int *rc);
int ncclCommRevoke(void *comm);
int ncclCommDestroy(void *comm);
int ncclGroupStart(void);
int ncclGroupEnd(void);
/* To ROOT, or to all if that is -1; scaled as kern.h says, in the order of ranks. */
int ncclReduceAny(const void *in, void *out, size_t count, berth_type type, berth_op op,
		  const struct kern_scale *scale, int root, void *comm, void *stream);
/* In a group: all of one communicator are one kernel. */
int ncclSend(const void *in, size_t bytes, int peer, void *comm, void *stream);
int ncclRecv(void *out, size_t bytes, int peer, void *comm, void *stream);

/* ---- backend.c: a back end of libberth on these ---- */

/* A mistake that it makes; NULL: none.  MISTAKES has all, and NULL at the end. */
extern const char *standin_mistake;
extern const char *const standin_mistakes[];

/* libberth uses it from now on in this process. */
void standin_register(void);
/* A context in this thread, for what a program itself does. */
void standin_enter(void);

#endif
