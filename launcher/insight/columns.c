#include "launcher/insight/columns.h"

#define KNOWN_LEAST 0.1 /* of a column */

/* The rates of a point. */
#define RATES(X)                                                                       \
	X(main)                                                                        \
	X(cpu)                                                                         \
	X(delay)                                                                       \
	X(blocked) X(children) X(resident_gib) X(read_mb) X(steps) X(ops) X(reduced_mb)

struct columns columns_of(const struct record *r, double wall_s, uint32_t most)
{
	struct columns c = { .n = 1, .width_s = wall_s / most };

	if (c.width_s < r->period_ms / 1000.0)
		c.width_s = r->period_ms / 1000.0;
	if (c.width_s <= 0)
		c.width_s = 1;
	if (wall_s > c.width_s)
		c.n = (uint32_t)(wall_s / c.width_s + 0.9);
	if (c.n > most)
		c.n = most;
	return c;
}

/* Add PART seconds of P to TO. */
static void column_pour(struct point *to, const struct point *p, double part)
{
	const float part_s = (float)part;

#define POUR(rate) to->rate += p->rate * part_s;
	RATES(POUR)
#undef POUR
	to->span_s += part_s;
}

static void column_divide(struct point *p)
{
	const float by = p->span_s;

#define DIVIDE(rate) p->rate /= by;
	RATES(DIVIDE)
#undef DIVIDE
}

/* P, which lasts from FROM_S, to the columns that it touches. */
static void column_spread(struct point *out, const struct columns *c,
			  const struct point *p, double from_s)
{
	const double end_s = from_s + (double)p->span_s;
	const double first = from_s / c->width_s;

	if (!(first < c->n))
		return;
	for (uint32_t i = first > 0 ? (uint32_t)first : 0; i < c->n; i++) {
		const double left = i * c->width_s > from_s ? i * c->width_s : from_s;
		const double right =
			(i + 1) * c->width_s < end_s ? (i + 1) * c->width_s : end_s;

		if (right <= left)
			break;
		column_pour(&out[i], p, right - left);
	}
}

double columns_span_s(const struct strip *s)
{
	double all_s = s->pending ? (double)s->next.span_s : 0;

	for (uint32_t i = 0; i < s->n; i++)
		all_s += (double)s->v[i].span_s;
	return all_s;
}

void columns_rank(struct point *out, const struct columns *c, const struct strip *s,
		  double end_s)
{
	double at_s = end_s - columns_span_s(s), covered_s = 0;
	uint32_t gap = 0;

	for (uint32_t i = 0; i < s->gaps; i++)
		at_s -= s->gap[i].s;
	if (!(at_s > 0))
		at_s = 0;
	memset(out, 0, c->n * sizeof *out);
	for (uint32_t i = 0; i < s->n + !!s->pending; i++) {
		const struct point *p = i < s->n ? &s->v[i] : &s->next;

		/* the middle of a point tells: it may be made of two lives */
		for (; gap < s->gaps &&
		       s->gap[gap].at_s <= covered_s + (double)p->span_s / 2;
		     gap++)
			at_s += s->gap[gap].s;
		column_spread(out, c, p, at_s);
		at_s += (double)p->span_s;
		covered_s += (double)p->span_s;
	}
	for (uint32_t i = 0; i < c->n; i++) {
		if ((double)out[i].span_s < KNOWN_LEAST * c->width_s)
			out[i] = (struct point){ 0 };
		else
			column_divide(&out[i]);
	}
}

void columns_add(struct point *sum, const struct point *one, const struct columns *c)
{
	for (uint32_t i = 0; i < c->n; i++)
		if (one[i].span_s > 0)
			column_pour(&sum[i], &one[i], 1);
}

void columns_mean(struct point *sum, const struct columns *c)
{
	for (uint32_t i = 0; i < c->n; i++)
		if (sum[i].span_s > 0)
			column_divide(&sum[i]);
}
