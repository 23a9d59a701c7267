/* gpu_kfd.c - AMD's GPUs as the compute driver (KFD) lists them.
 *
 * One directory per node: /sys/class/kfd/kfd/topology/nodes/N/properties, lines "name
 * value". CPUs are nodes with simd_count 0.  A partition of a GPU (CPX, TPX) is a node
 * of its own.  ROCm numbers its devices in the order of the nodes. */
#include "agent/placement/gpu_internal.h"

struct kfd_node {
	unsigned long long simd_count, location_id, domain, unique_id;
	int minor;
};

static bool read_node(struct kfd_node *k, const char *root, int number)
{
	char *path = xasprintf("%s/sys/class/kfd/kfd/topology/nodes/%d/properties",
			       root, number);
	FILE *in = fopen(path, "re");
	char line[256], name[64];
	unsigned long long value;

	free(path);
	*k = (struct kfd_node){ .minor = -1 };
	if (!in)
		return false;
	while (fgets(line, sizeof line, in)) {
		if (sscanf(line, "%63s %llu", name, &value) != 2)
			continue;
		if (!strcmp(name, "simd_count"))
			k->simd_count = value;
		else if (!strcmp(name, "location_id"))
			k->location_id = value;
		else if (!strcmp(name, "domain"))
			k->domain = value;
		else if (!strcmp(name, "unique_id"))
			k->unique_id = value;
		else if (!strcmp(name, "drm_render_minor"))
			k->minor = (int)value;
	}
	fclose(in);
	return k->simd_count > 0;
}

void gpu_from_kfd(struct gpus *g, const struct topo *t, const char *root)
{
	struct kfd_node k;
	long long id;
	int index = 0;

	/* nodes are numbered without gaps */
	for (int n = 0;
	     sys_number(&id, root, "/sys/class/kfd/kfd/topology/nodes/%d/gpu_id", n);
	     n++) {
		struct gpu *gpu;

		if (!read_node(&k, root, n) ||
		    !gpu_may_open(g, root, "/dev/dri/renderD", k.minor))
			continue;
		gpu = gpu_add(g, GPU_AMD,
			      &(struct gpu_address){
				      .domain = (uint32_t)k.domain,
				      .bus = (uint8_t)(k.location_id >> 8),
				      .dev = (uint8_t)(k.location_id >> 3 & 31),
				      .func = (uint8_t)(k.location_id & 7) });
		gpu->index = index++;
		gpu->minor = k.minor;
		if (k.unique_id)
			snprintf(gpu->uuid, sizeof gpu->uuid, "GPU-%016llx",
				 k.unique_id);
		sys_line(gpu->model, sizeof gpu->model, root,
			 "/sys/bus/pci/devices/%s/product_name", gpu->pci);
		gpu_locate(g, t, root);
	}
}
