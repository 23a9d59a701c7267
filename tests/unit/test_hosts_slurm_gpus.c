/* slurm_gpus.h: srun's options for GPUs, and what scontrol says of a job's. */
#include <check.h>

#include "launcher/hosts/slurm_gpus.h"

#define COUNT(v) ((int)(sizeof(v) / sizeof *(v)))

/* ---- what scontrol says ---- */

/* Of a job on n1, n2, n3, as `scontrol show job --details` of Slurm 22.05 says it. */
static const struct {
	const char *text;
	int gpus[3];
} jobs[] = {
	{ "", { 0, 0, 0 } },
	{ "     Nodes=n[1-2] CPU_IDs=0-3 Mem=0 GRES=gpu:2(IDX:0-1)\n"
	  "     Nodes=n3 CPU_IDs=0 Mem=0 GRES=gpu:1(IDX:0)\n",
	  { 2, 2, 1 } },
	/* a whole job, whose other lines name hosts and GPUs, too */
	{ "JobId=77 JobName=x\n"
	  "   NodeList=n[1-3]\n"
	  "   TRES=cpu=4,node=3,billing=4,gres/gpu=6\n"
	  "   JOB_GRES=gpu:a100:6\n"
	  "     Nodes=n1 CPU_IDs=0-1 Mem=0 GRES=gpu:a100:4(IDX:0-3)\n"
	  "     Nodes=n[2-3] CPU_IDs=0 Mem=0 GRES=gpu:a100:1(IDX:2)\n"
	  "   MinCPUsNode=1 MinMemoryNode=0 MinTmpDiskNode=0\n"
	  "   TresPerJob=gres:gpu:6\n",
	  { 4, 1, 1 } },
	/* of several types, shared ones that are no GPUs, indices with commas */
	{ "Nodes=n1 CPU_IDs=0 Mem=0 GRES=gpu:a100:3(IDX:0-2),gpu:1(IDX:3),mps:100\n"
	  "Nodes=n2 CPU_IDs=0 Mem=0 GRES=mps:100(100/100),gpu:2(IDX:0,3)\n"
	  "Nodes=n3 CPU_IDs=0 Mem=0 "
	  "GRES=gpu:v100:3(IDX:0,2-3),shard:8,gpu:k80:1(IDX:5)\n",
	  { 4, 2, 4 } },
	{ "Nodes=n1 GRES=gpu:2\nNodes=n2 GRES=gpu:t4:2(IDX:N/A)\n"
	  "Nodes=n3 GRES=gpu:2(S:0-1)",
	  { 2, 2, 2 } },
	/* components of a heterogeneous job are jobs one after the other */
	{ "JobId=77 HetJobId=77 HetJobOffset=0\n"
	  "     Nodes=n1 CPU_IDs=0 Mem=0 GRES=gpu:4(IDX:0-3)\n"
	  "\n"
	  "JobId=78 HetJobId=77 HetJobOffset=1\n"
	  "     Nodes=n[2-3] CPU_IDs=0 Mem=0 GRES=\n",
	  { 4, 0, 0 } },
	{ "Nodes=n1 GRES=gpu:1(IDX:0)\nNodes=n1 GRES=gpu:2(IDX:1-2)\n", { 3, 0, 0 } },
	/* none; hosts in other forms, and those of others */
	{ "     Nodes=n[1-3] CPU_IDs=0-3 Mem=0 GRES=\n", { 0, 0, 0 } },
	{ "     Nodes=n[1-3] CPU_IDs=0-3 Mem=0\n   GRES=gpu:4\n", { 0, 0, 0 } },
	{ "Nodes=n1 GRES=nic:2,mps:100\n", { 0, 0, 0 } },
	{ "Nodes=n1,n3 GRES=gpu:2(IDX:0-1)\n", { 2, 0, 2 } },
	{ "Nodes=n[1,3] GRES=gpu:2(IDX:0-1)\nNodes=N2 GRES=gpu:1(IDX:0)\n",
	  { 2, 1, 2 } },
	{ "Nodes=n[3-900] GRES=gpu:2(IDX:0-1)\nNodes=m1 GRES=gpu:1(IDX:0)\n",
	  { 0, 0, 2 } },
	/* garbage */
	{ "Nodes=\nNodes= GRES=\nNodes= GRES=gpu:2\nNodes", { 0, 0, 0 } },
	{ "Nodes=n[1- GRES=gpu:2\nNodes=n]1 GRES=gpu:2\n", { 0, 0, 0 } },
	{ "Nodes=n1 GRES=gpu\nNodes=n2 GRES=gpu:\nNodes=n3 GRES=gpu:a100\n",
	  { 0, 0, 0 } },
	{ "Nodes=n1 GRES=gpu:-2\nNodes=n2 GRES=gpu:65536\nNodes=n3 GRES=gpu:2x\n",
	  { 0, 0, 0 } },
	{ "Nodes=n1 GRES=gpu:99999999999999999999999\n"
	  "Nodes=n2 GRES=,,,gpu:1,,\nNodes=n3 GRES=gpu:1(IDX:0\n",
	  { 0, 1, 1 } },
	{ "Nodes=n1 GRES=gpu:65535,gpu:65535\n"
	  "Nodes=n2 GRES=gpu:65535\nNodes=n2 GRES=gpu:65535\n",
	  { 65535, 65535, 0 } },
	{ "\n\n \t\nGRES=gpu:4 Nodes=n1\nxNodes=n1 GRES=gpu:4\n", { 0, 0, 0 } },
};

START_TEST(gpus_of_each_host)
{
	struct hosts hosts = { 0 };
	int gpus[3] = { -1, -1, -1 };

	ck_assert_int_eq(hosts_parse(&hosts, "n[1-3]", NULL), 0);
	slurm_gpus_read(gpus, &hosts, jobs[_i].text);
	for (size_t i = 0; i < 3; i++)
		ck_assert_msg(gpus[i] == jobs[_i].gpus[i], "n%zu: %d of\n%s", i + 1,
			      gpus[i], jobs[_i].text);
	hosts_free(&hosts);
}
END_TEST

/* ---- the environment ---- */

static const struct {
	char *env[4];
	bool differ;
	const char *option; /* if they do not differ */
} environments[] = {
	{ { NULL }, false, NULL },
	{ { "SLURM_GPUS_ON_NODE=4" }, false, "--gpus-per-node=4" },
	{ { "SLURM_GPUS_PER_NODE=a100:4", "SLURM_GPUS_ON_NODE=4" },
	  false,
	  "--gpus-per-node=4" },
	{ { "SLURM_GPUS_PER_NODE=4" }, false, NULL },
	{ { "SLURM_GPUS_ON_NODE=" }, false, NULL },
	{ { "SLURM_GPUS_ON_NODE=0" }, false, NULL },
	{ { "SLURM_GPUS_ON_NODE=4x" }, false, NULL },
	{ { "SLURM_GPUS_ON_NODE=99999999999999999999" }, false, NULL },
	{ { "SLURM_GPUS_ON_NODES=4" }, false, NULL },
	{ { "SLURM_GPUS=3" }, true, NULL },
	{ { "SLURM_GPUS_ON_NODE=2", "SLURM_GPUS_PER_TASK=1" }, true, NULL },
	{ { "SLURM_GPUS_PER_SOCKET=1" }, true, NULL },
	{ { "SLURM_GPUS_PER_TASKS=1", "SLURM_JOB_GPUS=0,1", "xSLURM_GPUS=3" },
	  false,
	  NULL },
	/* components may differ */
	{ { "SLURM_HET_SIZE=2", "SLURM_GPUS_ON_NODE=4" }, true, NULL },
	{ { "SLURM_HET_SIZE=2", "SLURM_JOB_GPUS_HET_GROUP_1=0" }, true, NULL },
	{ { "SLURM_HET_SIZE=2", "SLURM_GPUS_PER_NODE_HET_GROUP_0=4" }, true, NULL },
	{ { "SLURM_HET_SIZE=2", "SLURM_GPUS_HET_GROUP_0=4" }, true, NULL },
	{ { "SLURM_HET_SIZE=2", "SLURM_GPUS_FREQ=low" }, false, NULL },
	{ { "SLURM_JOB_GPUS_HET_GROUP_1=0" }, false, NULL },
};

START_TEST(options_of_the_environment)
{
	char *const *env = environments[_i].env;
	char *option = slurm_gpus_option(env);

	ck_assert_int_eq(slurm_gpus_differ(env), environments[_i].differ);
	if (!environments[_i].differ)
		ck_assert_pstr_eq(option, environments[_i].option);
	free(option);
}
END_TEST

static const struct {
	const char *version;
	bool any;
} versions[] = {
	{ "slurm-wlm 22.05.8\n", false },
	{ "slurm 23.02.7\n", false },
	{ "slurm 23.10.9", false },
	{ "slurm 23.11.0-0rc1\n", true },
	{ "slurm-wlm 23.11.4\n", true },
	{ "slurm 24.05.1\n", true },
	{ "slurm 25.11\n", true },
	{ "slurm 2.6.5\n", false },
	{ "", false },
	{ "slurm\n", false },
	{ "slurm ", false },
	{ "slurm 24\n", false },
	{ "slurm -24.-05\n", false },
	{ "slurm x24.05.1\n", false },
	{ "24.05.1\n", false },
};

START_TEST(one_step_from_23_11_on)
{
	ck_assert_pstr_eq(slurm_gpus_any_option(versions[_i].version),
			  versions[_i].any ? "--external-launcher" : NULL);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("slurm_gpus");
	TCase *c = tcase_create("slurm_gpus");
	SRunner *r = srunner_create(s);
	int failed;

	tcase_add_loop_test(c, gpus_of_each_host, 0, COUNT(jobs));
	tcase_add_loop_test(c, options_of_the_environment, 0, COUNT(environments));
	tcase_add_loop_test(c, one_step_from_23_11_on, 0, COUNT(versions));
	suite_add_tcase(s, c);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed != 0;
}
