/* gpu.h, nvml.h, gpuwatch.h: device trees that tests/machines/mktree.py writes, a
 * stand-in for NVML (tests/helpers/libnvidia-ml.c), real processes and real sockets. */
#include <check.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/gpuwatch.h"
#include "agent/gpu_internal.h"

static char dir[] = "/tmp/test_gpu.XXXXXX"; /* of this run */

/* ---- helpers ---- */

static void run(char *const *argv)
{
	pid_t pid = fork();
	int status;

	ck_assert_int_ge(pid, 0);
	if (!pid) {
		execvp(argv[0], argv);
		_exit(127);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_msg(!status, "%s %s: status %d", argv[0], argv[1], status);
}

static char *new_folder(void)
{
	static int n;
	char *path = xasprintf("%s/%d.%d", dir, (int)getpid(), n++);

	ck_assert_int_eq(mkdir(path, 0755), 0);
	return path;
}

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
	run(argv.v);
	strv_free(&argv);
	free(copy);
	return folder;
}

/* What NVML shows; NULL: it can't start. */
static void set_nvml(const char *text)
{
	char *path = xasprintf("%s/nvml.%d", dir, (int)getpid());
	FILE *out = fopen(path, "w");

	ck_assert_ptr_nonnull(out);
	fputs(text ? text : "init 9\n", out);
	fclose(out);
	setenv("FAKE_NVML", path, 1);
	free(path);
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
	  "GPU 0000:20:00.0: sysfs says NUMANode#1, NVML NUMANode#0; NVML is "
	  "believed" },
	{ "nvidia,0000:10:00.0,minor=0" N1,
	  "gpu 0000:10:00.0 " A(0) "\ngpu 0000:20:00.0 " A(7) "\n",
	  { 0 },
	  "0 0000:10:00.0 Machine? " A(0) ";1 0000:20:00.0 NUMANode#1 " A(7),
	  "GPU 0000:20:00.0: the driver says " A(1) ", NVML " A(7) },
	{ "nvidia,0000:10:00.0,minor=0" N1 N2,
	  "gpu 0000:10:00.0 " A(0) "\nhidden\ngpu 0000:30:00.0 " A(2) "\n",
	  { 0 },
	  "0 0000:10:00.0 Machine? " A(0) ";1 0000:30:00.0 NUMANode#2 " A(2),
	  "GPU 0000:20:00.0 can be opened, but NVML doesn't list it" },
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
	  "NVML, which knows MIG instances" },
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
	struct err e = { 0 };
	struct str notes = { 0 };

	set_nvml(trees[_i].nvml);
	load(&t);
	from.root = root;
	ck_assert_int_eq(gpu_find(&g, &t, &from, &e), 0);
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
	struct err e = { 0 };

	set_nvml(NULL); /* NVML would leave a note */
	load(&t);
	ck_assert_int_eq(gpu_find(&g, &t, &(struct gpu_sources){ .root = root }, &e),
			 0);
	ck_assert_uint_eq(g.n, 3);
	ck_assert_uint_eq(g.notes.n, 0);
	gpu_free(&g);
	topo_free(&t);
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

/* GPUs 0 to 3; of 3 two instances are known instead. */
static void four_gpus(struct gpus *g)
{
	static const char *const uuid[] = { "GPU-aaaa1", "GPU-aaaa2", "GPU-bbbb",
					    "MIG-cccc1", "MIG-cccc2" };

	*g = (struct gpus){ 0 };
	for (int i = 0; i < 5; i++) {
		const struct gpu_address a = { .bus = (uint8_t)(i < 4 ? 16 * i : 48) };
		struct gpu *v = gpu_add(g, GPU_NVIDIA, &a);

		v->index = i < 3 ? i : 3;
		v->mig = i >= 3;
		v->gi = i >= 3 ? i - 2 : -1;
		v->ci = i >= 3 ? 0 : -1;
		snprintf(v->uuid, sizeof v->uuid, "%s", uuid[i]);
		if (v->mig)
			snprintf(v->parent_uuid, sizeof v->parent_uuid, "GPU-dddd");
	}
}

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
	{ "0, 1", "01", NULL },
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
	int rc;

	four_gpus(&g);
	for (size_t i = 0; i < g.n; i++)
		g.v[i].minor = (int)i;
	rc = gpu_select(&g, selections[_i].list, &e);
	ck_assert_msg(rc == (selections[_i].bad ? -1 : 0), "'%s'", selections[_i].list);
	if (rc) {
		want = xasprintf("--gpus: no GPU '%s' on this host",
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

/* ---- claims ---- */

/* A process of its own that claims GPU, says so, and stays. */
static pid_t rival(const struct gpus *g, size_t only)
{
	int up[2];
	char byte;
	pid_t pid;

	ck_assert_int_eq(pipe(up), 0);
	pid = fork();
	if (!pid) {
		struct gpus mine = { xcalloc(g->n, sizeof *mine.v), g->n, { 0 } };
		bool keep[8] = { 0 };

		memcpy(mine.v, g->v, g->n * sizeof *mine.v);
		keep[only] = true;
		gpu_claim(&mine);
		gpu_claim_keep(&mine, keep);
		byte = write(up[1], "x", 1) == 1;
		pause();
		_exit(byte);
	}
	ck_assert_int_eq(read(up[0], &byte, 1), 1);
	close(up[0]);
	close(up[1]);
	return pid;
}

static void end(pid_t pid)
{
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

START_TEST(claims_tell_of_each_other)
{
	bool keep[5] = { true, false, false, false, false };
	struct gpus g;
	char *want;
	pid_t pid;

	four_gpus(&g);
	/* a domain that no machine has, so that jobs on this one don't meet the test */
	for (size_t i = 0; i < g.n; i++) {
		snprintf(g.v[i].pci, sizeof g.v[i].pci, "test%d:%zu", (int)getpid(), i);
		if (g.v[i].mig)
			snprintf(g.v[i].uuid, sizeof g.v[i].uuid, "MIG-%d-%zu",
				 (int)getpid(), i);
	}
	pid = rival(&g, 1);
	gpu_claim(&g);
	want = xasprintf("pid %d (test_gpu) of uid %u", (int)pid, getuid());
	ck_assert_str_eq(g.v[4].holder, want); /* moved last */
	ck_assert_int_eq(g.v[4].index, 1);
	for (size_t i = 0; i < 4; i++) {
		ck_assert_str_eq(g.v[i].holder, "");
		ck_assert_int_gt(g.v[i].claim, 0);
		ck_assert_int_eq(fcntl(g.v[i].claim - 1, F_GETFD), FD_CLOEXEC);
	}
	gpu_claim_keep(&g, keep);
	ck_assert(g.v[0].claim && !g.v[1].claim && !g.v[2].claim && !g.v[3].claim);
	end(pid);
	gpu_claim(&g); /* gone with its holder */
	for (size_t i = 0; i < g.n; i++)
		ck_assert(g.v[i].claim && !*g.v[i].holder);
	gpu_free(&g);
	free(want);
}
END_TEST

/* ---- who is on which GPU ---- */

/* A child that stays, with DEVICE open if not NULL, and with a child of its own if
 * NESTED, whose pid is returned then. */
static pid_t start_rank(pid_t *main_pid, bool nested, const char *device)
{
	int up[2];
	pid_t pid;

	ck_assert_int_eq(pipe(up), 0);
	*main_pid = fork();
	if (!*main_pid) {
		setpgid(0, 0);
		if (nested && fork())
			while (true)
				pause();
		if (device && open(device, O_RDWR) < 0)
			_exit(1);
		pid = getpid();
		if (write(up[1], &pid, sizeof pid) != sizeof pid)
			_exit(1);
		while (true)
			pause();
	}
	ck_assert_int_eq(read(up[0], &pid, sizeof pid), sizeof pid);
	close(up[0]);
	close(up[1]);
	return pid;
}

static void end_group(pid_t pid)
{
	kill(-pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

/* Two ranks on two GPUs; P and Q stand for their working processes, N for one that is
 * not theirs. */
static const struct {
	const char *gpu0, *gpu1; /* letters of who computes there; digit: GB in use */
	const char *want;        /* warnings, ";" between */
} watches[] = {
	{ "", "", "" },
	{ "P", "Q", "" },
	{ "P", "", "" },
	{ "PN", "Q", "" },
	{ "Q", "P",
	  "rank 4 runs on GPU 1 (0000:10:00.0), which is rank 5's, not on its own, GPU "
	  "0 "
	  "(0000:00:00.0);rank 5 runs on GPU 0 (0000:00:00.0), which is rank 4's, not "
	  "on its "
	  "own, GPU 1 (0000:10:00.0)" },
	{ "PQ", "Q",
	  "rank 5 also holds memory on GPU 0 (0000:00:00.0), which is rank 4's; its "
	  "own is "
	  "GPU 1 (0000:10:00.0)" },
	{ "PQ", "",
	  "rank 5 runs on GPU 0 (0000:00:00.0), which is rank 4's, not on its own, GPU "
	  "1 "
	  "(0000:10:00.0)" },
	{ "N", "",
	  "cannot verify which GPU each rank uses: NVML shows no process of this job, "
	  "as is "
	  "usual in a container" },
	{ "2", "",
	  "cannot verify which GPU each rank uses: NVML shows no process of this job, "
	  "as is "
	  "usual in a container" },
};

static void add_processes(struct str *s, const char *who, pid_t p, pid_t q)
{
	for (; *who; who++) {
		if (*who == '2')
			str_addf(s, "used 2147483649\n");
		else
			str_addf(s, "process %d\n",
				 *who == 'P'   ? p
				 : *who == 'Q' ? q
					       : 1);
	}
}

START_TEST(use_is_compared_with_the_plan)
{
	struct gpuwatch_rank r[2] = { { .rank = 4, .gpu = 0 },
				      { .rank = 5, .gpu = 1 } };
	pid_t p = start_rank(&r[0].pid, false, NULL),
	      q = start_rank(&r[1].pid, true, NULL);
	struct strv warnings = { 0 };
	struct str s = { 0 }, got = { 0 };
	struct gpus g;
	int rc;

	four_gpus(&g);
	g.n = 2;
	str_addf(&s, "gpu 0000:00:00.0 GPU-a\n");
	add_processes(&s, watches[_i].gpu0, p, q);
	str_addf(&s, "gpu 0000:10:00.0 GPU-b\n");
	add_processes(&s, watches[_i].gpu1, p, q);
	set_nvml(str_text(&s));
	rc = gpuwatch_check(&warnings, &g, r, 2);
	for (size_t i = 0; i < warnings.n; i++)
		str_addf(&got, "%s%s", i ? ";" : "", warnings.v[i]);
	ck_assert_str_eq(str_text(&got), watches[_i].want);
	ck_assert_int_eq(rc, strncmp(watches[_i].want, "cannot", 6) ? 0 : -1);
	end_group(r[0].pid);
	end_group(r[1].pid);
	strv_free(&warnings);
	str_free(&s);
	str_free(&got);
	gpu_free(&g);
}
END_TEST

START_TEST(use_without_nvml)
{
	struct gpuwatch_rank r = { .rank = 0, .gpu = 0, .pid = getpid() };
	struct strv warnings = { 0 };
	struct gpus g;

	four_gpus(&g);
	set_nvml(NULL);
	ck_assert_int_eq(gpuwatch_check(&warnings, &g, &r, 1), -1);
	ck_assert_uint_eq(warnings.n, 1);
	ck_assert_str_eq(warnings.v[0], "cannot verify which GPU each rank uses: NVML: "
					"Driver Not Loaded");
	for (size_t i = 0; i < g.n; i++)
		g.v[i].vendor = GPU_AMD;
	ck_assert_int_eq(gpuwatch_check(&warnings, &g, &r, 1), 0);
	ck_assert_uint_eq(warnings.n, 1);
	strv_free(&warnings);
	gpu_free(&g);
}
END_TEST

START_TEST(instances_are_told_apart)
{
	struct gpuwatch_rank r[2] = { { .rank = 0, .gpu = 3 },
				      { .rank = 1, .gpu = 4 } };
	pid_t p = start_rank(&r[0].pid, false, NULL),
	      q = start_rank(&r[1].pid, true, NULL);
	struct strv warnings = { 0 };
	struct str s = { 0 };
	struct gpus g;

	four_gpus(&g);
	str_addf(&s, "gpu 0000:30:00.0 GPU-d\nprocess %d 1\nprocess %d 2\n", p, q);
	set_nvml(str_text(&s));
	ck_assert_int_eq(gpuwatch_check(&warnings, &g, r, 2), 0);
	ck_assert_uint_eq(warnings.n, 0);
	str_addf(&s, "process %d 1\n", q);
	set_nvml(str_text(&s));
	ck_assert_int_eq(gpuwatch_check(&warnings, &g, r, 2), 0);
	ck_assert_uint_eq(warnings.n, 1);
	ck_assert_str_eq(warnings.v[0],
			 "rank 1 also holds memory on GPU 3 (MIG-cccc1), "
			 "which is rank 0's; its own is GPU 3 (MIG-cccc2)");
	end_group(r[0].pid);
	end_group(r[1].pid);
	strv_free(&warnings);
	str_free(&s);
	gpu_free(&g);
}
END_TEST

static const struct {
	const char *device;
	bool nested, use;
} devices[] = {
	{ "nvidia0", false, true },    { "nvidia0", true, true },
	{ "nvidiactl", false, false }, { "nvidia-uvm", true, false },
	{ "kfd", false, true },        { "null", false, false },
};

START_TEST(first_use_is_seen)
{
	char *folder = new_folder();
	char *dev = xasprintf("%s/dev", folder), *file;
	struct gpuwatch_rank r[2] = { { .pid = getppid() }, { .rank = 1 } };

	ck_assert_int_eq(mkdir(dev, 0755), 0);
	file = xasprintf("%s/%s", dev, devices[_i].device);
	close(open(file, O_CREAT | O_RDWR, 0644));
	start_rank(&r[1].pid, devices[_i].nested, file);
	ck_assert_int_eq(gpuwatch_any_use(&r[1], 1), devices[_i].use);
	end_group(r[1].pid);
	ck_assert(!gpuwatch_any_use(&r[1], 1));
	free(file);
	free(dev);
	free(folder);
}
END_TEST

#define LEN(a) ((int)(sizeof(a) / sizeof *(a)))

/* dlopen() looks where LD_LIBRARY_PATH said when the program started: so it starts
 * again, with the stand-in's folder. */
static void use_stand_in(char **argv)
{
	const char *build = getenv("BUILD");
	char *from, *to, here[4096];

	if (getenv("FAKE_NVML"))
		return;
	if (!mkdtemp(dir) || !getcwd(here, sizeof here))
		exit(1);
	build = build ? build : "build";
	from = xasprintf("%s%s%s/helpers/libnvidia-ml.so", *build == '/' ? "" : here,
			 *build == '/' ? "" : "/", build);
	to = xasprintf("%s/libnvidia-ml.so.1", dir);
	if (access(from, R_OK) || symlink(from, to)) {
		fprintf(stderr, "no %s: make test-programs\n", from);
		exit(1);
	}
	setenv("LD_LIBRARY_PATH", dir, 1);
	setenv("FAKE_NVML", dir, 1);
	setenv("TEST_GPU_DIR", dir, 1);
	execv("/proc/self/exe", argv);
	exit(1);
}

static Suite *suite(void)
{
	Suite *s = suite_create("gpu");
	TCase *c = tcase_create("gpu");

	tcase_set_timeout(c, 30);
	tcase_add_loop_test(c, trees_are_read, 0, LEN(trees));
	tcase_add_test(c, driver_is_not_woken);
	tcase_add_loop_test(c, address_texts, 0, LEN(addresses));
	tcase_add_loop_test(c, presets_are_read_as_the_driver_does, 0, LEN(presets));
	tcase_add_loop_test(c, selections_by_any_name, 0, LEN(selections));
	tcase_add_test(c, claims_tell_of_each_other);
	tcase_add_loop_test(c, use_is_compared_with_the_plan, 0, LEN(watches));
	tcase_add_test(c, use_without_nvml);
	tcase_add_test(c, instances_are_told_apart);
	tcase_add_loop_test(c, first_use_is_seen, 0, LEN(devices));
	suite_add_tcase(s, c);
	return s;
}

int main(int argc, char **argv)
{
	char *remove[] = { "rm", "-rf", dir, NULL };
	SRunner *r;
	int failed;

	(void)argc;
	unsetenv("HWLOC_XMLFILE");
	use_stand_in(argv);
	snprintf(dir, sizeof dir, "%s", getenv("TEST_GPU_DIR"));
	r = srunner_create(suite());
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	run(remove);
	return failed ? 1 : 0;
}
