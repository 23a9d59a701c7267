/* gradients.c - 64 tensors of 16 KiB, submitted one by one, then waited for: the
 * time of a step, in microseconds, as rank 0 sees it.
 *
 *     runner -np 2 build/bench/gradients [STEPS [TENSORS [BYTES]]] */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "lib/berth.h"
#include "tests/helpers/calls.h"

enum { TENSORS_MOST = 4096 };

static double now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static void fail(const char *what)
{
	fprintf(stderr, "%s: %s\n", what, berth_last_error()->text);
	exit(1);
}

static void step(float **tensor, char (*name)[16], int tensors, size_t bytes)
{
	static berth_request *request[TENSORS_MOST];

	for (int i = 0; i < tensors; i++) {
		struct berth_desc d =
			BERTH_DESC(.name = name[i], .in = tensor[i], .out = tensor[i],
				   .count = bytes / 4, .type = BERTH_F32);

		if (call_submit(BERTH_ALLREDUCE, &d, 1, &request[i]))
			fail("submit");
	}
	for (int i = 0; i < tensors; i++)
		if (berth_wait(request[i], -1))
			fail("wait");
}

int main(int argc, char **argv)
{
	int steps = argc > 1 ? atoi(argv[1]) : 1000,
	    tensors = argc > 2 ? atoi(argv[2]) : 64;
	size_t bytes = argc > 3 ? (size_t)atol(argv[3]) : 16384;
	static float *tensor[TENSORS_MOST];
	static char name[TENSORS_MOST][16];
	double *us = calloc((size_t)steps, sizeof *us);
	struct berth_metrics m = { .size = sizeof m };

	if (berth_init(NULL))
		fail("init");
	for (int i = 0; i < tensors; i++) {
		tensor[i] = calloc(1, bytes);
		snprintf(name[i], sizeof name[i], "gradient%d", i);
	}
	for (int s = 0; s < steps; s++) {
		double before = now_us();

		step(tensor, name, tensors, bytes);
		us[s] = now_us() - before;
		if (call_barrier(NULL))
			fail("barrier");
	}
	qsort(us, (size_t)steps, sizeof *us, by_value);
	berth_metrics(&m);
	if (berth_rank() == 0)
		printf("%d x %zu: median %.1f us, best %.1f, p90 %.1f; %llu "
		       "negotiations\n",
		       tensors, bytes, us[steps / 2], us[0], us[steps * 9 / 10],
		       (unsigned long long)m.negotiations);
	berth_shutdown();
	return 0;
}
