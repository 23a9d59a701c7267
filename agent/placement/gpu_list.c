/* gpu_list.c - the list of GPUs as data, for the sources that fill it. */
#include "agent/placement/gpu_list.h"

#include <ctype.h>
#include <stdarg.h>
#include <unistd.h>

bool gpu_parse_address(struct gpu_address *a, const char *text)
{
	unsigned domain = 0, bus, dev, func;
	int end = 0;

	if (sscanf(text, "%8x:%2x:%2x.%1x%n", &domain, &bus, &dev, &func, &end) != 4) {
		domain = 0;
		if (sscanf(text, "%2x:%2x.%1x%n", &bus, &dev, &func, &end) != 3)
			return false;
	}
	if (text[end] || dev > 31 || func > 7 || !isxdigit((unsigned char)*text))
		return false;
	*a = (struct gpu_address){ domain, (uint8_t)bus, (uint8_t)dev, (uint8_t)func };
	return true;
}

uint64_t gpu_address_key(const struct gpu_address *a)
{
	return (uint64_t)a->domain << 24 | (uint64_t)a->bus << 16 |
	       (uint64_t)a->dev << 8 | a->func;
}

struct gpu *gpu_add(struct gpus *g, enum gpu_vendor vendor, const struct gpu_address *a)
{
	struct gpu *gpu;

	g->v = xreallocarray(g->v, g->n + 1, sizeof *g->v);
	gpu = &g->v[g->n++];
	*gpu = (struct gpu){ .vendor = vendor, .address = *a, .no_locality = true };
	gpu->index = gpu->minor = gpu->gi = gpu->ci = -1;
	snprintf(gpu->pci, sizeof gpu->pci, "%04x:%02x:%02x.%x", a->domain, a->bus,
		 a->dev, a->func);
	return gpu;
}

void gpu_note(struct gpus *g, const char *format, ...)
{
	char *text;
	va_list ap;

	va_start(ap, format);
	text = xvasprintf(format, ap);
	va_end(ap);
	strv_take(&g->notes, text);
}

/* Display controllers and processing accelerators.  An ATI ES1000 is the console of a
 * server, not a GPU for computing.  NVSwitches are bridges by class. */
bool gpu_is_one(uint16_t class_id, uint16_t vendor, uint16_t device)
{
	enum { ES1000 = 0x515e };
	uint16_t base = class_id >> 8;

	if (base != 0x03 && base != 0x12)
		return false;
	return vendor == PCI_NVIDIA || (vendor == PCI_AMD && device != ES1000);
}

/* G is near NODE.  Sets its home, and no_locality: on a machine of several NUMA nodes,
 * a GPU that is near all CPUs does not report its place. */
void gpu_set_node(struct gpu *g, const struct topo *t, int node)
{
	g->home = topo_home(t, node);
	g->no_locality = topo_numa_count(t) > 1 &&
			 cpuset_within(&t->node[0].cpus, &t->node[node].cpus);
}

void gpu_set_home(struct gpu *g, const struct topo *t, const struct cpuset *cpus)
{
	struct cpuset here = cpuset_copy(&t->node[0].cpus);

	cpuset_and(&here, cpus);
	gpu_set_node(g, t, topo_covering(t, &here));
	if (cpuset_count(cpus) && !cpuset_count(&here)) /* near CPUs of another job */
		g->no_locality = false;
	cpuset_free(&here);
}

void gpu_free(struct gpus *g)
{
	for (size_t i = 0; i < g->n; i++)
		if (g->v[i].claim)
			close(g->v[i].claim - 1);
	free(g->v);
	strv_free(&g->notes);
	*g = (struct gpus){ 0 };
}
