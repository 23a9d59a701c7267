/* gpu.h - the GPUs of this machine that this job may use, and where they sit.
 *
 * Live: sysfs (class, vendor, device, numa_node, local_cpulist) and /proc/driver/nvidia, which
 * wake no driver; NVML by dlopen only for MIG or where numa_node says -1 on a host of several
 * nodes.  Accessible means access(2) on /dev/nvidiaN.  From an XML topology: its PCI objects.
 * A preset CUDA_VISIBLE_DEVICES (ROCR_VISIBLE_DEVICES) filters and orders, read as the driver
 * reads it. */
#ifndef BERTH_GPU_H
#define BERTH_GPU_H

#include "agent/topo.h"

enum gpu_vendor { GPU_NVIDIA, GPU_AMD };

struct gpu {
	enum gpu_vendor vendor;
	char pci[32];   /* "0000:53:00.0", as hwloc prints it */
	char uuid[96];  /* "GPU-...", "MIG-...", or "" */
	char model[64]; /* or "" */
	int index;      /* place in PCI order among all GPUs of the host: the CUDA index under PCI_BUS_ID */
	bool mig;       /* a MIG instance: always named by its UUID */
	int home;       /* topo_node it hangs from; 0 (the machine) where no locality is reported */
	bool no_locality;
	char holder[64]; /* another job that claims it, "pid 123 of uid 7"; "" for none */
};

struct gpus {
	struct gpu *v; /* PCI order, or the order of a preset CUDA_VISIBLE_DEVICES */
	size_t n;
	struct strv notes; /* disagreements between sources and the like, one line each: warnings */
};

/* ROOT is "" or the folder under which proc, sys and dev are looked up (tests). */
struct gpu_sources {
	const char *root;
	const char *cuda_visible; /* preset CUDA_VISIBLE_DEVICES, or NULL */
	const char *rocr_visible; /* preset ROCR_VISIBLE_DEVICES, or NULL */
};

/* The usable GPUs of T's machine into G.  0, or -1 with E. */
int gpu_find(struct gpus *g, const struct topo *t, const struct gpu_sources *from,
	     struct err *e);
/* Keep only those that LIST (--gpus: index, PCI address or UUID, comma separated) names. */
int gpu_select(struct gpus *g, const char *list, struct err *e);
void gpu_free(struct gpus *g);

/* Claim G for this process until it ends (abstract socket names); fills holder where another
 * job has it, and moves those last.  Advisory. */
void gpu_claim(struct gpus *g);
/* Claim exactly the GPUs that are in use: chosen[i] for v[i]; gives the others back. */
void gpu_claim_keep(const struct gpus *g, const bool *chosen);

#endif
