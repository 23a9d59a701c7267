#include "agent/placement/place.h"

#include <limits.h>

/* The ranks take seats: GPU I has as many as the ranks that may share it.  Seats beyond
 * an even share cost so much that only the remainder takes them.  A GPU that a rank may
 * not use costs more still. */
struct seats {
	size_t n;
	const struct topo *t;
	const struct gpus *g;
	const struct cpuset *masks;
	const bool *may;
	size_t each; /* seats of each GPU */
	size_t even; /* of these, those of an even share */
};

static const long UNEVEN = 1L << 20, NOT_ITS_OWN = 1L << 40;

/* Steps upwards from the home of G to an object that covers MASK. */
static long fixed_steps(const struct topo *t, const struct gpu *g,
			const struct cpuset *mask)
{
	long n = 0;

	for (int v = g->home; t->node[v].parent >= 0; v = t->node[v].parent, n++)
		if (cpuset_within(mask, &t->node[v].cpus))
			break;
	return n;
}

/* Without a mask, the place of the GPU in the list. */
static long fixed_cost(const struct seats *s, size_t rank, size_t seat)
{
	const size_t gpu = seat / s->each, number = seat % s->each + 1;

	return (s->masks ? fixed_steps(s->t, &s->g->v[gpu], &s->masks[rank])
			 : (long)gpu) +
	       (number > s->even ? UNEVEN * (long)(number - s->even) : 0) +
	       (s->may && !s->may[rank * s->g->n + gpu] ? NOT_ITS_OWN : 0);
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
static size_t fixed_nearest(struct search *x, const struct seats *s, size_t columns,
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
		slack = fixed_cost(s, rank - 1, j - 1) - x->row[rank] - x->column[j];
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
		at = fixed_nearest(x, s, columns, at);
	while (x->taken[at]);
	for (; at; at = x->from[at])
		x->taken[at] = x->taken[x->from[at]];
}

static void fixed_fit(int *gpu, const struct seats *s)
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
			gpu[x.taken[j] - 1] = (int)((j - 1) / s->each);
	free(x.row);
	free(x.column);
	free(x.least);
	free(x.from);
	free(x.taken);
	free(x.done);
}

/* Seats of each GPU: all ranks have one, also if those that may use the same GPU can
 * use no other. */
static size_t seats_of_each(const struct gpus *g, size_t n, const bool *may)
{
	size_t most = (n + g->n - 1) / g->n;

	for (size_t i = 0; may && i < g->n; i++) {
		size_t ranks = 0;

		for (size_t r = 0; r < n; r++)
			ranks += may[r * g->n + i];
		most = most < ranks ? ranks : most;
	}
	return most;
}

void place_fit(int *gpu, const struct topo *t, const struct gpus *g, size_t n,
	       const struct cpuset *masks, const bool *may)
{
	struct seats s = { n, t, g, masks, may, 0, 0 };

	for (size_t r = 0; r < n; r++)
		gpu[r] = -1;
	if (!g->n)
		return;
	s.each = seats_of_each(g, n, may);
	s.even = n < g->n ? 1 : n / g->n;
	fixed_fit(gpu, &s);
	for (size_t r = 0; may && r < n; r++)
		if (!may[r * g->n + (size_t)gpu[r]])
			gpu[r] = -1;
}

static void fixed_tell(struct berth *b, const struct topo *t, const struct gpus *g,
		       const bool *may)
{
	struct str s = { 0 };

	if (b->gpu >= 0)
		str_addf(&s, "GPU %d (%s) %s", g->v[b->gpu].index, g->v[b->gpu].pci,
			 may ? "is the task's own" : "fits the mask");
	else
		str_add(&s, "no GPU");
	str_add(&s, "; the mask is another launcher's");
	b->why = str_take(&s);
	topo_add_numa(&s, t, &b->cpus);
	b->numa = str_take(&s);
}

void place_fixed(struct placement *p, const struct topo *t, const struct gpus *g,
		 size_t n, const struct cpuset *masks, const bool *may)
{
	int *gpu = xcalloc(n, sizeof *gpu);
	uint32_t *ranks = xcalloc(t->ncore, sizeof *ranks); /* that have each core */
	double sum; /* of a rank's cores; ranks with a core in common share it */

	*p = (struct placement){ .v = xcalloc(n, sizeof *p->v), .n = n };
	p->gpus_shared = !may && g->n && n > g->n;
	place_fit(gpu, t, g, n, masks, may);
	for (size_t r = 0; r < n; r++) {
		p->v[r].gpu = gpu[r];
		p->v[r].cpus = cpuset_copy(&masks[r]);
	}
	for (size_t c = 0; c < t->ncore; c++)
		for (size_t r = 0; r < n; r++)
			ranks[c] += topo_core_meets(&t->core[c], &p->v[r].cpus);
	for (size_t r = 0; r < n; r++) {
		fixed_tell(&p->v[r], t, g, may);
		sum = 0.001; /* thirds do not add up to 1 */
		for (size_t c = 0; c < t->ncore; c++)
			if (topo_core_meets(&t->core[c], &p->v[r].cpus))
				sum += 1.0 / ranks[c];
		p->v[r].ncores = sum < 1 ? 1 : (uint32_t)sum;
	}
	p->idle = xstrdup("");
	p->certificate = xstrdup("");
	free(ranks);
	free(gpu);
}
