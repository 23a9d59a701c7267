#include "agent/placement/place.h"

#include "agent/placement/place_internal.h"

/* ---- the GPU of each rank ---- */

static void add_load(const struct topo *t, uint32_t *load, int home, uint32_t ranks)
{
	for (int v = home; v >= 0; v = t->node[v].parent)
		load[v] += ranks;
}

/* The GPU that gets the next rank, of those with less than FULL: one without holder
 * if there is one, then the cheapest.  LOAD is the ranks homed below each node.  The
 * cost is how many more core-levels must leave a subtree: 1 for each node that is
 * full.  The sum over the tree is laminar convex, so choosing the least cost one by
 * one is optimal as a whole. */
static size_t best_gpu(const struct topo *t, const struct gpus *g, const uint32_t *load,
		       const uint32_t *count, uint32_t full)
{
	size_t best = g->n;
	uint32_t best_cost = 0;

	for (size_t i = 0; i < g->n; i++) {
		bool held = *g->v[i].holder;
		uint32_t cost = 0;

		if (count[i] >= full)
			continue;
		for (int v = g->v[i].home; v >= 0; v = t->node[v].parent)
			cost += load[v] >= t->node[v].ncores;
		if (best == g->n || held < (bool)*g->v[best].holder ||
		    (held == (bool)*g->v[best].holder && cost < best_cost)) {
			best = i;
			best_cost = cost;
		}
	}
	return best;
}

/* Ranks per GPU: equal, the remainder one by one to the cheapest. */
static void take_seats(struct place_work *w)
{
	const struct topo *t = w->t;
	const struct gpus *g = w->g;
	size_t n = w->p->n, r = 0;
	uint32_t each = g->n ? (uint32_t)(n / g->n) : 0;
	uint32_t *count = xcalloc(g->n, sizeof *count);
	uint32_t *load = xcalloc(t->nnode, sizeof *load);

	for (size_t i = 0; i < g->n; i++) {
		count[i] = each;
		add_load(t, load, g->v[i].home, each);
	}
	for (size_t k = g->n ? n % g->n : 0; k; k--) {
		size_t i = best_gpu(t, g, load, count, each + 1);

		count[i]++;
		add_load(t, load, g->v[i].home, 1);
	}
	for (size_t i = 0; i < g->n; i++)
		for (uint32_t k = 0; k < count[i]; k++)
			w->seat[r++] =
				(struct seat){ .gpu = (int)i, .home = g->v[i].home };
	for (; r < n; r++)
		w->seat[r].gpu = -1;
	free(count);
	free(load);
}

/* ---- how many cores ---- */

static int place_domain(const struct place_work *w, int home)
{
	switch (w->o->share) {
	case SHARE_HOME:
		return home;
	case SHARE_MACHINE:
		return 0;
	default:
		return topo_package(w->t, home);
	}
}

/* Each rank gets an equal share of its domain.  If the shares are together more units
 * than there are, it gets an equal share of the machine. */
static void want_shares(struct place_work *w)
{
	size_t sum = 0, n = w->p->n;

	for (size_t r = 0; r < n; r++) {
		struct seat *s = &w->seat[r];
		int d = place_domain(w, s->home);
		uint32_t ranks = 0;

		if (r && place_domain(w, s[-1].home) == d) {
			s->want = s[-1].want;
		} else {
			for (size_t i = 0; i < n; i++)
				ranks += topo_above(w->t, d, w->seat[i].home);
			s->want = ranks ? w->t->node[d].ncores / ranks : 0;
			s->want += !s->want;
		}
		sum += s->want;
	}
	for (size_t r = 0; sum > w->t->ncore && r < n; r++)
		w->seat[r].want = (uint32_t)(w->t->ncore / n);
}

/* ---- which CPUs ---- */

static void place_shares(struct place_work *w)
{
	size_t n = w->p->n;
	bool few_cores = n > w->t->ncore;

	place_units(w, few_cores ? BIND_HWTHREAD : BIND_CORE);
	if (!w->g->n) {
		w->mode = PLACE_DIVIDE;
		place_divide(w);
	} else if (few_cores) {
		w->mode = PLACE_WALK;
		for (size_t r = 0; r < n; r++)
			w->seat[r].want = 1;
		place_walk(w, (n + w->nunit - 1) / w->nunit);
	} else {
		w->mode = PLACE_FILL;
		want_shares(w);
		place_fill(w);
	}
}

static int place_objects(struct place_work *w, struct err *e)
{
	static const char *const names[] = { BIND_TO_NAMES };
	enum bind_to bind = w->o->bind_to;
	unsigned count = w->o->bind_count ? w->o->bind_count : 1;
	bool single = bind == BIND_CORE || bind == BIND_HWTHREAD;
	size_t asked = w->p->n * count;

	place_units(w, bind);
	if (count > w->nunit)
		return err_set(e, E_BIND_OBJECTS, names[bind], count, w->nunit);
	for (size_t r = 0; r < w->p->n; r++)
		w->seat[r].want = count;
	w->mode = single && asked <= w->nunit ? PLACE_FILL : PLACE_WALK;
	if (w->mode == PLACE_FILL)
		place_fill(w);
	else
		place_walk(w, single ? (asked + w->nunit - 1) / w->nunit : SIZE_MAX);
	return 0;
}

int place_ranks(struct placement *p, const struct topo *t, const struct gpus *g,
		size_t n, const struct place_options *o, struct err *e)
{
	struct place_work w = { .t = t, .g = g, .o = o, .p = p };
	int rc = 0;

	*p = (struct placement){ .v = xcalloc(n, sizeof *p->v), .n = n };
	p->gpus_shared = g->n && n > g->n;
	if (p->gpus_shared && o->no_gpu_sharing) {
		placement_free(p);
		return err_set(e, E_GPU_SHARING, n, g->n);
	}
	w.seat = xcalloc(n, sizeof *w.seat);
	take_seats(&w);
	for (size_t r = 0; r < n; r++) {
		struct berth *b = &p->v[r];

		b->gpu = w.seat[r].gpu;
		b->bound = o->bind_to != BIND_NONE;
		b->cpus = b->bound ? cpuset_new(t->allowed.nwords)
				   : cpuset_copy(&t->allowed);
	}
	if (o->bind_to == BIND_AUTO)
		place_shares(&w);
	else if (o->bind_to != BIND_NONE)
		rc = place_objects(&w, e);
	if (!rc)
		rc = place_check(&w, e);
	if (!rc)
		place_tell(&w);
	else
		placement_free(p);
	place_units_free(&w);
	free(w.seat);
	return rc;
}

void placement_free(struct placement *p)
{
	for (size_t r = 0; r < p->n; r++) {
		cpuset_free(&p->v[r].cpus);
		free(p->v[r].why);
		free(p->v[r].numa);
	}
	free(p->v);
	free(p->idle);
	free(p->certificate);
	*p = (struct placement){ 0 };
}
