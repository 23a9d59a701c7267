/* there.c - in the place of the stand-in (tests/standin) in a program of its kind: the
 * first GPU of this machine, which is whatever libcuda.so.1 the loader finds. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "tests/standin/checked.h"

/* whose names of calls are those of the header above */
#include "lib/backend/cuda.h"

/* What the library does not call. */
static struct {
	int (*destroy_stream)(void *stream);
	int (*destroy_event)(void *event);
} more;

static void load_more(void *where, const char *name, int version)
{
	int (*get)(const char *, void **, int, uint64_t, int *);

	*(void **)&get = dlsym(dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD),
			       "cuGetProcAddress_v2");
	if (!get || get(name, where, version, 0, NULL) || !*(void **)where)
		standin_fail(name);
}

void standin_fail(const char *text)
{
	fprintf(stderr, "the GPU: %s\n", text);
	_exit(STANDIN_EXIT);
}

/* This process is a rank: for NCCL, a host of its own. */
void standin_register(void)
{
	const char *why = cuda_load();
	char host[24];

	if (why)
		standin_fail(why);
	load_more(&more.destroy_stream, "cuStreamDestroy", 4000);
	load_more(&more.destroy_event, "cuEventDestroy", 4000);
	snprintf(host, sizeof host, "rank%d", (int)getpid());
	setenv("NCCL_HOSTID", host, 1);
	setenv("NCCL_SOCKET_IFNAME", "lo", 0);
	setenv("NCCL_IB_DISABLE", "1", 0);
	setenv("NCCL_MNNVL_ENABLE", "0", 0);
}

void standin_enter(void)
{
	static _Thread_local bool is_inside;

	if (!is_inside && !cuda_enter(0))
		standin_fail(cuda_no_gpu);
	is_inside = true;
}

int cuStreamCreate(void **stream, unsigned flags)
{
	return cuda.cuStreamCreateWithPriority(stream, flags, 0);
}

int cuStreamDestroy(void *stream)
{
	return more.destroy_stream(stream);
}

int cuStreamSynchronize(void *stream)
{
	return cuda.cuStreamSynchronize(stream);
}

int cuEventCreate(void **event, unsigned flags)
{
	return cuda.cuEventCreate(event, flags);
}

int cuEventRecord(void *event, void *stream)
{
	return cuda.cuEventRecord(event, stream);
}

int cuEventDestroy(void *event)
{
	return more.destroy_event(event);
}

int cuMemAlloc(uint64_t *p, size_t bytes)
{
	return cuda.cuMemAlloc(p, bytes);
}

/* That would wait for kernels, some of which wait for other ranks: memory stays. */
int cuMemFree(uint64_t p)
{
	(void)p;
	return CUDA_SUCCESS;
}

int cuMemcpyAsync(uint64_t to, uint64_t from, size_t bytes, void *stream)
{
	return cuda.cuMemcpyAsync(to, from, bytes, stream);
}
