/* nvml.h - NVIDIA's management library, by dlopen, with our own declarations.
 *
 * Its initialisation wakes a driver that runs without persistence (seconds per GPU).
 * Before the ranks start the agent asks it only if no other source has the answer.
 * Every symbol is optional: a function without it answers "no".  Layouts: NVIDIA's
 * public nvml.h. */
#ifndef BERTH_AGENT_PLACEMENT_NVML_H
#define BERTH_AGENT_PLACEMENT_NVML_H

#include <sys/types.h>

#include "agent/placement/gpu_list.h"

struct nvml;
struct nvml_handle; /* a device of the library's */

struct nvml_device {
	struct nvml_handle *handle;
	struct gpu_address address;
	char uuid[96], model[96];
	int gi, ci; /* of a MIG instance; else -1 */
};

struct nvml_process {
	pid_t pid;
	uint64_t bytes; /* of the GPU's memory; UINT64_MAX: unknown */
	int gi;         /* MIG: GPU instance it runs on; else -1 */
};

/* The library, or NULL with one line in WHY. */
struct nvml *nvml_open(char *why, size_t size);
void nvml_close(struct nvml *n);

/* The devices that this process may use, into OUT, without lost ones. */
size_t nvml_devices(struct nvml *n, struct nvml_device *out, size_t max);
/* Is D the GPU G, or the one of which G is an instance? */
bool nvml_is_gpu(const struct nvml_device *d, const struct gpu *g);
/* MIG instances of D. */
size_t nvml_instances(struct nvml *n, const struct nvml_device *d,
		      struct nvml_device *out, size_t max);
/* CPUs of D's NUMA node, into CPUS, as many as it has room for. */
bool nvml_cpus(struct nvml *n, const struct nvml_device *d, struct cpuset *cpus);
/* Processes that compute on D; -1 if NVML does not tell. */
long nvml_processes(struct nvml *n, const struct nvml_device *d,
		    struct nvml_process *out, size_t max);
/* A device's present state.  UINT32_MAX in busy, else 0: NVML does not tell. */
struct nvml_state {
	unsigned busy; /* percent of time in which some kernel ran */
	uint64_t used_bytes, total_bytes;
	unsigned power_mw, cap_mw, sm_mhz, sm_most_mhz, celsius;
	uint64_t slowed; /* nvmlClocksEventReason* */
	uint64_t ecc_errors;
};
void nvml_state(struct nvml *n, const struct nvml_device *d, struct nvml_state *s);
/* Bytes a second through D's PCIe, both ways; 0 if NVML does not tell.  Takes 40 ms. */
uint64_t nvml_pcie_bytes(struct nvml *n, const struct nvml_device *d);
/* Bytes of D's memory in use; -1 if NVML does not tell. */
long long nvml_used_bytes(struct nvml *n, const struct nvml_device *d);

#endif
