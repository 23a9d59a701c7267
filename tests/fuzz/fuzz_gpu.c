/* fuzz_gpu.c - lists of GPUs and CPUs: a preset CUDA_VISIBLE_DEVICES, --gpus, PCI
 * addresses, sysfs's local_cpulist. */
#include "agent/placement/gpu.h"
#include "agent/placement/gpu_internal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void add_gpus(struct gpus *g)
{
	static const char *const uuid[] = { "GPU-aaaa1", "GPU-aaaa2", "GPU-bbbb",
					    "MIG-1", "MIG-2" };

	for (size_t i = 0; i < 5; i++) {
		const struct gpu_address a = { .bus = (uint8_t)(16 * (i < 4 ? i : 3)) };
		struct gpu *v = gpu_add(g, GPU_NVIDIA, &a);

		v->index = (int)(i < 4 ? i : 3);
		v->mig = i > 2;
		v->gi = v->ci = v->mig ? (int)i : -1;
		snprintf(v->uuid, sizeof v->uuid, "%s", uuid[i]);
		snprintf(v->parent_uuid, sizeof v->parent_uuid, "%s",
			 v->mig ? "GPU-cccc" : "");
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = xstrndup((const char *)data, size);
	struct cpuset cpus = cpuset_new(4);
	struct gpus g = { 0 };
	struct gpu_address a;
	size_t out[5], n;
	struct err e;

	add_gpus(&g);
	n = gpu_visible_list(out, &g, GPU_NVIDIA, text);
	for (size_t i = 0; i < n; i++)
		if (n > g.n || out[i] >= g.n)
			__builtin_trap();
	gpu_parse_address(&a, text);
	cpuset_parse(&cpus, text);
	if (!gpu_select(&g, (const char *const[]){ text }, 1, &e) && !g.n)
		__builtin_trap(); /* a word that is accepted names a GPU */
	gpu_free(&g);
	cpuset_free(&cpus);
	free(text);
	return 0;
}
