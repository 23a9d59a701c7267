#include "agent/placement/place_internal.h"

/* Each GPU has floor or ceiling of ranks/GPUs, in order. */
static int place_check_gpus(const struct place_work *w, struct err *e)
{
	size_t m = w->g->n, n = w->p->n;
	size_t *count = xcalloc(m, sizeof *count);
	int rc = 0;

	for (size_t r = 0; m && r < n; r++) {
		if (r && w->p->v[r].gpu < w->p->v[r - 1].gpu)
			rc = err_set(e, E_PLACE, "ranks do not follow the GPUs' order");
		count[w->p->v[r].gpu]++;
	}
	for (size_t i = 0; i < m; i++)
		if (count[i] < n / m || count[i] > (n + m - 1) / m)
			rc = err_set(e, E_PLACE, "the GPUs are not shared evenly");
	free(count);
	return rc;
}

/* No PU serves more ranks than it must. */
static int check_sharing(const struct place_work *w, struct err *e)
{
	size_t cap = (w->p->n + w->t->npu - 1) / w->t->npu;

	for (size_t c = 0; c < w->t->ncore; c++)
		for (uint32_t k = 0; k < w->t->core[c].npu; k++) {
			size_t use = 0;

			for (size_t r = 0; r < w->p->n; r++)
				use += cpuset_has(&w->p->v[r].cpus,
						  w->t->core[c].pu[k]);
			if (use > cap)
				return err_set(e, E_PLACE,
					       "a CPU serves more ranks than it must");
		}
	return 0;
}

/* The certificate, for ranks with cores of their own.  At each node V with ranks homed
 * below it, these have min(demand, supply) cores below V.  They must take
 * max(0, demand - supply) outside V, and may take no more. */
static int check_optimum(const struct place_work *w, struct err *e)
{
	const struct topo *t = w->t;
	uint32_t *demand = xcalloc(t->nnode, sizeof *demand);
	int *home_of = xcalloc(t->ncore, sizeof *home_of); /* -1: the core is idle */
	int rc = 0;

	for (size_t c = 0; c < t->ncore; c++) {
		home_of[c] = -1;
		for (size_t r = 0; r < w->p->n; r++) {
			if (!topo_core_meets(&t->core[c], &w->p->v[r].cpus))
				continue;
			if (home_of[c] >= 0)
				rc = err_set(e, E_PLACE,
					     "two ranks have the same core");
			home_of[c] = w->seat[r].home;
		}
	}
	for (size_t r = 0; !rc && r < w->p->n; r++) {
		if (topo_cores(t, &w->p->v[r].cpus, 0) != w->seat[r].want)
			rc = err_set(e, E_PLACE, "a rank does not have its share");
		for (int v = w->seat[r].home; v >= 0; v = t->node[v].parent)
			demand[v] += w->seat[r].want;
	}
	for (size_t v = 0; !rc && v < t->nnode; v++) {
		const struct topo_node *n = &t->node[v];
		uint32_t inside = 0;

		if (!demand[v])
			continue;
		for (uint32_t c = n->first_core; c < n->first_core + n->ncores; c++)
			inside += home_of[c] >= 0 && topo_above(t, (int)v, home_of[c]);
		if (inside != (demand[v] < n->ncores ? demand[v] : n->ncores))
			rc = err_set(e, E_PLACE,
				     "more cores than necessary lie outside a rank's "
				     "part");
	}
	free(demand);
	free(home_of);
	return rc;
}

int place_check(const struct place_work *w, struct err *e)
{
	bool shares = w->o->bind_to == BIND_AUTO && w->mode != PLACE_FILL;
	bool cores = w->mode == PLACE_FILL && w->nunit == w->t->ncore;

	for (size_t r = 0; r < w->p->n; r++) {
		const struct cpuset *cpus = &w->p->v[r].cpus;

		if (!cpuset_count(cpus))
			return err_set(e, E_PLACE, "a rank has no CPU");
		if (!cpuset_within(cpus, &w->t->allowed))
			return err_set(e, E_PLACE,
				       "a rank has a CPU that is not allowed");
	}
	if (place_check_gpus(w, e) || (shares && check_sharing(w, e)))
		return -1;
	return cores ? check_optimum(w, e) : 0;
}
