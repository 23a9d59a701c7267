/* gpu.h, nvml.h: device trees that tests/machines/mktree.py writes, a stand-in for NVML
 * (tests/helpers/libnvidia-ml.c), lists of GPUs as users and drivers write them.
 * takes_s: 8 */
#include "tests/unit/stand_in.h"

/* A tree of devices; DEVICES are mktree.py's words, by blanks. */
static char *make_tree(const char *devices)
{
	char *folder = new_folder(), *copy = xstrdup(devices), *rest = copy, *word;
	struct strv argv = { 0 };

	strv_add(&argv, "python3");
	strv_add(&argv, "tests/machines/mktree.py");
	strv_add(&argv, folder);
	while ((word = strsep(&rest, " ")))
		if (*word)
			strv_add(&argv, word);
	ck_assert_int_eq(run(argv.v), 0);
	strv_free(&argv);
	free(copy);
	return folder;
}

static void load(struct topo *t)
{
	struct err e = { 0 };

	setenv("HWLOC_SYNTHETIC", "pack:2 numa:2 core:4 pu:1", 1);
	ck_assert_int_eq(topo_load(t, NULL, &e), 0);
	unsetenv("HWLOC_SYNTHETIC");
}

/* ---- discovery ---- */

#define A(n) "GPU-aaaa000" #n "-0000-0000-0000-000000000000"
#define N0 " nvidia,0000:10:00.0,minor=0,uuid=" A(0) ",numa=0,cpus=0-3"
#define N1 " nvidia,0000:20:00.0,minor=1,uuid=" A(1) ",numa=1,cpus=4-7"
#define N2 " nvidia,0000:30:00.0,minor=2,uuid=" A(2) ",numa=2,cpus=8-11"
#define ALL N2 N0 N1

static const struct {
	const char *devices, *nvml;
	struct gpu_sources from;
	const char *want; /* "index pci home uuid", ";" between; "?": no locality */
	const char *note; /* in a note; NULL: there is none */
} trees[] = {
	{ "", NULL, { 0 }, "", NULL },
	{ ALL,
	  NULL,
	  { 0 },
	  "0 0000:10:00.0 NUMANode#0 " A(0) ";1 0000:20:00.0 NUMANode#1 " A(
		  1) ";2 0000:30:00.0 NUMANode#2 " A(2),
	  NULL },
	/* minors needn't follow the bus; another domain; a 3D controller or a display
	 */
	{ "nvidia,0001:10:00.0,minor=0,cpus=8-15,class=0x030000 "
	  "nvidia,0000:e0:00.0,minor=1,cpus=0-7",
	  NULL,
	  { 0 },
	  "0 0000:e0:00.0 Package#0 ;1 0001:10:00.0 Package#1 ",
	  NULL },
	/* a device cgroup or a container hides one: CUDA's numbers close up */
	{ N0 ",hidden" N1 N2,
	  NULL,
	  { 0 },
	  "0 0000:20:00.0 NUMANode#1 " A(1) ";1 0000:30:00.0 NUMANode#2 " A(2),
	  NULL },
	{ "nvidia,0000:10:00.0,minor=N/A" N1,
	  NULL,
	  { 0 },
	  "0 0000:20:00.0 NUMANode#1 " A(1),
	  "GPU 0000:10:00.0: the driver gives it no device file" },
	{ N0 ",asleep", NULL, { 0 }, "0 0000:10:00.0 NUMANode#0 ", NULL },
	{ N0 ",nodriver",
	  NULL,
	  { 0 },
	  "",
	  "GPU 0000:10:00.0: no NVIDIA driver has it, so no rank gets it" },
	/* consoles, switches, FPGAs */
	{ "vga,0000:01:00.0,vendor=0x1a03,device=0x2000 "
	  "vga,0000:02:00.0,vendor=0x1002,device=0x515e "
	  "vga,0000:03:00.0,vendor=0x10de,device=0x22a3,class=0x068000 "
	  "vga,0000:04:00.0,vendor=0x8086,device=0x0b2b,class=0x120000",
	  NULL,
	  { 0 },
	  "",
	  NULL },
	/* where it sits: by node alone; node and CPUs disagree; CPUs that aren't ours
	 */
	{ "nvidia,0000:10:00.0,numa=3",
	  NULL,
	  { 0 },
	  "0 0000:10:00.0 NUMANode#3 ",
	  NULL },
	{ "nvidia,0000:10:00.0,numa=3,cpus=0-3",
	  NULL,
	  { 0 },
	  "0 0000:10:00.0 NUMANode#0 ",
	  "sysfs says NUMA node 3, but CPUs 0-3" },
	{ "nvidia,0000:10:00.0,cpus=100-103",
	  NULL,
	  { 0 },
	  "0 0000:10:00.0 Machine ",
	  NULL },
	{ "nvidia,0000:10:00.0,cpus=all",
	  NULL,
	  { 0 },
	  "0 0000:10:00.0 Machine? ",
	  "its local_cpulist is 'all'" },
	/* no locality: NVML is asked, and knows, or doesn't, or can't start */
	{ "nvidia,0000:10:00.0,cpus=0-15",
	  "gpu 0000:10:00.0 " A(0) " f0\n",
	  { 0 },
	  "0 0000:10:00.0 NUMANode#1 " A(0),
	  NULL },
	{ "nvidia,0000:10:00.0,cpus=0-15",
	  "gpu 0000:10:00.0 " A(0) "\n",
	  { 0 },
	  "0 0000:10:00.0 Machine? " A(0),
	  NULL },
	{ "nvidia,0000:10:00.0",
	  NULL,
	  { 0 },
	  "0 0000:10:00.0 Machine? ",
	  "NVML: Driver Not Loaded" },
	/* sources that disagree, once NVML is asked */
	{ "nvidia,0000:10:00.0,minor=0" N1 N2,
	  "gpu 0000:10:00.0 " A(0) " f\ngpu 0000:20:00.0 " A(
		  1) " f\ngpu 0000:30:00.0 " A(2) "\n",
	  { 0 },
	  "0 0000:10:00.0 NUMANode#0 " A(0) ";1 0000:20:00.0 NUMANode#0 " A(
		  1) ";2 0000:30:00.0 NUMANode#2 " A(2),
	  "GPU 0000:20:00.0: sysfs says NUMANode#1, NVML NUMANode#0; Berth uses "
	  "NVML's" },
	{ "nvidia,0000:10:00.0,minor=0" N1,
	  "gpu 0000:10:00.0 " A(0) "\ngpu 0000:20:00.0 " A(7) "\n",
	  { 0 },
	  "0 0000:10:00.0 Machine? " A(0) ";1 0000:20:00.0 NUMANode#1 " A(7),
	  "GPU 0000:20:00.0: the driver says " A(1) ", NVML " A(7) },
	{ "nvidia,0000:10:00.0,minor=0" N1 N2,
	  "gpu 0000:10:00.0 " A(0) "\nhidden\ngpu 0000:30:00.0 " A(2) "\n",
	  { 0 },
	  "0 0000:10:00.0 Machine? " A(0) ";1 0000:30:00.0 NUMANode#2 " A(2),
	  "GPU 0000:20:00.0 can be opened, but NVML does not list it" },
	/* MIG: instances take their GPU's place */
	{ N0 ",mig=1/0+2/0" N1,
	  "gpu 0000:10:00.0 " A(0) "\nmig 2 0 MIG-bbbb\nmig 1 0 MIG-cccc\ngpu "
				   "0000:20:00.0 " A(1) "\n",
	  { 0 },
	  "0 0000:10:00.0 NUMANode#0 MIG-cccc;0 0000:10:00.0 NUMANode#0 MIG-bbbb;1 "
	  "0000:20:00.0 NUMANode#1 " A(1),
	  "2 MIG instances beside 1 whole GPUs" },
	{ N0 ",mig=1/0",
	  NULL,
	  { 0 },
	  "0 0000:10:00.0 NUMANode#0 " A(0),
	  "cannot ask NVML for MIG instances" },
	{ N0 ",mig=1/0",
	  "gpu 0000:10:00.0 " A(0) "\n",
	  { 0 },
	  "",
	  "GPU 0000:10:00.0 is cut into MIG instances, and NVML names none" },
	{ N0 ",mig=1/0+2/0",
	  "gpu 0000:10:00.0 " A(0) "\nmig 1 0 MIG-bbbb\nmig 2 0 MIG-cccc\n",
	  { .cuda_visible = "MIG-cc" },
	  "0 0000:10:00.0 NUMANode#0 MIG-cccc",
	  NULL },
	{ N0 ",mig=1/0+2/0",
	  "gpu 0000:10:00.0 " A(0) "\nmig 1 0 MIG-bbbb\nmig 2 0 MIG-cccc\n",
	  { .cuda_visible = "MIG-" A(0) "/2/0" },
	  "0 0000:10:00.0 NUMANode#0 MIG-cccc",
	  NULL },
	/* a preset list: filter and order; what it leaves keeps its index */
	{ ALL,
	  NULL,
	  { .cuda_visible = "2,0" },
	  "2 0000:30:00.0 NUMANode#2 " A(2) ";0 0000:10:00.0 NUMANode#0 " A(0),
	  NULL },
	{ ALL,
	  NULL,
	  { .cuda_visible = "GPU-aaaa0001" },
	  "1 0000:20:00.0 NUMANode#1 " A(1),
	  NULL },
	{ ALL,
	  NULL,
	  { .cuda_visible = "" },
	  "",
	  "CUDA_VISIBLE_DEVICES='' leaves none of this host's 3 GPUs" },
	{ N0 N1 ",model=NVIDIA-T4",
	  NULL,
	  { .cuda_visible = "1" },
	  "1 0000:20:00.0 NUMANode#1 " A(1),
	  "is read in PCI order: the models differ" },
	{ N0 N1 ",model=NVIDIA-T4",
	  NULL,
	  { .cuda_visible = "1", .cuda_order = "PCI_BUS_ID" },
	  "1 0000:20:00.0 NUMANode#1 " A(1),
	  NULL },
	/* AMD: KFD's order is ROCm's, whatever the bus says */
	{ "amd,0000:d0:00.0,render=129,id=8b1d,numa=3,cpus=12-15 "
	  "amd,0000:c0:00.0,render=128,id=77,numa=2,cpus=8-11",
	  NULL,
	  { 0 },
	  "1 0000:c0:00.0 NUMANode#2 GPU-0000000000000077;0 0000:d0:00.0 NUMANode#3 "
	  "GPU-0000000000008b1d",
	  NULL },
	{ "amd,0000:c0:00.0,render=128,numa=2,hidden "
	  "amd,0000:d0:00.0,render=129,numa=3",
	  NULL,
	  { .cuda_visible = "", .rocr_visible = "0" },
	  "0 0000:d0:00.0 NUMANode#3 ",
	  NULL },
	/* other tasks may open them */
	{ "amd,0000:c0:00.0,render=128,id=77,numa=2,hidden "
	  "nvidia,0000:10:00.0,minor=0,uuid=GPU-x,numa=0,hidden",
	  NULL,
	  { .closed_too = true },
	  "0 0000:10:00.0 NUMANode#0 GPU-x;0 0000:c0:00.0 NUMANode#2 "
	  "GPU-0000000000000077",
	  NULL },
	{ "amd,0000:c0:00.0,render=128,numa=2 amd,0000:d0:00.0,render=129,numa=3",
	  NULL,
	  { .rocr_visible = "1,0" },
	  "1 0000:d0:00.0 NUMANode#3 ;0 0000:c0:00.0 NUMANode#2 ",
	  NULL },
	/* partitions of one GPU are devices of their own */
	{ "amd,0000:c0:00.0,render=128,numa=2 amd,0000:c0:00.0,render=129,numa=2",
	  NULL,
	  { 0 },
	  "0 0000:c0:00.0 NUMANode#2 ;1 0000:c0:00.0 NUMANode#2 ",
	  NULL },
	{ "amd,0000:c0:00.0,render=128,numa=2,nokfd "
	  "amd,0000:d0:00.0,render=129,numa=3,nokfd,hidden",
	  NULL,
	  { 0 },
	  "0 0000:c0:00.0 NUMANode#2 ",
	  NULL },
	/* both makers */
	{ N0 " amd,0000:05:00.0,render=128,numa=2",
	  NULL,
	  { .cuda_visible = "0" },
	  "0 0000:10:00.0 NUMANode#0 " A(0) ";0 0000:05:00.0 NUMANode#2 ",
	  NULL },
};

static char *table_of(const struct gpus *g, const struct topo *t)
{
	struct str s = { 0 };

	for (size_t i = 0; i < g->n; i++)
		str_addf(&s, "%s%d %s %s%s %s", i ? ";" : "", g->v[i].index,
			 g->v[i].pci, t->node[g->v[i].home].name,
			 g->v[i].no_locality ? "?" : "", g->v[i].uuid);
	return str_take(&s);
}

START_TEST(trees_are_read)
{
	struct gpu_sources from = trees[_i].from;
	char *root = make_tree(trees[_i].devices), *got;
	struct topo t;
	struct gpus g;
	struct str notes = { 0 };

	set_nvml(trees[_i].nvml);
	load(&t);
	from.root = root;
	gpu_find(&g, &t, &from);
	got = table_of(&g, &t);
	ck_assert_msg(!strcmp(got, trees[_i].want), "%s:\n%s, not\n%s",
		      trees[_i].devices, got, trees[_i].want);
	for (size_t i = 0; i < g.notes.n; i++)
		str_addf(&notes, "%s\n", g.notes.v[i]);
	if (trees[_i].note)
		ck_assert_msg(strstr(str_text(&notes), trees[_i].note), "%s", notes.s);
	else
		ck_assert_str_eq(str_text(&notes), "");
	str_free(&notes);
	free(got);
	gpu_free(&g);
	topo_free(&t);
	free(root);
}
END_TEST

START_TEST(driver_is_not_woken)
{
	char *root = make_tree(ALL);
	struct topo t;
	struct gpus g;

	set_nvml(NULL); /* NVML would leave a note */
	load(&t);
	gpu_find(&g, &t, &(struct gpu_sources){ .root = root });
	ck_assert_uint_eq(g.n, 3);
	ck_assert_uint_eq(g.notes.n, 0);
	gpu_free(&g);
	topo_free(&t);
	free(root);
}
END_TEST

static const struct {
	const char *file, *text, *want; /* NULL: none */
} drivers[] = {
	{ "proc/driver/nvidia/version",
	  "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Thu Feb 22 "
	  "01:44:30 "
	  "UTC 2024\nGCC version:  gcc version 12.2.0\n",
	  "550.54.15" },
	{ "proc/driver/nvidia/version",
	  "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  535.104.05  "
	  "Release "
	  "Build  (root@x)\n",
	  "535.104.05" },
	{ "proc/driver/nvidia/version", "no number 12x.4 3\n", NULL },
	{ "sys/module/amdgpu/version", "6.3.6\n", "6.3.6" },
	{ "sys/module/other/version", "1.2\n", NULL },
};

START_TEST(versions_of_drivers)
{
	char *root = new_folder(), got[64] = "", *path;
	FILE *f;

	path = xasprintf("%s/%s", root, drivers[_i].file);
	for (char *p = path + strlen(root) + 1; (p = strchr(p, '/')); *p++ = '/') {
		*p = '\0';
		mkdir(path, 0700);
	}
	f = fopen(path, "we");
	ck_assert_ptr_nonnull(f);
	fputs(drivers[_i].text, f);
	fclose(f);
	ck_assert(gpu_driver(got, sizeof got, root) == (drivers[_i].want != NULL));
	ck_assert_str_eq(got, drivers[_i].want ? drivers[_i].want : "");
	free(path);
	free(root);
}
END_TEST

/* ---- addresses, lists ---- */

static const struct {
	const char *text, *want; /* NULL: not an address */
} addresses[] = {
	{ "0000:53:00.0", "0000:53:00.0" },
	{ "00000000:53:00.0", "0000:53:00.0" },
	{ "53:00.0", "0000:53:00.0" },
	{ "0000:AB:1f.7", "0000:ab:1f.7" },
	{ "10000:01:00.0", "10000:01:00.0" },
	{ "", NULL },
	{ "0", NULL },
	{ "53:00", NULL },
	{ "53:00.8", NULL },
	{ "53:20.0", NULL },
	{ "0000:53:00.0x", NULL },
	{ " 0000:53:00.0", NULL },
	{ "0000:153:00.0", NULL },
};

START_TEST(address_texts)
{
	struct gpu_address a;
	struct gpus g = { 0 };
	bool ok = gpu_parse_address(&a, addresses[_i].text);

	ck_assert_msg(ok == (addresses[_i].want != NULL), "%s", addresses[_i].text);
	if (ok)
		ck_assert_str_eq(gpu_add(&g, GPU_AMD, &a)->pci, addresses[_i].want);
	gpu_free(&g);
}
END_TEST

static const struct {
	const char *list, *want; /* positions */
} presets[] = {
	{ "", "" },
	{ "0", "0" },
	{ "0,1,2", "012" },
	{ "2,0", "20" },
	{ "3", "3" }, /* in MIG mode: its first instance */
	{ "-1", "" },
	{ "0,-1,1", "0" },
	{ "1,9,0", "1" },
	{ "1,1", "" },
	{ "0,1,0", "" },
	{ " 1, 2", "12" },
	{ "+1", "1" },
	{ "1gpu,2x", "12" },
	{ "01", "1" },
	{ "x,0", "" },
	{ "0,x,1", "0" },
	{ "0,,1", "0" },
	{ "0,", "0" },
	{ "99999999999999999999", "" },
	{ "NoDevFiles", "" },
	{ "GPU-bbbb", "2" },
	{ "GPU-b", "2" },
	{ "GPU-BBBB,GPU-aaaa1", "20" },
	{ "GPU-aaaa", "" }, /* two begin so */
	{ "GPU-bbbb,GPU-zzzz,GPU-aaaa1", "2" },
	{ "GPU-bbbb,GPU-bb", "" },
	{ "GPU-bbbb,0", "2" },
	{ "0,GPU-bbbb", "0" },
	{ "GPU-", "" },
	{ "GPU-bbbbb", "" },
	{ "MIG-cccc2", "4" },
	{ "MIG-cccc2,MIG-cccc1", "43" },
	{ "MIG-cccc", "" },
	{ "MIG-GPU-dddd/1/0", "3" },
	{ "MIG-GPU-dddd/2/0,MIG-cccc1", "43" },
	{ "MIG-GPU-dddd/3/0", "" },
	{ "MIG-GPU-eeee/1/0", "" },
	{ "MIG-GPU-dddd/1", "" },
};

START_TEST(presets_are_read_as_the_driver_does)
{
	size_t out[8];
	struct gpus g;
	struct str s = { 0 };
	size_t n;

	four_gpus(&g);
	n = gpu_visible_list(out, &g, GPU_NVIDIA, presets[_i].list);
	for (size_t i = 0; i < n; i++)
		str_addf(&s, "%zu", out[i]);
	ck_assert_msg(!strcmp(str_text(&s), presets[_i].want), "'%s': %s, not %s",
		      presets[_i].list, str_text(&s), presets[_i].want);
	ck_assert_uint_eq(gpu_visible_list(out, &g, GPU_AMD, presets[_i].list), 0);
	str_free(&s);
	gpu_free(&g);
}
END_TEST

static const struct {
	const char *list, *want, *bad; /* bad: the word that is refused */
} selections[] = {
	{ "0", "0", NULL },
	{ "2,0", "02", NULL },
	{ "0,0", "0", NULL },
	{ "0000:20:00.0", "2", NULL },
	{ "20:00.0,10:00.0", "12", NULL },
	{ "00000000:10:00.0", "1", NULL },
	{ "GPU-bb", "2", NULL },
	{ "gpu-BBBB", "2", NULL },
	{ "MIG-cccc2", "4", NULL },
	{ "3", "34", NULL },
	{ "7", NULL, "7" },
	{ "", NULL, "" },
	{ "0,", NULL, "" },
	{ "0,x", NULL, "x" },
	{ "GPU-", NULL, "GPU-" },
	{ "0-1", NULL, "0-1" },
	{ "0000:77:00.0", NULL, "0000:77:00.0" },
};

START_TEST(selections_by_any_name)
{
	struct gpus g;
	struct err e = { 0 };
	struct str s = { 0 };
	char *want;
	char *copy = xstrdup(selections[_i].list), *rest = copy;
	const char *words[3];
	size_t n = 0;
	int rc;

	four_gpus(&g);
	for (size_t i = 0; i < g.n; i++)
		g.v[i].minor = (int)i;
	while ((words[n] = strsep(&rest, ",")))
		n++;
	rc = gpu_select(&g, words, n, &e);
	free(copy);
	ck_assert_msg(rc == (selections[_i].bad ? -1 : 0), "'%s'", selections[_i].list);
	if (rc) {
		want = xasprintf("--gpus: there is no GPU '%s' on this host",
				 selections[_i].bad);
		ck_assert_int_eq(e.id, E_GPU_LIST);
		ck_assert_str_eq(e.text, want);
		ck_assert_str_eq(e.hint,
				 "its GPUs are 0 = 0000:00:00.0, 1 = 0000:10:00.0, 2 = "
				 "0000:20:00.0, 3 = MIG-cccc1, 3 = MIG-cccc2");
		ck_assert_uint_eq(g.n, 5);
		free(want);
	} else {
		for (size_t i = 0; i < g.n; i++)
			str_addf(&s, "%d", g.v[i].minor);
		ck_assert_str_eq(str_text(&s), selections[_i].want);
	}
	str_free(&s);
	gpu_free(&g);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("gpu");
	TCase *c = tcase_create("gpu");

	tcase_set_timeout(c, 60);
	tcase_add_loop_test(c, trees_are_read, 0, LEN(trees));
	tcase_add_test(c, driver_is_not_woken);
	tcase_add_loop_test(c, versions_of_drivers, 0, LEN(drivers));
	tcase_add_loop_test(c, address_texts, 0, LEN(addresses));
	tcase_add_loop_test(c, presets_are_read_as_the_driver_does, 0, LEN(presets));
	tcase_add_loop_test(c, selections_by_any_name, 0, LEN(selections));
	suite_add_tcase(s, c);
	return s;
}

int main(int argc, char **argv)
{
	(void)argc;
	return run_suite(suite, argv);
}
