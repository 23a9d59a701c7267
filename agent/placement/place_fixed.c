#include "agent/placement/place.h"

#include <limits.h>

/* The ranks take seats: GPU I has as many as the ranks that may share it.  Seats beyond
 * an even share cost so much that only the remainder takes them. */
struct seats {
	size_t n;
	const struct topo *t;
	const struct gpus *g;
	const struct cpuset *masks;
	size_t each; /* seats of each GPU */
	size_t even; /* of these, those of an even share */
};

enum { UNEVEN = 1 << 20 };

/* Steps upwards from the home of G to an object that covers MASK. */
static long steps(const struct topo *t, const struct gpu *g, const struct cpuset *mask)
{
	long n = 0;

	for (int v = g->home; t->node[v].parent >= 0; v = t->node[v].parent, n++)
		if (cpuset_within(mask, &t->node[v].cpus))
			break;
	return n;
}

static long cost(const struct seats *s, size_t rank, size_t seat)
{
	return steps(s->t, &s->g->v[seat / s->each], &s->masks[rank]) +
	       (seat % s->each >= s->even ? UNEVEN : 0);
}

/* The Hungarian method, by shortest augmenting paths with potentials.  Rows and columns
 * count from 1; column 0 stands for the rank that has no seat yet. */
struct search {
	long *row, *column; /* potentials */
	long *least;        /* of each column: the slack of the shortest path to it */
	size_t *from;       /* the column before it there */
	size_t *taken;      /* the rank of each column, 0: none */
	bool *done;
};

/* One more column becomes done: the nearest one.  Returns it. */
static size_t nearest(struct search *x, const struct seats *s, size_t columns,
		      size_t at)
{
	const size_t rank = x->taken[at];
	long delta = LONG_MAX;
	size_t next = 0;

	x->done[at] = true;
	for (size_t j = 1; j <= columns; j++) {
		long slack;

		if (x->done[j])
			continue;
		slack = cost(s, rank - 1, j - 1) - x->row[rank] - x->column[j];
		if (slack < x->least[j]) {
			x->least[j] = slack;
			x->from[j] = at;
		}
		if (x->least[j] < delta) {
			delta = x->least[j];
			next = j;
		}
	}
	for (size_t j = 0; j <= columns; j++) {
		if (x->done[j]) {
			x->row[x->taken[j]] += delta;
			x->column[j] -= delta;
		} else {
			x->least[j] -= delta;
		}
	}
	return next;
}

static void seat_rank(struct search *x, const struct seats *s, size_t columns,
		      size_t rank)
{
	size_t at = 0;

	for (size_t j = 0; j <= columns; j++) {
		x->least[j] = LONG_MAX;
		x->done[j] = false;
	}
	x->taken[0] = rank;
	do
		at = nearest(x, s, columns, at);
	while (x->taken[at]);
	for (; at; at = x->from[at])
		x->taken[at] = x->taken[x->from[at]];
}

static void fit_gpus(struct placement *p, const struct seats *s)
{
	const size_t columns = s->g->n * s->each;
	struct search x = { xcalloc(s->n + 1, sizeof(long)),
			    xcalloc(columns + 1, sizeof(long)),
			    xcalloc(columns + 1, sizeof(long)),
			    xcalloc(columns + 1, sizeof(size_t)),
			    xcalloc(columns + 1, sizeof(size_t)),
			    xcalloc(columns + 1, sizeof(bool)) };

	for (size_t r = 1; r <= s->n; r++)
		seat_rank(&x, s, columns, r);
	for (size_t j = 1; j <= columns; j++)
		if (x.taken[j])
			p->v[x.taken[j] - 1].gpu = (int)((j - 1) / s->each);
	free(x.row);
	free(x.column);
	free(x.least);
	free(x.from);
	free(x.taken);
	free(x.done);
}

static void tell(struct berth *b, const struct topo *t, const struct gpus *g)
{
	struct str s = { 0 };

	if (b->gpu >= 0)
		str_addf(&s, "GPU %d (%s) fits the mask", g->v[b->gpu].index,
			 g->v[b->gpu].pci);
	else
		str_add(&s, "no GPU");
	str_add(&s, "; the mask is another launcher's");
	b->why = str_take(&s);
	topo_add_numa(&s, t, &b->cpus);
	b->numa = str_take(&s);
	b->ncores = topo_cores(t, &b->cpus, 0);
	b->ncores += !b->ncores;
}

void place_fixed(struct placement *p, const struct topo *t, const struct gpus *g,
		 size_t n, const struct cpuset *masks)
{
	*p = (struct placement){ .v = xcalloc(n, sizeof *p->v), .n = n };
	p->gpus_shared = g->n && n > g->n;
	for (size_t r = 0; r < n; r++) {
		p->v[r].gpu = -1;
		p->v[r].cpus = cpuset_copy(&masks[r]);
	}
	if (g->n)
		fit_gpus(p, &(struct seats){ .n = n,
					     .t = t,
					     .g = g,
					     .masks = masks,
					     .each = (n + g->n - 1) / g->n,
					     .even = n < g->n ? 1 : n / g->n });
	for (size_t r = 0; r < n; r++)
		tell(&p->v[r], t, g);
	p->idle = xstrdup("");
	p->certificate = xstrdup("");
}
