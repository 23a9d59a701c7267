#include "lib/backend/tune.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	REDUCED_BYTES_PER_US = 22000, /* f32, one core of an EPYC 9005 */
	MESSAGE_US = 3,               /* at least: the work of both cores for it */
	LANES_BYTES = 8 << 20         /* smaller ones are agreed on and sent at once */
};

const struct tune_numbers tune_guess = { .latency_us = 25, .us_per_byte = 1e-3 };

static const char *const names[TUNE_ALGORITHMS] = { "double", "halve", "direct" };

const char *tune_algorithm_name(enum tune_algorithm algorithm)
{
	return names[algorithm];
}

static unsigned tune_steps(unsigned ranks)
{
	unsigned k = 0;

	while (ranks >>= 1)
		k++;
	return k;
}

/* Time of MESSAGES whose data are reduced, of BYTES in all. */
static double tune_reduced(const struct tune_numbers *t, double messages, double bytes)
{
	return messages * t->latency_us +
	       bytes * (t->us_per_byte + 1.0 / REDUCED_BYTES_PER_US);
}

/* Time of MESSAGES whose data are not reduced. */
static double tune_moved(const struct tune_numbers *t, double messages, double bytes)
{
	return messages * t->latency_us + bytes * t->us_per_byte;
}

/* Time in which the ranks beyond a power of 2 give their data and get the result. */
static double rest_us(const struct tune_numbers *t, const struct tune_work *w)
{
	const double n = (double)w->count;

	return w->ranks & (w->ranks - 1) ? tune_reduced(t, 1, n * w->first) +
						   tune_moved(t, 1, n * w->result)
					 : 0;
}

static double double_us(const struct tune_numbers *t, const struct tune_work *w)
{
	const double n = (double)w->count, log = tune_steps(w->ranks);
	const bool folds = w->ranks & (w->ranks - 1);

	return rest_us(t, w) + tune_reduced(t, log,
					    n * (folds ? w->partial : w->first) +
						    (log - 1) * n * w->partial);
}

static double halve_us(const struct tune_numbers *t, const struct tune_work *w)
{
	const double n = (double)w->count, log = tune_steps(w->ranks),
		     p = 1u << tune_steps(w->ranks);
	const bool folds = w->ranks & (w->ranks - 1);

	return rest_us(t, w) +
	       tune_reduced(t, log,
			    n / 2 * (folds ? w->partial : w->first) +
				    (n / 2 - n / p) * w->partial) +
	       tune_moved(t, log, n * (p - 1) / p * w->result);
}

static double direct_us(const struct tune_numbers *t, const struct tune_work *w)
{
	const double n = (double)w->count, p = w->ranks, log = tune_steps(w->ranks);
	const double agree =
		tune_moved(t, log + (w->ranks & (w->ranks - 1) ? 2 : 0), 0);

	const double message_us =
		t->message_us > MESSAGE_US ? t->message_us : MESSAGE_US;

	return agree + 2 * (p - 1) * message_us +
	       tune_reduced(t, 1, n * (p - 1) / p * w->first) +
	       tune_moved(t, 1, n * (p - 1) / p * w->result);
}

double tune_cost_us(const struct tune_numbers *t, enum tune_algorithm algorithm,
		    const struct tune_work *w)
{
	switch (algorithm) {
	case TUNE_DOUBLE:
		return double_us(t, w);
	case TUNE_HALVE:
		return halve_us(t, w);
	default:
		return direct_us(t, w);
	}
}

static enum tune_algorithm tune_fastest(const struct tune_numbers *t,
					const struct tune_work *w)
{
	const struct tune_choices *c = &t->choices;
	enum tune_algorithm best = TUNE_DOUBLE;

	for (unsigned i = 0; i < c->n; i++)
		if (w->count * w->result <= c->range[i].most)
			return c->range[i].algorithm;
	for (enum tune_algorithm a = TUNE_HALVE; a < TUNE_ALGORITHMS; a++)
		if (tune_cost_us(t, a, w) < tune_cost_us(t, best, w))
			best = a;
	return best;
}

struct tune_plan tune_choose(const struct tune_numbers *t, const struct tune_work *w)
{
	struct tune_plan plan = { tune_fastest(t, w), 1 };

	if (w->count * w->first >= LANES_BYTES && t->lanes_us_per_byte > 0 &&
	    t->lanes_us_per_byte < 0.7 * t->us_per_byte)
		plan.lanes = TUNE_LANES;
	return plan;
}

/* Both ways agree beforehand. */
enum tune_algorithm tune_choose_reduce(const struct tune_numbers *t,
				       const struct tune_work *w)
{
	const double log = tune_steps(w->ranks);

	return double_us(t, w) + tune_moved(t, log, 0) < direct_us(t, w) ? TUNE_DOUBLE
									 : TUNE_DIRECT;
}

size_t tune_table(char *text, size_t size, const struct tune_numbers *t, unsigned ranks)
{
	size_t n = (size_t)snprintf(
		text, size,
		"%u ranks over connections: a message takes %.1f us, a MiB %.0f us\n"
		"%12s %12s %12s %12s  chosen, connections\n",
		ranks, t->latency_us, t->us_per_byte * (1 << 20), "bytes", "double us",
		"halve us", "direct us");

	for (uint64_t bytes = 8; bytes <= 1ull << 30; bytes *= 4) {
		const struct tune_work w = { ranks, bytes / 4, 4, 4, 4 };
		const struct tune_plan plan = tune_choose(t, &w);

		n += (size_t)snprintf(
			n < size ? text + n : NULL, n < size ? size - n : 0,
			"%12llu %12.1f %12.1f %12.1f  %s %u\n",
			(unsigned long long)bytes, tune_cost_us(t, TUNE_DOUBLE, &w),
			tune_cost_us(t, TUNE_HALVE, &w),
			tune_cost_us(t, TUNE_DIRECT, &w),
			tune_algorithm_name(plan.algorithm), plan.lanes);
	}
	return n;
}

/* ---- the user's choices ---- */

static bool read_algorithm(const char **text, enum tune_algorithm *algorithm)
{
	for (enum tune_algorithm a = 0; a < TUNE_ALGORITHMS; a++) {
		size_t n = strlen(names[a]);

		if (!strncmp(*text, names[a], n) &&
		    !isalnum((unsigned char)(*text)[n])) {
			*text += n;
			*algorithm = a;
			return true;
		}
	}
	return false;
}

/* "64K" */
static bool read_size(const char **text, uint64_t *bytes)
{
	static const char units[] = "KMG";
	const char *unit;
	char *end;
	unsigned long long n;

	if (!isdigit((unsigned char)**text))
		return false;
	n = strtoull(*text, &end, 10);
	unit = *end ? strchr(units, toupper((unsigned char)*end)) : NULL;
	if (n > 1u << 30)
		return false;
	*bytes = unit ? (uint64_t)n << (10 * (unit - units + 1)) : n;
	*text = end + (unit != NULL);
	return true;
}

bool tune_read(struct tune_choices *c, const char *text)
{
	for (c->n = 0; c->n < TUNE_RANGES; text++) {
		uint64_t *most = &c->range[c->n].most;

		*most = UINT64_MAX;
		if (!read_algorithm(&text, &c->range[c->n].algorithm))
			return false;
		if (*text == ':') {
			text++;
			if (!read_size(&text, most))
				return false;
		}
		if (c->n && *most <= c->range[c->n - 1].most)
			return false;
		c->n++;
		if (!*text)
			return true;
		if (*text != ',' || *most == UINT64_MAX)
			return false;
	}
	return false;
}
