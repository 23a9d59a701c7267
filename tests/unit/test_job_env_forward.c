/* forward.h: which variables travel, -x, --env-file. */
#include <check.h>
#include <unistd.h>

#include "launcher/job/env_forward.h"

#define COUNT(a) ((int)(sizeof(a) / sizeof *(a)))

static const char *const options[] = { "BERTH_NP", "BERTH_HOSTS" };

/* A variable, whether it travels outside of a resource manager's job, and inside. */
static const struct {
	const char *name;
	bool alone, managed;
} variables[] = {
	{ "PATH", true, true },
	{ "LD_LIBRARY_PATH", true, true },
	{ "PYTHONPATH", true, true },
	{ "CONDA_PREFIX", true, true },
	{ "TERM", true, true },
	{ "TMPDIR", true, true },
	{ "LANG", true, true },
	{ "NCCL_DEBUG", true, true },
	{ "WANDB_API_KEY", true, true },
	{ "XDG_CACHE_HOME", true, true },
	{ "XDG_RUNTIME_DIR", false, false },
	{ "https_proxy", true, true },
	{ "OMPI_MCA_btl", true, true },
	{ "OMPI_MCA_orte_hnp_uri", false, false },
	{ "OMPI_MCA_ess_base_jobid", false, false },
	{ "OMPI_COMM_WORLD_RANK", false, false },
	{ "PMI_RANK", false, false },
	{ "PMIX_NAMESPACE", false, false },
	{ "RANK", false, false },
	{ "RANKS", true, true },
	{ "LOCAL_RANK", false, false },
	{ "WORLD_SIZE", false, false },
	{ "MASTER_ADDR", false, false },
	{ "TORCHELASTIC_USE_AGENT_STORE", false, false },
	{ "HOROVOD_RANK", false, false },
	{ "HOROVOD_FUSION_THRESHOLD", true, true },
	{ "HYDRA_FULL_ERROR", true, true },
	{ "CUDA_VISIBLE_DEVICES", false, false },
	{ "CUDA_LAUNCH_BLOCKING", true, true },
	{ "ROCR_VISIBLE_DEVICES", false, false },
	{ "SLURM_PROCID", false, false },
	{ "SLURM_NTASKS", false, false },
	{ "SLURM_STEP_ID", false, false },
	{ "SLURM_STEPID", false, false },
	{ "SLURM_CPU_BIND_LIST", false, false },
	{ "SLURM_JOB_ID", true, true },
	{ "SLURM_JOBID", true, true },
	{ "SLURM_ARRAY_TASK_ID", true, true },
	{ "SLURM_SUBMIT_DIR", true, true },
	{ "SLURM_TMPDIR", true, true },
	{ "SLURM_NNODES", false, true },
	{ "SLURM_CPUS_PER_TASK", false, true },
	{ "SLURMD_NODENAME", false, false },
	{ "PBS_JOBID", true, true },
	{ "PBS_TASKNUM", false, false },
	{ "BERTH_NP", false, false },
	{ "BERTH_HOSTS", false, false },
	{ "BERTH_FUSION_BYTES", true, true }, /* libberth's, not runner's */
	{ "BERTH_JOB", false, false },
	{ "HOME", false, false },
	{ "USER", false, false },
	{ "SHELL", false, false },
	{ "HOSTNAME", false, false },
	{ "PWD", false, false },
	{ "_", false, false },
	{ "DISPLAY", false, false },
	{ "SSH_AUTH_SOCK", false, false },
	{ "TMUX_PANE", false, false },
	{ "BASH_FUNC_module%%", false, false },
	{ "KRB5CCNAME", false, false },
	{ "DBUS_SESSION_BUS_ADDRESS", false, false },
	{ "LS_COLORS", false, false },
	{ "NOTIFY_SOCKET", false, false },
};

START_TEST(travels)
{
	char *entry = xasprintf("%s=some=value", variables[_i].name);
	char *own[] = { entry, NULL };

	for (int managed = 0; managed < 2; managed++) {
		bool want = managed ? variables[_i].managed : variables[_i].alone;
		struct strv out = { 0 };

		env_forward(&out, own, managed, options, 2);
		ck_assert_msg(out.n == want, "%s, managed %d", entry, managed);
		if (want)
			ck_assert_str_eq(out.v[0], entry);
		strv_free(&out);
	}
	free(entry);
}
END_TEST

START_TEST(odd_entries_stay)
{
	char *own[] = { "", "NOTHING", "=C:=x", "A=", "B=\n\xff", NULL };
	struct strv out = { 0 };

	env_forward(&out, own, false, NULL, 0);
	ck_assert_uint_eq(out.n, 2);
	ck_assert_str_eq(out.v[0], "A=");
	ck_assert_str_eq(out.v[1], "B=\n\xff");
	strv_free(&out);
}
END_TEST

/* ---- -x ---- */

static char *join(const struct strv *l)
{
	struct str s = { 0 };

	for (size_t i = 0; i < l->n; i++)
		str_addf(&s, "%s%s", i ? "|" : "", l->v[i]);
	return str_take(&s);
}

static const struct {
	const char *x, *want; /* want: the list, or the error */
	enum err_id id;
	const char *hint;
} exports[] = {
	{ "A", "A=1", 0, "" },
	{ "A=2", "A=2", 0, "" },
	{ "NEW=a=b", "NEW=a=b", 0, "" },
	{ "EMPTY=", "EMPTY=", 0, "" },
	{ "NCCL_*", "NCCL_X=1|NCCL_Y=2=3", 0, "" },
	{ "NONE*", "", 0, "" },
	{ "RANK", "RANK=7", 0, "" }, /* what is named travels */
	{ "SLURM_*", "SLURM_PROCID=3", 0, "" },
	{ "GONE", "", 0, "" },
	{ "", "-x '' has no name", E_EXPORT_NAME,
	  "write -x NAME, -x NAME=VALUE or -x 'PREFIX*'" },
	{ "=b", "-x '=<redacted, 1 byte>' has no name", E_EXPORT_NAME,
	  "write -x NAME, -x NAME=VALUE or -x 'PREFIX*'" },
};

START_TEST(export_words)
{
	static char *vars[] = { "A=1", "NCCL_X=1", "RANK=7", "NCCL_Y=2=3",
				"SLURM_PROCID=3" };
	struct strv own = { vars, 5 }, x = { 0 }, out = { 0 };
	struct err e = { 0 };
	char *text;

	strv_add(&x, exports[_i].x);
	ck_assert_int_eq(env_forward_export(&out, &x, &own, &e),
			 exports[_i].id ? -1 : 0);
	text = exports[_i].id ? xstrdup(e.text) : join(&out);
	ck_assert_str_eq(text, exports[_i].want);
	ck_assert_int_eq(e.id, exports[_i].id);
	ck_assert_str_eq(e.hint, exports[_i].hint);
	free(text);
	strv_free(&x);
	strv_free(&out);
}
END_TEST

static const struct {
	const char *env[4], *list, *left; /* list: or the error */
	enum err_id id;
} gpu_lists[] = {
	{ { "A=1" }, NULL, "A=1", 0 },
	{ { "CUDA_VISIBLE_DEVICES=2,3", "A=1" }, "2,3", "A=1", 0 },
	{ { "A=1", "HIP_VISIBLE_DEVICES=GPU-1" }, "GPU-1", "A=1", 0 },
	{ { "CUDA_VISIBLE_DEVICES=0", "ROCR_VISIBLE_DEVICES=0", "A=1" },
	  "0",
	  "A=1",
	  0 },
	{ { "CUDA_VISIBLE_DEVICES=" }, NULL, "CUDA_VISIBLE_DEVICES=", 0 },
	{ { "CUDA_VISIBLE_DEVICES=-1" }, NULL, "CUDA_VISIBLE_DEVICES=-1", 0 },
	{ { "CUDA_VISIBLE_DEVICES=NoDevFiles" },
	  NULL,
	  "CUDA_VISIBLE_DEVICES=NoDevFiles",
	  0 },
	{ { "CUDA_VISIBLE_DEVICES_=1" }, NULL, "CUDA_VISIBLE_DEVICES_=1", 0 },
	{ { "CUDA_VISIBLE_DEVICES=0", "ROCR_VISIBLE_DEVICES=1" },
	  "'ROCR_VISIBLE_DEVICES=1' for the ranks contradicts CUDA_VISIBLE_DEVICES",
	  NULL,
	  E_EXPORT_GPUS },
};

START_TEST(lists_of_gpus)
{
	struct strv env = { 0 };
	struct err e = { 0 };
	const char *name;
	char *list, *left;

	for (size_t i = 0; i < 4 && gpu_lists[_i].env[i]; i++)
		strv_add(&env, gpu_lists[_i].env[i]);
	ck_assert_int_eq(env_forward_gpus(&list, &name, &env, &e),
			 gpu_lists[_i].id ? -1 : 0);
	ck_assert_int_eq(e.id, gpu_lists[_i].id);
	ck_assert_pstr_eq(e.id ? e.text : list, gpu_lists[_i].list);
	left = join(&env);
	if (gpu_lists[_i].left)
		ck_assert_str_eq(left, gpu_lists[_i].left);
	free(left);
	free(list);
	strv_free(&env);
}
END_TEST

START_TEST(the_last_export_counts)
{
	struct strv x = { 0 }, own = { 0 }, out = { 0 };

	strv_add(&x, "A=1");
	strv_add(&x, "A=2");
	ck_assert(!env_forward_export(&out, &x, &own, NULL));
	ck_assert_uint_eq(out.n, 1);
	ck_assert_str_eq(out.v[0], "A=2");
	strv_free(&x);
	strv_free(&out);
}
END_TEST

/* ---- --env-file ---- */

static const struct {
	const char *file, *want;
	enum err_id id; /* then want is the error without "FILE:" */
} files[] = {
	{ "", "", 0 },
	{ "A=1\nB=2\n", "A=1|B=2", 0 },
	{ "# note\n\n  A=1  \r\n\texport B=x y\n", "A=1|B=x y", 0 },
	{ "export\tA=1", "A=1", 0 },
	{ "exported=1", "exported=1", 0 },
	{ "A=1\nA=2", "A=2", 0 },
	{ "A=\nB= \nC= # none", "A=|B=|C=", 0 },
	{ "A=1 # note\nB=a#b", "A=1|B=a#b", 0 },
	{ "A='x $y \"z\" '", "A=x $y \"z\" ", 0 },
	{ "A=\"x 'y' \\\"z\\\" \\$1 \\\\ \\n\"", "A=x 'y' \"z\" $1 \\ \\n", 0 },
	{ "A='it'\\''s'\"!\" ", "A=it's!", 0 },
	{ "A=a\\ b\\#", "A=a b#", 0 },
	{ "A=a\\  ", "A=a ", 0 },
	{ "A=a\\\\  ", "A=a\\", 0 },
	{ "A='x' # note", "A=x", 0 },
	{ "URL=http://h/?a=b&c=d", "URL=http://h/?a=b&c=d", 0 },
	{ "A", "1: not a line NAME=VALUE", E_ENV_FILE_LINE },
	{ "\nA = 1", "2: not a line NAME=VALUE", E_ENV_FILE_LINE },
	{ "A= 1", "1: not a line NAME=VALUE", E_ENV_FILE_LINE },
	{ "1A=1", "1: not a line NAME=VALUE", E_ENV_FILE_LINE },
	{ "=1", "1: not a line NAME=VALUE", E_ENV_FILE_LINE },
	{ "TOKEN: s3cret", "1: not a line NAME=VALUE", E_ENV_FILE_LINE },
	{ "A='x\n", "1: no closing ' for 'A'", E_ENV_FILE_QUOTE },
	{ "B=1\nA=x\"y\n", "2: no closing \" for 'A'", E_ENV_FILE_QUOTE },
	{ "A=$HOME/x",
	  "1: the value of 'A' has a '$' or '`', but nothing is expanded here",
	  E_ENV_FILE_DOLLAR },
	{ "A=\"`id`\"",
	  "1: the value of 'A' has a '$' or '`', but nothing is expanded here",
	  E_ENV_FILE_DOLLAR },
};

static void write_file(char *path, const void *bytes, size_t n)
{
	int fd = mkstemp(path);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(write(fd, bytes, n), (ssize_t)n);
	close(fd);
}

START_TEST(env_file)
{
	char path[] = "/tmp/env-XXXXXX", *text;
	struct strv out = { 0 };
	struct err e = { 0 };
	int rc;

	write_file(path, files[_i].file, strlen(files[_i].file));
	rc = env_forward_file(&out, path, &e);
	unlink(path);
	text = rc ? xstrdup(e.text + strlen(path) + 1) : join(&out);
	ck_assert_str_eq(text, files[_i].want);
	ck_assert_int_eq(e.id, files[_i].id);
	ck_assert_int_eq(rc, files[_i].id ? -1 : 0);
	free(text);
	strv_free(&out);
}
END_TEST

START_TEST(no_env_file)
{
	char path[] = "/tmp/env-XXXXXX";
	struct strv out = { 0 };
	struct err e = { 0 };

	ck_assert_int_eq(env_forward_file(&out, "/no/such", &e), -1);
	ck_assert_int_eq(e.id, E_ENV_FILE_READ);
	ck_assert_str_eq(
		e.text, "cannot read --env-file '/no/such': No such file or directory");
	ck_assert_int_eq(env_forward_file(&out, "/tmp", &e), -1);
	ck_assert_str_eq(e.text, "cannot read --env-file '/tmp': Is a directory");
	ck_assert_int_eq(env_forward_file(&out, "/dev/zero", &e), -1);
	ck_assert_str_eq(e.text, "cannot read --env-file '/dev/zero': File too large");
	write_file(path, "A=1\0\n", 5);
	ck_assert_int_eq(env_forward_file(&out, path, &e), -1);
	ck_assert_ptr_nonnull(strstr(e.text, "': not a text file"));
	unlink(path);
	ck_assert_uint_eq(out.n, 0);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("forward");
	TCase *c = tcase_create("forward");
	SRunner *r = srunner_create(s);
	int failed;

	tcase_add_loop_test(c, travels, 0, COUNT(variables));
	tcase_add_test(c, odd_entries_stay);
	tcase_add_loop_test(c, export_words, 0, COUNT(exports));
	tcase_add_loop_test(c, lists_of_gpus, 0, COUNT(gpu_lists));
	tcase_add_test(c, the_last_export_counts);
	tcase_add_loop_test(c, env_file, 0, COUNT(files));
	tcase_add_test(c, no_env_file);
	suite_add_tcase(s, c);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed != 0;
}
