/* gpu.h - the GPUs of this machine that this job may use, and where they sit.
 *
 * Live: sysfs (class, vendor, device, numa_node, local_cpulist), /proc/driver/nvidia
 * and KFD's topology, none of which wakes a driver; NVML by dlopen only for MIG, or
 * where numa_node says -1 on a host of several nodes.  Accessible means access(2) on
 * /dev/nvidiaN (AMD: /dev/dri/renderDN), which obeys the device cgroup.  From an XML
 * topology: its PCI objects. A preset CUDA_VISIBLE_DEVICES (ROCR_VISIBLE_DEVICES)
 * filters and orders, read as the driver reads it. */
#ifndef BERTH_AGENT_PLACEMENT_GPU_H
#define BERTH_AGENT_PLACEMENT_GPU_H

#include "agent/placement/topo.h"

enum gpu_vendor { GPU_NVIDIA, GPU_AMD };

struct gpu {
	enum gpu_vendor vendor;
	struct gpu_address address;
	char pci[32];   /* the address as hwloc prints it, "0000:53:00.0" */
	char uuid[96];  /* "GPU-...", "MIG-...", or "" */
	char model[64]; /* or "" */
	int index;  /* what its vendor's runtime calls it on this host: the place in PCI
		     * order among the accessible GPUs of that vendor (CUDA under
		     * CUDA_DEVICE_ORDER=PCI_BUS_ID), in KFD's order for AMD */
	int minor;  /* of /dev/nvidiaN, the N of renderDN; -1: unknown */
	bool mig;   /* a MIG instance: always named by its UUID; pci is the GPU's */
	int gi, ci; /* MIG: GPU and compute instance; else -1 */
	char parent_uuid[96]; /* MIG: its GPU's UUID; else "" */
	int home; /* topo_node where its CPUs start; 0 (the machine) if not reported */
	bool no_locality; /* no source says which of several NUMA nodes is near */
	char holder[64];  /* another job that claims it, "pid 123 (x) of uid 7"; "" for
			     none */
	int claim;        /* 1 + descriptor of our claim; 0: none */
};

struct gpus {
	struct gpu *v; /* PCI order, or the order of a preset CUDA_VISIBLE_DEVICES */
	size_t n;
	struct strv
		notes; /* disagreements between sources and the like, one line each */
};

struct gpu_sources {
	const char
		*root; /* "" (or NULL), or the folder under which proc, sys and dev are
			* looked up; a folder goes before an XML topology's GPUs */
	const char *cuda_visible; /* preset CUDA_VISIBLE_DEVICES, or NULL */
	const char *cuda_order;   /* preset CUDA_DEVICE_ORDER, or NULL */
	const char *rocr_visible; /* preset ROCR_VISIBLE_DEVICES, or NULL */
};

/* The usable GPUs of T's machine into G.  G may stay empty. */
void gpu_find(struct gpus *g, const struct topo *t, const struct gpu_sources *from);

/* Keep only those that LIST (--gpus: index, PCI address or UUID, comma separated)
 * names; their order stays.  0, or -1 with E (E_GPU_LIST) and G as it was. */
int gpu_select(struct gpus *g, const char *list, struct err *e);
void gpu_free(struct gpus *g); /* gives claims back too */

/* Read "0000:53:00.0", "00000000:53:00.0" or "53:00.0" (any case).  False: not an
 * address. */
bool gpu_parse_address(struct gpu_address *a, const char *text);

/* Claim G for this process until it ends or gives G back: fills holder where another
 * job has one, and moves those last.  Advisory: a name in the abstract socket
 * namespace, gone with its holder, visible to this network namespace only. */
void gpu_claim(struct gpus *g);
/* Keep the claims of the GPUs in use, chosen[i] for v[i]; give the others back. */
void gpu_claim_keep(struct gpus *g, const bool *chosen);

#endif
