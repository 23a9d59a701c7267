#include "launcher/insight/past.h"

#include <stdlib.h>

#include "common/str.h"

/* The time is cut into bins, so that one of a long job has many steps. */
enum { BINS_LEAST = 6, BINS_MOST = 24, STEPS_LEAST = 10 };

#define GROWN_LEAST 0.15 /* of a step of now */
#define GUILTY_LEAST 0.5 /* of what a step has grown by */
#define OFTEN 0.7        /* of the bins show it */
#define LASTS_S 2.0      /* another process may take a CPU for a moment */

/* Sums of a rank over some points. */
struct bin {
	double s, steps, own_s, main_s, delay_s;
};

/* B[0..n) as one. */
static struct bin bins_sum(const struct bin *b, uint32_t n)
{
	struct bin sum = { 0 };

	for (uint32_t i = 0; i < n; i++) {
		sum.s += b[i].s;
		sum.steps += b[i].steps;
		sum.own_s += b[i].own_s;
		sum.main_s += b[i].main_s;
		sum.delay_s += b[i].delay_s;
	}
	return sum;
}

/* Bins of all ranks that take steps: BIN[known * N + i]. */
struct bins {
	struct bin *bin;
	uint32_t *rank;
	uint32_t known, n;
};

static bool bins_make(struct bins *b, const struct record *r)
{
	uint32_t points = UINT32_MAX;

	*b = (struct bins){ .rank = xcalloc(r->nranks + 1, sizeof *b->rank) };
	for (uint32_t i = 0; i < r->nranks; i++) {
		if (r->rank[i].sums.steps < STEPS_LEAST)
			continue;
		b->rank[b->known++] = i;
		if (r->rank[i].strip.n < points)
			points = r->rank[i].strip.n;
	}
	if (b->known < 2 || points < BINS_LEAST)
		return false;
	b->n = points < BINS_MOST ? points : BINS_MOST;
	b->bin = xcalloc((size_t)b->known * b->n, sizeof *b->bin);
	for (uint32_t k = 0; k < b->known; k++)
		for (uint32_t i = 0; i < points; i++) {
			const struct point *p = &r->rank[b->rank[k]].strip.v[i];
			struct bin *one = &b->bin[k * b->n + i * b->n / points];
			const double s = (double)p->span_s;

			one->s += s;
			one->steps += (double)p->steps * s;
			one->own_s += (1 - (double)p->blocked) * s;
			one->main_s += (double)p->main * s;
			one->delay_s += (double)p->delay * s;
		}
	return true;
}

/* The bins FROM to FROM + N of the known rank K, a step. */
static bool bins_step(struct part_of_step *p, const struct bins *b, uint32_t k,
		      uint32_t from, uint32_t n)
{
	const struct bin sum = bins_sum(&b->bin[k * b->n + from], n);

	if (sum.steps < STEPS_LEAST)
		return false;
	p->all = sum.s / sum.steps;
	p->own = sum.own_s / sum.steps;
	p->main = sum.main_s / sum.steps;
	p->delay = sum.delay_s / sum.steps;
	return true;
}

/* The bin from which on the own time of the known rank K is above LIMIT; false: it is
 * so now and then. */
static bool bins_since(uint32_t *since, const struct bins *b, uint32_t k, double limit)
{
	int score = 0, most;

	for (uint32_t i = 0; i < b->n; i++) {
		const struct bin *one = &b->bin[k * b->n + i];

		score += one->own_s > limit * one->steps ? 1 : -1;
	}
	*since = 0; /* all bins are above */
	most = score;
	for (uint32_t i = 0; i < b->n; i++) {
		const struct bin *one = &b->bin[k * b->n + i];

		score += one->own_s > limit * one->steps ? -2 : 2;
		if (score > most) {
			most = score;
			*since = i + 1;
		}
	}
	return *since > 0 && *since < b->n && most >= (2 * OFTEN - 1) * b->n;
}

/* The known ranks to RANKS whose own time has grown since the third of the time that
 * begins at BEST; the first of them and its bins to K and P. */
static bool find_grown(struct past *p, struct rank_set *ranks, uint32_t *k,
		       const struct bins *b, uint32_t best)
{
	const uint32_t third = b->n / 3;

	for (uint32_t i = 0; i < b->known; i++) {
		struct part_of_step then, now;

		if (!bins_step(&then, b, i, best, third) ||
		    !bins_step(&now, b, i, b->n - third, third) ||
		    now.all - then.all < GROWN_LEAST * now.all)
			return false;
		if (now.own - then.own < GUILTY_LEAST * (now.all - then.all))
			continue;
		if (!rank_set_count(ranks)) {
			*k = i;
			p->then = then;
			p->now = now;
		}
		rank_set_add(ranks, b->rank[i]);
	}
	/* if it is all of them, the work of the job has grown */
	return rank_set_count(ranks) && rank_set_count(ranks) <= b->known / 2;
}

bool past_find(struct past *p, struct rank_set *ranks, const struct record *r)
{
	struct bins b;
	uint32_t best = 0, since, k = 0;
	double most = 0;
	bool found = false;

	if (bins_make(&b, r)) {
		const uint32_t third = b.n / 3;

		for (uint32_t i = 0; i + 2 * third <= b.n; i++) {
			const struct bin sum = bins_sum(&b.bin[i], third);

			if (sum.s > 0 && sum.steps / sum.s > most) {
				most = sum.steps / sum.s;
				best = i;
			}
		}
		found = find_grown(p, ranks, &k, &b, best) &&
			bins_since(&since, &b, k, (p->then.own + p->now.own) / 2);
		if (found)
			p->since_s = bins_sum(&b.bin[k * b.n + since], b.n - since).s;
	}
	free(b.bin);
	free(b.rank);
	return found && p->since_s >= LASTS_S;
}
