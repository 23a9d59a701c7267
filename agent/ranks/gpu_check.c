#include "agent/ranks/gpu_check.h"

#include <dirent.h>
#include <unistd.h>

#include "agent/placement/nvml.h"

enum { DEVICES_MAX = 64, PROCESSES_MAX = 512, DEPTH_MAX = 64 };

/* ---- processes ---- */

/* 0 where PID is gone. */
static pid_t parent_of(pid_t pid)
{
	char path[64], text[512];
	const char *rest;
	FILE *in;
	size_t n;
	int ppid = 0;

	snprintf(path, sizeof path, "/proc/%d/stat", pid);
	in = fopen(path, "re");
	if (!in)
		return 0;
	n = fread(text, 1, sizeof text - 1, in);
	fclose(in);
	text[n] = '\0';
	rest = strrchr(text, ')'); /* the name before it may hold anything */
	if (!rest || sscanf(rest, ") %*c %d", &ppid) != 1)
		return 0;
	return ppid;
}

/* The index of the rank that PID belongs to, or -1. */
static long rank_of(const struct gpu_check_rank *ranks, size_t n, pid_t pid)
{
	for (int depth = 0; pid > 1 && depth < DEPTH_MAX; depth++) {
		for (size_t r = 0; r < n; r++)
			if (ranks[r].pid == pid)
				return (long)r;
		pid = parent_of(pid);
	}
	return -1;
}

/* ---- first use ---- */

/* /dev/nvidia0, but neither /dev/nvidiactl nor /dev/nvidia-uvm; /dev/kfd. */
static bool is_gpu_file(const char *path)
{
	const char *name = strrchr(path, '/');

	if (!name || !strstr(path, "/dev/"))
		return false;
	name++;
	return !strcmp(name, "kfd") ||
	       (!strncmp(name, "nvidia", 6) && name[6] >= '0' && name[6] <= '9');
}

static bool has_gpu_open(pid_t pid)
{
	char path[64], link[256];
	struct dirent *de;
	bool found = false;
	DIR *d;

	snprintf(path, sizeof path, "/proc/%d/fd", pid);
	d = opendir(path);
	while (d && !found && (de = readdir(d))) {
		ssize_t len = readlinkat(dirfd(d), de->d_name, link, sizeof link - 1);

		if (len <= 0)
			continue;
		link[len] = '\0';
		found = is_gpu_file(link);
	}
	if (d)
		closedir(d);
	return found;
}

bool gpu_check_any_use(const struct gpu_check_rank *ranks, size_t n)
{
	struct dirent *de;
	bool found = false;
	DIR *d;

	for (size_t r = 0; r < n; r++)
		if (has_gpu_open(ranks[r].pid))
			return true;
	d = opendir("/proc");
	while (d && !found && (de = readdir(d))) {
		pid_t pid = (pid_t)strtol(de->d_name, NULL, 10);

		/* a stranger's descriptors can't be read, which is the cheaper test */
		found = pid > 1 && has_gpu_open(pid) && rank_of(ranks, n, pid) >= 0;
	}
	if (d)
		closedir(d);
	return found;
}

/* ---- the check ---- */

struct watch {
	struct nvml *nvml;
	const struct gpus *g;
	const struct gpu_check_rank *ranks;
	size_t nrank;
	bool *uses; /* uses[rank * g->n + gpu] */
	size_t seen,
		mine; /* processes that NVML listed; those of them that are ranks' */
	bool busy;    /* a GPU of the plan has memory in use */
};

static size_t gpu_of(const struct watch *w, const struct nvml_device *d, int gi)
{
	for (size_t i = 0; i < w->g->n; i++) {
		const struct gpu *g = &w->g->v[i];

		if (g->vendor == GPU_NVIDIA && g->address.domain == d->address.domain &&
		    g->address.bus == d->address.bus &&
		    g->address.dev == d->address.dev &&
		    g->address.func == d->address.func && (!g->mig || g->gi == gi))
			return i;
	}
	return w->g->n;
}

static void look_at(struct watch *w, const struct nvml_device *d)
{
	struct nvml_process p[PROCESSES_MAX];
	long n = nvml_processes(w->nvml, d, p, PROCESSES_MAX);

	if (nvml_used_bytes(w->nvml, d) > (long long)1 << 30)
		w->busy = true;
	for (long i = 0; i < n; i++) {
		size_t gpu = gpu_of(w, d, p[i].gi);
		long rank = rank_of(w->ranks, w->nrank, p[i].pid);

		w->seen++;
		if (rank < 0)
			continue;
		w->mine++;
		if (gpu < w->g->n)
			w->uses[(size_t)rank * w->g->n + gpu] = true;
	}
}

/* Whose GPU is it?  The first rank that has it, or -1. */
static long owner_of(const struct watch *w, size_t gpu)
{
	for (size_t r = 0; r < w->nrank; r++)
		if (w->ranks[r].gpu == (int)gpu)
			return w->ranks[r].rank;
	return -1;
}

static void add_gpu(struct str *s, const struct watch *w, size_t gpu)
{
	const struct gpu *g = &w->g->v[gpu];

	str_addf(s, "GPU %d (%s)", g->index, g->mig ? g->uuid : g->pci);
}

static void judge(const struct watch *w, size_t r, struct strv *warnings)
{
	const bool *uses = &w->uses[r * w->g->n];
	int own = w->ranks[r].gpu;
	bool on_own = own >= 0 && uses[own];

	for (size_t i = 0; i < w->g->n; i++) {
		struct str s = { 0 };
		long owner = owner_of(w, i);

		if (!uses[i] || (int)i == own)
			continue;
		str_addf(&s, "rank %u %s ", w->ranks[r].rank,
			 on_own ? "also holds memory on" : "runs on");
		add_gpu(&s, w, i);
		if (owner >= 0)
			str_addf(&s, ", which is rank %ld's", owner);
		if (own >= 0) {
			str_addf(&s, "%s",
				 on_own ? "; its own is " : ", not on its own, ");
			add_gpu(&s, w, (size_t)own);
		} else {
			str_addf(&s, "; it was given none");
		}
		strv_take(warnings, str_take(&s));
	}
}

static int check(struct watch *w, struct strv *warnings)
{
	struct nvml_device v[DEVICES_MAX];
	size_t n = nvml_devices(w->nvml, v, DEVICES_MAX);

	for (size_t i = 0; i < n; i++)
		look_at(w, &v[i]);
	if (w->mine) {
		for (size_t r = 0; r < w->nrank; r++)
			judge(w, r, warnings);
		return 0;
	}
	if (!w->seen && !w->busy)
		return 0; /* nobody computes */
	strv_add(warnings,
		 "cannot verify which GPU each rank uses: NVML shows no process of "
		 "this job, as is usual in a container");
	return -1;
}

static bool has_nvidia(const struct gpus *g)
{
	for (size_t i = 0; i < g->n; i++)
		if (g->v[i].vendor == GPU_NVIDIA)
			return true;
	return false;
}

int gpu_check_check(struct strv *warnings, const struct gpus *g,
		    const struct gpu_check_rank *ranks, size_t n)
{
	struct watch w = { .g = g, .ranks = ranks, .nrank = n };
	char why[256];
	int rc;

	if (!has_nvidia(g) || !n)
		return 0;
	w.nvml = nvml_open(why, sizeof why);
	if (!w.nvml) {
		strv_take(warnings,
			  xasprintf("cannot verify which GPU each rank uses: %s", why));
		return -1;
	}
	w.uses = xcalloc(n * g->n, sizeof *w.uses);
	rc = check(&w, warnings);
	free(w.uses);
	nvml_close(w.nvml);
	return rc;
}
