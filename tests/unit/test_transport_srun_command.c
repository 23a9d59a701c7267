/* srun_command.h: the command, its environment, the port range, what it says. */
#include <check.h>

#include "launcher/transport/install_scripts.h"
#include "launcher/transport/srun_command.h"

static struct strv v;

static void teardown(void)
{
	strv_free(&v);
	v = (struct strv){ 0 };
}

static bool has(const char *word)
{
	for (size_t i = 0; i < v.n; i++)
		if (!strcmp(v.v[i], word))
			return true;
	return false;
}

/* The last words of V are WORDS, which end with NULL. */
static void ends_with(const char *const *words)
{
	size_t n = 0;

	while (words[n])
		n++;
	ck_assert_uint_ge(v.n, n);
	for (size_t i = 0; i < n; i++)
		ck_assert_str_eq(v.v[v.n - n + i], words[i]);
}

static const char *const hosts[] = { "n1", "n2", "n10" };

START_TEST(the_agent_where_it_is)
{
	const struct srun_step step = { .hosts = hosts,
					.n = 3,
					.het_group = -1,
					.agent = "/opt/a b/berth-agent",
					.how = "munge" };
	static const char *const end[] = { "sh", "-ldn", "/opt/a b/berth-agent",
					   "--connect=munge", NULL };

	srun_argv(&v, &step);
	ck_assert_str_eq(v.v[0], "srun");
	ck_assert(has("--nodes=3") && has("--ntasks=3") && has("--ntasks-per-node=1"));
	ck_assert(has("--nodelist=n1,n2,n10"));
	ck_assert(has("--overlap") && has("--mem=0") && has("--no-kill"));
	ck_assert(has("--kill-on-bad-exit=0") && has("--wait=0"));
	ck_assert(has("--cpu-bind=none") && has("--mpi=none") && has("--input=all"));
	for (size_t i = 0; i < v.n; i++)
		ck_assert(strncmp(v.v[i], "--het-group", 11) &&
			  strncmp(v.v[i], "--bcast", 7) && strncmp(v.v[i], "--g", 3));
	ck_assert(has("/bin/sh") && has("-c"));
	ends_with(end);
	ck_assert_ptr_null(v.v[v.n]);
}
END_TEST

/* The script ends with install_direct, and says first where it failed. */
START_TEST(the_script_tells_its_end)
{
	const struct srun_step step = {
		.hosts = hosts, .n = 1, .het_group = -1, .agent = "/a", .how = "munge"
	};
	const char *script;

	srun_argv(&v, &step);
	script = v.v[v.n - 5];
	ck_assert_ptr_nonnull(strstr(script, install_direct));
	ck_assert_int_eq(strncmp(script, "trap ", 5), 0);
	ck_assert_ptr_nonnull(strstr(script, ":berth: again $SLURMD_NODENAME"));
}
END_TEST

START_TEST(an_agent_that_the_user_chose)
{
	const struct srun_step step = { .hosts = hosts,
					.n = 1,
					.het_group = -1,
					.agent = "/a",
					.any_owner = true,
					.how = "clear" };
	static const char *const end[] = { "sh", "-ldnL", "/a", "--connect=clear",
					   NULL };

	srun_argv(&v, &step);
	ends_with(end);
}
END_TEST

START_TEST(a_copy_of_the_agent)
{
	const struct srun_step step = { .hosts = hosts,
					.n = 2,
					.het_group = 0,
					.gpus = "--gres=gpu:4",
					.agent = "/a",
					.copy = "/tmp/x",
					.how = "munge:/run/m" };
	static const char *const end[] = { "--het-group=0",          "--gres=gpu:4",
					   "--bcast=/tmp/x",         "/a",
					   "--connect=munge:/run/m", NULL };

	srun_argv(&v, &step);
	ends_with(end);
	ck_assert(!has("/bin/sh"));
}
END_TEST

/* ---- the environment ---- */

START_TEST(no_other_variable_goes)
{
	char *own[] = { (char *)"PATH=/bin",
			(char *)"PATHS=secret",
			(char *)"PAT=secret",
			(char *)"HOME=/root",
			(char *)"AWS_SECRET_ACCESS_KEY=secret",
			(char *)"LD_PRELOAD=secret",
			(char *)"SLURM_CONF=/c",
			(char *)"SLURM_CONF_SERVER=secret",
			(char *)"SLURM_JOB_ID=7",
			(char *)"SLURM_JOBID=7",
			(char *)"SLURM_JOB_ID_HET_GROUP_1=8",
			(char *)"SLURM_HET_SIZE=2",
			(char *)"SLURM_NTASKS=secret",
			(char *)"SLURM_EXPORT_ENV=secret",
			(char *)"SRUN_DEBUG=secret",
			(char *)"BERTH_JOB=secret",
			(char *)"BASH_FUNC_x%%=() { secret; }",
			(char *)"nothing",
			(char *)"SLURM_HET_SIZE", /* no variable */
			(char *)"=secret",
			(char *)"",
			(char *)"SLURM_JOB_NODELIST=n[1-2]",
			NULL };
	static const char *const want[] = {
		"PATH=/bin",        "HOME=/root",
		"SLURM_CONF=/c",    "SLURM_JOB_ID=7",
		"SLURM_JOBID=7",    "SLURM_JOB_ID_HET_GROUP_1=8",
		"SLURM_HET_SIZE=2", "BERTH_STEP_OF_RUNNER=1"
	};

	srun_environment(&v, own);
	ck_assert_uint_eq(v.n, sizeof want / sizeof *want);
	for (size_t i = 0; i < v.n; i++)
		ck_assert_str_eq(v.v[i], want[i]);
	ck_assert_ptr_null(v.v[v.n]);
}
END_TEST

/* ---- slurm.conf ---- */

static const struct range_case {
	const char *conf;
	unsigned first, last; /* 0: none */
} ranges[] = {
	{ "", 0, 0 },
	{ "SrunPortRange=60001-63000\n", 60001, 63000 },
	{ "SrunPortRange=60001-63000", 60001, 63000 },
	{ "ClusterName=c\n  srunportrange\t= 7-7 # one\r\nX=1\n", 7, 7 },
	{ "SRUNPORTRANGE=1-65535 TmpFS=/tmp\n", 1, 65535 },
	{ "SrunPortRange=\"60001-63000\"\n", 60001, 63000 },
	{ "SrunPortRange = 60001 - 63000\n", 0, 0 },
	{ "#SrunPortRange=60001-63000\n", 0, 0 },
	{ "XSrunPortRange=60001-63000\n", 0, 0 },
	{ "SrunPortRangeX=60001-63000\n", 0, 0 },
	{ "SrunPortRange 60001-63000\n", 0, 0 },
	{ "SrunPortRange=60001\n", 0, 0 },
	{ "SrunPortRange=60001-\n63000\n", 0, 0 },
	{ "SrunPortRange=\n60001-63000\n", 0, 0 },
	{ "SrunPortRange=0-10\n", 0, 0 },
	{ "SrunPortRange=10-9\n", 0, 0 },
	{ "SrunPortRange=1-65536\n", 0, 0 },
	{ "SrunPortRange=1-655350\n", 0, 0 },
	{ "SrunPortRange=4294967297-4294967298\n", 0, 0 },
	{ "SrunPortRange=-7-9\n", 0, 0 },
	{ "SrunPortRange=7--9\n", 0, 0 },
	{ "SrunPortRange=7-9\nSrunPortRange=17-19\n", 17, 19 },
	/* one that is none changes nothing of the one before */
	{ "SrunPortRange=7-9\nSrunPortRange=5\nSrunPortRange=0-3\n", 7, 9 },
};

START_TEST(port_range)
{
	const struct range_case *k = &ranges[_i];
	unsigned first = 111, last = 222;

	ck_assert_int_eq(srun_port_range(k->conf, &first, &last), k->last != 0);
	ck_assert_uint_eq(first, k->last ? k->first : 111);
	ck_assert_uint_eq(last, k->last ? k->last : 222);
}
END_TEST

/* Of slurm.conf, and as scontrol prints them. */
static const struct auth_case {
	const char *conf;
	enum srun_auth type;
	const char *socket;
} auths[] = {
	{ "", SRUN_AUTH_UNKNOWN, NULL },
	{ "ClusterName=c\nInclude more.conf\n", SRUN_AUTH_UNKNOWN, NULL },
	{ "AuthType=auth/munge\n", SRUN_AUTH_MUNGE, NULL },
	{ "AuthType=auth/slurm\n", SRUN_AUTH_OWN, NULL },
	{ "authtype = auth/NONE # no\n", SRUN_AUTH_OWN, NULL },
	{ "AuthType=\"auth/slurm\"\r\n", SRUN_AUTH_OWN, NULL },
	{ "AuthType                = auth/slurm\nAuthInfo      = (null)\n",
	  SRUN_AUTH_OWN, NULL },
	{ "AuthType=auth/slurm#\n", SRUN_AUTH_OWN, NULL },
	/* what we do not know is no leave to go without */
	{ "AuthType=\n", SRUN_AUTH_MUNGE, NULL },
	{ "AuthType=auth/slurmer\n", SRUN_AUTH_MUNGE, NULL },
	{ "AuthType=auth/slur\n", SRUN_AUTH_MUNGE, NULL },
	{ "AuthType=slurm\n", SRUN_AUTH_MUNGE, NULL },
	{ "#AuthType=auth/none\n", SRUN_AUTH_UNKNOWN, NULL },
	{ "AuthAltTypes=auth/none\nXAuthType=auth/none\n", SRUN_AUTH_UNKNOWN, NULL },
	{ "AuthType=auth/none\nAuthType=auth/munge\n", SRUN_AUTH_MUNGE, NULL },
	{ "AuthInfo=socket=/run/munge/x\nAuthType=auth/munge\n", SRUN_AUTH_MUNGE,
	  "/run/munge/x" },
	{ "AuthInfo=cred_expire=60,socket=/x,ttl=5\n", SRUN_AUTH_UNKNOWN, "/x" },
	{ "AuthInfo = socket=/x \n", SRUN_AUTH_UNKNOWN, "/x" },
	{ "AuthInfo=\"Socket=/x\"", SRUN_AUTH_UNKNOWN, "/x" },
	{ "AuthInfo=,,socket=/x,", SRUN_AUTH_UNKNOWN, "/x" },
	{ "AuthInfo=xsocket=/x\n", SRUN_AUTH_UNKNOWN, NULL },
	{ "AuthInfo=socket=\n/x\n", SRUN_AUTH_UNKNOWN, NULL },
	{ "AuthInfo=socket=x\n", SRUN_AUTH_UNKNOWN, NULL },
	{ "AuthInfo=socket=/x\nAuthInfo=ttl=5\n", SRUN_AUTH_UNKNOWN, NULL },
};

START_TEST(auth)
{
	const struct auth_case *k = &auths[_i];
	char *socket = srun_munge_socket(k->conf);

	ck_assert_int_eq(srun_auth_type(k->conf), k->type);
	ck_assert_pstr_eq(socket, k->socket);
	free(socket);
}
END_TEST

/* ---- what srun and the script say ---- */

static const struct said_case {
	const char *said, *words; /* NULL: none */
} again[] = {
	{ ":berth: again n1", "n1" }, { ":berth: again ", "" },
	{ ":berth: again", NULL },    { " :berth: again n1", NULL },
	{ ":berth: unsafe", NULL },   { "", NULL },
}, words[] = {
	{ "", NULL },
	{ "\n\n", NULL },
	{ "srun: error: a\n", "srun: error: a" },
	{ "srun: error: a\nsrun: error: b\n\n", "srun: error: b" },
	{ "srun: error: a\nx lacks support for cpu binding\n", "srun: error: a" },
	{ "x lacks support for cpu binding", NULL },
	{ "srun: \x1b]0;x\a b\r\n", "srun: ?]0;x? b" },
	{ "srun: error: a\n \t\r\n", "srun: error: a" },
	{ "srun: error: a\n\x01\n", "srun: error: a" },
	{ "srun: error: n2: task 1: Exited with exit code 1\n",
	  "srun: error: n2: task 1: Exited with exit code 1" },
	{ "berth-agent: b\nsrun: error: n2: task 1: Exited with exit code 1\n",
	  "berth-agent: b" },
	{ "srun: error: n1: task 0: Exited with exit code 1\nberth-agent: b\n"
	  "srun: error: n2: task 1: Exited with exit code 1\n",
	  "berth-agent: b" },
};

START_TEST(which_host_wants_a_copy)
{
	const char *host = srun_again(again[_i].said);

	ck_assert_int_eq(host != NULL, again[_i].words != NULL);
	if (host)
		ck_assert_str_eq(host, again[_i].words);
}
END_TEST

START_TEST(the_last_words)
{
	char *got = srun_words(words[_i].said);

	ck_assert_int_eq(got != NULL, words[_i].words != NULL);
	if (got)
		ck_assert_str_eq(got, words[_i].words);
	free(got);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("srun_command");
	TCase *c = tcase_create("srun_command");
	SRunner *r = srunner_create(s);
	int failed;

	tcase_add_checked_fixture(c, NULL, teardown);
	tcase_add_test(c, the_agent_where_it_is);
	tcase_add_test(c, the_script_tells_its_end);
	tcase_add_test(c, an_agent_that_the_user_chose);
	tcase_add_test(c, a_copy_of_the_agent);
	tcase_add_test(c, no_other_variable_goes);
	tcase_add_loop_test(c, port_range, 0, sizeof ranges / sizeof *ranges);
	tcase_add_loop_test(c, auth, 0, sizeof auths / sizeof *auths);
	tcase_add_loop_test(c, which_host_wants_a_copy, 0,
			    sizeof again / sizeof *again);
	tcase_add_loop_test(c, the_last_words, 0, sizeof words / sizeof *words);
	suite_add_tcase(s, c);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed != 0;
}
