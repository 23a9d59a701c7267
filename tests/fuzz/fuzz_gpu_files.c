/* libFuzzer on the files of the GPU drivers: /proc/driver/nvidia, sysfs, KFD.  A part
 * of the input per file, in the order of the list below. */
#include "fuzz.h"

#include "agent/placement/gpu.h"
#include "agent/placement/gpu_internal.h"

static const char *const files[] = {
	"proc/driver/nvidia/gpus/0000:10:00.0/information",
	"proc/driver/nvidia/gpus/0000:2b:00.0/information",
	"sys/bus/pci/devices/0000:10:00.0/numa_node",
	"sys/bus/pci/devices/0000:10:00.0/local_cpulist",
	"sys/bus/pci/devices/0000:2b:00.0/numa_node",
	"sys/bus/pci/devices/0000:2b:00.0/local_cpulist",
	"sys/class/kfd/kfd/topology/nodes/0/gpu_id",
	"sys/class/kfd/kfd/topology/nodes/0/properties",
	"sys/class/kfd/kfd/topology/nodes/1/gpu_id",
	"sys/class/kfd/kfd/topology/nodes/1/properties",
	"sys/bus/pci/devices/0000:41:00.0/product_name",
};

/* Device files that exist whatever the input says. */
static void put_devices(void)
{
	static const char *const names[] = { "dev/nvidia0", "dev/nvidia1",
					     "dev/dri/renderD128",
					     "dev/dri/renderD129" };

	for (size_t i = 0; i < sizeof names / sizeof *names; i++)
		fuzz_put(names[i], "", 0);
}

static void load_machine(struct topo *t)
{
	static const char xml[] =
		"<topology version=\"2.0\"><object type=\"Machine\" os_index=\"0\" "
		"cpuset=\"0xf\" complete_cpuset=\"0xf\" allowed_cpuset=\"0xf\" "
		"nodeset=\"0x1\" complete_nodeset=\"0x1\" allowed_nodeset=\"0x1\">"
		"<object type=\"NUMANode\" os_index=\"0\" cpuset=\"0xf\" "
		"complete_cpuset=\"0xf\" nodeset=\"0x1\" complete_nodeset=\"0x1\"/>"
		"<object type=\"PU\" os_index=\"0\" cpuset=\"0x1\" "
		"complete_cpuset=\"0x1\" nodeset=\"0x1\" complete_nodeset=\"0x1\"/>"
		"<object type=\"PU\" os_index=\"1\" cpuset=\"0x2\" "
		"complete_cpuset=\"0x2\" nodeset=\"0x1\" complete_nodeset=\"0x1\"/>"
		"<object type=\"PU\" os_index=\"2\" cpuset=\"0x4\" "
		"complete_cpuset=\"0x4\" nodeset=\"0x1\" complete_nodeset=\"0x1\"/>"
		"<object type=\"PU\" os_index=\"3\" cpuset=\"0x8\" "
		"complete_cpuset=\"0x8\" nodeset=\"0x1\" complete_nodeset=\"0x1\"/>"
		"</object></topology>\n";
	struct err e = { 0 };

	if (topo_load(t, fuzz_file(xml, sizeof xml - 1), &e)) {
		fprintf(stderr, "%s\n", e.text);
		abort();
	}
}

static void check(const struct gpus *g, const struct topo *t)
{
	for (size_t i = 0; i < g->n; i++)
		if (g->v[i].home < 0 || g->v[i].home >= (int)t->nnode ||
		    g->v[i].index < 0 || g->v[i].minor < 0)
			abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct topo t;
	struct fuzz_input in = { data, size };
	struct gpu_sources from = { .root = fuzz_folder() };
	struct gpus g = { 0 };
	struct err e = { 0 };
	char *text;
	size_t n;

	if (!t.nnode) {
		load_machine(&t);
		put_devices();
	}
	for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
		text = fuzz_part(&in, &n);
		fuzz_put(files[i], text, n);
		free(text);
	}
	text = fuzz_part(&in, NULL);
	from.cuda_visible = *text ? text : NULL;
	gpu_find(&g, &t, &from);
	check(&g, &t);
	gpu_free(&g);
	free(text);
	return 0;
}
