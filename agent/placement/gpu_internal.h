/* gpu_internal.h - between gpu.c and the sources of GPUs, one file each.
 *
 * A source appends each GPU that this process
 * may open, in any order, with the uuid, model, home and minor that it knows.  gpu.c
 * asks the sources, then sorts, numbers and filters. */
#ifndef BERTH_AGENT_PLACEMENT_GPU_INTERNAL_H
#define BERTH_AGENT_PLACEMENT_GPU_INTERNAL_H

#include "agent/placement/gpu_list.h"

/* 8192 CPUs are Linux's limit: a GPU may be near CPUs that are not allowed here. */
enum { GPU_CPU_WORDS = 128 };

/* ---- gpu_sysfs.c ---- */

void gpu_from_sysfs(struct gpus *g, const struct topo *t, const char *root);
/* Set the home of the last GPU of G, by sysfs. */
void gpu_locate(struct gpus *g, const struct topo *t, const char *root);
/* Whether the device file PREFIX and MINOR is for G: this process may open it, or need
 * not. */
bool gpu_may_open(const struct gpus *g, const char *root, const char *prefix,
		  int minor);
/* Files under ROOT, their path by format.  sys_line() puts the first line into OUT,
 * without its newline.  False if there is none. */
bool sys_line(char *out, size_t size, const char *root, const char *format, ...)
	__attribute__((format(printf, 4, 5)));
bool sys_number(long long *out, const char *root, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
/* The directory at the path has an entry named ENTRY and a number: puts that into
 * NUMBER. */
bool sys_entry(int *number, const char *root, const char *entry, const char *format,
	       ...) __attribute__((format(printf, 4, 5)));

/* ---- gpu_kfd.c, gpu_nvml.c, gpu_visible.c ---- */

void gpu_from_kfd(struct gpus *g, const struct topo *t, const char *root);

/* Ask NVML what sysfs does not tell: MIG instances (they replace their GPU), homes,
 * names.  Loads NVML only if there is something to ask. */
void gpu_ask_nvml(struct gpus *g, const struct topo *t, const char *root);

/* Write the positions of G's GPUs of VENDOR that LIST, a *_VISIBLE_DEVICES, names to
 * OUT[0..count), each GPU once, in LIST's order.  Returns the count.  Reads
 * LIST as the driver does: the first word decides between numbers (as strtoul() reads
 * them) and prefixes of UUIDs, the first invalid word ends the list, and a GPU named
 * twice makes the set empty. */
size_t gpu_visible_list(size_t *out, const struct gpus *g, enum gpu_vendor vendor,
			const char *list);

#endif
