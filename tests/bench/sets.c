/* sets [RANKS [HOSTS [ROUNDS]]]: many sets of all ranks at once.  In each round each
 * rank submits 20 sums in each of 50 sets, in an order of its own, and waits for all.
 * The ranks are children of this process, on HOSTS that they make believe.
 *
 * Prints for each size the medians of rank 0's times and of its CPU times.  Prints the
 * latest end of a set as a multiple of the mean of all sets, the median of rounds. */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>

#include "lib/berth.h"
#include "tests/helpers/own_ranks.h"

enum { SETS = 50, EACH = 20, REQUESTS = SETS * EACH, ROUNDS_MOST = 1000, LEFT_OUT = 5 };

static int ranks = 2, hosts = 1, rounds = 40;
static berth_set *set[SETS];
static double ended[SETS];

static double now_us(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static void must(berth_result rc)
{
	if (!rc)
		return;
	fprintf(stderr, "sets: %s\n", berth_last_error()->text);
	exit(1);
}

static int by_size(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double median(double *x, int n)
{
	qsort(x, (size_t)n, sizeof *x, by_size);
	return x[n / 2];
}

/* Each set's requests are in the order of their numbers on all ranks. */
static void draw_order(int *order, unsigned *turn)
{
	for (int i = 0; i < REQUESTS; i++) {
		const int k = rand_r(turn) % (i + 1);

		order[i] = order[k];
		order[k] = i % SETS;
	}
}

static void once(size_t bytes, float *data, unsigned *turn)
{
	berth_request *r[SETS][EACH];
	int n[SETS] = { 0 }, order[REQUESTS];

	draw_order(order, turn);
	for (int i = 0; i < REQUESTS; i++) {
		const int s = order[i], k = n[s]++;
		float *at = data + (size_t)(s * EACH + k) * bytes / sizeof *data;
		const struct berth_desc d =
			BERTH_DESC(.kind = BERTH_ALLREDUCE, .set = set[s], .in = at,
				   .out = at, .count = bytes / sizeof *data,
				   .type = BERTH_F32);

		must(berth_submit(&d, 1, &r[s][k]));
	}
	for (int s = 0; s < SETS; s++)
		for (int k = 0; k < EACH; k++)
			must(berth_wait(r[s][k], -1));
}

static void note_end(void *set_ended, berth_result rc)
{
	(void)rc;
	*(double *)set_ended = now_us(CLOCK_MONOTONIC);
}

/* The latest end of a set, and the mean; the thread of the library does them all. */
static double fairness(float *data, unsigned *turn)
{
	berth_request *r[SETS][EACH];
	int n[SETS] = { 0 }, order[REQUESTS];
	const double begun = now_us(CLOCK_MONOTONIC);
	double sum = 0, latest = 0;

	draw_order(order, turn);
	for (int i = 0; i < REQUESTS; i++) {
		const int s = order[i], k = n[s]++;
		const struct berth_desc d =
			BERTH_DESC(.kind = BERTH_ALLREDUCE, .set = set[s],
				   .in = data + i, .out = data + i, .count = 1,
				   .type = BERTH_F32);

		must(berth_submit(&d, 1, &r[s][k]));
		if (k == EACH - 1)
			must(berth_then(r[s][k], note_end, &ended[s]));
	}
	for (int s = 0; s < SETS; s++)
		for (int k = 0; k < EACH; k++)
			while (berth_poll(r[s][k]) == BERTH_BUSY) {
				const struct timespec t = { 0, 50000 };

				nanosleep(&t, NULL);
			}
	for (int s = 0; s < SETS; s++) {
		must(berth_wait(r[s][EACH - 1], -1));
		sum += ended[s] - begun;
		if (ended[s] - begun > latest)
			latest = ended[s] - begun;
		for (int k = 0; k < EACH - 1; k++)
			must(berth_wait(r[s][k], -1));
	}
	return latest / (sum / SETS);
}

static int run(int rank, void *ctx)
{
	static const size_t size[] = { 8, 64 << 10 };
	static double time_us[ROUNDS_MOST], cpu_us[ROUNDS_MOST], late[ROUNDS_MOST];
	char host[16];
	const struct berth_bootstrap b = { .size = sizeof b,
					   .rank = rank,
					   .ranks = ranks,
					   .allgather = own_ranks_gather,
					   .ctx = &rank,
					   .host = host };
	const struct berth_config c = { .size = sizeof c, .bootstrap = &b };
	float *data = malloc(REQUESTS * size[1]);
	unsigned turn = (unsigned)rank + 1;
	struct berth_desc barrier = BERTH_DESC(.kind = BERTH_BARRIER);

	(void)ctx;
	snprintf(host, sizeof host, "h%d", rank % hosts);
	must(berth_init(&c));
	for (size_t i = 0; i < REQUESTS * size[1] / sizeof *data; i++)
		data[i] = 0;
	for (int s = 0; s < SETS; s++)
		must(berth_set_split(NULL, 0, 0, &set[s]));
	for (size_t k = 0; k < 2; k++) {
		for (int i = -LEFT_OUT; i < rounds; i++) {
			double begun, cpu;

			must(berth_run(&barrier, -1, NULL));
			begun = now_us(CLOCK_MONOTONIC);
			cpu = now_us(CLOCK_PROCESS_CPUTIME_ID);
			once(size[k], data, &turn);
			if (i < 0)
				continue;
			cpu_us[i] = now_us(CLOCK_PROCESS_CPUTIME_ID) - cpu;
			time_us[i] = now_us(CLOCK_MONOTONIC) - begun;
		}
		if (!rank)
			printf("%zu B: %.0f us, CPU %.0f us\n", size[k],
			       median(time_us, rounds), median(cpu_us, rounds));
	}
	for (int i = 0; i < rounds; i++) {
		must(berth_run(&barrier, -1, NULL));
		late[i] = fairness(data, &turn);
	}
	if (!rank)
		printf("latest set: %.2f of the mean\n", median(late, rounds));
	for (int s = 0; s < SETS; s++)
		must(berth_set_remove(set[s]));
	must(berth_shutdown());
	free(data);
	return 0;
}

int main(int argc, char **argv)
{
	ranks = argc > 1 ? atoi(argv[1]) : ranks;
	hosts = argc > 2 ? atoi(argv[2]) : hosts;
	rounds = argc > 3 ? atoi(argv[3]) : rounds;
	if (ranks < 1 || ranks > OWN_RANKS_MOST || hosts < 1 || rounds < 1 ||
	    rounds > ROUNDS_MOST) {
		fprintf(stderr, "usage: sets [RANKS [HOSTS [ROUNDS]]]\n");
		return 2;
	}
	return own_ranks_run(ranks, run, NULL);
}
