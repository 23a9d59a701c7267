/* waiting.h - all ranks wait for the last one, in each way that there is.  What that
 * costs is CPU time, which other programs on the machine hardly change. */
#ifndef BERTH_TESTS_WAITING_H
#define BERTH_TESTS_WAITING_H

#include <pthread.h>

#include "tests/helpers/verify.h"
#include "tests/helpers/calls.h"

enum {
	WAITING_MS = 2000,
	WAITERS = 3,
	/* The aim is 0.5 %: this leaves room for slow and loaded machines (5 times as
	 * many busy programs as cores: 1.2 %) and sanitizers. */
	WAITING_PERCENT = 2
};

static double cpu_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static void wait_blocking(void)
{
	CHECK(sum_in(NULL, 1) == size, "the sum");
}

static berth_request *submit_one(const char *name, int32_t *x)
{
	berth_request *r = NULL;

	FINE(call_submit(BERTH_ALLREDUCE,
			 &(struct berth_desc)BERTH_DESC(.name = name, .in = x, .out = x,
							.count = 1, .type = BERTH_I32),
			 1, &r));
	return r;
}

static void *wait_for_one(void *name)
{
	int32_t x = 1;

	FINE(berth_wait(submit_one(name, &x), -1));
	CHECK(x == size, "the sum of %s", (const char *)name);
	return NULL;
}

static void wait_in_threads(void)
{
	static char name[WAITERS][16];
	pthread_t thread[WAITERS];

	for (int i = 0; i < WAITERS; i++) {
		snprintf(name[i], sizeof name[i], "w%d", i);
		CHECK(!pthread_create(&thread[i], NULL, wait_for_one, name[i]),
		      "pthread_create");
	}
	for (int i = 0; i < WAITERS; i++)
		pthread_join(thread[i], NULL);
}

static void wait_with_limit(void)
{
	int32_t x = 1;
	berth_request *r = submit_one("limit", &x);
	berth_result rc;

	do
		rc = berth_wait(r, 700);
	while (rc == BERTH_BUSY);
	CHECK(!rc && x == size, "the sum: %d", rc);
}

static void wait_to_join(void)
{
	int last;

	FINE(berth_join(NULL, &last));
}

static void check_used(const char *what, double used)
{
	CHECK(used < WAITING_MS * WAITING_PERCENT / 100, "%s: %.1f ms of CPU in %d ms",
	      what, used, WAITING_MS);
	if (getenv("ALL"))
		printf("rank %d: %s: %.1f ms\n", rank, what, used);
}

/* The last rank waits for another request than all others. */
static void wait_crossed(void)
{
	int32_t x = 1, y = 1;
	bool last = rank == size - 1;
	double used;
	berth_request *r;

	FINE(call_barrier(NULL));
	used = cpu_ms();
	r = submit_one(last ? "last's" : "others'", &x);
	if (last && size > 1)
		CHECK(berth_wait(r, WAITING_MS) == BERTH_BUSY, "others have it");
	if (last)
		wait_for_one("others'");
	FINE(berth_wait(r, -1));
	check_used("different requests", cpu_ms() - used);
	if (!last)
		FINE(berth_wait(submit_one("last's", &y), -1));
	CHECK(x == size && (last || y == size), "the sums");
}

static void waiting(void)
{
	static const struct {
		const char *name;
		void (*wait)(void);
	} ways[] = {
		{ "a blocking call", wait_blocking },
		{ "threads with a request each", wait_in_threads },
		{ "a request, with a limit", wait_with_limit },
		{ "berth_join", wait_to_join },
	};

	for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
		double used;

		FINE(call_barrier(NULL));
		if (rank == size - 1)
			usleep(WAITING_MS * 1000);
		used = cpu_ms();
		ways[i].wait();
		if (rank < size - 1)
			check_used(ways[i].name, cpu_ms() - used);
	}
	wait_crossed();
}

#endif
