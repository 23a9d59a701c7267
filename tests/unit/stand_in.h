/* stand_in.h - for unit tests around GPUs: a folder, and a stand-in for NVML in it. */
#ifndef BERTH_TESTS_STAND_IN_H
#define BERTH_TESTS_STAND_IN_H

#include <check.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/placement/gpu.h"
#include "agent/placement/gpu_internal.h"

#define LEN(a) ((int)(sizeof(a) / sizeof *(a)))

static char dir[] = "/tmp/test_gpu.XXXXXX"; /* of this run */

/* Its status, as waitpid() has it. */
static int run(char *const *argv)
{
	pid_t pid = fork();
	int status = -1;

	if (!pid) {
		execvp(argv[0], argv);
		_exit(127);
	}
	waitpid(pid, &status, 0);
	return status;
}

__attribute__((unused)) static char *new_folder(void)
{
	static int n;
	char *path = xasprintf("%s/%d.%d", dir, (int)getpid(), n++);

	ck_assert_int_eq(mkdir(path, 0755), 0);
	return path;
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
	setenv("STAND_IN_DIR", dir, 1);
	execv("/proc/self/exe", argv);
	exit(1);
}

/* main: runs what MAKE makes. */
static int run_suite(Suite *(*make)(void), char **argv)
{
	char *remove[] = { "rm", "-rf", dir, NULL };
	SRunner *r;
	int failed;

	unsetenv("HWLOC_XMLFILE");
	use_stand_in(argv);
	snprintf(dir, sizeof dir, "%s", getenv("STAND_IN_DIR"));
	r = srunner_create(make());
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	run(remove);
	return failed ? 1 : 0;
}

#endif
