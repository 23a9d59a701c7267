#include "agent/placement/gpu.h"

#include <ctype.h>
#include <strings.h>

#include "agent/placement/gpu_internal.h"

/* ---- order and numbers ---- */

static int compare_gpu(const void *x, const void *y)
{
	const struct gpu *a = x, *b = y;
	uint64_t at = gpu_address_key(&a->address), bt = gpu_address_key(&b->address);

	if (at != bt)
		return at < bt ? -1 : 1;
	if (a->gi != b->gi)
		return a->gi < b->gi ? -1 : 1;
	if (a->ci != b->ci)
		return a->ci < b->ci ? -1 : 1;
	return (a->minor > b->minor) - (a->minor < b->minor);
}

static void gpu_sort(struct gpus *g)
{
	if (g->n)
		qsort(g->v, g->n, sizeof *g->v, compare_gpu);
}

/* KFD numbers its GPUs in its own order.  All others get their place in PCI order. */
static void gpu_number(struct gpus *g)
{
	int next[2] = { 0, 0 };

	gpu_sort(g);
	for (size_t i = 0; i < g->n; i++)
		if (g->v[i].index < 0)
			g->v[i].index = next[g->v[i].vendor]++;
}

static void from_xml(struct gpus *g, const struct topo *t)
{
	for (size_t i = 0; i < t->npci; i++) {
		const struct topo_pci *p = &t->pci[i];
		struct gpu *gpu;

		if (!gpu_is_one(p->class_id, p->vendor, p->device))
			continue;
		gpu = gpu_add(g, p->vendor == PCI_NVIDIA ? GPU_NVIDIA : GPU_AMD,
			      &p->address);
		snprintf(gpu->model, sizeof gpu->model, "%s", p->model);
		snprintf(gpu->uuid, sizeof gpu->uuid, "%s", p->uuid);
		gpu_set_node(gpu, t, p->node);
	}
}

/* ---- filters ---- */

/* Keep v[order[0]], v[order[1]], ... */
static void gpu_keep(struct gpus *g, const size_t *order, size_t n)
{
	struct gpu *v = xcalloc(n, sizeof *v);

	for (size_t i = 0; i < n; i++)
		v[i] = g->v[order[i]];
	free(g->v);
	g->v = v;
	g->n = n;
}

/* The preset list of one vendor's runtime.  It says nothing about the GPUs of the other
 * vendor: these follow in PCI order. */
static void apply_preset(struct gpus *g, enum gpu_vendor vendor, const char *name,
			 const char *list)
{
	size_t *order = xcalloc(g->n, sizeof *order);
	size_t n = gpu_visible_list(order, g, vendor, list);
	size_t had = 0;

	for (size_t i = 0; i < g->n; i++) {
		if (g->v[i].vendor == vendor)
			had++;
		else
			order[n++] = i;
	}
	if (had && n == g->n - had)
		gpu_note(g, "%s='%s' leaves none of this host's %zu GPU%s", name, list,
			 had, str_plural(had));
	gpu_keep(g, order, n);
	free(order);
}

void gpu_find(struct gpus *g, const struct topo *t, const struct gpu_sources *from)
{
	const char *root = from->root ? from->root : "", *cuda = from->cuda_visible;
	const char *model = NULL;
	bool mixed = false;
	size_t mig = 0;

	*g = (struct gpus){ .closed_too = from->closed_too };
	if (t->from_xml && !*root) {
		from_xml(g, t);
		gpu_number(g);
	} else {
		gpu_from_sysfs(g, t, root);
		gpu_from_kfd(g, t, root);
		gpu_number(g);
		gpu_ask_nvml(g, t, root);
		gpu_sort(g);
	}
	for (size_t i = 0; i < g->n; i++) {
		if (g->v[i].vendor != GPU_NVIDIA || g->v[i].mig)
			continue;
		mixed |= model && strcmp(model, g->v[i].model) != 0;
		model = g->v[i].model;
	}
	if (cuda && isdigit((unsigned char)*cuda) && mixed &&
	    !(from->cuda_order && !strcmp(from->cuda_order, "PCI_BUS_ID")))
		gpu_note(g,
			 "CUDA_VISIBLE_DEVICES='%s' is read in PCI order: the models "
			 "differ, and CUDA_DEVICE_ORDER=PCI_BUS_ID is not set",
			 cuda);
	if (cuda)
		apply_preset(g, GPU_NVIDIA, "CUDA_VISIBLE_DEVICES", cuda);
	if (from->rocr_visible)
		apply_preset(g, GPU_AMD, "ROCR_VISIBLE_DEVICES", from->rocr_visible);
	for (size_t i = 0; i < g->n; i++)
		mig += g->v[i].mig;
	if (mig && mig < g->n)
		gpu_note(g,
			 "%zu MIG instances beside %zu whole GPUs: ranks will be "
			 "unequal; choose with --gpus",
			 mig, g->n - mig);
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
		return gpu_address_key(&a) == gpu_address_key(&g->address);
	if (strncasecmp(word, "GPU-", 4) != 0 && strncasecmp(word, "MIG-", 4) != 0)
		return false;
	return word[4] && !strncasecmp(g->uuid, word, strlen(word));
}

int gpu_select(struct gpus *g, const char *const *words, size_t n, struct err *e)
{
	bool *wanted = xcalloc(g->n, sizeof *wanted);
	size_t *order = xcalloc(g->n, sizeof *order), kept = 0;
	struct str all = { 0 };
	int rc = 0;

	for (size_t k = 0; !rc && k < n; k++) {
		const char *word = words[k];
		bool found = false;

		for (size_t i = 0; i < g->n; i++) {
			if (!is_named(&g->v[i], word))
				continue;
			wanted[i] = found = true;
			/* On a host of two vendors a number is the first in PCI order.
			 */
			if (isdigit((unsigned char)*word) && !strpbrk(word, ":.") &&
			    !g->v[i].mig)
				break;
		}
		if (!found)
			rc = err_set(e, E_GPU_LIST, word);
	}
	for (size_t i = 0; rc && i < g->n; i++)
		str_addf(&all, "%s%d = %s", i ? ", " : "", g->v[i].index,
			 g->v[i].mig ? g->v[i].uuid : g->v[i].pci);
	if (rc)
		err_hint(e,
			 g->n ? "its GPUs are %s"
			      : "it has no GPU that this job may use%s",
			 str_text(&all));
	for (size_t i = 0; !rc && i < g->n; i++)
		if (wanted[i])
			order[kept++] = i;
	if (!rc)
		gpu_keep(g, order, kept);
	str_free(&all);
	free(order);
	free(wanted);
	return rc;
}
