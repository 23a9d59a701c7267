/* gpu_internal.h - between gpu.c and the sources of GPUs, one file each.
 *
 * A source appends every GPU that this process may open, in any order, with its uuid,
 * model, home and minor where it knows them; gpu.c sorts, numbers and filters. */
#ifndef BERTH_AGENT_PLACEMENT_GPU_INTERNAL_H
#define BERTH_AGENT_PLACEMENT_GPU_INTERNAL_H

#include "agent/placement/gpu.h"

/* A new GPU at the end of G, home unknown; valid until the next call. */
struct gpu *gpu_add(struct gpus *g, enum gpu_vendor vendor,
		    const struct gpu_address *a);
void gpu_note(struct gpus *g, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

/* Is a PCI function of this class and identity a GPU for computing? */
bool gpu_is_one(uint16_t class_id, uint16_t vendor, uint16_t device);

/* Put G's home where CPUS are; the machine, without locality, where they say nothing.
 */
void gpu_set_home(struct gpu *g, const struct topo *t, const struct cpuset *cpus);

void gpu_from_xml(struct gpus *g, const struct topo *t);
void gpu_from_sysfs(struct gpus *g, const struct topo *t, const char *root);
void gpu_from_kfd(struct gpus *g, const struct topo *t, const char *root);

/* Ask NVML what only it knows: MIG instances take their GPU's place, homes that sysfs
 * doesn't know, names.  Loads NVML only if there is something to ask. */
void gpu_ask_nvml(struct gpus *g, const struct topo *t, const char *root);

/* Which of G's GPUs of VENDOR does LIST (a *_VISIBLE_DEVICES) name, in which order?
 * Their positions into OUT[0..count), at most one per GPU; the count is returned.  Read
 * as the driver does: numbers as strtoul() reads them or prefixes of UUIDs, the first
 * word deciding which; it stops at the first that is invalid; one named twice makes the
 * set empty. */
size_t gpu_visible_list(size_t *out, const struct gpus *g, enum gpu_vendor vendor,
			const char *list);

/* Where GPU I of G sits, by sysfs. */
void gpu_locate(struct gpus *g, size_t i, const struct topo *t, const char *root);
/* May this process open the device file, PREFIX and its minor number? */
bool gpu_may_open(const char *root, const char *prefix, int minor);

/* Files under ROOT, their path by format.  The first line without blanks around it into
 * OUT, false if there is none. */
bool sys_line(char *out, size_t size, const char *root, const char *format, ...)
	__attribute__((format(printf, 4, 5)));
bool sys_number(long long *out, const char *root, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

#endif
