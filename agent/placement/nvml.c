#include "agent/placement/nvml.h"

#include <dlfcn.h>

/* ---- the library's own shapes ---- */

enum { OK = 0, INSUFFICIENT_SIZE = 7, FLAG_NO_GPUS = 1, SCOPE_NODE = 0 };

typedef struct nvml_handle *handle;

struct pci_info {
	char bus_id_legacy[16];
	unsigned domain, bus, device, pci_device_id, pci_subsystem_id;
	char bus_id[32];
};
_Static_assert(sizeof(struct pci_info) == 68, "nvmlPciInfo_t");

struct process_info {
	unsigned pid;
	unsigned long long used;
	unsigned gpu_instance, compute_instance;
};
_Static_assert(sizeof(struct process_info) == 24, "nvmlProcessInfo_t, version 2 and 3");

struct memory_info {
	unsigned long long total, free, used;
};

struct utilization {
	unsigned gpu, memory;
};

enum {
	CLOCK_SM = 1,
	SENSOR_GPU = 0,
	ECC_UNCORRECTED = 1,
	ECC_VOLATILE = 0,
	PCIE_WAYS = 2
};

/* name in the library, parameters; every function returns 0 for success. */
#define SYMBOLS(X)                                                                     \
	X(init_flags, nvmlInitWithFlags, (unsigned flags))                             \
	X(init, nvmlInit_v2, (void))                                                   \
	X(shutdown, nvmlShutdown, (void))                                              \
	X(count, nvmlDeviceGetCount_v2, (unsigned *n))                                 \
	X(by_index, nvmlDeviceGetHandleByIndex_v2, (unsigned i, handle *h))            \
	X(pci, nvmlDeviceGetPciInfo_v3, (handle h, struct pci_info * p))               \
	X(uuid, nvmlDeviceGetUUID, (handle h, char *out, unsigned size))               \
	X(name, nvmlDeviceGetName, (handle h, char *out, unsigned size))               \
	X(affinity, nvmlDeviceGetCpuAffinityWithinScope,                               \
	  (handle h, unsigned n, unsigned long *words, unsigned scope))                \
	X(mig_max, nvmlDeviceGetMaxMigDeviceCount, (handle h, unsigned *n))            \
	X(mig_by_index, nvmlDeviceGetMigDeviceHandleByIndex,                           \
	  (handle h, unsigned i, handle *mig))                                         \
	X(gi, nvmlDeviceGetGpuInstanceId, (handle h, unsigned *id))                    \
	X(ci, nvmlDeviceGetComputeInstanceId, (handle h, unsigned *id))                \
	X(processes3, nvmlDeviceGetComputeRunningProcesses_v3,                         \
	  (handle h, unsigned *n, struct process_info *p))                             \
	X(processes2, nvmlDeviceGetComputeRunningProcesses_v2,                         \
	  (handle h, unsigned *n, struct process_info *p))                             \
	X(memory, nvmlDeviceGetMemoryInfo, (handle h, struct memory_info * m))         \
	X(busy, nvmlDeviceGetUtilizationRates, (handle h, struct utilization * u))     \
	X(power, nvmlDeviceGetPowerUsage, (handle h, unsigned *mw))                    \
	X(cap, nvmlDeviceGetEnforcedPowerLimit, (handle h, unsigned *mw))              \
	X(clock, nvmlDeviceGetClockInfo, (handle h, int type, unsigned *mhz))          \
	X(clock_most, nvmlDeviceGetMaxClockInfo, (handle h, int type, unsigned *mhz))  \
	X(celsius, nvmlDeviceGetTemperature, (handle h, int sensor, unsigned *c))      \
	X(slowed, nvmlDeviceGetCurrentClocksThrottleReasons,                           \
	  (handle h, unsigned long long *bits))                                        \
	X(ecc, nvmlDeviceGetTotalEccErrors,                                            \
	  (handle h, int type, int counter, unsigned long long *n))                    \
	X(pcie, nvmlDeviceGetPcieThroughput,                                           \
	  (handle h, int counter, unsigned *kilobytes))

struct nvml {
	void *lib;
	const char *(*error)(int code);
#define X(field, symbol, parameters) int(*field) parameters;
	SYMBOLS(X)
#undef X
};

/* ---- opening ---- */

/* POSIX allows a function as a data pointer.  ISO C has no cast for it. */
static void nvml_find(void *lib, const char *symbol, void *field)
{
	void *p = dlsym(lib, symbol);

	memcpy(field, &p, sizeof p);
}

struct nvml *nvml_open(char *why, size_t size)
{
	struct nvml *n = xcalloc(1, sizeof *n);
	int rc = -1;

	n->lib = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
	if (!n->lib) {
		const char *text = dlerror();

		snprintf(why, size, "%s", text ? text : "no libnvidia-ml.so.1");
		free(n);
		return NULL;
	}
	nvml_find(n->lib, "nvmlErrorString", &n->error);
#define X(field, symbol, parameters) nvml_find(n->lib, #symbol, &n->field);
	SYMBOLS(X)
#undef X
	if (n->init_flags)
		rc = n->init_flags(FLAG_NO_GPUS);
	else if (n->init)
		rc = n->init();
	if (rc == OK)
		return n;
	snprintf(why, size, "NVML: %s", n->error ? n->error(rc) : "cannot start");
	dlclose(n->lib);
	free(n);
	return NULL;
}

void nvml_close(struct nvml *n)
{
	if (!n)
		return;
	if (n->shutdown)
		n->shutdown();
	dlclose(n->lib);
	free(n);
}

/* ---- devices ---- */

size_t nvml_devices(struct nvml *n, struct nvml_device *out, size_t max)
{
	unsigned count = 0;
	size_t found = 0;

	if (!n->count || !n->by_index || !n->pci || n->count(&count) != OK)
		return 0;
	for (unsigned i = 0; i < count && found < max; i++) {
		struct nvml_device d = { .gi = -1, .ci = -1 };
		struct pci_info p = { 0 };

		if (n->by_index(i, &d.handle) != OK || n->pci(d.handle, &p) != OK)
			continue;
		p.bus_id[sizeof p.bus_id - 1] = '\0';
		if (!gpu_parse_address(&d.address, p.bus_id))
			continue;
		if (n->uuid && n->uuid(d.handle, d.uuid, sizeof d.uuid) != OK)
			*d.uuid = '\0';
		if (n->name && n->name(d.handle, d.model, sizeof d.model) != OK)
			*d.model = '\0';
		out[found++] = d;
	}
	return found;
}

bool nvml_is_gpu(const struct nvml_device *d, const struct gpu *g)
{
	return g->vendor == GPU_NVIDIA && g->address.domain == d->address.domain &&
	       g->address.bus == d->address.bus && g->address.dev == d->address.dev &&
	       g->address.func == d->address.func;
}

static int id_of(int (*ask)(handle, unsigned *), handle h)
{
	unsigned id;

	return ask && ask(h, &id) == OK ? (int)id : -1;
}

size_t nvml_instances(struct nvml *n, const struct nvml_device *d,
		      struct nvml_device *out, size_t max)
{
	unsigned count = 0;
	size_t found = 0;

	if (!n->mig_max || !n->mig_by_index || !n->uuid ||
	    n->mig_max(d->handle, &count) != OK)
		return 0;
	for (unsigned i = 0; i < count && found < max; i++) {
		struct nvml_device m = { .address = d->address };

		if (n->mig_by_index(d->handle, i, &m.handle) != OK ||
		    n->uuid(m.handle, m.uuid, sizeof m.uuid) != OK)
			continue;
		if (n->name && n->name(m.handle, m.model, sizeof m.model) != OK)
			*m.model = '\0';
		m.gi = id_of(n->gi, m.handle);
		m.ci = id_of(n->ci, m.handle);
		out[found++] = m;
	}
	return found;
}

bool nvml_cpus(struct nvml *n, const struct nvml_device *d, struct cpuset *cpus)
{
	_Static_assert(sizeof(unsigned long) == sizeof *cpus->w, "64-bit words");

	return n->affinity && n->affinity(d->handle, (unsigned)cpus->nwords,
					  (unsigned long *)cpus->w, SCOPE_NODE) == OK;
}

/* ---- use ---- */

long nvml_processes(struct nvml *n, const struct nvml_device *d,
		    struct nvml_process *out, size_t max)
{
	enum { MOST = 512 };
	struct process_info p[MOST];
	unsigned count = MOST;
	int (*ask)(handle, unsigned *, struct process_info *) =
		n->processes3 ? n->processes3 : n->processes2;
	int rc = ask ? ask(d->handle, &count, p) : -1;

	if (rc == INSUFFICIENT_SIZE)
		count = 0;
	else if (rc != OK)
		return -1;
	if (count > max)
		count = (unsigned)max;
	for (unsigned i = 0; i < count; i++)
		out[i] = (struct nvml_process){ .pid = (pid_t)p[i].pid,
						.bytes = p[i].used,
						.gi = (int)p[i].gpu_instance };
	return (long)count;
}

long long nvml_used_bytes(struct nvml *n, const struct nvml_device *d)
{
	struct memory_info m;

	if (!n->memory || n->memory(d->handle, &m) != OK)
		return -1;
	return (long long)m.used;
}

void nvml_state(struct nvml *n, const struct nvml_device *d, struct nvml_state *s)
{
	unsigned long long slowed = 0, errors = 0;
	struct memory_info m = { 0 };
	struct utilization u = { 0 };

	*s = (struct nvml_state){ .busy = UINT32_MAX };
	if (n->busy && n->busy(d->handle, &u) == OK)
		s->busy = u.gpu;
	if (n->memory && n->memory(d->handle, &m) == OK) {
		s->used_bytes = m.used;
		s->total_bytes = m.total;
	}
	if (!n->power || n->power(d->handle, &s->power_mw) != OK)
		s->power_mw = 0;
	if (!n->cap || n->cap(d->handle, &s->cap_mw) != OK)
		s->cap_mw = 0;
	if (!n->clock || n->clock(d->handle, CLOCK_SM, &s->sm_mhz) != OK)
		s->sm_mhz = 0;
	if (!n->clock_most || n->clock_most(d->handle, CLOCK_SM, &s->sm_most_mhz) != OK)
		s->sm_most_mhz = 0;
	if (!n->celsius || n->celsius(d->handle, SENSOR_GPU, &s->celsius) != OK)
		s->celsius = 0;
	if (n->slowed && n->slowed(d->handle, &slowed) == OK)
		s->slowed = slowed;
	if (n->ecc && n->ecc(d->handle, ECC_UNCORRECTED, ECC_VOLATILE, &errors) == OK)
		s->ecc_errors = errors;
}

uint64_t nvml_pcie_bytes(struct nvml *n, const struct nvml_device *d)
{
	uint64_t sum = 0;

	for (int way = 0; way < PCIE_WAYS; way++) {
		unsigned kilobytes = 0;

		if (n->pcie && n->pcie(d->handle, way, &kilobytes) == OK)
			sum += (uint64_t)kilobytes * 1000;
	}
	return sum;
}
