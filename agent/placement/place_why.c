#include "agent/placement/place_internal.h"

/* ---- one rank ---- */

/* The smallest object above HOME that covers CPUS. */
static int level_reached(const struct topo *t, const struct cpuset *cpus, int home)
{
	uint32_t all = topo_cores(t, cpus, 0);

	while (t->node[home].parent >= 0 && topo_cores(t, cpus, home) < all)
		home = t->node[home].parent;
	return home;
}

/* Objects may have the same CPUs.  The highest of them has the name that people
 * know. */
static const char *name_of(const struct topo *t, int node)
{
	return t->node[topo_covering(t, &t->node[node].cpus)].name;
}

/* The other ranks with R's GPU (NODE -1) or with CPUs of NODE, if there are any, after
 * BEFORE, and after NODE's name. */
static void add_others(struct str *s, const struct place_work *w, size_t r, int node,
		       const char *before)
{
	const struct berth *b = w->p->v;
	struct cpuset others = cpuset_new(w->p->n / 64 + 1);
	uint32_t n;

	for (size_t i = 0; i < w->p->n; i++)
		if (i != r &&
		    (node < 0 ? b[i].gpu == b[r].gpu
			      : cpuset_meets(&b[i].cpus, &w->t->node[node].cpus)))
			cpuset_add(&others, (uint32_t)i);
	n = cpuset_count(&others);
	if (n) {
		if (node >= 0)
			str_addf(s, "; %s", name_of(w->t, node));
		str_addf(s, "%s local rank%s ", before, str_plural(n));
		str_add_bits(s, others.w, others.nwords);
	}
	cpuset_free(&others);
}

static void why_add_gpu(struct str *s, const struct place_work *w, size_t r)
{
	const struct gpu *g = &w->g->v[w->p->v[r].gpu];

	str_addf(s, "GPU %d (%s%s%s", g->index, g->pci, *g->model ? " " : "", g->model);
	if (g->mig)
		str_addf(s, " %s", g->uuid);
	str_addf(s, ") by PCI order");
	if (*g->holder)
		str_addf(s, ", though %s has it", g->holder);
	add_others(s, w, r, -1, ", shared with");
	if (g->no_locality)
		str_addf(s, "; it reports no locality");
	else
		str_addf(s, "; its home is %s", name_of(w->t, g->home));
}

/* For a rank with cores of its own. */
static void add_share(struct str *s, const struct place_work *w, size_t r)
{
	const struct topo *t = w->t;
	const struct cpuset *cpus = &w->p->v[r].cpus;
	uint32_t got = topo_cores(t, cpus, 0);
	uint32_t near = topo_cores(t, cpus, w->seat[r].home);
	int reached = level_reached(t, cpus, w->seat[r].home);

	str_addf(s, "; %u of %u core%s", got, w->seat[r].want,
		 str_plural(w->seat[r].want));
	if (near == got && !w->seat[r].home) {
		reached = topo_covering(t, cpus);
		str_addf(s, ", in %s", name_of(t, reached));
	} else if (near == got)
		str_addf(s, " there");
	else
		str_addf(s, ", %u there and %u in the rest of %s", near, got - near,
			 name_of(t, reached));
	add_others(s, w, r, reached, " also serves");
}

/* For masks of hardware threads, of shared objects and of ranks without GPU. */
static void add_units(struct str *s, const struct place_work *w, size_t r)
{
	static const char *const names[] = { "cores",           "",    "sockets",
					     "NUMA nodes",      "L3s", "cores",
					     "hardware threads" };
	const struct cpuset *cpus = &w->p->v[r].cpus;
	enum bind_to bind = w->o->bind_to;
	int reached = level_reached(w->t, cpus, w->seat[r].home);

	if (bind == BIND_AUTO && w->nunit != w->t->ncore)
		bind = BIND_HWTHREAD;
	/* of the one, without the plural's s */
	str_addf(s, "; %u of %zu %.*s, %s", w->seat[r].want, w->nunit,
		 (int)(strlen(names[bind]) - (w->nunit == 1)), names[bind],
		 w->mode == PLACE_DIVIDE ? "an even share" : "the nearest");
	if (!w->seat[r].home)
		reached = topo_covering(w->t, cpus);
	str_addf(s, ", in %s", name_of(w->t, reached));
	if (w->mode == PLACE_WALK)
		add_others(s, w, r, reached, " also serves");
}

/* ---- the whole ---- */

static char *certificate_of(const struct place_work *w)
{
	size_t n = w->p->n, npu = w->t->npu;
	uint32_t outside_socket = 0, outside_home = 0;

	if (w->mode == PLACE_FILL && w->nunit == w->t->ncore && w->g->n) {
		for (size_t r = 0; r < n; r++) {
			const struct cpuset *cpus = &w->p->v[r].cpus;
			int home = w->seat[r].home;
			uint32_t all = topo_cores(w->t, cpus, 0);

			outside_home += all - topo_cores(w->t, cpus, home);
			outside_socket +=
				all - topo_cores(w->t, cpus, topo_package(w->t, home));
		}
		return xasprintf("%u core%s outside their GPU's socket, %u outside its "
				 "home: the least possible for these shares",
				 outside_socket, str_plural(outside_socket),
				 outside_home);
	}
	if (w->o->bind_to == BIND_AUTO && npu && n > npu)
		return xasprintf("%zu ranks on %zu CPU%s: none serves more than %zu", n,
				 npu, str_plural(npu), (n + npu - 1) / npu);
	if (w->o->bind_to == BIND_AUTO)
		return xasprintf("%zu rank%s on %zu core%s: no CPU serves two", n,
				 str_plural(n), w->t->ncore, str_plural(w->t->ncore));
	return xstrdup("");
}

/* Each rank's part of the cores: a core that three ranks have counts a third for
 * each. */
static void count_cores(struct place_work *w)
{
	const struct topo *t = w->t;
	uint32_t *users = xcalloc(t->ncore, sizeof *users);

	for (size_t r = 0; r < w->p->n; r++)
		for (size_t c = 0; c < t->ncore; c++)
			users[c] += topo_core_meets(&t->core[c], &w->p->v[r].cpus);
	for (size_t r = 0; r < w->p->n; r++) {
		double sum = 0;

		for (size_t c = 0; c < t->ncore; c++)
			if (topo_core_meets(&t->core[c], &w->p->v[r].cpus))
				sum += 1.0 / users[c];
		w->p->v[r].ncores = sum < 1 ? 1 : (uint32_t)(sum + 1e-6);
	}
	free(users);
}

void place_tell(struct place_work *w)
{
	struct cpuset idle = cpuset_copy(&w->t->allowed);
	struct str text = { 0 };

	for (size_t r = 0; r < w->p->n; r++) {
		struct berth *b = &w->p->v[r];

		if (b->gpu >= 0)
			why_add_gpu(&text, w, r);
		else
			str_add(&text, "no GPU");
		if (!b->bound)
			str_add(&text, "; not bound, as --bind-to none says");
		else if (w->mode == PLACE_FILL && w->nunit == w->t->ncore)
			add_share(&text, w, r);
		else
			add_units(&text, w, r);
		b->why = str_take(&text);
		topo_add_numa(&text, w->t, &b->cpus);
		b->numa = str_take(&text);
		for (size_t i = 0; i < idle.nwords; i++)
			idle.w[i] &= ~b->cpus.w[i];
	}
	count_cores(w);
	str_add_bits(&text, idle.w, idle.nwords);
	w->p->idle = str_take(&text);
	w->p->certificate = certificate_of(w);
	cpuset_free(&idle);
}
