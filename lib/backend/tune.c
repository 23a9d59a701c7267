#include "lib/backend/tune.h"

#include <stdio.h>

enum {
	REDUCED_BYTES_PER_US = 22000, /* f32, one core of an EPYC 9005 */
	LANES_BYTES = 8 << 20         /* smaller ones are agreed on and sent at once */
};

const struct tune_numbers tune_guess = { 25, 1e-3, 0 };

static const char *const names[TUNE_ALGORITHMS] = { "double", "halve", "ring" };

const char *tune_algorithm_name(enum tune_algorithm algorithm)
{
	return names[algorithm];
}

static unsigned steps(unsigned ranks)
{
	unsigned k = 0;

	while (ranks >>= 1)
		k++;
	return k;
}

/* MESSAGES that are reduced, of BYTES in all. */
static double reduced(const struct tune_numbers *t, double messages, double bytes)
{
	return messages * t->latency_us +
	       bytes * (t->us_per_byte + 1.0 / REDUCED_BYTES_PER_US);
}

/* As many that are not. */
static double moved(const struct tune_numbers *t, double messages, double bytes)
{
	return messages * t->latency_us + bytes * t->us_per_byte;
}

double tune_cost_us(const struct tune_numbers *t, enum tune_algorithm algorithm,
		    unsigned ranks, uint64_t bytes)
{
	double n = (double)bytes, log = steps(ranks), p = 1u << steps(ranks), rest = 0;
	double agree = moved(t, log, 0);

	if (ranks & (ranks - 1)) {
		rest = reduced(t, 1, n) + moved(t, 1, n);
		agree += moved(t, 2, 0);
	}
	switch (algorithm) {
	case TUNE_DOUBLE:
		return rest + reduced(t, log, log * n);
	case TUNE_HALVE:
		return rest + reduced(t, log, n * (p - 1) / p) +
		       moved(t, log, n * (p - 1) / p);
	default:
		p = ranks;
		return agree + reduced(t, p - 1, n * (p - 1) / p) +
		       moved(t, p - 1, n * (p - 1) / p);
	}
}

struct tune_plan tune_choose(const struct tune_numbers *t, unsigned ranks,
			     uint64_t bytes)
{
	struct tune_plan plan = { TUNE_DOUBLE, 1 };

	for (enum tune_algorithm w = TUNE_HALVE; w < TUNE_ALGORITHMS; w++)
		if (tune_cost_us(t, w, ranks, bytes) <
		    tune_cost_us(t, plan.algorithm, ranks, bytes))
			plan.algorithm = w;
	if (bytes >= LANES_BYTES && t->lanes_us_per_byte > 0 &&
	    t->lanes_us_per_byte < 0.7 * t->us_per_byte)
		plan.lanes = TUNE_LANES;
	return plan;
}

size_t tune_table(char *text, size_t size, const struct tune_numbers *t, unsigned ranks)
{
	size_t n = (size_t)snprintf(
		text, size,
		"%u ranks over connections: a message takes %.1f us, a MiB %.0f us\n"
		"%12s %12s %12s %12s  chosen, connections\n",
		ranks, t->latency_us, t->us_per_byte * (1 << 20), "bytes", "double us",
		"halve us", "ring us");

	for (uint64_t bytes = 8; bytes <= 1ull << 30; bytes *= 4) {
		struct tune_plan plan = tune_choose(t, ranks, bytes);

		n += (size_t)snprintf(n < size ? text + n : NULL,
				      n < size ? size - n : 0,
				      "%12llu %12.1f %12.1f %12.1f  %s %u\n",
				      (unsigned long long)bytes,
				      tune_cost_us(t, TUNE_DOUBLE, ranks, bytes),
				      tune_cost_us(t, TUNE_HALVE, ranks, bytes),
				      tune_cost_us(t, TUNE_RING, ranks, bytes),
				      tune_algorithm_name(plan.algorithm), plan.lanes);
	}
	return n;
}
