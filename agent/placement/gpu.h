/* gpu.h - the GPUs of this machine that this job may use, and where they sit.
 *
 * Live, from sysfs (class, vendor, device, numa_node, local_cpulist),
 * /proc/driver/nvidia and KFD's topology: none of these wakes a driver.  NVML is
 * loaded with dlopen(3) only for MIG, or if numa_node is -1 on a host of several
 * nodes.  A GPU is usable if access(2) allows /dev/nvidiaN (AMD: /dev/dri/renderDN),
 * which obeys the device cgroup.  From an XML topology: its PCI objects.  A preset
 * CUDA_VISIBLE_DEVICES (ROCR_VISIBLE_DEVICES) filters and orders the GPUs, read as
 * the driver reads it. */
#ifndef BERTH_AGENT_PLACEMENT_GPU_H
#define BERTH_AGENT_PLACEMENT_GPU_H

#include "agent/placement/gpu_list.h"

struct gpu_sources {
	/* The directory that has proc, sys and dev; "" or NULL: "/".  With a directory
	 * the GPUs of an XML topology do not count. */
	const char *root;
	const char *cuda_visible; /* preset CUDA_VISIBLE_DEVICES, or NULL */
	const char *cuda_order;   /* preset CUDA_DEVICE_ORDER, or NULL */
	const char *rocr_visible; /* preset ROCR_VISIBLE_DEVICES, or NULL */
	bool closed_too;          /* another process uses them, which may open them */
};

/* The usable GPUs of T's machine into G.  G may stay empty. */
void gpu_find(struct gpus *g, const struct topo *t, const struct gpu_sources *from);

/* The version of the machine's GPU driver into OUT; its files are below ROOT.  False if
 * it has none. */
bool gpu_driver(char *out, size_t size, const char *root);

/* Keep only the GPUs that the N WORDS name (--gpus: indexes, PCI addresses or UUIDs),
 * in the order of G.  0, or -1 with E (E_GPU_LIST) and G as it
 * was. */
int gpu_select(struct gpus *g, const char *const *words, size_t n, struct err *e);

/* Claim G for this process, until it ends or gives G back.  If another job has a
 * GPU, fill its holder and move it to the end.  A claim is advisory: a name in the
 * abstract socket namespace, which ends with its holder, and which only processes of
 * this network namespace see. */
void gpu_claim(struct gpus *g);
/* Keep the claims of the GPUs in use, chosen[i] for v[i]; give the others back. */
void gpu_claim_keep(struct gpus *g, const bool *chosen);

#endif
