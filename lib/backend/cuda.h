/* cuda.h - libcuda.so.1, loaded when it is needed; the parts of it that a back end
 * uses.
 *
 * All calls need a context of the device in their thread, cuda_enter(), but for
 * cuda_load(), cuda_find(), cuda_alloc() and cuda_free().  Any thread makes them. */
#ifndef BERTH_LIB_CUDA_H
#define BERTH_LIB_CUDA_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/berth.h"

enum { CUDA_FOREIGN = -1, CUDA_DEVICES = 64, CUDA_OK = 0, CUDA_NOT_READY = 600 };

struct cuda {
#define CALL(name, version, arguments) int(*name) arguments;
#include "lib/backend/cuda_calls.def"
#undef CALL
};

/* Valid once cuda_load() has returned NULL. */
extern struct cuda cuda;
/* Where cuda_enter() is false. */
extern const char cuda_no_gpu[];

/* Loads it, if it is not loaded.  NULL, or why that can't be. */
const char *cuda_load(void);
/* Does the process have libcuda already?  Then it is loaded here, too.  The search
 * costs 50 us where it is not there, so this is not for the path of an operation. */
bool cuda_look(void);
/* Is P in memory of a GPU?  *DEVICE becomes the GPU.  False while libcuda is not
 * loaded here. */
bool cuda_find(const void *p, int *device);

/* As device.h has alloc() and discard(). */
berth_result cuda_alloc(int device, size_t bytes, void **p, const char **why);
void cuda_free(void *p, int device);

/* DEVICE's primary context becomes this thread's, until cuda_leave().  Meanwhile no
 * call of this thread ends a capture that another one is at, as PyTorch's are.  False:
 * there is no such device. */
bool cuda_enter(int device);
void cuda_leave(void);
/* The result RC in words. */
const char *cuda_text(int rc);

struct cuda_event {
	struct cuda_event *next;
	void *event;
	_Atomic unsigned holders;
	int device; /* CUDA_FOREIGN: the program's */
};

/* An event of a pool.  NULL: there can be none. */
struct cuda_event *cuda_event_take(int device);
/* EVENT is a struct cuda_event.  When all its holders have given it back, it goes to
 * its pool; or it is freed, if the event in it is the program's. */
void cuda_event_give(void *event);
/* It has one more holder. */
void cuda_event_hold(void *event);

#endif
