/* gpu_claim.c, gpu_check.h: with real processes and sockets, a stand-in for NVML. */
#include "tests/unit/stand_in.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>

#include "agent/ranks/gpu_check.h"

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
		struct gpus mine = { .v = xcalloc(g->n, sizeof *mine.v), .n = g->n };
		bool keep[8] = { 0 };

		prctl(PR_SET_PDEATHSIG, SIGKILL);
		memcpy(mine.v, g->v, g->n * sizeof *mine.v);
		keep[only] = true;
		gpu_claim(&mine);
		gpu_claim_keep(&mine, keep);
		byte = write(up[1], "x", 1) == 1;
		pause();
		_exit(byte);
	}
	close(up[1]);
	ck_assert_int_eq(read(up[0], &byte, 1), 1);
	close(up[0]);
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
	char *want, program[32];
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
	sys_line(program, sizeof program, "", "/proc/self/comm");
	want = xasprintf("pid %d (%s) of uid %u", (int)pid, program, getuid());
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
		prctl(PR_SET_PDEATHSIG, SIGKILL); /* a test that fails ends nobody */
		if (nested && fork())
			while (true)
				pause();
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (device && open(device, O_RDWR) < 0)
			_exit(1);
		pid = getpid();
		if (write(up[1], &pid, sizeof pid) != sizeof pid)
			_exit(1);
		while (true)
			pause();
	}
	close(up[1]);
	ck_assert_int_eq(read(up[0], &pid, sizeof pid), sizeof pid);
	close(up[0]);
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

static int findings(struct strv *found, const struct gpus *g, struct berth *b,
		    struct rank *r, size_t n)
{
	const struct placement placement = { .v = b, .n = n };
	const struct ranks ranks = { .v = r, .n = n, .running = n };

	return gpu_check_findings(found, &(struct gpu_check){ .gpus = g,
							      .placement = &placement,
							      .ranks = &ranks });
}

START_TEST(use_is_compared_with_the_plan)
{
	struct rank r[2] = { { RANK_RUNNING, .rank = 4 }, { RANK_RUNNING, .rank = 5 } };
	struct berth b[2] = { { .gpu = 0 }, { .gpu = 1 } };
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
	rc = findings(&warnings, &g, b, r, 2);
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
	struct rank r = { RANK_RUNNING, .pid = getpid() };
	struct berth b = { .gpu = 0 };
	struct strv warnings = { 0 };
	struct gpus g;

	four_gpus(&g);
	set_nvml(NULL);
	ck_assert_int_eq(findings(&warnings, &g, &b, &r, 1), -1);
	ck_assert_uint_eq(warnings.n, 1);
	ck_assert_str_eq(warnings.v[0], "cannot verify which GPU each rank uses: NVML: "
					"Driver Not Loaded");
	for (size_t i = 0; i < g.n; i++)
		g.v[i].vendor = GPU_AMD;
	ck_assert_int_eq(findings(&warnings, &g, &b, &r, 1), 0);
	ck_assert_uint_eq(warnings.n, 1);
	strv_free(&warnings);
	gpu_free(&g);
}
END_TEST

START_TEST(instances_are_told_apart)
{
	struct rank r[2] = { { RANK_RUNNING, .rank = 0 }, { RANK_RUNNING, .rank = 1 } };
	struct berth b[2] = { { .gpu = 3 }, { .gpu = 4 } };
	pid_t p = start_rank(&r[0].pid, false, NULL),
	      q = start_rank(&r[1].pid, true, NULL);
	struct strv warnings = { 0 };
	struct str s = { 0 };
	struct gpus g;

	four_gpus(&g);
	str_addf(&s, "gpu 0000:30:00.0 GPU-d\nprocess %d 1\nprocess %d 2\n", p, q);
	set_nvml(str_text(&s));
	ck_assert_int_eq(findings(&warnings, &g, b, r, 2), 0);
	ck_assert_uint_eq(warnings.n, 0);
	str_addf(&s, "process %d 1\n", q);
	set_nvml(str_text(&s));
	ck_assert_int_eq(findings(&warnings, &g, b, r, 2), 0);
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
	pid_t pid;

	ck_assert_int_eq(mkdir(dev, 0755), 0);
	file = xasprintf("%s/%s", dev, devices[_i].device);
	close(open(file, O_CREAT | O_RDWR, 0644));
	start_rank(&pid, devices[_i].nested, file);
	ck_assert_int_eq(gpu_check_any_use(), devices[_i].use);
	end_group(pid);
	ck_assert(!gpu_check_any_use());
	free(file);
	free(dev);
	free(folder);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("gpu_check");
	TCase *c = tcase_create("gpu_check");

	tcase_set_timeout(c, 60);
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
	(void)argc;
	return run_suite(suite, argv);
}
