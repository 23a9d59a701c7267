#include <dirent.h>
#include <stdarg.h>
#include <unistd.h>

#include "agent/placement/gpu_internal.h"

/* ---- files ---- */

static char *path_of(const char *root, const char *format, va_list ap)
{
	struct str path = { 0 };
	char *tail = xvasprintf(format, ap);

	str_addf(&path, "%s%s", root, tail);
	free(tail);
	return str_take(&path);
}

bool sys_line(char *out, size_t size, const char *root, const char *format, ...)
{
	char *path, *line;
	va_list ap;
	FILE *in;

	va_start(ap, format);
	path = path_of(root, format, ap);
	va_end(ap);
	in = fopen(path, "re");
	free(path);
	if (!in)
		return false;
	line = fgets(out, (int)size, in);
	fclose(in);
	if (!line)
		return false;
	out[strcspn(out, "\n")] = '\0';
	return true;
}

bool sys_number(long long *out, const char *root, const char *format, ...)
{
	char *path, text[64], *end;
	va_list ap;
	bool ok;

	va_start(ap, format);
	path = path_of(root, format, ap);
	va_end(ap);
	ok = sys_line(text, sizeof text, "", "%s", path);
	free(path);
	if (!ok)
		return false;
	*out = strtoll(text, &end, 0);
	return end != text && !*end;
}

static DIR *sys_folder(const char *root, const char *folder)
{
	char *path = xasprintf("%s%s", root, folder);
	DIR *d = opendir(path);

	free(path);
	return d;
}

bool gpu_may_open(const char *root, const char *prefix, int minor)
{
	char *name = xasprintf("%s%s%d", root, prefix, minor);
	bool ok = minor >= 0 && access(name, R_OK | W_OK) == 0;

	free(name);
	return ok;
}

/* ---- where it sits ---- */

enum {
	CPU_WORDS = 128
}; /* 8192 CPUs: Linux's limit; also those that aren't allowed here */

static const struct topo_numa *numa_by_os(const struct topo *t, long long os_index)
{
	for (size_t i = 0; i < t->nnuma; i++)
		if (t->numa[i].os_index == os_index)
			return &t->numa[i];
	return NULL;
}

void gpu_locate(struct gpus *g, size_t i, const struct topo *t, const char *root)
{
	struct gpu *gpu = &g->v[i];
	struct cpuset near = cpuset_new(CPU_WORDS);
	const struct topo_numa *numa;
	char list[4096];
	long long node = -1;

	sys_number(&node, root, "/sys/bus/pci/devices/%s/numa_node", gpu->pci);
	numa = numa_by_os(t, node);
	if (sys_line(list, sizeof list, root, "/sys/bus/pci/devices/%s/local_cpulist",
		     gpu->pci) &&
	    !cpuset_parse(&near, list))
		gpu_note(g, "GPU %s: its local_cpulist is '%s'", gpu->pci, list);
	if (numa && !cpuset_count(&near))
		cpuset_or(&near, &numa->cpus);
	else if (numa && cpuset_count(&numa->cpus) && !cpuset_meets(&near, &numa->cpus))
		gpu_note(g,
			 "GPU %s: sysfs says NUMA node %lld, but CPUs %s, which aren't "
			 "its; these are believed",
			 gpu->pci, node, list);
	gpu_set_home(gpu, t, &near);
	cpuset_free(&near);
}

/* ---- NVIDIA ---- */

/* VALUE of a line "NAME: \t VALUE"; NULL for another line. */
static const char *field(const char *line, const char *name)
{
	size_t len = strlen(name);

	if (strncmp(line, name, len) != 0 || line[len] != ':')
		return NULL;
	line += len + 1;
	return line + strspn(line, " \t");
}

/* A GPU that sleeps has question marks for a UUID. */
static void read_information(struct gpu *gpu, FILE *in)
{
	char line[256];
	const char *value;

	while (fgets(line, sizeof line, in)) {
		line[strcspn(line, "\n")] = '\0';
		if ((value = field(line, "Model")))
			snprintf(gpu->model, sizeof gpu->model, "%.63s", value);
		else if ((value = field(line, "GPU UUID")) && !strchr(value, '?'))
			snprintf(gpu->uuid, sizeof gpu->uuid, "%.95s", value);
		else if ((value = field(line, "Device Minor")) && *value >= '0' &&
			 *value <= '9')
			gpu->minor = (int)strtol(value, NULL, 10);
	}
}

static void add_nvidia(struct gpus *g, const struct topo *t, const char *root,
		       const char *name)
{
	char *path = xasprintf("%s/proc/driver/nvidia/gpus/%s/information", root, name);
	struct gpu_address a;
	struct gpu *gpu;
	FILE *in = fopen(path, "re");

	free(path);
	if (!in || !gpu_parse_address(&a, name)) {
		if (in)
			fclose(in);
		return;
	}
	gpu = gpu_add(g, GPU_NVIDIA, &a);
	read_information(gpu, in);
	fclose(in);
	if (gpu->minor < 0)
		gpu_note(g,
			 "GPU %s: the driver gives it no device file (is it broken?)",
			 gpu->pci);
	/* the note may not move v, but the next GPU does: drop by position */
	if (!gpu_may_open(root, "/dev/nvidia", g->v[g->n - 1].minor))
		g->n--;
	else
		gpu_locate(g, g->n - 1, t, root);
}

/* ---- any PCI function, where no driver tells more ---- */

static bool has_render_node(int *minor, const char *root, const char *pci)
{
	char *folder = xasprintf("/sys/bus/pci/devices/%s/drm", pci);
	DIR *d = sys_folder(root, folder);
	struct dirent *de;
	bool found = false;

	free(folder);
	while (d && !found && (de = readdir(d)))
		found = sscanf(de->d_name, "renderD%d", minor) == 1;
	if (d)
		closedir(d);
	return found;
}

static void add_function(struct gpus *g, const struct topo *t, const char *root,
			 const char *pci)
{
	long long class_id, vendor, device;
	struct gpu_address a;
	int minor = -1;

	if (!sys_number(&class_id, root, "/sys/bus/pci/devices/%s/class", pci) ||
	    (class_id >> 16 != 0x03 && class_id >> 16 != 0x12) ||
	    !sys_number(&vendor, root, "/sys/bus/pci/devices/%s/vendor", pci) ||
	    !sys_number(&device, root, "/sys/bus/pci/devices/%s/device", pci) ||
	    !gpu_is_one((uint16_t)(class_id >> 8), (uint16_t)vendor,
			(uint16_t)device) ||
	    !gpu_parse_address(&a, pci))
		return;
	if (vendor == 0x10de) {
		gpu_note(g, "GPU %s: no NVIDIA driver has it, so no rank gets it", pci);
		return;
	}
	if (!has_render_node(&minor, root, pci) ||
	    !gpu_may_open(root, "/dev/dri/renderD", minor))
		return;
	gpu_add(g, GPU_AMD, &a)->minor = minor;
	gpu_locate(g, g->n - 1, t, root);
}

/* A file read per PCI function, 5 us each: only where no driver of GPUs is loaded. */
static void scan_bus(struct gpus *g, const struct topo *t, const char *root)
{
	DIR *d = sys_folder(root, "/sys/bus/pci/devices");
	struct dirent *de;

	while (d && (de = readdir(d)))
		if (*de->d_name != '.')
			add_function(g, t, root, de->d_name);
	if (d)
		closedir(d);
}

void gpu_from_sysfs(struct gpus *g, const struct topo *t, const char *root)
{
	DIR *d = sys_folder(root, "/proc/driver/nvidia/gpus");
	DIR *kfd = sys_folder(root, "/sys/class/kfd/kfd/topology/nodes");
	struct dirent *de;

	while (d && (de = readdir(d)))
		if (*de->d_name != '.')
			add_nvidia(g, t, root, de->d_name);
	if (d)
		closedir(d);
	if (kfd)
		closedir(kfd);
	if (!d && !kfd)
		scan_bus(g, t, root);
}
