#include "agent/placement/place_internal.h"

uint32_t place_cores(const struct topo *t, const struct cpuset *cpus, int node)
{
	const struct topo_node *v = &t->node[node];
	uint32_t n = 0;

	for (uint32_t c = v->first_core; c < v->first_core + v->ncores; c++)
		for (uint32_t k = 0; k < t->core[c].npu; k++)
			if (cpuset_has(cpus, t->core[c].pu[k])) {
				n++;
				break;
			}
	return n;
}

/* Every rank has CPUs, all of them allowed. */
static int check_masks(const struct place_work *w, struct err *e)
{
	for (size_t r = 0; r < w->p->n; r++) {
		const struct cpuset *cpus = &w->p->v[r].cpus;

		if (!cpuset_count(cpus))
			return err_set(e, E_PLACE, "a rank has no CPU");
		if (!cpuset_within(cpus, &w->t->allowed))
			return err_set(e, E_PLACE,
				       "a rank has a CPU that isn't allowed");
	}
	return 0;
}

/* Every GPU has floor or ceiling of ranks/GPUs, in order. */
static int check_gpus(const struct place_work *w, struct err *e)
{
	size_t m = w->g->n, n = w->p->n;
	size_t *count = xcalloc(m, sizeof *count);
	int rc = 0;

	for (size_t r = 0; m && r < n; r++) {
		if (r && w->p->v[r].gpu < w->p->v[r - 1].gpu)
			rc = err_set(e, E_PLACE, "ranks don't follow the GPUs' order");
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

/* The rank that has core C to itself; -1: nobody; -2: several. */
static int owner_of(const struct place_work *w, const struct topo_core *c)
{
	int owner = -1;

	for (size_t r = 0; r < w->p->n; r++)
		for (uint32_t k = 0; k < c->npu; k++)
			if (cpuset_has(&w->p->v[r].cpus, c->pu[k])) {
				if (owner >= 0)
					return -2;
				owner = (int)r;
				break;
			}
	return owner;
}

/* The optimum at V: ranks homed below V must take max(0, demand - supply) cores outside
 * it, and may take no more. */
static int check_node(const struct place_work *w, int v, uint32_t demand,
		      const int *owner, struct err *e)
{
	const struct topo_node *n = &w->t->node[v];
	uint32_t inside = 0;

	for (uint32_t c = n->first_core; c < n->first_core + n->ncores; c++)
		inside += owner[c] >= 0 && topo_above(w->t, v, w->seat[owner[c]].home);
	if (inside == (demand < n->ncores ? demand : n->ncores))
		return 0;
	return err_set(e, E_PLACE,
		       "more cores than necessary lie outside a rank's part");
}

/* The certificate, for ranks with cores of their own. */
static int check_optimum(const struct place_work *w, struct err *e)
{
	const struct topo *t = w->t;
	uint32_t *demand = xcalloc(t->nnode, sizeof *demand);
	int *owner = xcalloc(t->ncore, sizeof *owner), rc = 0;

	for (size_t c = 0; !rc && c < t->ncore; c++) {
		owner[c] = owner_of(w, &t->core[c]);
		if (owner[c] == -2)
			rc = err_set(e, E_PLACE, "two ranks have the same core");
	}
	for (size_t r = 0; !rc && r < w->p->n; r++) {
		if (place_cores(t, &w->p->v[r].cpus, 0) != w->seat[r].want)
			rc = err_set(e, E_PLACE, "a rank hasn't got its share");
		for (int v = w->seat[r].home; v >= 0; v = t->node[v].parent)
			demand[v] += w->seat[r].want;
	}
	for (size_t v = 0; !rc && v < t->nnode; v++)
		if (demand[v])
			rc = check_node(w, (int)v, demand[v], owner, e);
	free(demand);
	free(owner);
	return rc;
}

int place_check(const struct place_work *w, struct err *e)
{
	bool cores = w->mode == PLACE_FILL && w->nunit == w->t->ncore;
	bool shares = w->o->bind_to == BIND_AUTO;

	if (check_masks(w, e) || check_gpus(w, e))
		return -1;
	if (shares && w->mode != PLACE_FILL && check_sharing(w, e))
		return -1;
	return cores ? check_optimum(w, e) : 0;
}
