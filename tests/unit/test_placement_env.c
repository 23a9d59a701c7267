/* env.h: layers and berths in, the environment of a rank out. */
#include <check.h>

#include "agent/placement/env.h"
#include "common/wire.h"

/* ---- a job of 8 ranks on 2 hosts; this host is the second, with 4 of them ---- */

static struct gpu gpu[4];
static struct gpus gpus;
static struct berth berth[4];
static struct placement placement;
static uint64_t word[4];

static struct env_list list(const char *const *v)
{
	size_t n = 0;

	while (v && v[n])
		n++;
	return (struct env_list){ v, n };
}

static bool only_tmp(const char *path)
{
	return !strcmp(path, "/tmp");
}

/* NGPU GPUs (PCI order is not index order of the list: reversed), NRANK ranks. */
static struct env_rank make(size_t ngpu, size_t nrank, enum gpu_visible visible)
{
	for (size_t i = 0; i < ngpu; i++) {
		gpu[i] = (struct gpu){ .vendor = GPU_NVIDIA, .index = (int)i };
		snprintf(gpu[i].pci, sizeof gpu[i].pci, "0000:%zu0:00.0", i + 1);
		snprintf(gpu[i].uuid, sizeof gpu[i].uuid, "GPU-%zu", i);
	}
	for (size_t i = 0; i < nrank; i++) {
		word[i] = 3ull << 2 * i;
		berth[i] = (struct berth){ .gpu = ngpu ? (int)((nrank - 1 - i) % ngpu)
						       : -1,
					   .cpus = { &word[i], 1 },
					   .ncores = 2,
					   .numa = "0" };
	}
	gpus = (struct gpus){ .v = gpu, .n = ngpu };
	placement = (struct placement){ .v = berth, .n = nrank };
	return (struct env_rank){ .gpus = &gpus,
				  .placement = &placement,
				  .gpu_visible = visible,
				  .size = 8,
				  .local_size = (uint32_t)nrank,
				  .node = 1,
				  .nodes = 2,
				  .cross_rank = 1,
				  .cross_size = 2,
				  .master_port = 20001,
				  .master_addr = "10.0.0.1",
				  .host = "n2",
				  .job_id = "c0ffee",
				  .wdir = "/work",
				  .dir_exists = only_tmp };
}

/* ---- asking ---- */

static char *own_none[] = { NULL };
static struct env_base base;
static char **env;

static void build(struct env_rank *r, uint32_t local, char *const *own)
{
	free(env);
	env_base_free(&base);
	r->local_rank = local;
	r->rank = 4 + local;
	env_base(&base, r, own);
	env = env_build(&base, r);
}

/* The value of NAME, "(unset)"; a name that is there twice is an error. */
static const char *get(const char *name)
{
	const char *found = "(unset)";
	size_t len = strlen(name), n = 0;

	for (char **p = env; *p; p++)
		if (!strncmp(*p, name, len) && (*p)[len] == '=') {
			found = *p + len + 1;
			n++;
		}
	ck_assert_msg(n <= 1, "%s is there %zu times", name, n);
	return found;
}

static const struct {
	const char *name, *value;
} third[] = { /* local rank 2 */
	      { "RANK", "6" },
	      { "WORLD_SIZE", "8" },
	      { "LOCAL_RANK", "2" },
	      { "LOCAL_WORLD_SIZE", "4" },
	      { "NODE_RANK", "1" },
	      { "GROUP_RANK", "1" },
	      { "GROUP_WORLD_SIZE", "2" },
	      { "ROLE_RANK", "6" },
	      { "ROLE_WORLD_SIZE", "8" },
	      { "ROLE_NAME", "default" },
	      { "MASTER_ADDR", "10.0.0.1" },
	      { "MASTER_PORT", "20001" },
	      { "TORCHELASTIC_RUN_ID", "c0ffee" },
	      { "TORCHELASTIC_RESTART_COUNT", "0" },
	      { "TORCHELASTIC_MAX_RESTARTS", "0" },
	      { "TORCHELASTIC_USE_AGENT_STORE", "(unset)" },
	      { "TORCHELASTIC_ERROR_FILE", "(unset)" },
	      { "NCCL_DEBUG_FILE", "(unset)" },
	      { "HOROVOD_RANK", "6" },
	      { "HOROVOD_SIZE", "8" },
	      { "HOROVOD_LOCAL_RANK", "2" },
	      { "HOROVOD_LOCAL_SIZE", "4" },
	      { "HOROVOD_CROSS_RANK", "1" },
	      { "HOROVOD_CROSS_SIZE", "2" },
	      { "HOROVOD_HOSTNAME", "n2" },
	      { "OMPI_COMM_WORLD_RANK", "6" },
	      { "OMPI_COMM_WORLD_SIZE", "8" },
	      { "OMPI_COMM_WORLD_LOCAL_RANK", "2" },
	      { "OMPI_COMM_WORLD_LOCAL_SIZE", "4" },
	      { "OMPI_COMM_WORLD_NODE_RANK", "2" },
	      { "OMPI_MCA_orte_hnp_uri", "" },
	      { "JAX_COORDINATOR_ADDRESS", "10.0.0.1:20001" },
	      { "JAX_LOCAL_DEVICE_IDS", "0" },
	      { "KERAS_DISTRIBUTION_JOB_ADDRESSES", "10.0.0.1:20001" },
	      { "KERAS_DISTRIBUTION_NUM_PROCESSES", "8" },
	      { "KERAS_DISTRIBUTION_PROCESS_ID", "6" },
	      { "TF_CONFIG", "(unset)" },
	      { "MPI_LOCALRANKID", "2" },
	      { "MPI_LOCALNRANKS", "4" },
	      { "SLURM_PROCID", "(unset)" },
	      { "PMI_RANK", "(unset)" },
	      { "CUDA_DEVICE_ORDER", "PCI_BUS_ID" },
	      { "CUDA_VISIBLE_DEVICES", "1" },
	      { "ROCR_VISIBLE_DEVICES", "(unset)" },
	      { "BERTH_JOB", "c0ffee" },
	      { "BERTH_RANK", "6" },
	      { "BERTH_SIZE", "8" },
	      { "BERTH_LOCAL_RANK", "2" },
	      { "BERTH_LOCAL_SIZE", "4" },
	      { "BERTH_NODE_RANK", "1" },
	      { "BERTH_NODES", "2" },
	      { "BERTH_GPU", "0000:20:00.0" },
	      { "BERTH_GPU_UUID", "GPU-1" },
	      { "BERTH_CPUS", "4-5" },
	      { "BERTH_NUMA", "0" },
	      { "BERTH_VERSION", BERTH_VERSION },
	      { "PWD", "/work" },
	      { "PYTHONFAULTHANDLER", "1" },
	      { "PYTHONUNBUFFERED", "1" },
	      { "OMP_NUM_THREADS", "2" },
	      { "NCCL_DEBUG", "WARN" },
	      { "TF_NUM_INTRAOP_THREADS", "2" },
	      { "TF_NUM_INTEROP_THREADS", "2" },
	      { "TF_GPU_THREAD_MODE", "gpu_private" },
	      { "TF_GPU_THREAD_COUNT", "2" },
	      { "OMP_PROC_BIND", "(unset)" },
	      { "OMP_PLACES", "(unset)" }
};

START_TEST(every_variable)
{
	struct env_rank r = make(4, 4, VISIBLE_ONE);

	build(&r, 2, own_none);
	ck_assert_str_eq(get(third[_i].name), third[_i].value);
}
END_TEST

START_TEST(restarts_and_threads)
{
	struct env_rank r = make(0, 2, VISIBLE_ONE);

	r.restarts = 2;
	berth[0].ncores = 64;
	berth[1].ncores = 0;
	build(&r, 0, own_none);
	ck_assert_str_eq(get("TORCHELASTIC_RESTART_COUNT"), "2");
	ck_assert_str_eq(get("OMP_NUM_THREADS"), "8");
	ck_assert_str_eq(get("TF_NUM_INTRAOP_THREADS"), "64");
	build(&r, 1, own_none);
	ck_assert_str_eq(get("OMP_NUM_THREADS"), "1");
	ck_assert_str_eq(get("TF_NUM_INTEROP_THREADS"), "1");
}
END_TEST

/* ---- who wins ---- */

static const struct {
	const char *name, *own, *forwarded, *given, *value; /* NULL: not there */
} layers[] = {
	{ "HOME", "/h", NULL, NULL, "/h" },
	{ "HOME", "/h", "/f", NULL, "/f" },
	{ "HOME", "/h", "/f", "/x", "/x" },
	{ "EMPTY", "o", "", NULL, "" },
	/* identity: the table, always */
	{ "RANK", "1", "2", "3", "4" },
	{ "BERTH_JOB", "1", "2", "3", "c0ffee" },
	{ "HOROVOD_RANK", NULL, NULL, "3", "4" },
	/* the table, but -x over it */
	{ "MASTER_ADDR", "o", "f", NULL, "10.0.0.1" },
	{ "MASTER_ADDR", "o", "f", "x", "x" },
	{ "CUDA_VISIBLE_DEVICES", "7", "6", NULL, "0" },
	{ "CUDA_VISIBLE_DEVICES", "7", "6", "5", "5" },
	{ "TORCHELASTIC_USE_AGENT_STORE", "True", "True", NULL, "(unset)" },
	{ "TORCHELASTIC_USE_AGENT_STORE", NULL, NULL, "True", "True" },
	{ "PWD", "/o", "/f", NULL, "/work" },
	/* only where nobody else sets it */
	{ "NCCL_DEBUG", "INFO", NULL, NULL, "INFO" },
	{ "NCCL_DEBUG", "INFO", "TRACE", NULL, "TRACE" },
	{ "OMPI_MCA_orte_hnp_uri", "1", NULL, NULL, "" }, /* of another launcher */
	{ "JAX_COORDINATOR_ADDRESS", NULL, "a:1", NULL, "a:1" },
	{ "TF_CONFIG", "{}", NULL, NULL, "{}" },
	{ "OMP_NUM_THREADS", NULL, "1", NULL, "1" },
	{ "OMP_NUM_THREADS", NULL, NULL, "7", "7" },
	{ "PYTHONUNBUFFERED", NULL, "", NULL, "" },
	/* another launcher's task */
	{ "PMI_RANK", "1", NULL, NULL, "(unset)" },
	{ "PMIX_NAMESPACE", "1", NULL, NULL, "(unset)" },
	{ "SLURM_PROCID", "1", NULL, NULL, "(unset)" },
	{ "SLURM_STEP_ID", "1", NULL, NULL, "(unset)" },
	{ "SLURM_STEPID", "1", NULL, NULL, "(unset)" },
	{ "SLURM_CPU_BIND_TYPE", "1", NULL, NULL, "(unset)" },
	{ "SLURM_JOB_ID", "1", NULL, NULL, "1" },
	{ "OMPI_COMM_WORLD_UNIVERSE", "1", NULL, NULL, "(unset)" },
	{ "OMPI_MCA_ess", "1", NULL, NULL, "(unset)" },
	{ "OMPI_MCA_btl", "1", NULL, NULL, "1" },
	{ "BERTH_HOSTS", "1", NULL, NULL, "(unset)" },
	{ "BERTH_HOSTS", NULL, NULL, "1", "1" },
	/* a folder that is here, and one that is not */
	{ "TMPDIR", NULL, "/tmp", NULL, "/tmp" },
	{ "TMPDIR", "/tmp", "/scratch/9", NULL, "/tmp" },
	{ "TMPDIR", NULL, "/scratch/9", NULL, "(unset)" },
	{ "TMPDIR", NULL, NULL, "/scratch/9", "/scratch/9" },
	/* names that begin alike */
	{ "RANKS", "1", NULL, NULL, "1" },
	{ "PATH", "/a", "/b", NULL, "/b" },
};

static const char *entry(char *out, size_t size, const char *name, const char *value)
{
	snprintf(out, size, "%s=%s", name, value ? value : "");
	return value ? out : NULL;
}

START_TEST(who_wins)
{
	struct env_rank r = make(2, 2, VISIBLE_ONE);
	char own[64], forwarded[64], given[64];
	const char *name = layers[_i].name;
	char *own_list[] = { own, NULL };
	const char *forwarded_list[] = { forwarded, NULL },
		   *given_list[] = { given, NULL };

	berth[0].gpu = 0;
	if (!entry(own, sizeof own, name, layers[_i].own))
		own_list[0] = NULL;
	forwarded_list[0] =
		entry(forwarded, sizeof forwarded, name, layers[_i].forwarded);
	given_list[0] = entry(given, sizeof given, name, layers[_i].given);
	r.forwarded = list(forwarded_list);
	r.given = list(given_list);
	build(&r, 0, own_list);
	ck_assert_str_eq(get(name), layers[_i].value);
}
END_TEST

/* JAX meets where -x says that ranks meet. */
START_TEST(where_jax_meets)
{
	struct env_rank r = make(0, 2, VISIBLE_ONE);
	static const char *const given[] = { "MASTER_ADDR=fd00::2", NULL },
				 *const both[] = { "MASTER_PORT=7", "MASTER_ADDR=a",
						   NULL };

	r.master_addr = "fd00::1";
	build(&r, 1, own_none);
	ck_assert_str_eq(get("JAX_COORDINATOR_ADDRESS"), "[fd00::1]:20001");
	r.given = list(given);
	build(&r, 1, own_none);
	ck_assert_str_eq(get("JAX_COORDINATOR_ADDRESS"), "[fd00::2]:20001");
	r.given = list(both);
	build(&r, 1, own_none);
	ck_assert_str_eq(get("KERAS_DISTRIBUTION_JOB_ADDRESSES"), "a:7");
	r = make(0, 2, VISIBLE_ONE); /* a job that has no master */
	r.master_addr = "";
	build(&r, 1, own_none);
	ck_assert_str_eq(get("JAX_COORDINATOR_ADDRESS"), "(unset)");
}
END_TEST

START_TEST(tf_config)
{
	struct env_rank r = make(0, 2, VISIBLE_ONE), later = r;
	static const char *const given[] = { "TF_CONFIG=mine", NULL };
	struct str text = { 0 };

	/* the ranks' addresses come after the app's environment was made */
	later.tf.cluster = "";
	later.tf.role = "";
	env_base_free(&base);
	env_base(&base, &later, own_none);
	r.tf.cluster = "{\"worker\":[\"a:1\",\"b:2\"]}";
	r.tf.role = "worker";
	r.tf.task = 1;
	free(env);
	env = env_build(&base, &r);
	env_add_tf_config(&text, &r.tf);
	ck_assert_str_eq(str_text(&text),
			 "{\"cluster\":{\"worker\":[\"a:1\",\"b:2\"]},"
			 "\"task\":{\"type\":\"worker\",\"index\":1}}");
	ck_assert_str_eq(get("TF_CONFIG"), str_text(&text));
	str_free(&text);
	r.tf.role = "none";
	free(env);
	env = env_build(&base, &r);
	ck_assert_str_eq(get("TF_CONFIG"), "(unset)");
	r.tf.role = "worker";
	r.given = list(given);
	build(&r, 1, own_none);
	ck_assert_str_eq(get("TF_CONFIG"), "mine");
}
END_TEST

/* --nccl-transports; what the user says of the level says all. */
START_TEST(log_of_nccl)
{
	static const char *const level[] = { "NCCL_DEBUG=TRACE", NULL },
				 *const file[] = { "NCCL_DEBUG_FILE=/f",
						   "NCCL_DEBUG_SUBSYS=ALL", NULL };
	struct env_rank r = make(0, 2, VISIBLE_ONE), later = r;

	build(&r, 1, own_none);
	ck_assert_str_eq(get("NCCL_DEBUG"), "WARN");
	ck_assert_str_eq(get("NCCL_DEBUG_SUBSYS"), "(unset)");
	later.paths.nccl_log = "";
	env_base_free(&base);
	env_base(&base, &later, own_none);
	r.paths.nccl_log = "/proc/9/fd/600";
	free(env);
	env = env_build(&base, &r);
	ck_assert_str_eq(get("NCCL_DEBUG"), "INFO");
	ck_assert_str_eq(get("NCCL_DEBUG_SUBSYS"), "INIT");
	ck_assert_str_eq(get("NCCL_DEBUG_FILE"), "/proc/9/fd/600");
	r.paths.nccl_log = "-"; /* there is no pipe */
	free(env);
	env = env_build(&base, &r);
	ck_assert_str_eq(get("NCCL_DEBUG"), "INFO");
	ck_assert_str_eq(get("NCCL_DEBUG_FILE"), "(unset)");
	r.paths.nccl_log = "/proc/9/fd/600";
	r.forwarded = list(file);
	build(&r, 1, own_none);
	ck_assert_str_eq(get("NCCL_DEBUG"), "INFO");
	ck_assert_str_eq(get("NCCL_DEBUG_SUBSYS"), "ALL");
	ck_assert_str_eq(get("NCCL_DEBUG_FILE"), "/f");
	r.forwarded = list(level);
	build(&r, 1, own_none);
	ck_assert_str_eq(get("NCCL_DEBUG"), "TRACE");
	ck_assert_str_eq(get("NCCL_DEBUG_SUBSYS"), "(unset)");
	ck_assert_str_eq(get("NCCL_DEBUG_FILE"), "(unset)");
}
END_TEST

START_TEST(package_of_python)
{
	struct env_rank r = make(0, 2, VISIBLE_ONE);
	static const char *const forwarded[] = { "PYTHONPATH=/f", NULL },
				 *const given[] = { "PYTHONPATH=/x:/y", NULL },
				 *const empty[] = { "PYTHONPATH=", "BERTH_LIBRARY=/own",
						    NULL };
	char *own[] = { "PYTHONPATH=/o", NULL };

	build(&r, 1, own); /* without --horovod it is any variable */
	ck_assert_str_eq(get("PYTHONPATH"), "/o");
	ck_assert_str_eq(get("BERTH_LIBRARY"), "(unset)");
	r.python = "/p";
	r.horovod = "/p/h";
	r.library = "/l.so";
	build(&r, 1, own_none);
	ck_assert_str_eq(get("PYTHONPATH"), "/p/h:/p");
	ck_assert_str_eq(get("BERTH_LIBRARY"), "/l.so");
	build(&r, 1, own);
	ck_assert_str_eq(get("PYTHONPATH"), "/p/h:/p:/o");
	r.forwarded = list(forwarded);
	build(&r, 1, own);
	ck_assert_str_eq(get("PYTHONPATH"), "/p/h:/p:/f");
	r.given = list(given);
	build(&r, 1, own);
	ck_assert_str_eq(get("PYTHONPATH"), "/p/h:/p:/x:/y");
	r.given = list(empty);
	build(&r, 1, own);
	ck_assert_str_eq(get("PYTHONPATH"), "/p/h:/p");
	ck_assert_str_eq(get("BERTH_LIBRARY"), "/own");
	r.folder = "/run";
	build(&r, 1, own);
	ck_assert_str_eq(get("PYTHONPATH"), "/p/h:/p:/run");
	r.python = NULL;
	r.given = list(given);
	build(&r, 1, own);
	ck_assert_str_eq(get("PYTHONPATH"), "/run:/x:/y");
}
END_TEST

START_TEST(odd_entries)
{
	struct env_rank r = make(0, 1, VISIBLE_ONE);
	char *own[] = { "=no name", "no value", "A=1", "A=2", "A==3", "B=", NULL };

	build(&r, 0, own);
	ck_assert_str_eq(get("A"), "=3"); /* the later one */
	ck_assert_str_eq(get("B"), "");
	ck_assert_str_eq(get("no value"), "(unset)");
	ck_assert_str_eq(env_get(&base, "A"), "=3");
	ck_assert_ptr_null(env_get(&base, "C"));
}
END_TEST

START_TEST(own_few)
{
	struct env_rank r = make(0, 1, VISIBLE_ONE);
	const char *const forwarded[] = { "A=f", NULL }, *const given[] = { "B=g",
									    NULL };
	char *own[] = { "PATH=/bin", "HOME=/h", "USER=u",       "LANG=C",
			"PATHS=x",   "HOM=x",   "NCCL_DEBUG=o", NULL };

	r.own_few = true;
	r.forwarded = list(forwarded);
	r.given = list(given);
	build(&r, 0, own);
	ck_assert_str_eq(get("PATH"), "/bin");
	ck_assert_str_eq(get("HOME"), "/h");
	ck_assert_str_eq(get("USER"), "(unset)");
	ck_assert_str_eq(get("LANG"), "(unset)");
	ck_assert_str_eq(get("PATHS"), "(unset)");
	ck_assert_str_eq(get("HOM"), "(unset)");
	ck_assert_str_eq(get("NCCL_DEBUG"), "WARN");
	ck_assert_str_eq(get("A"), "f");
	ck_assert_str_eq(get("B"), "g");
	ck_assert_str_eq(get("RANK"), "4");
}
END_TEST

START_TEST(inside_slurm)
{
	struct env_rank r = make(0, 4, VISIBLE_ONE);
	const char *const forwarded[] = { "SLURM_JOB_ID=77", NULL };
	char *own[] = { "SLURM_PROCID=0", "SLURM_NTASKS=1", NULL };

	r.forwarded = list(forwarded);
	build(&r, 3, own);
	ck_assert_str_eq(get("SLURM_PROCID"),
			 "(unset)"); /* not in a job of runner's own */
	r.managed = true;
	build(&r, 3, own);
	ck_assert_str_eq(get("SLURM_PROCID"), "7");
	ck_assert_str_eq(get("SLURM_LOCALID"), "3");
	ck_assert_str_eq(get("SLURM_NODEID"), "1");
	ck_assert_str_eq(get("SLURM_NTASKS"), "8");
	ck_assert_str_eq(get("SLURM_NPROCS"), "8");
	ck_assert_str_eq(get("SLURM_JOB_ID"), "77");
}
END_TEST

/* ---- GPUs ---- */

static const struct {
	size_t gpus, ranks;
	enum gpu_visible mode;
	enum gpu_id id;
	bool mig;
	uint32_t local;
	const char *value;
} visible[] = { /* local rank i has GPU (ranks - 1 - i) % gpus */
		{ 4, 4, VISIBLE_ONE, GPU_ID_INDEX, false, 0, "3" },
		{ 4, 4, VISIBLE_ONE, GPU_ID_UUID, false, 0, "GPU-3" },
		{ 4, 4, VISIBLE_ONE, GPU_ID_INDEX, true, 1, "GPU-2" },
		{ 4, 4, VISIBLE_NODE, GPU_ID_INDEX, false, 0, "3,2,1,0" },
		{ 4, 4, VISIBLE_NODE, GPU_ID_INDEX, false, 3, "3,2,1,0" },
		{ 4, 2, VISIBLE_NODE, GPU_ID_INDEX, false, 1, "1,0,2,3" },
		{ 4, 2, VISIBLE_NODE, GPU_ID_UUID, false, 1,
		  "GPU-1,GPU-0,GPU-2,GPU-3" },
		{ 4, 4, VISIBLE_NODE, GPU_ID_INDEX, true, 0,
		  "GPU-3" }, /* one instance each */
		{ 2, 4, VISIBLE_ONE, GPU_ID_INDEX, false, 0, "1" },
		{ 2, 4, VISIBLE_ONE, GPU_ID_INDEX, false, 2, "1" },
		{ 4, 4, VISIBLE_INHERIT, GPU_ID_INDEX, false, 0, "" },
		{ 0, 4, VISIBLE_ONE, GPU_ID_INDEX, false, 0, "" },
		{ 0, 4, VISIBLE_NODE, GPU_ID_INDEX, false, 0, "" }
};

START_TEST(visible_devices)
{
	struct env_rank r = make(visible[_i].gpus, visible[_i].ranks, visible[_i].mode);
	struct str s = { 0 };

	r.gpu_id = visible[_i].id;
	for (size_t i = 0; i < 4; i++)
		gpu[i].mig = visible[_i].mig;
	r.local_rank = visible[_i].local;
	env_visible(&s, &r);
	ck_assert_str_eq(str_text(&s), visible[_i].value);
	build(&r, visible[_i].local, own_none);
	ck_assert_str_eq(get("CUDA_VISIBLE_DEVICES"),
			 *visible[_i].value ? visible[_i].value : "(unset)");
	ck_assert_str_eq(get("JAX_LOCAL_DEVICE_IDS"),
			 *visible[_i].value && !strchr(visible[_i].value, ',')
				 ? "0"
				 : "(unset)");
	str_free(&s);
}
END_TEST

/* No GPU, or --gpu-visible inherit: what the host says stays. */
START_TEST(inherited_devices)
{
	char *own[] = { "CUDA_VISIBLE_DEVICES=2", "CUDA_DEVICE_ORDER=FASTEST_FIRST",
			NULL };
	struct env_rank r = make(4, 4, VISIBLE_INHERIT);

	build(&r, 0, own);
	ck_assert_str_eq(get("CUDA_VISIBLE_DEVICES"), "2");
	ck_assert_str_eq(get("CUDA_DEVICE_ORDER"), "FASTEST_FIRST");
	r = make(0, 4, VISIBLE_ONE);
	build(&r, 0, own);
	ck_assert_str_eq(get("CUDA_VISIBLE_DEVICES"), "2");
	ck_assert_str_eq(get("BERTH_GPU"), "(unset)");
}
END_TEST

START_TEST(amd)
{
	char *own[] = { "CUDA_VISIBLE_DEVICES=2", "HIP_VISIBLE_DEVICES=3", NULL };
	struct env_rank r = make(4, 4, VISIBLE_ONE);

	for (size_t i = 0; i < 4; i++)
		gpu[i].vendor = GPU_AMD;
	build(&r, 0, own);
	ck_assert_str_eq(get("ROCR_VISIBLE_DEVICES"), "3");
	ck_assert_str_eq(get("CUDA_VISIBLE_DEVICES"), "(unset)");
	ck_assert_str_eq(get("HIP_VISIBLE_DEVICES"), "(unset)");
	ck_assert_str_eq(get("CUDA_DEVICE_ORDER"), "(unset)");
}
END_TEST

/* ---- what a warm process has before there are ranks ---- */

static bool is_own(const char *entry)
{
	for (const char *const *own = env_own_names(); *own; own++)
		if (!strncmp(entry, *own, strlen(*own)) && entry[strlen(*own)] == '=')
			return true;
	return false;
}

/* Of each two ranks and lives. */
START_TEST(common_to_all)
{
	static const char *const given[] = { "MINE=1", "PYTHONPATH=/x", NULL },
				 *const pmix[] = { "PMIX_RANK=5", NULL };
	struct env_rank r = make(4, 4, VISIBLE_ONE);
	char *own[] = { "HOME=/h", "RANK=9", NULL }, **first, **common;

	r.given = list(given);
	r.pmix = list(pmix);
	r.pmi_fd = 9;
	r.has_pmix = true;
	r.python = "/p";
	r.horovod = "/p/h";
	r.library = "/l.so";
	r.agent_socket = "@a";
	r.restarts = 0;
	r.max_restarts = 3;
	build(&r, 1, own);
	first = env_build_common(&base, &r);
	for (char **e = first; *e; e++) {
		ck_assert_msg(!is_own(*e), "%s", *e);
		ck_assert_str_ne(*e, "PMIX_RANK=5");
	}
	r.rank = 7;
	r.local_rank = 3;
	r.cross_rank = 0;
	r.restarts = 2;
	r.master_port = 20002;
	r.master_addr = "10.0.0.9";
	r.paths.shared_memory = "/dev/shm/of_this_life";
	r.agent_socket = "@b";
	common = env_build_common(&base, &r);
	for (size_t i = 0; first[i] || common[i]; i++)
		ck_assert_str_eq(first[i] ? first[i] : "", common[i] ? common[i] : "");
	/* what a rank has is either its own or common */
	free(env);
	env = env_build(&base, &r);
	for (char **e = env; *e; e++) {
		bool is_common = false;

		for (char **c = common; *c; c++)
			is_common |= !strcmp(*c, *e);
		ck_assert_msg(is_common != (is_own(*e) || !strncmp(*e, "PMIX_", 5)),
			      "%s", *e);
	}
	free(env);
	env = common;
	ck_assert_str_eq(get("BERTH_JOB"), "c0ffee");
	ck_assert_str_eq(get("PYTHONPATH"), "/p/h:/p:/x");
	ck_assert_str_eq(get("TORCHELASTIC_MAX_RESTARTS"), "3");
	ck_assert_str_eq(get("PYTHONUNBUFFERED"), "1");
	ck_assert_str_eq(get("MINE"), "1");
	ck_assert_str_eq(get("HOME"), "/h");
	free(first);
}
END_TEST

START_TEST(own_names)
{
	static const char *const own[] = {
		"RANK=",        "MASTER_PORT=",
		"MASTER_ADDR=", "CUDA_VISIBLE_DEVICES=",
		"BERTH_AGENT=", "TORCHELASTIC_RESTART_COUNT=",
		"BERTH_CPUS="
	};
	static const char *const common[] = { "BERTH_JOB=", "PYTHONPATH=", "PWD=",
					      "BERTH_VERSION=", "OMP_NUM_THREADS=" };

	for (size_t i = 0; i < sizeof own / sizeof *own; i++)
		ck_assert_msg(is_own(own[i]), "%s", own[i]);
	for (size_t i = 0; i < sizeof common / sizeof *common; i++)
		ck_assert_msg(!is_own(common[i]), "%s", common[i]);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("env");
	TCase *t = tcase_create("env");
	SRunner *r = srunner_create(s);
	int failed;

	tcase_add_loop_test(t, every_variable, 0, sizeof third / sizeof *third);
	tcase_add_test(t, restarts_and_threads);
	tcase_add_loop_test(t, who_wins, 0, sizeof layers / sizeof *layers);
	tcase_add_test(t, odd_entries);
	tcase_add_test(t, own_few);
	tcase_add_test(t, where_jax_meets);
	tcase_add_test(t, tf_config);
	tcase_add_test(t, log_of_nccl);
	tcase_add_test(t, package_of_python);
	tcase_add_test(t, inside_slurm);
	tcase_add_loop_test(t, visible_devices, 0, sizeof visible / sizeof *visible);
	tcase_add_test(t, inherited_devices);
	tcase_add_test(t, amd);
	tcase_add_test(t, common_to_all);
	tcase_add_test(t, own_names);
	suite_add_tcase(s, t);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	free(env);
	env_base_free(&base);
	return failed != 0;
}
