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

#include "agent/placement/topo.h"

enum gpu_vendor { GPU_NVIDIA, GPU_AMD };

struct gpu {
	enum gpu_vendor vendor;
	struct gpu_address address;
	char pci[32];   /* the address as hwloc prints it, "0000:53:00.0" */
	char uuid[96];  /* "GPU-...", "MIG-...", or "" */
	char model[64]; /* or "" */
	int index;  /* its number in its vendor's runtime on this host: the place among
		     * the usable GPUs of that vendor, in PCI order (CUDA under
		     * CUDA_DEVICE_ORDER=PCI_BUS_ID), for AMD in KFD's order */
	int minor;  /* of /dev/nvidiaN, the N of renderDN; -1: unknown */
	bool mig;   /* a MIG instance: always named by its UUID; pci is the GPU's */
	int gi, ci; /* MIG: GPU and compute instance; else -1 */
	char parent_uuid[96]; /* MIG: its GPU's UUID; else "" */
	int home; /* topo_node where its CPUs start; 0, the machine, if not reported */
	bool no_locality; /* no source tells which of several NUMA nodes is near */
	char holder[64];  /* another job that claims it, "pid 123 (x) of uid 7"; "" for
			     none */
	int claim;        /* 1 + descriptor of our claim; 0: none */
};

struct gpus {
	struct gpu *v; /* PCI order, or the order of a preset CUDA_VISIBLE_DEVICES */
	size_t n;
	struct strv
		notes;   /* disagreements between sources and the like, one line each */
	bool closed_too; /* also those that this process may not open */
};

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
void gpu_free(struct gpus *g); /* gives claims back too */

/* Read "0000:53:00.0", "00000000:53:00.0" or "53:00.0" in any case.  False if it is not
 * an address. */
bool gpu_parse_address(struct gpu_address *a, const char *text);

/* Claim G for this process, until it ends or gives G back.  If another job has a
 * GPU, fill its holder and move it to the end.  A claim is advisory: a name in the
 * abstract socket namespace, which ends with its holder, and which only processes of
 * this network namespace see. */
void gpu_claim(struct gpus *g);
/* Keep the claims of the GPUs in use, chosen[i] for v[i]; give the others back. */
void gpu_claim_keep(struct gpus *g, const bool *chosen);

#endif
