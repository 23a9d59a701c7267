#include "lib/backend/cuda.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum {
	NO_TIMING = 2,
	MEMORY_TYPE = 2, /* of cuPointerGetAttributes() */
	MEMORY_DEVICE = 2,
	IS_MANAGED = 8,
	ORDINAL = 9,
	CAPTURE_RELAXED = 2
};

struct cuda cuda;
const char cuda_no_gpu[] = "there is no such GPU";

static pthread_mutex_t cuda_lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic bool cuda_is_loaded, cuda_was_tried;
static _Thread_local int capture_mode; /* of this thread, before cuda_enter() */
static struct {
	void *context; /* primary, retained for good */
	struct cuda_event *unused;
} cuda_of[CUDA_DEVICES];

/* ---- the library ---- */

/* CUDA 12 has cuGetProcAddress_v2(), which says more.  Drivers since 11.3 have the
 * first form. */
struct finder {
	int (*first)(const char *, void **, int, uint64_t);
	int (*second)(const char *, void **, int, uint64_t, int *);
};

static bool find_call(const struct finder *f, const char *name, int version,
		      void **call)
{
	*call = NULL;
	if (f->second && !f->second(name, call, version, 0, NULL) && *call)
		return true;
	return f->first && !f->first(name, call, version, 0) && *call;
}

static const char *take_calls(void *lib)
{
	struct finder f;

	*(void **)&f.first = dlsym(lib, "cuGetProcAddress");
	*(void **)&f.second = dlsym(lib, "cuGetProcAddress_v2");
#define CALL(name, version, arguments)                                                 \
	if (!find_call(&f, #name, version, (void **)&cuda.name))                       \
		return "the NVIDIA driver is older than CUDA 11.4, it has no " #name;
#include "lib/backend/cuda_calls.def"
#undef CALL
	return NULL;
}

static const char *load_now(void)
{
	static char why[256];
	void *lib = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
	const char *wrong = lib ? take_calls(lib) : NULL;
	int rc;

	if (!lib)
		snprintf(why, sizeof why, "no NVIDIA driver: %s", dlerror());
	if (!lib || wrong)
		return lib ? wrong : why;
	rc = cuda.cuInit(0);
	if (!rc)
		return NULL;
	snprintf(why, sizeof why, "cuInit: %s", cuda_text(rc));
	return why;
}

const char *cuda_load(void)
{
	static const char *why;

	if (atomic_load_explicit(&cuda_is_loaded, memory_order_acquire))
		return NULL;
	pthread_mutex_lock(&cuda_lock);
	if (!cuda_was_tried)
		why = load_now();
	if (!why)
		atomic_store(&cuda_is_loaded, true);
	atomic_store(&cuda_was_tried, true);
	pthread_mutex_unlock(&cuda_lock);
	return why;
}

bool cuda_look(void)
{
	void *lib;

	if (atomic_load(&cuda_was_tried)) /* it is not loaded later, either */
		return atomic_load(&cuda_is_loaded);
	lib = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
	if (!lib)
		return false;
	cuda_load();
	dlclose(lib);
	return atomic_load(&cuda_is_loaded);
}

const char *cuda_text(int rc)
{
	const char *text = NULL;

	return cuda.cuGetErrorString(rc, &text) || !text ? "an unknown error of CUDA"
							 : text;
}

/* ---- memory, contexts, events ---- */

bool cuda_find(const void *p, int *device)
{
	unsigned kind = 0, managed = 0;
	int attribute[] = { MEMORY_TYPE, IS_MANAGED, ORDINAL }, at = 0;
	void *data[] = { &kind, &managed, &at };

	if (!atomic_load_explicit(&cuda_is_loaded, memory_order_acquire) ||
	    cuda.cuPointerGetAttributes(3, attribute, data, (uintptr_t)p) ||
	    (kind != MEMORY_DEVICE && !managed))
		return false;
	*device = at;
	return true;
}

bool cuda_enter(int device)
{
	void *context = NULL;
	int d;

	if (device < 0 || device >= CUDA_DEVICES)
		return false;
	pthread_mutex_lock(&cuda_lock);
	context = cuda_of[device].context;
	if (!context && !cuda.cuDeviceGet(&d, device) &&
	    !cuda.cuDevicePrimaryCtxRetain(&context, d))
		cuda_of[device].context = context;
	pthread_mutex_unlock(&cuda_lock);
	if (!context || cuda.cuCtxPushCurrent(context))
		return false;
	capture_mode = CAPTURE_RELAXED;
	cuda.cuThreadExchangeStreamCaptureMode(&capture_mode);
	return true;
}

void cuda_leave(void)
{
	void *context;

	cuda.cuThreadExchangeStreamCaptureMode(&capture_mode);
	cuda.cuCtxPopCurrent(&context);
}

berth_result cuda_alloc(int device, size_t bytes, void **p, const char **why)
{
	uint64_t at = 0;
	int rc;

	*why = cuda_load();
	if (*why)
		return BERTH_UNSUPPORTED;
	*why = cuda_no_gpu;
	if (!cuda_enter(device))
		return BERTH_UNSUPPORTED;
	bytes += !bytes;
	rc = cuda.cuMemAlloc(&at, bytes);
	if (!rc) {
		rc = cuda.cuMemsetD8Async(at, 0, bytes, NULL);
		rc = rc ? rc : cuda.cuStreamSynchronize(NULL);
		if (rc)
			cuda.cuMemFree(at);
	}
	cuda_leave();
	*p = (void *)(uintptr_t)at;
	*why = rc ? cuda_text(rc) : NULL;
	return rc ? BERTH_MEMORY : BERTH_OK;
}

void cuda_free(void *p, int device)
{
	if (!cuda_enter(device))
		return;
	cuda.cuMemFree((uintptr_t)p);
	cuda_leave();
}

struct cuda_event *cuda_event_take(int device)
{
	struct cuda_event *e;

	pthread_mutex_lock(&cuda_lock);
	e = cuda_of[device].unused;
	if (e)
		cuda_of[device].unused = e->next;
	pthread_mutex_unlock(&cuda_lock);
	if (!e) {
		e = calloc(1, sizeof *e);
		if (!e)
			return NULL;
		e->device = device;
		if (cuda.cuEventCreate(&e->event, NO_TIMING)) {
			free(e);
			return NULL;
		}
	}
	e->holders = 1;
	return e;
}

void cuda_event_hold(void *event)
{
	struct cuda_event *e = event;

	atomic_fetch_add(&e->holders, 1);
}

void cuda_event_give(void *event)
{
	struct cuda_event *e = event;

	if (atomic_fetch_sub(&e->holders, 1) > 1)
		return;
	if (e->device == CUDA_FOREIGN) {
		free(e);
		return;
	}
	pthread_mutex_lock(&cuda_lock);
	e->next = cuda_of[e->device].unused;
	cuda_of[e->device].unused = e;
	pthread_mutex_unlock(&cuda_lock);
}
