#include "tests/standin/checked.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/backend/devices.h"
#include "lib/backend/nccl.h"
#include "lib/base/clock.h"

static struct device_backend checked;
static _Atomic int inside;
uint64_t standin_started_ns;

/* One call at a time, which waits for nothing: how often this thread has waited. */
static unsigned long begin_call(void)
{
	if (atomic_exchange(&inside, 1))
		standin_fail("two threads are inside a device's back end at once");
	return standin_waits;
}

static void end_call(unsigned long before)
{
	if (standin_waits != before)
		standin_fail("a back end has waited for the device");
	atomic_store(&inside, 0);
}

static berth_result checked_start(void *group, struct device_work *w)
{
	const unsigned long before = begin_call();
	berth_result rc;

	standin_started_ns = clock_ns();
	rc = nccl_backend.begin(group, w);
	end_call(before);
	return rc;
}

static berth_result checked_started(void *group, struct device_work *w)
{
	const unsigned long before = begin_call();
	const berth_result rc = nccl_backend.begun(group, w);

	end_call(before);
	return rc;
}

static berth_result checked_test(void *group, struct device_work *w)
{
	const unsigned long before = begin_call();
	const berth_result rc =
		standin_makes("done") ? BERTH_OK : nccl_backend.test(group, w);

	end_call(before);
	return rc;
}

static berth_result checked_follow(void *group, struct device_work *w, void *stream)
{
	const unsigned long before = begin_call();
	const berth_result rc = nccl_backend.follow(group, w, stream);

	end_call(before);
	return rc;
}

static void checked_end(void *group, struct device_work *w)
{
	const unsigned long before = begin_call();

	nccl_backend.end(group, w);
	end_call(before);
}

static void checked_revoke(void *group)
{
	const unsigned long before = begin_call();

	nccl_backend.revoke(group);
	end_call(before);
}

static void checked_leave(void *group)
{
	const unsigned before = standin_ended();

	nccl_backend.leave(group);
	while (standin_makes("destroy") && standin_ended() == before)
		usleep(1000);
}

/* ---- calls that wait, by mistake ---- */

static void wait_sync(void *stream)
{
	cuStreamSynchronize(stream);
}

static void wait_alloc(void *stream)
{
	uint64_t p;

	cuMemAlloc(&p, 8);
	cuMemFreeAsync(p, stream);
}

static void wait_free(void *stream)
{
	uint64_t p;

	cuMemAllocAsync(&p, 8, stream);
	cuMemFree(p);
}

static void wait_host_alloc(void *stream)
{
	void *p;

	(void)stream;
	cuMemHostAlloc(&p, 8, 0);
}

static void wait_register(void *stream)
{
	static char here[8];

	(void)stream;
	cuMemHostRegister(here, sizeof here, 0);
	cuMemHostUnregister(here);
}

static void wait_module(void *stream)
{
	void *module;

	(void)stream;
	cuModuleLoadData(&module, ".entry berth_move(");
}

static void wait_pageable(void *stream)
{
	static const char here[8];
	uint64_t p;

	cuMemAllocAsync(&p, sizeof here, stream);
	cuMemcpyAsync(p, (uintptr_t)here, sizeof here, stream);
	cuMemFreeAsync(p, stream);
}

static void wait_query(void *stream)
{
	void *e;

	cuEventCreate(&e, 0);
	cuEventRecord(e, stream);
	while (cuEventQuery(e) == CUDA_ERROR_NOT_READY)
		;
	cuEventDestroy(e);
}

/* Not where begin_call() watches: only the process' counts tell of it. */
static berth_result checked_mark(int device, void *stream, void *ready, void **mark,
				 const char **why)
{
	static const struct {
		const char *name;
		void (*make)(void *stream);
	} mistakes[] = {
		{ "wait-sync", wait_sync },
		{ "wait-alloc", wait_alloc },
		{ "wait-free", wait_free },
		{ "wait-host-alloc", wait_host_alloc },
		{ "wait-register", wait_register },
		{ "wait-module", wait_module },
		{ "wait-pageable", wait_pageable },
		{ "wait-query", wait_query },
	};
	const char *mine = getenv("STANDIN_MISTAKE");
	void *context;

	for (size_t i = 0; mine && i < sizeof mistakes / sizeof *mistakes; i++) {
		if (strcmp(mistakes[i].name, mine) || stream == BERTH_HOST_STREAM)
			continue;
		cuDevicePrimaryCtxRetain(&context, device);
		cuCtxPushCurrent(context);
		mistakes[i].make(stream);
		cuCtxPopCurrent(&context);
	}
	return nccl_backend.mark(device, stream, ready, mark, why);
}

/* ---- copies: any thread, and none waits ---- */

static void check_waits(unsigned long before)
{
	if (standin_waits != before)
		standin_fail("a copy has waited for the device");
}

static berth_result checked_copy(void *stage, const struct device_copy *copy, size_t n,
				 void *const *ready, size_t nready, void **mark)
{
	const unsigned long before = standin_waits;
	const berth_result rc = nccl_backend.copy(stage, copy, n, ready, nready, mark);

	check_waits(before);
	return rc;
}

static berth_result checked_passed(void *mark)
{
	const unsigned long before = standin_waits;
	const berth_result rc = nccl_backend.passed(mark);

	check_waits(before);
	return standin_makes("done") ? BERTH_OK : rc;
}

static berth_result checked_await(void *mark, void *stream)
{
	const unsigned long before = standin_waits;
	const berth_result rc = nccl_backend.await(mark, stream);

	check_waits(before);
	return rc;
}

void standin_register(void)
{
	checked = nccl_backend;
	checked.mark = checked_mark;
	checked.begin = checked_start;
	checked.begun = checked_started;
	checked.test = checked_test;
	checked.follow = checked_follow;
	checked.end = checked_end;
	checked.revoke = checked_revoke;
	checked.leave = checked_leave;
	checked.copy = checked_copy;
	checked.passed = checked_passed;
	checked.await = checked_await;
	device_register(&checked);
}
