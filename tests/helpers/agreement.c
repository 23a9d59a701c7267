/* agreement.c - what the agreement before an operation on a device costs, beside an
 * allreduce of 8 bytes on the host: under a device that does nothing at once.
 *
 *     runner -np 2 build/helpers/agreement [ROUNDS]
 *
 * Rank 0 prints, for one set and where ranks are in a second one, the median over the
 * rounds of both times, and the ratio of the least ones. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "lib/backend/devices.h"
#include "lib/berth.h"

enum { ROUNDS_MOST = 200, BATCH_NS = 4000000 };

static berth_result nothing(void)
{
	return BERTH_OK;
}

static bool find(const void *p, int *device)
{
	(void)p;
	(void)device;
	return false;
}

static berth_result card(const struct device_options *options, int device, unsigned n,
			 unsigned me, unsigned char bytes[DEVICE_CARD_BYTES],
			 char why[DEVICE_WHY_BYTES])
{
	(void)options;
	(void)device;
	(void)n;
	(void)me;
	(void)why;
	bytes[0] = 0;
	return BERTH_OK;
}

static bool look(void)
{
	return true;
}

static berth_result join(const struct device_join *j, void **group,
			 char why[DEVICE_WHY_BYTES])
{
	(void)j;
	(void)why;
	*group = (void *)1;
	return BERTH_OK;
}

static berth_result joined(void *group)
{
	(void)group;
	return nothing();
}

static const char *takes(const void *group, const struct coll *c)
{
	(void)group;
	(void)c;
	return NULL;
}

static berth_result mark(int device, void *stream, void *ready, void **out,
			 const char **why)
{
	(void)why;
	(void)device;
	(void)stream;
	(void)ready;
	*out = NULL;
	return nothing();
}

static berth_result act(void *group, struct device_work *w)
{
	(void)group;
	(void)w;
	return nothing();
}

static void end(void *group, struct device_work *w)
{
	(void)group;
	(void)w;
}

static void end_group(void *group)
{
	(void)group;
}

static const struct device_backend null = {
	.name = "null",
	.memory = BERTH_CUDA,
	.look = look,
	.find = find,
	.card = card,
	.join = join,
	.joined = joined,
	.takes = takes,
	.mark = mark,
	.begin = act,
	.test = act,
	.end = end,
	.revoke = end_group,
	.leave = end_group,
};

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void must(berth_result rc)
{
	if (!rc)
		return;
	fprintf(stderr, "%s\n", berth_last_error()->text);
	exit(1);
}

/* The time of one of N. */
static double time_of(const struct berth_desc *d, unsigned n)
{
	const uint64_t begun = now_ns();

	for (unsigned i = 0; i < n; i++)
		must(berth_run(d, -1, NULL));
	return (double)(now_ns() - begun) / n;
}

static int by_value(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* Both sorts of operation, in turn. */
static void compare(const char *title, unsigned rounds)
{
	static double host[ROUNDS_MOST], device[ROUNDS_MOST];
	uint64_t in[1] = { 1 }, out[1];
	struct berth_desc d =
		BERTH_DESC(.kind = BERTH_ALLREDUCE, .type = BERTH_U64, .op = BERTH_MAX,
			   .in = in, .out = out, .count = 1, .memory = BERTH_HOST);
	struct berth_desc there = d, ask = d;
	uint64_t n, most;

	there.memory = BERTH_CUDA;
	there.stream = BERTH_HOST_STREAM;
	time_of(&there, 10);
	n = (uint64_t)(BATCH_NS / time_of(&d, 200)) + 1;
	ask.in = &n;
	ask.out = &most;
	must(berth_run(&ask, -1, NULL));
	for (unsigned i = 0; i < rounds; i++) {
		host[i] = time_of(&d, (unsigned)most);
		device[i] = time_of(&there, (unsigned)most);
	}
	qsort(host, rounds, sizeof *host, by_value);
	qsort(device, rounds, sizeof *device, by_value);
	if (berth_rank() == 0)
		printf("%s: 8 B %.2f us, agreement %.2f us: %.2f x (least: %.2f us, "
		       "%.2f us: %.2f x)\n",
		       title, host[rounds / 2] / 1000, device[rounds / 2] / 1000,
		       device[rounds / 2] / host[rounds / 2], host[0] / 1000,
		       device[0] / 1000, device[0] / host[0]);
}

int main(int argc, char **argv)
{
	unsigned rounds = argc > 1 ? (unsigned)atoi(argv[1]) : 21;
	berth_set *set;

	device_register(&null);
	must(berth_init(NULL));
	rounds = rounds > ROUNDS_MOST ? ROUNDS_MOST : rounds;
	compare("one set", rounds);
	must(berth_set_split(NULL, 0, 0, &set));
	compare("ranks of two sets", rounds);
	return berth_shutdown() != BERTH_OK;
}
