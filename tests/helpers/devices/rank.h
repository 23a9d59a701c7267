/* rank.h - a rank of devices.c: its world, its stream, and arrays of floats that tell
 * the rank, the tensor and the step. */
#ifndef BERTH_TESTS_DEVICES_RANK_H
#define BERTH_TESTS_DEVICES_RANK_H

#include <unistd.h>

#include "lib/berth.h"
#include "tests/helpers/own_ranks.h"
#include "tests/helpers/rank_check.h"
#include "tests/helpers/slow.h"
#include "tests/standin/checked.h"

enum { COUNT = 3000, BYTES = COUNT * 4 };

static int rank, size = 2, hosts = 1;
static void *stream;

static void print_log(void *ctx, enum berth_log_level level, const char *text)
{
	(void)ctx;
	if (level <= BERTH_LOG_WARNING)
		fprintf(stderr, "rank %d says: %s\n", rank, text);
}

static void begin_library(void)
{
	static char host[16];
	const struct berth_bootstrap b = { .size = sizeof b,
					   .rank = rank,
					   .ranks = size,
					   .allgather = own_ranks_gather,
					   .ctx = &rank,
					   .host = host };
	const struct berth_config c = {
		.size = sizeof c,
		.log = print_log,
		/* a mistake may be found so */
		.timeout_ms = slow_s(getenv("STANDIN_MISTAKE") ? 4000 : 20000),
		.bootstrap = &b
	};

	snprintf(host, sizeof host, "host%d", rank * hosts / size);
	CHECK(!berth_init(&c), "berth_init");
}

/* On the host, until the end. */
static float *make_here(void)
{
	static void *all[64];
	static unsigned n;

	cuMemHostAlloc(&all[n], BYTES, 0);
	return all[n++];
}

/* A value of element I that tells rank and tensor. */
static float value(int of, int tensor, int step, int i)
{
	return (float)(step * 100 + tensor * 10 + i % 7 + of);
}

static float sum(int tensor, int step, int i)
{
	float all = 0;

	for (int r = 0; r < size; r++)
		all += value(r, tensor, step, i);
	return all;
}

static void put(float *there, float *here, int tensor, int step)
{
	for (int i = 0; i < COUNT; i++)
		here[i] = value(rank, tensor, step, i);
	standin_copy(there, here, BYTES, stream);
}

/* The stream's array. */
static void check_sum(const float *there, int tensor, int step)
{
	float *here;

	cuMemHostAlloc((void **)&here, BYTES, 0);
	standin_copy(here, there, BYTES, stream);
	cuStreamSynchronize(stream);
	for (int i = 0; i < COUNT; i++)
		CHECK(here[i] == sum(tensor, step, i),
		      "tensor %d step %d element %d: %g, not %g", tensor, step, i,
		      (double)here[i], (double)sum(tensor, step, i));
	cuMemFreeHost(here);
}

static struct berth_desc allreduce(void *p)
{
	return (struct berth_desc)BERTH_DESC(.kind = BERTH_ALLREDUCE, .type = BERTH_F32,
					     .in = p, .out = p, .count = COUNT,
					     .memory = BERTH_CUDA, .stream = stream);
}

/* Something that the stream does not come past. */
static void run_pause(void *arg)
{
	const unsigned ms = *(unsigned *)arg;

	usleep(ms * 1000);
}

static void pause_stream(unsigned ms)
{
	standin_enqueue(stream, run_pause, &ms, sizeof ms);
}

#endif
