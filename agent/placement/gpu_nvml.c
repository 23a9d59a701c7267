#include "agent/placement/gpu_internal.h"
#include "agent/placement/nvml.h"

enum { DEVICES_MAX = 64, INSTANCES_MAX = 16 };

/* Whether the GPU is cut into MIG instances.  The driver shows each as a directory, and
 * does not wake for that. */
static bool is_cut(const struct gpu *g, const char *root)
{
	int instance;

	return sys_entry(&instance, root, "gi",
			 "/proc/driver/nvidia/capabilities/gpu%d/mig", g->minor);
}

/* Take the names and the home of GPU from D.  NVML knows the platform's quirks better
 * than sysfs does. */
static void nvml_describe(struct gpus *g, struct gpu *gpu, const struct topo *t,
			  struct nvml *n, const struct nvml_device *d)
{
	struct cpuset cpus = cpuset_new(GPU_CPU_WORDS);
	struct gpu told = *gpu;

	if (*d->uuid && *gpu->uuid && strcmp(gpu->uuid, d->uuid) != 0)
		gpu_note(g, "GPU %s: the driver says %s, NVML %s; Berth uses NVML's",
			 gpu->pci, gpu->uuid, d->uuid);
	if (*d->uuid)
		snprintf(gpu->uuid, sizeof gpu->uuid, "%s", d->uuid);
	if (!*gpu->model)
		snprintf(gpu->model, sizeof gpu->model, "%.63s", d->model);
	if (nvml_cpus(n, d, &cpus) && cpuset_count(&cpus)) {
		gpu_set_home(&told, t, &cpus);
		if (!gpu->no_locality && told.home != gpu->home)
			gpu_note(g, "GPU %s: sysfs says %s, NVML %s; Berth uses NVML's",
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

/* Build G anew: its NVIDIA GPUs as NVML has them, the others as they are. */
static void nvml_merge(struct gpus *g, const struct topo *t, const char *root,
		       struct nvml *n)
{
	struct nvml_device v[DEVICES_MAX];
	size_t count = nvml_devices(n, v, DEVICES_MAX);
	struct gpus out = { .notes = g->notes };
	int index = 0;

	for (size_t i = 0; i < g->n; i++) {
		struct gpu gpu = g->v[i];
		size_t k = 0;

		while (k < count &&
		       gpu_address_key(&v[k].address) != gpu_address_key(&gpu.address))
			k++;
		if (gpu.vendor != GPU_NVIDIA) {
			*gpu_add(&out, gpu.vendor, &gpu.address) = gpu;
		} else if (k == count) {
			gpu_note(&out,
				 "GPU %s can be opened, but NVML does not list it: no "
				 "rank gets it",
				 gpu.pci);
		} else {
			gpu.index = index++;
			nvml_describe(&out, &gpu, t, n, &v[k]);
			if (is_cut(&gpu, root))
				add_instances(&out, &gpu, n, &v[k]);
			else
				*gpu_add(&out, gpu.vendor, &gpu.address) = gpu;
		}
	}
	free(g->v);
	*g = out;
}

void gpu_ask_nvml(struct gpus *g, const struct topo *t, const char *root)
{
	bool needed = false;
	struct nvml *n;
	char why[256];

	for (size_t i = 0; i < g->n && !needed; i++)
		needed = g->v[i].vendor == GPU_NVIDIA &&
			 (g->v[i].no_locality || is_cut(&g->v[i], root));
	if (!needed)
		return;
	n = nvml_open(why, sizeof why);
	if (n)
		nvml_merge(g, t, root, n);
	else
		gpu_note(g,
			 "cannot ask NVML for MIG instances and the places of GPUs: %s",
			 why);
	nvml_close(n);
}
