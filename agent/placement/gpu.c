#include "agent/placement/gpu.h"

#include <ctype.h>
#include <stdarg.h>
#include <strings.h>
#include <unistd.h>

#include "agent/placement/gpu_internal.h"

/* ---- addresses ---- */

bool gpu_parse_address(struct gpu_address *a, const char *text)
{
	unsigned domain = 0, bus, dev, func;
	int end = 0;

	if (sscanf(text, "%8x:%2x:%2x.%1x%n", &domain, &bus, &dev, &func, &end) != 4) {
		domain = 0;
		if (sscanf(text, "%2x:%2x.%1x%n", &bus, &dev, &func, &end) != 3)
			return false;
	}
	if (text[end] || dev > 31 || func > 7 || !isxdigit((unsigned char)*text))
		return false;
	*a = (struct gpu_address){ domain, (uint8_t)bus, (uint8_t)dev, (uint8_t)func };
	return true;
}

static int compare_address(const struct gpu_address *a, const struct gpu_address *b)
{
	if (a->domain != b->domain)
		return a->domain < b->domain ? -1 : 1;
	if (a->bus != b->bus)
		return a->bus < b->bus ? -1 : 1;
	if (a->dev != b->dev)
		return a->dev < b->dev ? -1 : 1;
	return a->func == b->func ? 0 : a->func < b->func ? -1 : 1;
}

static int compare_gpu(const void *x, const void *y)
{
	const struct gpu *a = x, *b = y;
	int c = compare_address(&a->address, &b->address);

	if (!c && a->gi != b->gi)
		c = a->gi < b->gi ? -1 : 1;
	if (!c && a->ci != b->ci)
		c = a->ci < b->ci ? -1 : 1;
	return c ? c : (a->minor > b->minor) - (a->minor < b->minor);
}

/* ---- what the sources share ---- */

struct gpu *gpu_add(struct gpus *g, enum gpu_vendor vendor, const struct gpu_address *a)
{
	struct gpu *gpu;

	g->v = xreallocarray(g->v, g->n + 1, sizeof *g->v);
	gpu = &g->v[g->n++];
	*gpu = (struct gpu){ .vendor = vendor,
			     .address = *a,
			     .index = -1,
			     .minor = -1,
			     .gi = -1,
			     .ci = -1,
			     .no_locality = true };
	snprintf(gpu->pci, sizeof gpu->pci, "%04x:%02x:%02x.%x", a->domain, a->bus,
		 a->dev, a->func);
	return gpu;
}

void gpu_note(struct gpus *g, const char *format, ...)
{
	char *text;
	va_list ap;

	va_start(ap, format);
	text = xvasprintf(format, ap);
	va_end(ap);
	strv_take(&g->notes, text);
}

/* Display controllers and processing accelerators of the two makers.  An ATI ES1000 is
 * a server's console; NVSwitches are bridges by class. */
bool gpu_is_one(uint16_t class_id, uint16_t vendor, uint16_t device)
{
	enum { NVIDIA = 0x10de, AMD = 0x1002, ES1000 = 0x515e };
	uint16_t base = class_id >> 8;

	if (base != 0x03 && base != 0x12)
		return false;
	return vendor == NVIDIA || (vendor == AMD && device != ES1000);
}

/* GPU at NODE.  Whether a GPU says where it is, and whether CPUs there are allowed, are
 * different questions: home answers the second. */
static void set_node(struct gpu *g, const struct topo *t, int node)
{
	g->home = topo_home(t, node);
	g->no_locality = topo_numa_count(t) > 1 &&
			 cpuset_within(&t->node[0].cpus, &t->node[node].cpus);
}

void gpu_set_home(struct gpu *g, const struct topo *t, const struct cpuset *cpus)
{
	struct cpuset here = cpuset_copy(&t->node[0].cpus);

	cpuset_and(&here, cpus);
	set_node(g, t, topo_covering(t, &here));
	if (cpuset_count(cpus) &&
	    !cpuset_count(&here)) /* near CPUs that we haven't got */
		g->no_locality = false;
	cpuset_free(&here);
}

void gpu_from_xml(struct gpus *g, const struct topo *t)
{
	for (size_t i = 0; i < t->npci; i++) {
		const struct topo_pci *p = &t->pci[i];
		const struct gpu_address a = { p->domain, p->bus, p->dev, p->func };
		struct gpu *gpu;

		if (!gpu_is_one(p->class_id, p->vendor, p->device))
			continue;
		gpu = gpu_add(g, p->vendor == 0x10de ? GPU_NVIDIA : GPU_AMD, &a);
		snprintf(gpu->model, sizeof gpu->model, "%s", p->model);
		snprintf(gpu->uuid, sizeof gpu->uuid, "%s", p->uuid);
		set_node(gpu, t, p->node);
	}
}

/* ---- numbering, filtering ---- */

static void sort(struct gpus *g)
{
	if (g->n)
		qsort(g->v, g->n, sizeof *g->v, compare_gpu);
}

/* Sort by PCI address; number what the source left unnumbered (KFD has an order of its
 * own). */
static void number(struct gpus *g)
{
	int next[2] = { 0, 0 };

	sort(g);
	for (size_t i = 0; i < g->n; i++)
		if (g->v[i].index < 0)
			g->v[i].index = next[g->v[i].vendor]++;
}

/* Keep v[order[0]], v[order[1]], ... */
static void keep(struct gpus *g, const size_t *order, size_t n)
{
	struct gpu *v = xcalloc(n, sizeof *v);

	for (size_t i = 0; i < n; i++)
		v[i] = g->v[order[i]];
	free(g->v);
	g->v = v;
	g->n = n;
}

static bool mixed_models(const struct gpus *g, enum gpu_vendor vendor)
{
	const char *model = NULL;

	for (size_t i = 0; i < g->n; i++) {
		if (g->v[i].vendor != vendor || g->v[i].mig)
			continue;
		if (model && strcmp(model, g->v[i].model) != 0)
			return true;
		model = g->v[i].model;
	}
	return false;
}

/* A preset list of one vendor's runtime: it says nothing about the other vendor's GPUs,
 * which follow in PCI order. */
static void apply_preset(struct gpus *g, enum gpu_vendor vendor, const char *name,
			 const char *list)
{
	size_t *order = xcalloc(g->n, sizeof *order), n;
	size_t had = 0;

	n = gpu_visible_list(order, g, vendor, list);
	for (size_t i = 0; i < g->n; i++) {
		if (g->v[i].vendor == vendor)
			had++;
		else
			order[n++] = i;
	}
	if (had && n == g->n - had)
		gpu_note(g, "%s='%s' leaves none of this host's %zu GPUs", name, list,
			 had);
	keep(g, order, n);
	free(order);
}

static void apply_presets(struct gpus *g, const struct gpu_sources *from)
{
	bool by_bus = from->cuda_order && !strcmp(from->cuda_order, "PCI_BUS_ID");

	if (from->cuda_visible) {
		if (isdigit((unsigned char)*from->cuda_visible) && !by_bus &&
		    mixed_models(g, GPU_NVIDIA))
			gpu_note(
				g,
				"CUDA_VISIBLE_DEVICES='%s' is read in PCI order: the "
				"models differ, and CUDA_DEVICE_ORDER=PCI_BUS_ID isn't "
				"set",
				from->cuda_visible);
		apply_preset(g, GPU_NVIDIA, "CUDA_VISIBLE_DEVICES", from->cuda_visible);
	}
	if (from->rocr_visible)
		apply_preset(g, GPU_AMD, "ROCR_VISIBLE_DEVICES", from->rocr_visible);
}

static void note_mixture(struct gpus *g)
{
	size_t mig = 0;

	for (size_t i = 0; i < g->n; i++)
		mig += g->v[i].mig;
	if (mig && mig < g->n)
		gpu_note(g,
			 "%zu MIG instances beside %zu whole GPUs: ranks will be "
			 "unequal; "
			 "choose with --gpus",
			 mig, g->n - mig);
}

int gpu_find(struct gpus *g, const struct topo *t, const struct gpu_sources *from,
	     struct err *e)
{
	const char *root = from->root ? from->root : "";

	(void)e;
	*g = (struct gpus){ 0 };
	if (t->from_xml && !*root) {
		gpu_from_xml(g, t);
		number(g);
	} else {
		gpu_from_sysfs(g, t, root);
		gpu_from_kfd(g, t, root);
		number(g);
		gpu_ask_nvml(g, t, root);
		sort(g);
	}
	apply_presets(g, from);
	note_mixture(g);
	return 0;
}

/* ---- --gpus ---- */

static bool is_named(const struct gpu *g, const char *word)
{
	struct gpu_address a;
	char *end;

	if (isdigit((unsigned char)*word)) {
		long n = strtol(word, &end, 10);

		if (!*end)
			return n == g->index;
	}
	if (gpu_parse_address(&a, word))
		return !compare_address(&a, &g->address);
	if (strncasecmp(word, "GPU-", 4) != 0 && strncasecmp(word, "MIG-", 4) != 0)
		return false;
	return word[4] && !strncasecmp(g->uuid, word, strlen(word));
}

static int refuse(const struct gpus *g, const char *word, struct err *e)
{
	struct str all = { 0 };

	for (size_t i = 0; i < g->n; i++)
		str_addf(&all, "%s%d = %s", i ? ", " : "", g->v[i].index,
			 g->v[i].mig ? g->v[i].uuid : g->v[i].pci);
	err_set(e, E_GPU_LIST, word);
	err_hint(e, g->n ? "its GPUs are %s" : "it has no GPU that this job may use%s",
		 str_text(&all));
	str_free(&all);
	return -1;
}

static int mark(const struct gpus *g, bool *wanted, const char *word, struct err *e)
{
	bool found = false;

	for (size_t i = 0; i < g->n; i++) {
		if (!is_named(&g->v[i], word))
			continue;
		wanted[i] = found = true;
		/* On a host of two vendors a number means the first in PCI order. */
		if (isdigit((unsigned char)*word) && !strpbrk(word, ":.") &&
		    !g->v[i].mig)
			break;
	}
	return found ? 0 : refuse(g, word, e);
}

int gpu_select(struct gpus *g, const char *list, struct err *e)
{
	bool *wanted = xcalloc(g->n, sizeof *wanted);
	size_t *order = xcalloc(g->n, sizeof *order), n = 0;
	char *copy = xstrdup(list), *rest = copy, *word;
	int rc = 0;

	while (!rc && (word = strsep(&rest, ","))) {
		while (isspace((unsigned char)*word))
			word++;
		rc = mark(g, wanted, word, e);
	}
	for (size_t i = 0; !rc && i < g->n; i++)
		if (wanted[i])
			order[n++] = i;
	if (!rc)
		keep(g, order, n);
	free(copy);
	free(order);
	free(wanted);
	return rc;
}

void gpu_free(struct gpus *g)
{
	for (size_t i = 0; i < g->n; i++)
		if (g->v[i].claim)
			close(g->v[i].claim - 1);
	free(g->v);
	strv_free(&g->notes);
	*g = (struct gpus){ 0 };
}
