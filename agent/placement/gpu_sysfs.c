#include <dirent.h>
#include <stdarg.h>
#include <unistd.h>

#include "agent/placement/gpu.h"
#include "agent/placement/gpu_internal.h"

/* ---- files ---- */

static char *path_of(const char *root, const char *format, va_list ap)
{
	char *tail = xvasprintf(format, ap), *path = xasprintf("%s%s", root, tail);

	free(tail);
	return path;
}

static bool read_line(char *out, size_t size, const char *root, const char *format,
		      va_list ap)
{
	char *path = path_of(root, format, ap), *line = NULL;
	FILE *in = fopen(path, "re");

	free(path);
	if (in) {
		line = fgets(out, (int)size, in);
		fclose(in);
	}
	if (line)
		out[strcspn(out, "\n")] = '\0';
	return line;
}

bool sys_line(char *out, size_t size, const char *root, const char *format, ...)
{
	va_list ap;
	bool ok;

	va_start(ap, format);
	ok = read_line(out, size, root, format, ap);
	va_end(ap);
	return ok;
}

bool sys_number(long long *out, const char *root, const char *format, ...)
{
	char text[64], *end;
	va_list ap;
	bool ok;

	va_start(ap, format);
	ok = read_line(text, sizeof text, root, format, ap);
	va_end(ap);
	if (!ok)
		return false;
	*out = strtoll(text, &end, 0);
	return end != text && !*end;
}

bool sys_entry(int *number, const char *root, const char *entry, const char *format,
	       ...)
{
	struct dirent *de;
	bool found = false;
	char *path;
	va_list ap;
	DIR *d;

	va_start(ap, format);
	path = path_of(root, format, ap);
	va_end(ap);
	d = opendir(path);
	free(path);
	while (d && !found && (de = readdir(d)))
		found = !strncmp(de->d_name, entry, strlen(entry)) &&
			sscanf(de->d_name + strlen(entry), "%d", number) == 1;
	if (d)
		closedir(d);
	return found;
}

bool gpu_may_open(const struct gpus *g, const char *root, const char *prefix, int minor)
{
	char *name = xasprintf("%s%s%d", root, prefix, minor);
	bool ok = minor >= 0 && (g->closed_too || access(name, R_OK | W_OK) == 0);

	free(name);
	return ok;
}

/* ---- where it sits ---- */

void gpu_locate(struct gpus *g, const struct topo *t, const char *root)
{
	struct gpu *gpu = &g->v[g->n - 1];
	struct cpuset near = cpuset_new(GPU_CPU_WORDS);
	const struct topo_numa *numa = NULL;
	char list[4096];
	long long node = -1;

	sys_number(&node, root, "/sys/bus/pci/devices/%s/numa_node", gpu->pci);
	for (size_t i = 0; i < t->nnuma && !numa; i++)
		if (t->numa[i].os_index == node)
			numa = &t->numa[i];
	if (sys_line(list, sizeof list, root, "/sys/bus/pci/devices/%s/local_cpulist",
		     gpu->pci) &&
	    !cpuset_parse(&near, list))
		gpu_note(g, "GPU %s: its local_cpulist is '%s'", gpu->pci, list);
	if (numa && !cpuset_count(&near))
		cpuset_or(&near, &numa->cpus);
	else if (numa && cpuset_count(&numa->cpus) && !cpuset_meets(&near, &numa->cpus))
		gpu_note(g,
			 "GPU %s: sysfs says NUMA node %lld, but CPUs %s of another "
			 "node; Berth uses the CPUs",
			 gpu->pci, node, list);
	gpu_set_home(gpu, t, &near);
	cpuset_free(&near);
}

/* ---- NVIDIA ---- */

/* VALUE of a line "NAME: \t VALUE"; NULL for another line. */
static const char *sysfs_field(const char *line, const char *name)
{
	size_t len = strlen(name);

	if (strncmp(line, name, len) != 0 || line[len] != ':')
		return NULL;
	line += len + 1;
	return line + strspn(line, " \t");
}

static void add_nvidia(struct gpus *g, const struct topo *t, const char *root,
		       const char *name)
{
	char *path = xasprintf("%s/proc/driver/nvidia/gpus/%s/information", root, name);
	FILE *in = fopen(path, "re");
	struct gpu_address a;
	struct gpu *gpu;
	char line[256];
	const char *value;

	free(path);
	if (!in)
		return;
	if (gpu_parse_address(&a, name)) {
		gpu = gpu_add(g, GPU_NVIDIA, &a);
		while (fgets(line, sizeof line, in)) {
			line[strcspn(line, "\n")] = '\0';
			if ((value = sysfs_field(line, "Model")))
				snprintf(gpu->model, sizeof gpu->model, "%.63s", value);
			else if ((value = sysfs_field(line, "GPU UUID")) &&
				 !strchr(value, '?')) /* asleep: question marks */
				snprintf(gpu->uuid, sizeof gpu->uuid, "%.95s", value);
			else if ((value = sysfs_field(line, "Device Minor")) &&
				 *value >= '0' && *value <= '9')
				gpu->minor = (int)strtol(value, NULL, 10);
		}
		if (gpu->minor < 0)
			gpu_note(g,
				 "GPU %s: the driver gives it no device file (is it "
				 "broken?)",
				 gpu->pci);
		if (gpu_may_open(g, root, "/dev/nvidia", gpu->minor))
			gpu_locate(g, t, root);
		else
			g->n--;
	}
	fclose(in);
}

/* ---- any PCI function, if no driver tells more ---- */

static void add_function(struct gpus *g, const struct topo *t, const char *root,
			 const char *pci)
{
	long long class_id, vendor, device;
	struct gpu_address a;
	int minor = -1;

	/* one file for each function that is not a GPU */
	if (!sys_number(&class_id, root, "/sys/bus/pci/devices/%s/class", pci) ||
	    (class_id >> 16 != 0x03 && class_id >> 16 != 0x12) ||
	    !sys_number(&vendor, root, "/sys/bus/pci/devices/%s/vendor", pci) ||
	    !sys_number(&device, root, "/sys/bus/pci/devices/%s/device", pci) ||
	    !gpu_is_one((uint16_t)(class_id >> 8), (uint16_t)vendor,
			(uint16_t)device) ||
	    !gpu_parse_address(&a, pci))
		return;
	if (vendor == PCI_NVIDIA) {
		gpu_note(g, "GPU %s: no NVIDIA driver has it, so no rank gets it", pci);
	} else if (sys_entry(&minor, root, "renderD", "/sys/bus/pci/devices/%s/drm",
			     pci) &&
		   gpu_may_open(g, root, "/dev/dri/renderD", minor)) {
		gpu_add(g, GPU_AMD, &a)->minor = minor;
		gpu_locate(g, t, root);
	}
}

/* Call ADD for each entry of the directory PATH.  False if there is no such
 * directory. */
static bool for_each(struct gpus *g, const struct topo *t, const char *root,
		     const char *path,
		     void (*add)(struct gpus *g, const struct topo *t, const char *root,
				 const char *name))
{
	char *whole = xasprintf("%s%s", root, path);
	DIR *d = opendir(whole);
	struct dirent *de;

	free(whole);
	if (!d)
		return false;
	while ((de = readdir(d)))
		if (*de->d_name != '.')
			add(g, t, root, de->d_name);
	closedir(d);
	return true;
}

void gpu_from_sysfs(struct gpus *g, const struct topo *t, const char *root)
{
	char *kfd = xasprintf("%s/sys/class/kfd/kfd/topology/nodes", root);

	/* A scan reads a file for each PCI function (5 us each).  It is for hosts
	 * without a driver for GPUs. */
	if (!for_each(g, t, root, "/proc/driver/nvidia/gpus", add_nvidia) &&
	    access(kfd, F_OK))
		for_each(g, t, root, "/sys/bus/pci/devices", add_function);
	free(kfd);
}

/* NVIDIA's first line: "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Thu
 * Feb 22 ...", where the name of the module varies. */
bool gpu_driver(char *out, size_t size, const char *root)
{
	char line[256], *rest = line, *word;

	if (sys_line(line, sizeof line, root, "/proc/driver/nvidia/version"))
		while ((word = strsep(&rest, " \t"))) {
			size_t digits = strspn(word, "0123456789");

			if (!digits || word[digits] != '.' ||
			    word[strspn(word, "0123456789.")])
				continue;
			snprintf(out, size, "%s", word);
			return true;
		}
	return sys_line(out, size, root, "/sys/module/amdgpu/version");
}
