/* devices.c - operations on the memory of a stand-in device (tests/standin): the first
 * thin path. */
#include <unistd.h>

#include "lib/berth.h"
#include "tests/helpers/own_ranks.h"
#include "tests/standin/standin.h"

static int run_rank(int rank, void *ctx)
{
	const int n = *(int *)ctx;
	const struct berth_bootstrap b = { .size = sizeof b,
					   .rank = rank,
					   .ranks = n,
					   .allgather = own_ranks_gather,
					   .ctx = &rank };
	const struct berth_config c = { .size = sizeof c,
					.timeout_ms = 20000,
					.bootstrap = &b };
	enum { COUNT = 1000 };
	float *host, *back;
	void *p, *s;

	standin_register();
	standin_enter();
	cuStreamCreate(&s, CU_STREAM_NON_BLOCKING);
	cuMemAlloc(&p, COUNT * 4);
	cuMemHostAlloc((void **)&host, COUNT * 4);
	cuMemHostAlloc((void **)&back, COUNT * 4);
	if (berth_init(&c)) {
		fprintf(stderr, "%s\n", berth_last_error()->text);
		return 1;
	}
	for (int turn = 0; turn < 10; turn++) {
		struct berth_desc d =
			BERTH_DESC(.kind = BERTH_ALLREDUCE, .type = BERTH_F32, .in = p,
				   .out = p, .count = COUNT, .memory = BERTH_CUDA,
				   .stream = s);

		for (int i = 0; i < COUNT; i++)
			host[i] = (float)(i + rank + turn);
		cuMemcpyAsync(p, host, COUNT * 4, s);
		if (berth_run(&d, -1, NULL)) {
			fprintf(stderr, "%s\n", berth_last_error()->text);
			return 1;
		}
		cuMemcpyAsync(back, p, COUNT * 4, s);
		cuStreamSynchronize(s);
		for (int i = 0; i < COUNT; i++)
			if (back[i] != (float)(n * (i + turn) + n * (n - 1) / 2)) {
				fprintf(stderr, "rank %d turn %d: %d is %g\n", rank,
					turn, i, (double)back[i]);
				return 1;
			}
	}
	berth_shutdown();
	return 0;
}

int main(int argc, char **argv)
{
	int n = argc > 1 ? atoi(argv[1]) : 2;

	return own_ranks_run(n, run_rank, &n);
}
