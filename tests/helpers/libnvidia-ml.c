/* libnvidia-ml.c - a stand-in for NVIDIA's management library.
 *
 * What it shows stands in the file FAKE_NVML, a line each, words by blanks:
 *
 *	init CODE                       nvmlInit fails with CODE
 *	gpu ADDRESS UUID [CPUS-MASK]    a GPU; the mask of its NUMA node's CPUs,
 *	                                hexadecimal
 *	hidden                          a GPU that this process may not use
 *	mig GI CI UUID                  an instance of the GPU above
 *	process PID [GI]                computes on the GPU above
 *	used BYTES                      of the GPU above
 *	state BUSY MW CAP-MW MHZ MOST-MHZ CELSIUS SLOWED-BITS TOTAL-BYTES
 *	                                of the GPU above
 *
 * Shapes and codes are those of NVIDIA's public nvml.h. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OK = 0, INVALID = 2, NO_PERMISSION = 4, NOT_FOUND = 6, MOST = 32 };

struct device {
	int hidden, gi, ci;
	char address[40], uuid[96];
	unsigned long long cpus;
	struct device *mig[MOST];
	unsigned nmig, nprocess, pid[MOST], on[MOST];
	unsigned long long used, slowed, total;
	unsigned busy, power, cap, clock, clock_most, celsius;
};

static struct device *gpus[MOST];
static unsigned ngpu;
static int init_code;

static struct device *new_device(void)
{
	struct device *d = calloc(1, sizeof *d);

	if (!d)
		abort();
	d->gi = d->ci = -1;
	return d;
}

static void read_gpu(const char *line)
{
	struct device *d = gpus[ngpu++] = new_device();

	if (sscanf(line, "gpu %39s %95s %llx", d->address, d->uuid, &d->cpus) < 2)
		d->hidden = 1;
}

static void read_line(const char *line)
{
	struct device *d = ngpu ? gpus[ngpu - 1] : NULL, *m;

	if (!strncmp(line, "gpu ", 4) || !strncmp(line, "hidden", 6)) {
		read_gpu(line);
	} else if (sscanf(line, "init %d", &init_code) == 1 || !d) {
		return;
	} else if (!strncmp(line, "mig ", 4)) {
		m = d->mig[d->nmig++] = new_device();
		if (sscanf(line, "mig %d %d %95s", &m->gi, &m->ci, m->uuid) != 3)
			abort();
	} else if (!strncmp(line, "process ", 8)) {
		d->on[d->nprocess] = UINT32_MAX;
		if (sscanf(line, "process %u %u", &d->pid[d->nprocess],
			   &d->on[d->nprocess]) > 0)
			d->nprocess++;
	} else if (sscanf(line, "state %u %u %u %u %u %u %llu %llu", &d->busy,
			  &d->power, &d->cap, &d->clock, &d->clock_most, &d->celsius,
			  &d->slowed, &d->total) == 8) {
		return;
	} else if (sscanf(line, "used %llu", &d->used) != 1) {
		return;
	}
}

int nvmlInitWithFlags(unsigned flags)
{
	const char *name = getenv("FAKE_NVML");
	FILE *in = name ? fopen(name, "r") : NULL;
	char line[256];

	(void)flags;
	ngpu = 0;
	init_code = OK;
	while (in && fgets(line, sizeof line, in))
		read_line(line);
	if (in)
		fclose(in);
	return init_code;
}

int nvmlShutdown(void)
{
	for (unsigned i = 0; i < ngpu; i++) {
		for (unsigned k = 0; k < gpus[i]->nmig; k++)
			free(gpus[i]->mig[k]);
		free(gpus[i]);
	}
	ngpu = 0;
	return OK;
}

const char *nvmlErrorString(int code)
{
	return code == 9 ? "Driver Not Loaded" : "Unknown Error";
}

int nvmlDeviceGetCount_v2(unsigned *n)
{
	*n = ngpu;
	return OK;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned i, struct device **d)
{
	if (i >= ngpu)
		return INVALID;
	*d = gpus[i];
	return gpus[i]->hidden ? NO_PERMISSION : OK;
}

struct pci_info {
	char legacy[16];
	unsigned domain, bus, device, id, subsystem;
	char bus_id[32];
};

int nvmlDeviceGetPciInfo_v3(const struct device *d, struct pci_info *p)
{
	/* with 8 digits of domain, as the library writes it */
	snprintf(p->bus_id, sizeof p->bus_id, "0000%.27s", d->address);
	return OK;
}

int nvmlDeviceGetUUID(const struct device *d, char *out, unsigned size)
{
	snprintf(out, size, "%s", d->uuid);
	return OK;
}

int nvmlDeviceGetName(const struct device *d, char *out, unsigned size)
{
	snprintf(out, size, "%s", d->gi < 0 ? "Stand-in GPU" : "Stand-in MIG 1g.10gb");
	return OK;
}

int nvmlDeviceGetCpuAffinityWithinScope(const struct device *d, unsigned n,
					unsigned long *words, unsigned scope)
{
	if (!d->cpus || scope)
		return NOT_FOUND;
	memset(words, 0, n * sizeof *words);
	words[0] = d->cpus;
	return OK;
}

int nvmlDeviceGetMaxMigDeviceCount(const struct device *d, unsigned *n)
{
	*n = d->nmig ? 7 : 0;
	return OK;
}

int nvmlDeviceGetMigDeviceHandleByIndex(const struct device *d, unsigned i,
					struct device **mig)
{
	if (i >= d->nmig)
		return NOT_FOUND;
	*mig = d->mig[i];
	return OK;
}

int nvmlDeviceGetGpuInstanceId(const struct device *d, unsigned *id)
{
	*id = (unsigned)d->gi;
	return OK;
}

int nvmlDeviceGetComputeInstanceId(const struct device *d, unsigned *id)
{
	*id = (unsigned)d->ci;
	return OK;
}

struct process_info {
	unsigned pid;
	unsigned long long used;
	unsigned gi, ci;
};

int nvmlDeviceGetComputeRunningProcesses_v3(const struct device *d, unsigned *n,
					    struct process_info *out)
{
	for (unsigned i = 0; i < d->nprocess && i < *n; i++)
		out[i] = (struct process_info){ d->pid[i], 1 << 20, d->on[i], 0 };
	*n = d->nprocess;
	return OK;
}

struct memory_info {
	unsigned long long total, free, used;
};

int nvmlDeviceGetMemoryInfo(const struct device *d, struct memory_info *m)
{
	*m = (struct memory_info){ .total = d->total ? d->total : 1ull << 36,
				   .used = d->used };
	return OK;
}

struct utilization {
	unsigned gpu, memory;
};

int nvmlDeviceGetUtilizationRates(const struct device *d, struct utilization *u)
{
	*u = (struct utilization){ d->busy, 0 };
	return d->total ? OK : NOT_FOUND;
}

int nvmlDeviceGetPowerUsage(const struct device *d, unsigned *mw)
{
	*mw = d->power;
	return OK;
}

int nvmlDeviceGetEnforcedPowerLimit(const struct device *d, unsigned *mw)
{
	*mw = d->cap;
	return OK;
}

int nvmlDeviceGetClockInfo(const struct device *d, int type, unsigned *mhz)
{
	*mhz = d->clock;
	return type == 1 ? OK : INVALID;
}

int nvmlDeviceGetMaxClockInfo(const struct device *d, int type, unsigned *mhz)
{
	*mhz = d->clock_most;
	return type == 1 ? OK : INVALID;
}

int nvmlDeviceGetTemperature(const struct device *d, int sensor, unsigned *celsius)
{
	*celsius = d->celsius;
	return sensor ? INVALID : OK;
}

int nvmlDeviceGetCurrentClocksThrottleReasons(const struct device *d,
					      unsigned long long *bits)
{
	*bits = d->slowed;
	return OK;
}

int nvmlDeviceGetPcieThroughput(const struct device *d, int counter,
				unsigned *kilobytes)
{
	(void)d;
	*kilobytes = counter ? 3 : 2;
	return OK;
}
