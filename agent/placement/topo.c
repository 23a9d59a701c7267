#include "agent/placement/topo.h"

#include <errno.h>
#include <hwloc.h>
#include <sched.h>
#include <unistd.h>

/* ---- from hwloc's sets to ours ---- */

static struct cpuset set_copy(hwloc_const_cpuset_t from, size_t nwords)
{
	struct cpuset s = cpuset_new(nwords);

	for (int i = hwloc_bitmap_first(from); i >= 0; i = hwloc_bitmap_next(from, i))
		cpuset_add(&s, (uint32_t)i);
	return s;
}

/* ---- the tree ---- */

static enum node_type type_of(hwloc_obj_type_t type)
{
	switch (type) {
	case HWLOC_OBJ_MACHINE:
		return NODE_MACHINE;
	case HWLOC_OBJ_PACKAGE:
		return NODE_PACKAGE;
	case HWLOC_OBJ_GROUP:
		return NODE_GROUP;
	case HWLOC_OBJ_DIE:
		return NODE_DIE;
	case HWLOC_OBJ_L3CACHE:
		return NODE_L3;
	case HWLOC_OBJ_CORE:
	case HWLOC_OBJ_PU: /* a PU without a core is its own core */
		return NODE_CORE;
	default:
		return hwloc_obj_type_is_cache(type) ? NODE_CACHE : NODE_OTHER;
	}
}

/* LEFT: the allowed PUs that no core has yet.  In a file two cores may name the same
 * PU. */
static void add_core(struct topo *t, hwloc_obj_t o, int node, struct cpuset *left)
{
	struct topo_core c = { .node = node, .numa = -1 };

	c.pu = xcalloc((size_t)hwloc_bitmap_weight(o->cpuset), sizeof *c.pu);
	for (int i = hwloc_bitmap_first(o->cpuset); i >= 0;
	     i = hwloc_bitmap_next(o->cpuset, i)) {
		if (!cpuset_has(left, (uint32_t)i))
			continue;
		cpuset_remove(left, (uint32_t)i);
		c.pu[c.npu++] = (uint32_t)i;
	}
	if (!c.npu) {
		free(c.pu);
		return;
	}
	t->npu += c.npu;
	t->core[t->ncore++] = c;
}

/* hwloc's trees have a dozen levels at most, so this may recurse.  An object's userdata
 * is its index + 1, for what hangs from it. */
static void add_nodes(struct topo *t, hwloc_obj_t o, int parent, struct cpuset *left)
{
	int at = (int)t->nnode++;
	struct topo_node *n = &t->node[at];
	hwloc_obj_t mem = o->memory_first_child;

	o->userdata = (void *)(intptr_t)(at + 1);
	n->type = parent < 0 ? NODE_MACHINE : type_of(o->type);
	n->parent = parent;
	n->depth = parent < 0 ? 0 : t->node[parent].depth + 1;
	n->cpus = set_copy(o->cpuset, t->allowed.nwords);
	n->first_core = (uint32_t)t->ncore;
	if (n->type == NODE_MACHINE)
		snprintf(n->name, sizeof n->name, "Machine");
	else if (n->type != NODE_PACKAGE && mem && mem->type == HWLOC_OBJ_NUMANODE)
		snprintf(n->name, sizeof n->name, "NUMANode#%u", mem->os_index);
	else
		snprintf(n->name, sizeof n->name, "%s#%u",
			 hwloc_obj_type_string(o->type),
			 o->os_index != HWLOC_UNKNOWN_INDEX ? o->os_index
							    : o->logical_index);
	if (n->type == NODE_CORE)
		add_core(t, o, at, left);
	else
		for (unsigned i = 0; i < o->arity; i++)
			add_nodes(t, o->children[i], at, left);
	n->ncores = (uint32_t)t->ncore - n->first_core;
	n->end = (int)t->nnode;
}

static int node_above(hwloc_obj_t o)
{
	while (o && !o->userdata)
		o = o->parent;
	return o ? (int)(intptr_t)o->userdata - 1 : 0;
}

static void add_tree(struct topo *t, hwloc_topology_t h)
{
	hwloc_const_cpuset_t whole = hwloc_topology_get_topology_cpuset(h);
	size_t nwords = (size_t)(hwloc_bitmap_last(whole) / 64 + 1), nodes = 0;
	uint64_t mask[1024] = { 0 };
	struct cpuset own = { mask, sizeof mask / sizeof *mask }, present, left;

	t->allowed = set_copy(hwloc_topology_get_allowed_cpuset(h), nwords);
	present = set_copy(whole, nwords);
	cpuset_and(&t->allowed, &present);
	cpuset_free(&present);
	if (t->live && !sched_getaffinity(0, sizeof mask, (cpu_set_t *)mask))
		cpuset_and(&t->allowed, &own);
	for (int d = 0; d < hwloc_topology_get_depth(h); d++)
		nodes += hwloc_get_nbobjs_by_depth(h, d);
	t->node = xcalloc(nodes, sizeof *t->node);
	t->core = xcalloc(cpuset_count(&t->allowed), sizeof *t->core);
	left = cpuset_copy(&t->allowed);
	add_nodes(t, hwloc_get_root_obj(h), -1, &left);
	cpuset_free(&left);
}

/* ---- memory ---- */

static void add_numa(struct topo *t, hwloc_topology_t h)
{
	int n = hwloc_get_nbobjs_by_type(h, HWLOC_OBJ_NUMANODE);

	t->numa = xcalloc(n > 0 ? (size_t)n : 0, sizeof *t->numa);
	for (int i = 0; i < n; i++) {
		hwloc_obj_t o =
			hwloc_get_obj_by_type(h, HWLOC_OBJ_NUMANODE, (unsigned)i);
		struct topo_numa *m = &t->numa[t->nnuma++];

		m->os_index = (int)o->os_index;
		m->node = node_above(o);
		/* GPU memory that the kernel shows as a NUMA node has no CPUs of its
		 * own.  hwloc gives it the CPUs of the node beside it: these must not
		 * count twice. */
		m->cpus = o->subtype && !strcmp(o->subtype, "GPUMemory")
				  ? cpuset_new(t->allowed.nwords)
				  : set_copy(o->cpuset, t->allowed.nwords);
		for (size_t c = 0; c < t->ncore; c++)
			if (t->core[c].numa < 0 &&
			    cpuset_has(&m->cpus, t->core[c].pu[0]))
				t->core[c].numa = i;
	}
}

static void add_latency(struct topo *t, hwloc_topology_t h)
{
	struct hwloc_distances_s *d;
	unsigned n = 1;
	bool sound;

	if (hwloc_distances_get_by_name(h, "NUMALatency", &n, &d, 0) || !n)
		return;
	/* a file may give distances between any objects */
	sound = d->nbobjs == t->nnuma;
	for (unsigned i = 0; sound && i < d->nbobjs; i++)
		sound = d->objs[i] && d->objs[i]->type == HWLOC_OBJ_NUMANODE;
	if (sound)
		t->latency = xcalloc(t->nnuma * t->nnuma, sizeof *t->latency);
	for (unsigned i = 0; sound && i < d->nbobjs; i++)
		for (unsigned j = 0; j < d->nbobjs; j++)
			t->latency[d->objs[i]->logical_index * t->nnuma +
				   d->objs[j]->logical_index] =
				d->values[i * d->nbobjs + j];
	hwloc_distances_release(h, d);
}

/* ---- PCI functions of a file ---- */

static void add_info(char *out, size_t size, hwloc_obj_t o, const char *name)
{
	const char *value = hwloc_obj_get_info_by_name(o, name);

	if (value && !*out)
		snprintf(out, size, "%s", value);
}

static void add_pci(struct topo *t, hwloc_topology_t h)
{
	hwloc_obj_t o = NULL;

	while ((o = hwloc_get_next_pcidev(h, o))) {
		const struct hwloc_pcidev_attr_s *a = &o->attr->pcidev;
		struct topo_pci *p;

		t->pci = xreallocarray(t->pci, t->npci + 1, sizeof *t->pci);
		p = &t->pci[t->npci++];
		*p = (struct topo_pci){ .address = { a->domain, a->bus, a->dev,
						     a->func },
					.vendor = a->vendor_id,
					.device = a->device_id,
					.class_id = a->class_id,
					.node = node_above(o) };
		for (hwloc_obj_t k = o->io_first_child; k; k = k->next_sibling) {
			add_info(p->model, sizeof p->model, k, "GPUModel");
			add_info(p->uuid, sizeof p->uuid, k, "NVIDIAUUID");
			add_info(p->uuid, sizeof p->uuid, k, "AMDUUID");
		}
	}
}

/* ---- loading ---- */

/* The file as one string, or NULL if it cannot be read or is not XML.  Comments and
 * the spaces after them are taken out: hwloc's own parser, the only one in the
 * static library, refuses them. */
static char *read_xml(const char *file)
{
	enum { LARGEST = 64 << 20 };
	struct str text = { 0 };
	char block[65536], *from, *to;
	FILE *in = fopen(file, "re");
	size_t n;

	if (!in)
		return NULL;
	while ((n = fread(block, 1, sizeof block, in)) && text.len < LARGEST)
		str_addn(&text, block, n);
	fclose(in);
	if (!text.s || *text.s != '<') {
		str_free(&text);
		return NULL;
	}
	for (from = text.s;
	     (from = strstr(from, "<!--")) && (to = strstr(from, "-->"));) {
		to += 3;
		to += strspn(to, " \t\r\n");
		memmove(from, to, strlen(to) + 1);
	}
	return str_take(&text);
}

/* With hwloc's plugins installed even the static library would load all of them, before
 * it can be told which to leave out (3 to 28 ms). */
static int init_without_plugins(hwloc_topology_t *h)
{
	static const char name[] = "HWLOC_PLUGINS_PATH";
	const char *set = getenv(name);
	char *old = set ? xstrdup(set) : NULL;
	int rc;

	setenv(name, "", 1);
	rc = hwloc_topology_init(h);
	if (old)
		setenv(name, old, 1);
	else
		unsetenv(name);
	free(old);
	return rc;
}

/* DRAWN: for topo_draw(). */
static int read_machine(hwloc_topology_t *h, const char *file, bool drawn,
			struct err *e)
{
	/* gl, opencl and those of vendors start slow runtimes of their own.  pci
	 * reads each function's configuration space.  x86 would bind us to each CPU
	 * in turn to ask it what sysfs has already told. */
	static const char *const unwanted[] = { "opencl", "gl",        "cuda", "nvml",
						"rsmi",   "levelzero", "pci",  "x86" };
	const char *this_system = getenv("HWLOC_THISSYSTEM");
	char *text = NULL;
	int rc = 0;

	if (file && access(file, R_OK))
		return err_set(e, E_TOPOLOGY, file, strerror(errno));
	if (init_without_plugins(h))
		return err_set(e, E_TOPOLOGY, "this machine", strerror(errno));
	if (file && this_system && *this_system == '1')
		hwloc_topology_set_flags(*h, HWLOC_TOPOLOGY_FLAG_IS_THISSYSTEM);
	for (size_t i = 0; i < sizeof unwanted / sizeof *unwanted; i++)
		hwloc_topology_set_components(
			*h, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, unwanted[i]);
	if (file)
		rc = !(text = read_xml(file)) ||
		     hwloc_topology_set_xmlbuffer(*h, text, (int)strlen(text) + 1) ||
		     hwloc_topology_set_io_types_filter(*h, HWLOC_TYPE_FILTER_KEEP_ALL);
	if (drawn)
		rc = rc ||
		     hwloc_topology_set_io_types_filter(
			     *h, HWLOC_TYPE_FILTER_KEEP_IMPORTANT) ||
		     hwloc_topology_set_type_filter(*h, HWLOC_OBJ_MISC,
						    HWLOC_TYPE_FILTER_KEEP_ALL);
	free(text);
	if (!rc && !hwloc_topology_load(*h))
		return 0;
	hwloc_topology_destroy(*h);
	return file ? err_set(e, E_TOPOLOGY, file, "not a topology that hwloc can read")
		    : err_set(e, E_TOPOLOGY, "this machine", strerror(errno));
}

static const char *topo_file(const char *xml)
{
	const char *file = xml ? xml : getenv("HWLOC_XMLFILE");

	return file && *file ? file : NULL;
}

int topo_load(struct topo *t, const char *xml, struct err *e)
{
	const char *file = topo_file(xml);
	hwloc_topology_t h = NULL;

	*t = (struct topo){ 0 };
	if (read_machine(&h, file, false, e))
		return -1;
	t->from_xml = file;
	t->live = hwloc_topology_is_thissystem(h);
	add_tree(t, h);
	add_numa(t, h);
	add_latency(t, h);
	if (file)
		add_pci(t, h);
	t->loaded = h;
	if (t->ncore)
		return 0;
	topo_free(t);
	return err_set(e, E_TOPOLOGY, file ? file : "this machine",
		       "no CPU in it is allowed to this process");
}

void topo_restrict(struct topo *t, const struct cpuset *cpus)
{
	/* of the cores before each, those that stay */
	uint32_t *before = xcalloc(t->ncore + 1, sizeof *before);
	struct topo_core *core;
	uint32_t n = 0, npu;

	for (size_t c = 0; c < t->ncore; c++) {
		before[c] = n;
		core = &t->core[c];
		npu = 0;
		for (uint32_t k = 0; k < core->npu; k++)
			if (cpuset_has(cpus, core->pu[k]))
				core->pu[npu++] = core->pu[k];
		core->npu = npu;
		if (npu)
			t->core[n++] = *core;
		else
			free(core->pu);
	}
	before[t->ncore] = n;
	t->ncore = n;
	for (size_t i = 0; i < t->nnode; i++) {
		struct topo_node *v = &t->node[i];
		const uint32_t end = v->first_core + v->ncores;

		v->first_core = before[v->first_core];
		v->ncores = before[end] - v->first_core;
	}
	cpuset_and(&t->allowed, cpus);
	t->npu = cpuset_count(&t->allowed);
	free(before);
}

static char *export_xml(hwloc_topology_t h)
{
	char *text = NULL, *copy;
	int n;

	if (hwloc_topology_export_xmlbuffer(h, &text, &n, 0))
		return xstrdup("");
	copy = xstrdup(text);
	hwloc_free_xmlbuffer(h, text);
	return copy;
}

char *topo_xml(const struct topo *t)
{
	return export_xml(t->loaded);
}

/* ---- for lstopo ---- */

/* The place in V of the one rank that has CPUs in SET; N: none, or several. */
static size_t sole_rank(const struct topo_rank *v, size_t n, hwloc_const_cpuset_t set,
			size_t nwords)
{
	struct cpuset cpus = set_copy(set, nwords);
	size_t sole = n, has = 0;

	for (size_t i = 0; i < n; i++)
		if (cpuset_meets(v[i].cpus, &cpus)) {
			sole = i;
			has++;
		}
	cpuset_free(&cpus);
	return has == 1 ? sole : n;
}

/* In the colour of the rank at place I of its host. */
static void draw_colour(hwloc_obj_t obj, size_t i)
{
	static const char *const colours[] = {
		"#aec7e8", "#ffbb78", "#98df8a", "#ff9896", "#c5b0d5", "#c49c94",
		"#f7b6d2", "#dbdb8d", "#9edae5", "#fdd0a2", "#c7e9c0", "#dadaeb",
	};
	char style[40];

	snprintf(style, sizeof style, "Background=%s",
		 colours[i % (sizeof colours / sizeof *colours)]);
	if (obj)
		hwloc_obj_add_info(obj, "lstopoStyle", style);
}

static void draw_all_of(hwloc_topology_t h, hwloc_obj_type_t type,
			const struct topo_rank *v, size_t n)
{
	const hwloc_const_cpuset_t all = hwloc_topology_get_complete_cpuset(h);
	const size_t nwords = (size_t)hwloc_bitmap_last(all) / 64 + 1;

	for (hwloc_obj_t o = NULL; (o = hwloc_get_next_obj_by_type(h, type, o));) {
		const size_t i = sole_rank(v, n, o->cpuset, nwords);

		if (i < n)
			draw_colour(o, i);
	}
}

/* A box with R's number below the smallest object that has its CPUs, and its GPU. */
static void draw_rank(hwloc_topology_t h, const struct topo_rank *r, size_t i)
{
	hwloc_bitmap_t set = hwloc_bitmap_alloc();
	hwloc_obj_t over, gpu = NULL;
	char name[24];

	snprintf(name, sizeof name, "rank %u", r->rank);
	for (uint32_t pu = 0; pu < r->cpus->nwords * 64; pu++)
		if (cpuset_has(r->cpus, pu))
			hwloc_bitmap_set(set, pu);
	over = hwloc_get_obj_covering_cpuset(h, set);
	hwloc_bitmap_free(set);
	if (over)
		draw_colour(hwloc_topology_insert_misc_object(h, over, name), i);
	if (r->pci)
		gpu = hwloc_get_pcidev_by_busidstring(h, r->pci);
	if (!gpu)
		return;
	draw_colour(gpu, i);
	draw_colour(hwloc_topology_insert_misc_object(h, gpu, name), i);
}

char *topo_draw(const char *xml, const struct topo_rank *v, size_t n)
{
	hwloc_topology_t h = NULL;
	struct err e = { 0 };
	char *text;

	if (read_machine(&h, topo_file(xml), true, &e))
		return xstrdup("");
	draw_all_of(h, HWLOC_OBJ_CORE, v, n);
	draw_all_of(h, HWLOC_OBJ_PU, v, n);
	for (size_t i = 0; i < n; i++)
		draw_rank(h, &v[i], i);
	text = export_xml(h);
	hwloc_topology_destroy(h);
	return text;
}

void topo_free(struct topo *t)
{
	if (t->loaded)
		hwloc_topology_destroy(t->loaded);
	for (size_t i = 0; i < t->nnode; i++)
		cpuset_free(&t->node[i].cpus);
	for (size_t i = 0; i < t->ncore; i++)
		free(t->core[i].pu);
	for (size_t i = 0; i < t->nnuma; i++)
		cpuset_free(&t->numa[i].cpus);
	cpuset_free(&t->allowed);
	free(t->node);
	free(t->core);
	free(t->numa);
	free(t->pci);
	free(t->latency);
	*t = (struct topo){ 0 };
}

/* ---- questions ---- */

int topo_covering(const struct topo *t, const struct cpuset *cpus)
{
	int at = 0;

	if (!cpuset_count(cpus))
		return 0;
	for (int i = 1; i < (int)t->nnode; i++)
		if (t->node[i].parent == at && cpuset_within(cpus, &t->node[i].cpus))
			at = i;
	while (at && t->node[at].type != NODE_PACKAGE &&
	       cpuset_within(&t->node[t->node[at].parent].cpus, &t->node[at].cpus))
		at = t->node[at].parent;
	return at;
}

int topo_home(const struct topo *t, int node)
{
	const struct topo_node *n = &t->node[node];

	while (n->parent >= 0 && (!n->ncores || n->type == NODE_CORE ||
				  (n->type == NODE_CACHE && n->ncores == 1)))
		n = &t->node[n->parent];
	return (int)(n - t->node);
}

void topo_add_numa(struct str *s, const struct topo *t, const struct cpuset *cpus)
{
	enum { WORDS = 64 };
	uint64_t bits[WORDS] = { 0 };
	struct cpuset nodes = { bits, WORDS };

	for (size_t i = 0; i < t->nnuma; i++)
		if (cpuset_meets(&t->numa[i].cpus, cpus))
			cpuset_add(&nodes, (uint32_t)t->numa[i].os_index);
	str_add_bits(s, bits, WORDS);
}

size_t topo_numa_count(const struct topo *t)
{
	size_t n = 0;

	for (size_t i = 0; i < t->nnuma; i++)
		n += cpuset_meets(&t->numa[i].cpus, &t->allowed);
	return n;
}

int topo_package(const struct topo *t, int node)
{
	int package = node;

	for (int v = node; v >= 0; v = t->node[v].parent)
		if (t->node[v].type == NODE_PACKAGE)
			package = v;
	return package;
}

bool topo_core_meets(const struct topo_core *c, const struct cpuset *cpus)
{
	for (uint32_t k = 0; k < c->npu; k++)
		if (cpuset_has(cpus, c->pu[k]))
			return true;
	return false;
}

uint32_t topo_cores(const struct topo *t, const struct cpuset *cpus, int node)
{
	const struct topo_node *v = &t->node[node];
	uint32_t n = 0;

	for (uint32_t c = v->first_core; c < v->first_core + v->ncores; c++)
		n += topo_core_meets(&t->core[c], cpus);
	return n;
}

uint32_t topo_sockets(const struct topo *t)
{
	uint32_t n = 0;

	for (size_t i = 0; i < t->nnode; i++)
		n += t->node[i].type == NODE_PACKAGE && t->node[i].ncores;
	return n;
}

uint32_t topo_numas(const struct topo *t)
{
	uint32_t n = 0;

	for (size_t i = 0; i < t->nnuma; i++) {
		size_t k = 0;

		while (k < t->ncore && t->core[k].numa != (int)i)
			k++;
		n += k < t->ncore;
	}
	return n;
}
