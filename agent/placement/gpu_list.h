/* gpu_list.h - a list of GPUs as data. */
#ifndef BERTH_AGENT_PLACEMENT_GPU_LIST_H
#define BERTH_AGENT_PLACEMENT_GPU_LIST_H

#include "agent/placement/topo.h"

/* Vendors of PCI functions. */
enum { PCI_NVIDIA = 0x10de, PCI_AMD = 0x1002 };

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

/* Read "0000:53:00.0", "00000000:53:00.0" or "53:00.0" in any case.  False if it is not
 * an address. */
bool gpu_parse_address(struct gpu_address *a, const char *text);

/* A new GPU at the end of G, its home unknown.  Valid until the next call. */
struct gpu *gpu_add(struct gpus *g, enum gpu_vendor vendor,
		    const struct gpu_address *a);
void gpu_note(struct gpus *g, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
/* Whether a PCI function of this class and identity is a GPU for computing. */
bool gpu_is_one(uint16_t class_id, uint16_t vendor, uint16_t device);
/* A number in PCI order, equal for equal addresses. */
uint64_t gpu_address_key(const struct gpu_address *a);
/* G hangs from NODE. */
void gpu_set_node(struct gpu *g, const struct topo *t, int node);
/* G is near CPUS.  If these are empty, G has no locality. */
void gpu_set_home(struct gpu *g, const struct topo *t, const struct cpuset *cpus);
void gpu_free(struct gpus *g); /* gives claims back too */

#endif
