#include "agent/placement/place_internal.h"

/* ---- numbers ---- */

/* How many ranks have a PU of each core. */
static uint32_t *core_users(const struct place_work *w)
{
	uint32_t *users = xcalloc(w->t->ncore, sizeof *users);

	for (size_t r = 0; r < w->p->n; r++)
		for (size_t c = 0; c < w->t->ncore; c++) {
			const struct topo_core *core = &w->t->core[c];

			for (uint32_t k = 0; k < core->npu; k++)
				if (cpuset_has(&w->p->v[r].cpus, core->pu[k])) {
					users[c]++;
					break;
				}
		}
	return users;
}

/* A core shared by three counts a third for each. */
static uint32_t part_of_cores(const struct topo *t, const struct cpuset *cpus,
			      const uint32_t *users)
{
	double sum = 0;

	for (size_t c = 0; c < t->ncore; c++)
		for (uint32_t k = 0; k < t->core[c].npu; k++)
			if (cpuset_has(cpus, t->core[c].pu[k])) {
				sum += 1.0 / users[c];
				break;
			}
	return sum < 1 ? 1 : (uint32_t)(sum + 1e-6);
}

/* The smallest object above HOME that covers CPUS. */
static int level_reached(const struct topo *t, const struct cpuset *cpus, int home)
{
	uint32_t all = place_cores(t, cpus, 0);

	while (t->node[home].parent >= 0 && place_cores(t, cpus, home) < all)
		home = t->node[home].parent;
	return home;
}

/* ---- one rank ---- */

/* Of objects with the same CPUs the highest has the name that people know. */
static const char *name_of(const struct topo *t, int node)
{
	return t->node[topo_covering(t, &t->node[node].cpus)].name;
}

/* The other ranks for which OTHER is true, as a list: " with local ranks 2-3". */
static void add_ranks(struct str *s, const char *before, const uint64_t *bits,
		      size_t nwords)
{
	size_t n = 0;

	for (size_t i = 0; i < nwords; i++)
		n += (size_t)__builtin_popcountll(bits[i]);
	if (!n)
		return;
	str_addf(s, "%s local rank%s ", before, n > 1 ? "s" : "");
	str_add_bits(s, bits, nwords);
}

static void add_gpu(struct str *s, const struct place_work *w, size_t r)
{
	const struct gpu *g = &w->g->v[w->p->v[r].gpu];
	struct cpuset same = cpuset_new(w->p->n / 64 + 1);

	str_addf(s, "GPU %d (%s%s%s", g->index, g->pci, *g->model ? " " : "", g->model);
	if (g->mig)
		str_addf(s, " %s", g->uuid);
	str_addf(s, ") by PCI order");
	if (*g->holder)
		str_addf(s, ", though %s has it", g->holder);
	for (size_t i = 0; i < w->p->n; i++)
		if (i != r && w->p->v[i].gpu == w->p->v[r].gpu)
			cpuset_add(&same, (uint32_t)i);
	add_ranks(s, ", shared with", same.w, same.nwords);
	cpuset_free(&same);
	if (g->no_locality)
		str_addf(s, "; it reports no locality");
	else
		str_addf(s, "; its home is %s", name_of(w->t, g->home));
}

/* Who else draws on NODE's CPUs. */
static void add_rivals(struct str *s, const struct place_work *w, size_t r, int node)
{
	struct cpuset rivals = cpuset_new(w->p->n / 64 + 1);
	struct str before = { 0 };

	for (size_t i = 0; i < w->p->n; i++)
		if (i != r && cpuset_meets(&w->p->v[i].cpus, &w->t->node[node].cpus))
			cpuset_add(&rivals, (uint32_t)i);
	str_addf(&before, "; %s also serves", name_of(w->t, node));
	add_ranks(s, str_text(&before), rivals.w, rivals.nwords);
	str_free(&before);
	cpuset_free(&rivals);
}

static void add_share(struct str *s, const struct place_work *w, size_t r)
{
	const struct topo *t = w->t;
	const struct cpuset *cpus = &w->p->v[r].cpus;
	uint32_t got = place_cores(t, cpus, 0);
	uint32_t near = place_cores(t, cpus, w->seat[r].home);
	int reached = level_reached(t, cpus, w->seat[r].home);

	str_addf(s, "; %u of %u cores", got, w->seat[r].want);
	if (near == got && !w->seat[r].home) {
		reached = topo_covering(t, cpus);
		str_addf(s, ", in %s", name_of(t, reached));
	} else if (near == got)
		str_addf(s, " there");
	else
		str_addf(s, ", %u there and %u in the rest of %s", near, got - near,
			 name_of(t, reached));
	add_rivals(s, w, r, reached);
}

/* Masks of hardware threads, of shared objects and of ranks without GPU. */
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
	str_addf(s, "; %u of %zu %s, %s", w->seat[r].want, w->nunit, names[bind],
		 w->mode == PLACE_DIVIDE ? "an even share" : "the nearest");
	if (!w->seat[r].home)
		reached = topo_covering(w->t, cpus);
	str_addf(s, ", in %s", name_of(w->t, reached));
	if (w->mode == PLACE_WALK)
		add_rivals(s, w, r, reached);
}

static void tell_rank(const struct place_work *w, size_t r)
{
	struct berth *b = &w->p->v[r];
	struct str why = { 0 }, numa = { 0 };

	if (b->gpu >= 0)
		add_gpu(&why, w, r);
	else
		str_addf(&why, "no GPU");
	if (!b->bound) {
		str_addf(&why, "; not bound, as --bind-to none says");
	} else if (w->mode == PLACE_FILL && w->nunit == w->t->ncore) {
		add_share(&why, w, r);
	} else {
		add_units(&why, w, r);
	}
	topo_add_numa(&numa, w->t, &b->cpus);
	b->why = str_take(&why);
	b->numa = str_take(&numa);
}

/* ---- the whole ---- */

static char *idle_of(const struct place_work *w)
{
	struct cpuset idle = cpuset_copy(&w->t->allowed);
	struct str s = { 0 };

	for (size_t r = 0; r < w->p->n; r++)
		for (size_t i = 0; i < idle.nwords; i++)
			idle.w[i] &= ~w->p->v[r].cpus.w[i];
	str_add_bits(&s, idle.w, idle.nwords);
	cpuset_free(&idle);
	return str_take(&s);
}

static uint32_t cores_outside(const struct place_work *w, bool home)
{
	uint32_t n = 0;

	for (size_t r = 0; r < w->p->n; r++) {
		const struct cpuset *cpus = &w->p->v[r].cpus;
		int h = w->seat[r].home;

		n += place_cores(w->t, cpus, 0) -
		     place_cores(w->t, cpus, home ? h : place_package(w->t, h));
	}
	return n;
}

static char *certificate_of(const struct place_work *w)
{
	size_t n = w->p->n, npu = w->t->npu;

	if (w->mode == PLACE_FILL && w->nunit == w->t->ncore && w->g->n)
		return xasprintf("%u cores outside their GPU's socket, %u outside its "
				 "home: the least possible for these shares",
				 cores_outside(w, false), cores_outside(w, true));
	if (w->o->bind_to == BIND_AUTO && npu && n > npu)
		return xasprintf("%zu ranks on %zu CPUs: none serves more than %zu", n,
				 npu, (n + npu - 1) / npu);
	if (w->o->bind_to == BIND_AUTO)
		return xasprintf("%zu ranks on %zu cores: no CPU serves two", n,
				 w->t->ncore);
	return xstrdup("");
}

void place_tell(struct place_work *w)
{
	uint32_t *users = core_users(w);

	for (size_t r = 0; r < w->p->n; r++) {
		tell_rank(w, r);
		w->p->v[r].ncores = part_of_cores(w->t, &w->p->v[r].cpus, users);
	}
	w->p->idle = idle_of(w);
	w->p->certificate = certificate_of(w);
	free(users);
}
