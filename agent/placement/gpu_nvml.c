#include <dirent.h>

#include "agent/placement/gpu_internal.h"
#include "agent/placement/nvml.h"

enum { DEVICES_MAX = 64, INSTANCES_MAX = 16, CPU_WORDS = 128 };

/* ---- is there anything to ask? ---- */

/* Has the GPU been cut into instances?  The driver shows each as a folder, without
 * waking. */
static bool is_cut(const struct gpu *g, const char *root)
{
	char *path = xasprintf("%s/proc/driver/nvidia/capabilities/gpu%d/mig", root,
			       g->minor);
	DIR *d = opendir(path);
	struct dirent *de;
	bool found = false;

	free(path);
	while (d && !found && (de = readdir(d)))
		found = !strncmp(de->d_name, "gi", 2);
	if (d)
		closedir(d);
	return found;
}

static bool worth_asking(const struct gpus *g, const char *root)
{
	for (size_t i = 0; i < g->n; i++)
		if (g->v[i].vendor == GPU_NVIDIA &&
		    (g->v[i].no_locality || is_cut(&g->v[i], root)))
			return true;
	return false;
}

/* ---- what it says ---- */

static bool same_place(const struct gpu_address *a, const struct gpu_address *b)
{
	return a->domain == b->domain && a->bus == b->bus && a->dev == b->dev &&
	       a->func == b->func;
}

static const struct nvml_device *device_of(const struct gpu *g,
					   const struct nvml_device *v, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (same_place(&g->address, &v[i].address))
			return &v[i];
	return NULL;
}

static void add_names(struct gpus *g, struct gpu *gpu, const struct nvml_device *d)
{
	if (*d->uuid && *gpu->uuid && strcmp(gpu->uuid, d->uuid) != 0)
		gpu_note(g, "GPU %s: the driver says %s, NVML %s; NVML is believed",
			 gpu->pci, gpu->uuid, d->uuid);
	if (*d->uuid)
		snprintf(gpu->uuid, sizeof gpu->uuid, "%s", d->uuid);
	if (!*gpu->model)
		snprintf(gpu->model, sizeof gpu->model, "%.63s", d->model);
}

/* NVML knows the platform's quirks better than sysfs does. */
static void add_home(struct gpus *g, struct gpu *gpu, const struct topo *t,
		     struct nvml *n, const struct nvml_device *d)
{
	struct cpuset cpus = cpuset_new(CPU_WORDS);
	struct gpu told = *gpu;

	if (nvml_cpus(n, d, &cpus) && cpuset_count(&cpus)) {
		gpu_set_home(&told, t, &cpus);
		if (!gpu->no_locality && told.home != gpu->home)
			gpu_note(g, "GPU %s: sysfs says %s, NVML %s; NVML is believed",
				 gpu->pci, t->node[gpu->home].name,
				 t->node[told.home].name);
		if (!told.no_locality || gpu->no_locality) {
			gpu->home = told.home;
			gpu->no_locality = told.no_locality;
		}
	}
	cpuset_free(&cpus);
}

static void add_instances(struct gpus *out, const struct gpu *parent, struct nvml *n,
			  const struct nvml_device *d)
{
	struct nvml_device m[INSTANCES_MAX];
	size_t count = nvml_instances(n, d, m, INSTANCES_MAX);

	for (size_t i = 0; i < count; i++) {
		struct gpu *g = gpu_add(out, GPU_NVIDIA, &parent->address);

		*g = *parent;
		g->mig = true;
		g->gi = m[i].gi;
		g->ci = m[i].ci;
		snprintf(g->parent_uuid, sizeof g->parent_uuid, "%s", parent->uuid);
		snprintf(g->uuid, sizeof g->uuid, "%s", m[i].uuid);
		if (*m[i].model)
			snprintf(g->model, sizeof g->model, "%.63s", m[i].model);
	}
	if (!count)
		gpu_note(out, "GPU %s is cut into MIG instances, and NVML names none",
			 parent->pci);
}

/* G's NVIDIA GPUs again, as NVML has them. */
static void merge(struct gpus *g, const struct topo *t, const char *root,
		  struct nvml *n)
{
	struct nvml_device v[DEVICES_MAX];
	size_t count = nvml_devices(n, v, DEVICES_MAX);
	struct gpus out = { .notes = g->notes };
	int index = 0;

	for (size_t i = 0; i < g->n; i++) {
		struct gpu gpu = g->v[i];
		const struct nvml_device *d = device_of(&gpu, v, count);

		if (gpu.vendor == GPU_NVIDIA && !d) {
			gpu_note(&out,
				 "GPU %s can be opened, but NVML doesn't list it: no "
				 "rank gets it",
				 gpu.pci);
			continue;
		}
		if (gpu.vendor == GPU_NVIDIA) {
			gpu.index = index++;
			add_names(&out, &gpu, d);
			add_home(&out, &gpu, t, n, d);
		}
		if (gpu.vendor == GPU_NVIDIA && is_cut(&gpu, root))
			add_instances(&out, &gpu, n, d);
		else
			*gpu_add(&out, gpu.vendor, &gpu.address) = gpu;
	}
	free(g->v);
	*g = out;
}

void gpu_ask_nvml(struct gpus *g, const struct topo *t, const char *root)
{
	struct nvml *n;
	char why[256];

	if (!worth_asking(g, root))
		return;
	n = nvml_open(why, sizeof why);
	if (n)
		merge(g, t, root, n);
	else
		gpu_note(g,
			 "NVML, which knows MIG instances and where GPUs sit, can't be "
			 "asked: %s",
			 why);
	nvml_close(n);
}
