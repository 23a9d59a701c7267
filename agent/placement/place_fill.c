#include "agent/placement/place_internal.h"

/* ---- units ---- */

static void add_object(struct place_work *w, int node, const struct cpuset *cpus)
{
	struct unit *u = &w->unit[w->nunit];

	if (!cpuset_meets(cpus, &w->t->allowed))
		return;
	*u = (struct unit){ node, -1, -1, cpuset_copy(&w->t->allowed) };
	cpuset_and(&u->cpus, cpus);
	w->nunit++;
}

void place_units(struct place_work *w, enum bind_to bind)
{
	const struct topo *t = w->t;
	enum node_type type = bind == BIND_SOCKET ? NODE_PACKAGE : NODE_L3;

	w->unit = xcalloc(t->npu + t->nnode + t->nnuma, sizeof *w->unit);
	if (bind == BIND_SOCKET || bind == BIND_L3) {
		for (size_t i = 0; i < t->nnode; i++)
			if (t->node[i].type == type)
				add_object(w, (int)i, &t->node[i].cpus);
		return;
	}
	if (bind == BIND_NUMA) {
		for (size_t i = 0; i < t->nnuma; i++)
			add_object(w, t->numa[i].node, &t->numa[i].cpus);
		return;
	}
	w->first = xcalloc(t->ncore + 1, sizeof *w->first);
	for (size_t c = 0; c < t->ncore; c++) {
		const struct topo_core *core = &t->core[c];
		uint32_t each = bind == BIND_HWTHREAD ? core->npu : 1;

		w->first[c] = (uint32_t)w->nunit;
		for (uint32_t k = 0; k < each; k++)
			w->unit[w->nunit++] =
				(struct unit){ .node = core->node,
					       .core = (int)c,
					       .pu = bind == BIND_HWTHREAD ? (int)k
									   : -1 };
	}
	w->first[t->ncore] = (uint32_t)w->nunit;
}

void place_units_free(struct place_work *w)
{
	for (size_t i = 0; i < w->nunit; i++)
		cpuset_free(&w->unit[i].cpus);
	free(w->unit);
	free(w->first);
}

static void fill_give(const struct place_work *w, size_t rank, size_t unit)
{
	struct cpuset *cpus = &w->p->v[rank].cpus;
	const struct unit *u = &w->unit[unit];
	const struct topo_core *core = u->core < 0 ? NULL : &w->t->core[u->core];

	if (!core)
		cpuset_or(cpus, &u->cpus);
	else if (u->pu >= 0)
		cpuset_add(cpus, core->pu[u->pu]);
	else
		for (uint32_t k = 0; k < core->npu; k++)
			cpuset_add(cpus, core->pu[k]);
}

/* The homes of ranks, with ABOVE also the nodes above them, the deepest first. */
static int *fill_homes(const struct place_work *w, bool above, size_t *n)
{
	const struct topo *t = w->t;
	bool *homed = xcalloc(t->nnode, sizeof *homed);
	int *order = xcalloc(t->nnode, sizeof *order), deepest = 0;

	for (size_t r = 0; r < w->p->n; r++) {
		int v = w->seat[r].home;

		if (t->node[v].depth > deepest)
			deepest = t->node[v].depth;
		for (; v >= 0 && !homed[v]; v = above ? t->node[v].parent : -1)
			homed[v] = true;
	}
	*n = 0;
	for (int d = deepest; d >= 0; d--)
		for (size_t v = 0; v < t->nnode; v++)
			if (homed[v] && t->node[v].depth == d)
				order[(*n)++] = (int)v;
	free(homed);
	return order;
}

/* ---- the bottom-up fill ---- */

struct fill {
	struct place_work *w;
	bool *taken;     /* by unit */
	uint32_t *need;  /* by rank: still unserved */
	uint32_t *grant; /* by rank: what the node at hand gives */
	size_t *here;    /* ranks that the node at hand serves */
	size_t nhere;
};

static uint32_t unit_begin(const struct place_work *w, int v)
{
	return w->first[w->t->node[v].first_core];
}

static uint32_t unit_end(const struct place_work *w, int v)
{
	return w->first[w->t->node[v].first_core + w->t->node[v].ncores];
}

static uint32_t free_units(const struct fill *f, int v)
{
	uint32_t n = 0;

	for (uint32_t u = unit_begin(f->w, v); u < unit_end(f->w, v); u++)
		n += !f->taken[u];
	return n;
}

/* The free unit below V that R takes next, from unit FROM on.  In R's home it is the
 * first.  Above that all are equally far in the tree: it is the first of those with the
 * least memory latency from the home. */
static uint32_t next_unit(const struct fill *f, int v, size_t r, uint32_t from)
{
	const struct topo *t = f->w->t;
	const int home = f->w->seat[r].home;
	const int numa = t->core[t->node[home].first_core].numa;
	const bool remote = t->latency && numa >= 0 && !topo_above(t, home, v);
	uint32_t best = UINT32_MAX;
	uint64_t best_latency = 0;

	for (uint32_t u = from; u < unit_end(f->w, v); u++) {
		const int to = t->core[f->w->unit[u].core].numa;
		uint64_t l = 0;

		if (f->taken[u])
			continue;
		if (!remote)
			return u;
		if (to >= 0)
			l = t->latency[(size_t)numa * t->nnuma + (size_t)to];
		if (best == UINT32_MAX || l < best_latency) {
			best = u;
			best_latency = l;
		}
	}
	return best;
}

/* Give R up to N free units below V. */
static void fill_take(struct fill *f, int v, size_t r, uint32_t n)
{
	uint32_t from = unit_begin(f->w, v);

	for (; n; n--) {
		uint32_t u = next_unit(f, v, r, from);

		if (u == UINT32_MAX)
			return;
		if (topo_above(f->w->t, f->w->seat[r].home, v))
			from = u + 1;
		f->taken[u] = true;
		fill_give(f->w, r, u);
		f->need[r]--;
		f->grant[r]--;
	}
}

/* V gives each rank here all that it needs.  On shortage each gets an even share, the
 * earlier ranks first. */
static void grant_shares(struct fill *f, int v)
{
	uint32_t left = free_units(f, v), asked = 0;

	for (size_t k = 0; k < f->nhere; k++)
		asked += f->need[f->here[k]];
	for (size_t k = 0; k < f->nhere; k++)
		f->grant[f->here[k]] = asked <= left ? f->need[f->here[k]] : 0;
	if (asked <= left)
		return;
	while (left)
		for (size_t k = 0; k < f->nhere && left; k++) {
			size_t r = f->here[k];

			if (f->grant[r] < f->need[r]) {
				f->grant[r]++;
				left--;
			}
		}
}

/* The children of V with free units into KID, and how many each has into ROOM. */
static size_t fill_children(const struct fill *f, int v, int *kid, uint32_t *room)
{
	const struct topo *t = f->w->t;
	size_t n = 0;

	for (int c = v + 1; c < t->node[v].end; c = t->node[c].end) {
		enum node_type type = t->node[c].type;

		if (type != NODE_PACKAGE && type != NODE_GROUP && type != NODE_DIE &&
		    type != NODE_L3)
			continue;
		kid[n] = c;
		room[n] = free_units(f, c);
		n += room[n] > 0;
	}
	return n;
}

/* Shares of N ranks in proportion to ROOM: largest remainder, the earlier first. */
static void fill_apportion(size_t *quota, const uint32_t *room, size_t nkid, size_t n)
{
	size_t total = 0, left = n;

	for (size_t j = 0; j < nkid; j++)
		total += room[j];
	for (size_t j = 0; j < nkid; j++)
		left -= quota[j] = n * room[j] / total;
	/* each gets at most one more, as LEFT is less than NKID */
	for (; left; left--) {
		size_t best = nkid, best_rest = 0;

		for (size_t j = 0; j < nkid; j++) {
			size_t rest = n * room[j] % total;

			if (quota[j] == n * room[j] / total &&
			    (best == nkid || rest > best_rest)) {
				best = j;
				best_rest = rest;
			}
		}
		quota[best]++;
	}
}

/* For ranks whose home is V itself, if V has several parts: each rank stays in one part
 * while it can.  So the rank of a GPU without locality is not split over sockets. */
static void deal_to_children(struct fill *f, int v)
{
	size_t span = (size_t)(f->w->t->node[v].end - v), nkid, k = 0;
	int *kid;
	uint32_t *room;
	size_t *quota;

	for (size_t i = 0; i < f->nhere; i++)
		if (f->w->seat[f->here[i]].home != v)
			return;
	if (f->nhere < 2)
		return;
	kid = xcalloc(span, sizeof *kid);
	room = xcalloc(span, sizeof *room);
	quota = xcalloc(span, sizeof *quota);
	nkid = fill_children(f, v, kid, room);
	if (nkid > 1) {
		fill_apportion(quota, room, nkid, f->nhere);
		for (size_t j = 0; j < nkid; j++)
			for (size_t q = quota[j]; q; q--, k++)
				fill_take(f, kid[j], f->here[k], f->grant[f->here[k]]);
	}
	free(kid);
	free(room);
	free(quota);
}

void place_fill(struct place_work *w)
{
	size_t n = w->p->n, nodes;
	int *order = fill_homes(w, true, &nodes);
	struct fill f = { .w = w,
			  .taken = xcalloc(w->nunit, sizeof *f.taken),
			  .need = xcalloc(n, sizeof *f.need),
			  .grant = xcalloc(n, sizeof *f.grant),
			  .here = xcalloc(n, sizeof *f.here) };

	for (size_t r = 0; r < n; r++)
		f.need[r] = w->seat[r].want;
	for (size_t i = 0; i < nodes; i++) {
		f.nhere = 0;
		for (size_t r = 0; r < n; r++)
			if (f.need[r] && topo_above(w->t, order[i], w->seat[r].home))
				f.here[f.nhere++] = r;
		if (!f.nhere)
			continue;
		grant_shares(&f, order[i]);
		deal_to_children(&f, order[i]);
		for (size_t k = 0; k < f.nhere; k++)
			fill_take(&f, order[i], f.here[k], f.grant[f.here[k]]);
	}
	free(order);
	free(f.taken);
	free(f.need);
	free(f.grant);
	free(f.here);
}

/* ---- sharing ---- */

/* The nearest unit that is not in MINE and has less than CAP ranks.  A unit is as
 * near to a node as it gets if it is below it or contains it.  Of equally near units
 * it is the least used, then the first. */
static size_t fill_nearest(const struct place_work *w, int home, const size_t *use,
			   const bool *mine, size_t cap)
{
	const struct topo *t = w->t;

	for (int at = home; at >= 0; at = t->node[at].parent) {
		size_t best = SIZE_MAX;

		for (size_t u = 0; u < w->nunit; u++)
			if (!mine[u] && use[u] < cap &&
			    (topo_above(t, at, w->unit[u].node) ||
			     topo_above(t, w->unit[u].node, at)) &&
			    (best == SIZE_MAX || use[u] < use[best]))
				best = u;
		if (best != SIZE_MAX)
			return best;
	}
	return SIZE_MAX;
}

static void fill_choose(const struct place_work *w, size_t r, size_t *use,
			size_t *chosen, size_t cap)
{
	bool *mine = xcalloc(w->nunit, sizeof *mine);

	for (uint32_t k = 0; k < w->seat[r].want; k++) {
		size_t u = fill_nearest(w, w->seat[r].home, use, mine, cap);

		if (u == SIZE_MAX) /* each unit with room left is its own */
			u = fill_nearest(w, w->seat[r].home, use, mine, SIZE_MAX);
		mine[u] = true;
		use[u]++;
	}
	for (size_t u = 0, k = 0; u < w->nunit; u++)
		if (mine[u])
			chosen[k++] = u;
	free(mine);
}

static int compare_first(const void *a, const void *b)
{
	const size_t *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

/* Choose whole objects for all ranks of HOME first, then hand them out in order: so
 * neighbouring ranks share an object, not every other rank. */
static void walk_home(struct place_work *w, int home, size_t *use, size_t cap)
{
	size_t n = 0, want = 0, k = 0;
	size_t *chosen;

	for (size_t r = 0; r < w->p->n; r++)
		if (w->seat[r].home == home) {
			n++;
			want = w->seat[r].want;
		}
	chosen = xcalloc(n * want, sizeof *chosen);
	for (size_t r = 0; r < w->p->n; r++)
		if (w->seat[r].home == home)
			fill_choose(w, r, use, &chosen[k++ * want], cap);
	if (!w->first && n)
		qsort(chosen, n, want * sizeof *chosen, compare_first);
	k = 0;
	for (size_t r = 0; r < w->p->n; r++)
		for (size_t i = 0; w->seat[r].home == home && i < want; i++)
			fill_give(w, r, chosen[k++]);
	free(chosen);
}

void place_walk(struct place_work *w, size_t cap)
{
	size_t *use = xcalloc(w->nunit, sizeof *use), n;
	int *order = fill_homes(w, false, &n);

	for (size_t i = 0; i < n; i++)
		walk_home(w, order[i], use, cap);
	free(order);
	free(use);
}

/* ---- no GPU ---- */

/* Boundaries at i*units/n.  If a part of the machine holds a whole number of ranks, no
 * rank crosses its edge. */
void place_divide(struct place_work *w)
{
	size_t n = w->p->n;

	for (size_t r = 0; r < n; r++) {
		size_t begin = r * w->nunit / n, end = (r + 1) * w->nunit / n;

		w->seat[r].want = (uint32_t)(end > begin ? end - begin : 1);
		for (size_t u = begin; u < end || u == begin; u++)
			fill_give(w, r, u);
	}
}
