#include "tests/standin/counts.h"

#include <stdatomic.h>
#include <stdint.h>
#include <unistd.h>

#include "lib/base/clock.h"

enum { POLL_NS = 20000, POLL_ASKS = 5, EVENTS = 8 };

const char *const standin_wait_name[STANDIN_WAITS] = {
	[STANDIN_SYNC] = "cuStreamSynchronize",
	[STANDIN_ALLOC] = "cuMemAlloc",
	[STANDIN_FREE] = "cuMemFree or cuMemFreeHost",
	[STANDIN_HOST_ALLOC] = "cuMemHostAlloc",
	[STANDIN_REGISTER] = "cuMemHostRegister or cuMemHostUnregister",
	[STANDIN_MODULE] = "cuModuleLoadData, or the first launch of a kernel",
	[STANDIN_STREAM] = "cuStreamCreate",
	[STANDIN_COMM] = "the begin or the end of a communicator",
	[STANDIN_PAGEABLE] = "cuMemcpyAsync with pageable memory",
	[STANDIN_QUERY] = "cuEventQuery of one event for 20 us",
};

const char *const standin_held_name[STANDIN_HELD] = {
	[STANDIN_STREAMS] = "streams",
	[STANDIN_EVENTS] = "events",
	[STANDIN_MODULES] = "modules",
	[STANDIN_CONTEXTS] = "contexts",
	[STANDIN_CURRENT] = "contexts of threads",
	[STANDIN_COMMS] = "communicators",
	[STANDIN_HOST] = "host allocations",
	[STANDIN_HOST_BYTES] = "bytes of these",
	[STANDIN_ALLOCS] = "device allocations",
	[STANDIN_BYTES] = "bytes of the device",
};

static _Atomic unsigned long waits[STANDIN_WAITS];
static _Atomic long held[STANDIN_HELD];
_Thread_local unsigned long standin_waits;

/* Events for which this thread asks, and which have not come. */
static _Thread_local struct {
	const void *event;
	uint64_t record, since_ns, last_ns;
	unsigned asks;
} poll[EVENTS];
static _Thread_local unsigned polls;
static _Thread_local uint64_t napped_ns;

void standin_waited(enum standin_wait kind)
{
	atomic_fetch_add(&waits[kind], 1);
	standin_waits++;
}

void standin_nap(unsigned us)
{
	const uint64_t begun_ns = clock_ns();

	usleep(us);
	napped_ns += clock_ns() - begun_ns;
}

void standin_asked(const void *event, uint64_t record, bool has_come)
{
	const uint64_t now = clock_ns() - napped_ns;
	unsigned i = 0;

	while (i < EVENTS && (poll[i].event != event || poll[i].record != record))
		i++;
	if (i == EVENTS) {
		i = polls++ % EVENTS;
		poll[i].event = event;
		poll[i].record = record;
		poll[i].last_ns = 0;
	}
	if (now - poll[i].last_ns > POLL_NS) {
		poll[i].since_ns = now;
		poll[i].asks = 0;
	}
	poll[i].last_ns = has_come ? 0 : now;
	if (++poll[i].asks < POLL_ASKS || now - poll[i].since_ns < POLL_NS || has_come)
		return;
	atomic_fetch_add(&waits[STANDIN_QUERY], 1);
	poll[i].since_ns = now;
	poll[i].asks = 0;
}

unsigned long standin_waits_of(enum standin_wait kind)
{
	return atomic_load(&waits[kind]);
}

void standin_hold(enum standin_held kind, long n)
{
	atomic_fetch_add(&held[kind], n);
}

long standin_holds(enum standin_held kind)
{
	return atomic_load(&held[kind]);
}
