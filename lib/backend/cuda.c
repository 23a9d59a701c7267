#include "lib/backend/cuda.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

enum {
	NO_TIMING = 2,
	MEMORY_TYPE = 2, /* of cuPointerGetAttributes() */
	MEMORY_DEVICE = 2,
	IS_MANAGED = 8,
	ORDINAL = 9
};

struct cuda cuda;

static pthread_mutex_t cuda_lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic bool cuda_is_loaded;
static struct {
	void *context; /* primary, retained for good */
	struct cuda_event *unused;
} cuda_of[CUDA_DEVICES];

/* ---- the library ---- */

static const char *take_calls(void *lib)
{
	int (*get)(const char *, void **, int, uint64_t, int *);

	*(void **)&get = dlsym(lib, "cuGetProcAddress_v2");
	if (!get)
		return "the NVIDIA driver is older than CUDA 12";
#define CALL(name, version, arguments)                                                 \
	if (get(#name, (void **)&cuda.name, version, 0, NULL) || !cuda.name)           \
		return "the NVIDIA driver has no " #name;
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
	static bool tried;

	if (atomic_load_explicit(&cuda_is_loaded, memory_order_acquire))
		return NULL;
	pthread_mutex_lock(&cuda_lock);
	if (!tried)
		why = load_now();
	tried = true;
	if (!why)
		atomic_store(&cuda_is_loaded, true);
	pthread_mutex_unlock(&cuda_lock);
	return why;
}

void cuda_look(void)
{
	void *lib = atomic_load(&cuda_is_loaded)
			    ? NULL
			    : dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);

	if (!lib)
		return;
	cuda_load();
	dlclose(lib);
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
	return context && !cuda.cuCtxPushCurrent(context);
}

void cuda_leave(void)
{
	void *context;

	cuda.cuCtxPopCurrent(&context);
}

struct cuda_event *cuda_event_take(int device)
{
	struct cuda_event *e;

	pthread_mutex_lock(&cuda_lock);
	e = cuda_of[device].unused;
	if (e)
		cuda_of[device].unused = e->next;
	pthread_mutex_unlock(&cuda_lock);
	if (e)
		return e;
	e = calloc(1, sizeof *e);
	if (!e)
		return NULL;
	e->device = device;
	if (!cuda.cuEventCreate(&e->event, NO_TIMING))
		return e;
	free(e);
	return NULL;
}

void cuda_event_give(void *event)
{
	struct cuda_event *e = event;

	if (e->device == CUDA_FOREIGN) {
		free(e);
		return;
	}
	pthread_mutex_lock(&cuda_lock);
	e->next = cuda_of[e->device].unused;
	cuda_of[e->device].unused = e;
	pthread_mutex_unlock(&cuda_lock);
}
