/* ratios.c - the time of an operation of libberth over that of another one, and of
 * irregular steps of gradients over that of regular ones.
 *
 *     runner -np 2 build/bench/ratios average|division|adasum|plans|kinds
 *
 * The two sides of a row take turns within this process.  Each batch counts with the
 * time of its slowest rank.  A ratio is the median of the ratios of neighbouring
 * batches.  Rows of plans have a second ratio: of the times within which 90 % of the
 * steps end.  It uses the public functions only, so LD_LIBRARY_PATH may name another
 * build of the library. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "lib/berth.h"
#include "tests/helpers/calls.h"

enum {
	BATCHES = 31,
	BATCHES_OF_LONG = 9, /* of calls that take longer than a batch should */
	ROUNDS = 5,
	WARM = 100, /* steps of a round that are not counted */
	STEPS = 100,
	GRADIENTS = 64,
	GRADIENT_BYTES = 16 << 10,
	NAME_BYTES = 32,
};
static const double BATCH_S = 0.005;

struct call {
	enum berth_kind kind;
	berth_op op;
	berth_type type;
};

#define SUM(TYPE)                                                                      \
	{                                                                              \
		BERTH_ALLREDUCE, BERTH_SUM, TYPE                                       \
	}
#define AVERAGE(TYPE) { BERTH_ALLREDUCE, BERTH_AVG, TYPE }, SUM(TYPE)
#define ADASUM(TYPE) { BERTH_ALLREDUCE, BERTH_ADASUM, TYPE }, SUM(TYPE)
#define KIND(KIND) { KIND, BERTH_SUM, BERTH_F32 }, SUM(BERTH_F32)

/* Sizes are those of the whole array; of allgather, all ranks' parts. */
static const struct row {
	const char *part, *name;
	struct call call, base;
	size_t from, factor, to;
	double goal;
} rows[] = {
	{ "average", "f32", AVERAGE(BERTH_F32), 4 << 10, 16, 128 << 20, 1.05 },
	{ "average", "f64", AVERAGE(BERTH_F64), 4 << 10, 16, 128 << 20, 1.05 },
	{ "average", "bf16", AVERAGE(BERTH_BF16), 4 << 10, 16, 128 << 20, 1.1 },
	{ "average", "f16", AVERAGE(BERTH_F16), 4 << 10, 16, 128 << 20, 1.1 },
	{ "division", "f32", AVERAGE(BERTH_F32), 4 << 10, 1, 4 << 10, 1.25 },
	{ "division", "f32", AVERAGE(BERTH_F32), 64 << 10, 16, 128 << 20, 1.1 },
	{ "division", "f64", AVERAGE(BERTH_F64), 4 << 10, 1, 4 << 10, 1.25 },
	{ "division", "f64", AVERAGE(BERTH_F64), 64 << 10, 16, 128 << 20, 1.1 },
	{ "division", "bf16", AVERAGE(BERTH_BF16), 4 << 10, 1, 4 << 10, 1.25 },
	{ "division", "bf16", AVERAGE(BERTH_BF16), 64 << 10, 16, 128 << 20, 1.1 },
	{ "division", "f16", AVERAGE(BERTH_F16), 4 << 10, 1, 4 << 10, 1.25 },
	{ "division", "f16", AVERAGE(BERTH_F16), 64 << 10, 16, 128 << 20, 1.1 },
	{ "adasum", "f32", ADASUM(BERTH_F32), 16 << 20, 1, 16 << 20, 3 },
	{ "kinds", "reduce", KIND(BERTH_REDUCE), 8, 8, 4 << 10, 1.5 },
	{ "kinds", "reducescatter", KIND(BERTH_REDUCESCATTER), 8, 8, 4 << 10, 1.5 },
	{ "kinds", "allgather", KIND(BERTH_ALLGATHER), 8, 8, 4 << 10, 1.5 },
	{ "kinds", "alltoall", KIND(BERTH_ALLTOALL), 8, 8, 4 << 10, 1.5 },
	{ "kinds", "broadcast", KIND(BERTH_BROADCAST), 8, 8, 4 << 10, 1.5 },
	{ "kinds", "gather", KIND(BERTH_GATHER), 8, 8, 4 << 10, 1.5 },
	{ "kinds", "scatter", KIND(BERTH_SCATTER), 8, 8, 4 << 10, 1.5 },
};

/* Steps of 64 gradients.  The first variant is the base of the others. */
static const struct variant {
	const char *name;
	bool unnamed, mixed, missing; /* of the gradients themselves */
	bool extra, extra_named;      /* one small operation more */
} variants[] = {
	{ .name = "regular" },
	{ .name = "one unnamed", .extra = true },
	{ .name = "one new name", .extra = true, .extra_named = true },
	{ .name = "one missing in 4th", .missing = true },
	{ .name = "all unnamed", .unnamed = true },
	{ .name = "f32 and bf16", .mixed = true },
};
static const double MEDIAN_GOAL = 1.3, MOST_GOAL = 1.6;

static unsigned char *in, *out;

#define COUNT(a) (sizeof(a) / sizeof *(a))

/* ---- what all parts use ---- */

static void need(berth_result rc)
{
	if (!rc)
		return;
	fprintf(stderr, "ratios: %s\n", berth_last_error()->text);
	exit(1);
}

static double now_s(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int ascending(const void *x, const void *y)
{
	double a = *(const double *)x, c = *(const double *)y;

	return (a > c) - (a < c);
}

/* The value of N that PERCENT of them do not exceed; sorts them. */
static double within(double *value, size_t n, size_t percent)
{
	qsort(value, n, sizeof *value, ascending);
	return value[n * percent / 100];
}

static double median(double *value, size_t n)
{
	return within(value, n, 50);
}

/* Each of N times becomes that of the slowest rank. */
static void slowest(double *seconds, size_t n)
{
	struct berth_desc d = BERTH_DESC(.in = seconds, .out = seconds, .count = n,
					 .type = BERTH_F64, .op = BERTH_MAX);

	need(call_allreduce(&d));
}

/* Of the ratio as a row shows it. */
static const char *verdict(double ratio, double goal)
{
	return ratio < goal + 0.005 ? "met" : "missed";
}

/* ---- two operations ---- */

static size_t bytes_of(berth_type type)
{
	return type == BERTH_F64 ? 8 : type == BERTH_F32 ? 4 : 2;
}

static double time_calls(const struct call *c, size_t bytes, long calls)
{
	struct berth_desc d =
		BERTH_DESC(.kind = c->kind, .type = c->type, .op = c->op, .in = in,
			   .out = out, .count = bytes / bytes_of(c->type));
	const size_t n = (size_t)berth_size();
	double begin;

	if (c->kind == BERTH_ALLGATHER || c->kind == BERTH_GATHER ||
	    c->kind == BERTH_SCATTER)
		d.count = (d.count + n - 1) / n;
	else if (c->kind == BERTH_ALLTOALL)
		d.count = (d.count + n - 1) / n * n;
	need(call_barrier(NULL));
	begin = now_s();
	for (long i = 0; i < calls; i++)
		need(berth_run(&d, -1, NULL));
	return now_s() - begin;
}

/* How many calls a batch has, and how long one takes; the same on all ranks. */
static long calibrate(const struct call *c, size_t bytes, double *call_s)
{
	time_calls(c, bytes, 1);
	for (long calls = 1;; calls *= 4) {
		double s = time_calls(c, bytes, calls);

		slowest(&s, 1);
		*call_s = s / (double)calls;
		if (s > BATCH_S / 4)
			return (long)(BATCH_S / *call_s) + 1;
	}
}

static void compare(const struct row *r, size_t bytes)
{
	const struct call *side[2] = { &r->base, &r->call };
	double s[2][BATCHES] = { 0 }, ratio[BATCHES], call_s, x;
	long calls;
	size_t n;

	time_calls(&r->call, bytes, 1);
	calls = calibrate(&r->base, bytes, &call_s);
	n = call_s > BATCH_S ? BATCHES_OF_LONG : BATCHES;
	for (size_t i = 0; i < n; i++)
		for (size_t turn = 0; turn < 2; turn++) {
			size_t w = turn ^ (i & 1);

			s[w][i] = time_calls(side[w], bytes, calls) / (double)calls;
		}
	slowest(s[0], 2 * BATCHES);
	for (size_t i = 0; i < n; i++)
		ratio[i] = s[1][i] / s[0][i];
	x = median(ratio, n);
	if (!berth_rank())
		printf("%10zu  %-18s %11.2f %11.2f %6.2f  goal %.2f  %s\n", bytes,
		       r->name, median(s[0], n) * 1e6, median(s[1], n) * 1e6, x,
		       r->goal, verdict(x, r->goal));
	fflush(stdout);
}

static size_t next_size(const struct row *r, size_t bytes)
{
	return bytes == r->to              ? 0
	       : bytes * r->factor < r->to ? bytes * r->factor
					   : r->to;
}

/* The same bytes everywhere are a normal number of every type. */
static unsigned char *array(size_t bytes)
{
	void *p = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);

	if (!p) {
		perror("ratios");
		exit(1);
	}
	return memset(p, 0x3c + berth_rank() % 4, bytes);
}

static bool compare_part(const char *part)
{
	size_t most = 0;

	for (size_t i = 0; i < COUNT(rows); i++)
		if (!strcmp(rows[i].part, part) && rows[i].to > most)
			most = rows[i].to;
	if (!most)
		return false;
	in = array(most);
	out = array(most);
	if (!berth_rank())
		printf("%10s  %-18s %11s %11s %6s\n", "bytes", "", "base us", "us",
		       "ratio");
	for (size_t i = 0; i < COUNT(rows); i++)
		if (!strcmp(rows[i].part, part))
			for (size_t b = rows[i].from; b; b = next_size(&rows[i], b))
				compare(&rows[i], b);
	free(in);
	free(out);
	return true;
}

/* ---- steps of gradients ---- */

static berth_request *submit(const char *name, float *x, size_t bytes, berth_type type)
{
	struct berth_desc d = BERTH_DESC(.name = name, .in = x, .out = x, .type = type,
					 .count = bytes / bytes_of(type));
	berth_request *request;

	need(call_submit(BERTH_ALLREDUCE, &d, 1, &request));
	return request;
}

static void step(const struct variant *v, size_t number)
{
	static float gradient[GRADIENTS][GRADIENT_BYTES / sizeof(float)], loss[1];
	berth_request *request[GRADIENTS + 1];
	char name[NAME_BYTES];
	size_t n = 0;

	for (size_t i = 0; i < GRADIENTS; i++) {
		if (v->missing && number % 4 == 3 && i == 17)
			continue;
		snprintf(name, sizeof name, "layer%zu.weight", i);
		request[n++] =
			submit(v->unnamed ? NULL : name, gradient[i], GRADIENT_BYTES,
			       v->mixed && i % 2 ? BERTH_BF16 : BERTH_F32);
	}
	if (v->extra) {
		snprintf(name, sizeof name, "loss%zu", number);
		request[n++] = submit(v->extra_named ? name : NULL, loss, sizeof loss,
				      BERTH_F32);
	}
	for (size_t i = 0; i < n; i++)
		need(berth_wait(request[i], -1));
}

/* Each round begins the library anew, so that no variant meets another one's plan. */
static void time_steps(const struct variant *v, double *middle, double *most)
{
	double s[STEPS];

	need(berth_init(NULL));
	for (size_t i = 0; i < WARM + STEPS; i++) {
		double begin = now_s();

		step(v, i);
		if (i >= WARM)
			s[i - WARM] = now_s() - begin;
	}
	slowest(s, STEPS);
	*middle = median(s, STEPS);
	*most = within(s, STEPS, 90);
	need(berth_shutdown());
}

static void print_variant(size_t v, double middle[][ROUNDS], double most[][ROUNDS])
{
	double a[ROUNDS], b[ROUNDS], x, y;

	for (size_t i = 0; i < ROUNDS; i++) {
		a[i] = middle[v][i] / middle[0][i];
		b[i] = most[v][i] / most[0][i];
	}
	x = median(a, ROUNDS);
	y = median(b, ROUNDS);
	memcpy(a, middle[v], sizeof a);
	memcpy(b, most[v], sizeof b);
	printf("%-18s %9.0f %6.2f  goal %.2f  %-6s %8.0f %6.2f  goal %.2f  %s\n",
	       variants[v].name, median(a, ROUNDS) * 1e6, x, MEDIAN_GOAL,
	       verdict(x, MEDIAN_GOAL), median(b, ROUNDS) * 1e6, y, MOST_GOAL,
	       verdict(y, MOST_GOAL));
}

static void compare_variants(void)
{
	double middle[COUNT(variants)][ROUNDS], most[COUNT(variants)][ROUNDS];
	bool first;

	need(berth_init(NULL));
	first = !berth_rank();
	need(berth_shutdown());
	for (size_t i = 0; i < ROUNDS; i++)
		for (size_t v = 0; v < COUNT(variants); v++)
			time_steps(&variants[v], &middle[v][i], &most[v][i]);
	if (!first)
		return;
	printf("%-18s %9s %6s %18s %8s %6s\n", "", "median us", "ratio", "", "90 % us",
	       "ratio");
	for (size_t v = 0; v < COUNT(variants); v++)
		print_variant(v, middle, most);
}

int main(int argc, char **argv)
{
	const char *part = argc == 2 ? argv[1] : "";
	bool known = true;

	if (!strcmp(part, "plans")) {
		compare_variants();
		return 0;
	}
	need(berth_init(NULL));
	known = compare_part(part);
	need(berth_shutdown());
	if (!known)
		fprintf(stderr, "ratios: no part '%s'\n", part);
	return known ? 0 : 2;
}
