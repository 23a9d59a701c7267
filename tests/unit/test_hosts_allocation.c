/* allocation.h, in_front.h: what environments of resource managers tell. */
#include <check.h>
#include <stdlib.h>

#include "launcher/hosts/allocation.h"
#include "launcher/hosts/in_front.h"

#define COUNT(a) ((int)(sizeof(a) / sizeof *(a)))

enum { VARIABLES = 16 };

/* "name:slots/cpus ...", "auto" for SLOTS_AUTO. */
static char *show(const struct allocation *a)
{
	struct str s = { 0 };

	for (size_t i = 0; i < a->hosts.n; i++) {
		const struct host_spec *h = &a->hosts.v[i];

		str_addf(&s, "%s%s:", i ? " " : "", h->name);
		if (h->slots == SLOTS_AUTO)
			str_add(&s, "auto");
		else
			str_addf(&s, "%d", h->slots);
		if (a->cpus[i])
			str_addf(&s, "/%d", a->cpus[i]);
	}
	return str_take(&s);
}

#define JOB "SLURM_JOB_ID=7"
#define HET(n) "SLURM_HET_SIZE=" n, "SLURM_JOB_ID_HET_GROUP_0=7"

static const struct {
	enum allocation_manager manager;
	const char *env[VARIABLES];
	const char *text; /* of the file, or of flux */
	const char *want, *slots_from;
} good[] = {
	/* sbatch -N3 -n5 */
	{ ALLOCATION_SLURM,
	  { JOB, "SLURM_JOB_NODELIST=n[1-3]", "SLURM_NTASKS=5",
	    "SLURM_TASKS_PER_NODE=3,1(x2)", "SLURM_JOB_CPUS_PER_NODE=3,1(x2)" },
	  NULL,
	  "n1:3/3 n2:1/1 n3:1/1",
	  "SLURM_TASKS_PER_NODE" },
	/* sbatch -N2: no number of tasks was asked for */
	{ ALLOCATION_SLURM,
	  { JOB, "SLURM_JOB_NODELIST=n[1-2]", "SLURM_TASKS_PER_NODE=8(x2)",
	    "SLURM_JOB_CPUS_PER_NODE=8(x2)" },
	  NULL,
	  "n1:auto/8 n2:auto/8",
	  "SLURM_JOB_NODELIST" },
	{ ALLOCATION_SLURM,
	  { JOB, "SLURM_JOB_NODELIST=n[1-3,07],m2,r[1-2]c[1-2]", "SLURM_NTASKS=" },
	  NULL,
	  "n1:auto n2:auto n3:auto n07:auto m2:auto r1c1:auto r1c2:auto r2c1:auto "
	  "r2c2:auto",
	  "SLURM_JOB_NODELIST" },
	{ ALLOCATION_SLURM,
	  { "SLURM_JOBID=7", "SLURM_NODELIST=a,b", "SLURM_NTASKS=3",
	    "SLURM_TASKS_PER_NODE=2,1" },
	  NULL,
	  "a:2 b:1",
	  "SLURM_TASKS_PER_NODE" },
	/* srun -n1 in a job of two hosts: the number is the step's */
	{ ALLOCATION_SLURM,
	  { JOB, "SLURM_JOB_NODELIST=n[1-2]", "SLURM_NTASKS=1",
	    "SLURM_TASKS_PER_NODE=1", "SLURM_JOB_CPUS_PER_NODE=3,1" },
	  NULL,
	  "n1:auto/3 n2:auto/1",
	  "SLURM_JOB_NODELIST" },
	/* more numbers than hosts */
	{ ALLOCATION_SLURM,
	  { JOB, "SLURM_JOB_NODELIST=n1", "SLURM_NTASKS=1",
	    "SLURM_TASKS_PER_NODE=1(x999999999),65535(x999999999)" },
	  NULL,
	  "n1:auto",
	  "SLURM_JOB_NODELIST" },
	/* salloc -N1 -n2 : -N2 -n3 */
	{ ALLOCATION_SLURM,
	  { JOB, HET("2"), "SLURM_JOB_NODELIST_HET_GROUP_0=n1",
	    "SLURM_JOB_NODELIST_HET_GROUP_1=n[2-3]", "SLURM_NTASKS_HET_GROUP_0=2",
	    "SLURM_NTASKS_HET_GROUP_1=3", "SLURM_TASKS_PER_NODE_HET_GROUP_0=2",
	    "SLURM_TASKS_PER_NODE_HET_GROUP_1=2,1", "SLURM_NTASKS=5",
	    "SLURM_JOB_CPUS_PER_NODE_HET_GROUP_0=4",
	    "SLURM_JOB_CPUS_PER_NODE_HET_GROUP_1=2,1" },
	  NULL,
	  "n1:2/4 n2:2/2 n3:1/1",
	  "SLURM_TASKS_PER_NODE" },
	/* a host of two components; sbatch sets the first one's without a group, too */
	{ ALLOCATION_SLURM,
	  { JOB, HET("2"), "SLURM_JOB_NODELIST=n1", "SLURM_TASKS_PER_NODE=2",
	    "SLURM_JOB_NODELIST_HET_GROUP_0=n1",
	    "SLURM_JOB_NODELIST_HET_GROUP_1=n[1-2]", "SLURM_NTASKS_HET_GROUP_0=2",
	    "SLURM_NTASKS_HET_GROUP_1=3", "SLURM_TASKS_PER_NODE_HET_GROUP_0=2",
	    "SLURM_TASKS_PER_NODE_HET_GROUP_1=2,1",
	    "SLURM_JOB_CPUS_PER_NODE_HET_GROUP_0=2",
	    "SLURM_JOB_CPUS_PER_NODE_HET_GROUP_1=2,1" },
	  NULL,
	  "n1:4/4 n2:1/1",
	  "SLURM_TASKS_PER_NODE" },
	/* submitted from inside such a job */
	{ ALLOCATION_SLURM,
	  { "SLURM_JOB_ID=8", HET("2"), "SLURM_JOB_NODELIST=n5", "SLURM_NTASKS=2",
	    "SLURM_JOB_NODELIST_HET_GROUP_0=n1", "SLURM_JOB_NODELIST_HET_GROUP_1=n2",
	    "SLURM_TASKS_PER_NODE=2" },
	  NULL,
	  "n5:2",
	  "SLURM_TASKS_PER_NODE" },
	/* Slurm comes first */
	{ ALLOCATION_SLURM,
	  { "PBS_NODEFILE=/f", "FLUX_URI=local:///x", JOB, "SLURM_JOB_NODELIST=n1" },
	  NULL,
	  "n1:auto",
	  "SLURM_JOB_NODELIST" },
	{ ALLOCATION_FLUX,
	  { "FLUX_URI=local:///x", "PBS_NODEFILE=/f" },
	  "corona[1-2,5]\n",
	  "corona1:auto corona2:auto corona5:auto",
	  "FLUX_URI" },
	{ ALLOCATION_PBS,
	  { "PBS_NODEFILE=/f", "PBS_JOBID=3.head", "COBALT_NODEFILE=/g" },
	  "n1\nn1\nn2\nn1\n",
	  "n1:3 n2:1",
	  "PBS_NODEFILE" },
	{ ALLOCATION_PBS,
	  { "PBS_NODEFILE=/f", "PBS_PPN=4" },
	  "n1\nn2\n",
	  "n1:4 n2:4",
	  "PBS_PPN" },
	{ ALLOCATION_PBS,
	  { "PBS_NODEFILE=/f", "PBS_PPN=4" },
	  "n1\nn2\nn1\n",
	  "n1:2 n2:1",
	  "PBS_NODEFILE" },
	{ ALLOCATION_COBALT,
	  { "COBALT_NODEFILE=/f" },
	  "n1\nn2\n",
	  "n1:auto n2:auto",
	  "COBALT_NODEFILE" },
	{ ALLOCATION_LSF,
	  { "LSB_JOBID=1", "LSB_MCPU_HOSTS=h1 4 h2 12 ", "LSB_HOSTS=h9",
	    "LSB_DJOB_HOSTFILE=/f", "PE_HOSTFILE=/g" },
	  NULL,
	  "h1:4 h2:12",
	  "LSB_MCPU_HOSTS" },
	{ ALLOCATION_LSF,
	  { "LSB_JOBID=1", "LSB_DJOB_HOSTFILE=/f" },
	  "h1\nh1\nh2\n",
	  "h1:2 h2:1",
	  "LSB_DJOB_HOSTFILE" },
	{ ALLOCATION_LSF,
	  { "LSB_JOBID=1", "LSB_HOSTS=h1 h1 h2" },
	  NULL,
	  "h1:2 h2:1",
	  "LSB_HOSTS" },
	{ ALLOCATION_SGE,
	  { "PE_HOSTFILE=/f", "JOB_ID=9", "HYDRA_HOST_FILE=/g" },
	  "n1 3 all.q@n1 UNDEFINED\nn2 1 all.q@n2 UNDEFINED\n\n",
	  "n1:3 n2:1",
	  "PE_HOSTFILE" },
	{ ALLOCATION_HOST_FILE,
	  { "OMPI_MCA_orte_default_hostfile=/f" },
	  "pi-worker-0.pi.default.svc slots=2\npi-worker-1.pi.default.svc slots=2\n",
	  "pi-worker-0.pi.default.svc:2 pi-worker-1.pi.default.svc:2",
	  "OMPI_MCA_orte_default_hostfile" },
	{ ALLOCATION_HOST_FILE,
	  { "HYDRA_HOST_FILE=/f" },
	  "a.b.svc:2\n",
	  "a.b.svc:2",
	  "HYDRA_HOST_FILE" },
	{ ALLOCATION_HOST_FILE,
	  { "I_MPI_HYDRA_HOST_FILE=/f" },
	  "a:2\nb\n",
	  "a:2 b:1",
	  "I_MPI_HYDRA_HOST_FILE" },
};

START_TEST(read_good)
{
	char *const *env = (char *const *)good[_i].env;
	struct allocation a;
	struct err e = { 0 };
	char *text;

	allocation_find(&a, env);
	ck_assert_int_eq(a.manager, good[_i].manager);
	ck_assert_int_eq(a.text != ALLOCATION_ENV, good[_i].text != NULL);
	ck_assert_msg(!allocation_read(&a, env, good[_i].text, &e), "%s", e.text);
	text = show(&a);
	ck_assert_str_eq(text, good[_i].want);
	ck_assert_str_eq(a.slots_from, good[_i].slots_from);
	free(text);
	allocation_free(&a);
	ck_assert_int_eq(a.manager, ALLOCATION_NONE);
}
END_TEST

static const struct {
	const char *env[VARIABLES];
} none[] = {
	{ { "HOME=/root" } },
	{ { JOB } },                        /* no hosts */
	{ { JOB, "SLURM_JOB_NODELIST=" } }, /* empty is unset */
	{ { "SLURM_JOB_NODELIST=n1" } },    /* no job */
	{ { JOB, "SLURM_HET_SIZE=2" } },    /* of another job */
	{ { JOB, "SLURM_HET_SIZE=99999999999" } },
	{ { "LSB_MCPU_HOSTS=h1 4" } }, /* no job */
	{ { "XPBS_NODEFILE=/f", "PBS_NODEFILEX=/f" } },
};

START_TEST(read_none)
{
	struct allocation a;

	allocation_find(&a, (char *const *)none[_i].env);
	ck_assert_int_eq(a.manager, ALLOCATION_NONE);
	ck_assert_str_eq(a.name, "none");
	allocation_free(&a);
}
END_TEST

static const struct {
	const char *env[VARIABLES];
	const char *text;
	enum err_id id;
	const char *says;
} bad[] = {
	{ { JOB, "SLURM_JOB_NODELIST=n[1-3" },
	  NULL,
	  E_HOST_BRACKET,
	  "SLURM_JOB_NODELIST: host 'n[1-3'" },
	{ { JOB, "SLURM_JOB_NODELIST=n[1-65537]" }, NULL, E_HOSTS_MANY, "65536" },
	{ { JOB, "SLURM_JOB_NODELIST=n[3-1]" }, NULL, E_HOST_RANGE_ORDER, "3-1" },
	{ { JOB, "SLURM_JOB_NODELIST=n[99999999999]" }, NULL, E_HOST_RANGE, "999" },
	{ { JOB, "SLURM_JOB_NODELIST=-oProxyCommand=x" }, NULL, E_HOST_NAME, "'-'" },
	{ { JOB, "SLURM_JOB_NODELIST=a,,b" }, NULL, E_HOST_NAME, "empty" },
	{ { JOB, "SLURM_JOB_NODELIST=a", "SLURM_NTASKS=1", "SLURM_TASKS_PER_NODE=x" },
	  NULL,
	  E_ALLOCATION_VALUE,
	  "SLURM_TASKS_PER_NODE='x': " },
	{ { JOB, "SLURM_JOB_NODELIST=a", "SLURM_TASKS_PER_NODE=2(x3" },
	  NULL,
	  E_ALLOCATION_VALUE,
	  "2(x3" },
	{ { JOB, "SLURM_JOB_NODELIST=a", "SLURM_TASKS_PER_NODE=2," },
	  NULL,
	  E_ALLOCATION_VALUE,
	  "'2,'" },
	{ { JOB, "SLURM_JOB_NODELIST=a", "SLURM_TASKS_PER_NODE=65536" },
	  NULL,
	  E_ALLOCATION_VALUE,
	  "65536" },
	{ { JOB, "SLURM_JOB_NODELIST=a", "SLURM_JOB_CPUS_PER_NODE=1(x99999999999)" },
	  NULL,
	  E_ALLOCATION_VALUE,
	  "SLURM_JOB_CPUS_PER_NODE" },
	{ { JOB, HET("2"), "SLURM_JOB_NODELIST_HET_GROUP_0=n1" },
	  NULL,
	  E_ALLOCATION_VALUE,
	  "component" },
	{ { "LSB_JOBID=1", "LSB_MCPU_HOSTS=h1 4 h2" },
	  NULL,
	  E_HOST_SLOTS,
	  "LSB_MCPU_HOSTS:2" },
	{ { "LSB_JOBID=1", "LSB_MCPU_HOSTS=h1 65536" }, NULL, E_HOST_SLOTS, "65536" },
	{ { "LSB_JOBID=1", "LSB_MCPU_HOSTS= " }, NULL, E_HOSTFILE_EMPTY, "LSB" },
	{ { "PE_HOSTFILE=/f" }, "n1\n", E_HOST_SLOTS, "PE_HOSTFILE:1" },
	{ { "PBS_NODEFILE=/f" }, "", E_HOSTFILE_EMPTY, "PBS_NODEFILE" },
	{ { "PBS_NODEFILE=/f" }, "a\n$(reboot)\n", E_HOST_NAME, "PBS_NODEFILE:2" },
	{ { "FLUX_URI=x" }, "no such thing", E_HOST_NAME, "Flux: " },
};

START_TEST(read_bad)
{
	char *const *env = (char *const *)bad[_i].env;
	struct allocation a;
	struct err e = { 0 };

	allocation_find(&a, env);
	ck_assert_int_ne(a.manager, ALLOCATION_NONE);
	ck_assert_int_eq(allocation_read(&a, env, bad[_i].text, &e), -1);
	ck_assert_msg(e.id == bad[_i].id && strstr(e.text, bad[_i].says), "%s: %s",
		      err_name(e.id), e.text);
	ck_assert_ptr_null(a.hosts.v);
	ck_assert_ptr_null(a.cpus);
	allocation_free(&a);
}
END_TEST

static const struct {
	const char *gpus[2];
	unsigned want;
} gpus[] = {
	{ { "SLURM_GPUS_ON_NODE=8" }, 8 },
	{ { "SLURM_GPUS_PER_NODE=a100:4" }, 4 },
	{ { "SLURM_GPUS_PER_NODE=4", "SLURM_GPUS_ON_NODE=2" }, 2 },
	{ { "SLURM_GPUS_PER_NODE=a100" }, 0 },
	{ { "SLURM_GPUS_ON_NODE=99999999999999999999" }, 0 },
};

START_TEST(read_gpus)
{
	const char *env[] = { JOB, "SLURM_JOB_NODELIST=n1", gpus[_i].gpus[0],
			      gpus[_i].gpus[1], NULL };
	struct allocation a;

	allocation_find(&a, (char *const *)env);
	ck_assert_uint_eq(a.gpus, gpus[_i].want);
	ck_assert_str_eq(a.job_id, "7");
	allocation_free(&a);
}
END_TEST

/* -H in a job of n1:3, n2:auto with 4 CPUs, n3.site:1, 10.0.0.1:2. */
static const struct {
	const char *asked, *want;
	enum err_id id;
	const char *says;
} filters[] = {
	{ "n1", "n1:3", ERR_NONE, NULL },
	{ "n1:2,n2:4", "n1:2 n2:4", ERR_NONE, NULL },
	{ "n2", "n2:-2", ERR_NONE, NULL },
	{ "n1:gpus", "n1:-1", ERR_NONE, NULL },
	{ "N1.site,n3", "N1.site:3 n3:1", ERR_NONE, NULL },
	{ "10.0.0.1", "10.0.0.1:2", ERR_NONE, NULL },
	{ "n1,n1", "n1:2", ERR_NONE, NULL },
	{ "n1:4", NULL, E_ALLOCATION_SLOTS,
	  "'n1' asks for 4 slots, but this Slurm job has 3" },
	{ "n1:2,n1.site:2", NULL, E_ALLOCATION_SLOTS, "asks for 4 slots" },
	{ "n2:5", NULL, E_ALLOCATION_SLOTS, "has 4 there (SLURM_JOB_CPUS_PER_NODE)" },
	{ "n4", NULL, E_ALLOCATION_HOST, "-H: 'n4' is not a host of this Slurm job" },
	{ "n3.other", NULL, E_ALLOCATION_HOST, "n3.other" },
	{ "10.0.0.2", NULL, E_ALLOCATION_HOST, "it has n[1-2],n3.site,10.0.0.1" },
};

static struct allocation example(void)
{
	struct allocation a = { .manager = ALLOCATION_SLURM,
				.name = "Slurm",
				.slots_from = "SLURM_TASKS_PER_NODE",
				.cpus_from = "SLURM_JOB_CPUS_PER_NODE" };

	ck_assert_int_eq(hosts_parse(&a.hosts, "n1:3,n2:1,n3.site:1,10.0.0.1:2", NULL),
			 0);
	a.hosts.v[1].slots = SLOTS_AUTO;
	a.cpus = xcalloc(4, sizeof *a.cpus);
	a.cpus[0] = 8;
	a.cpus[1] = 4;
	return a;
}

START_TEST(filter)
{
	struct allocation a = example();
	struct hosts asked = { 0 };
	struct str text = { 0 };
	struct err e = { 0 };
	size_t at[4];
	int rc;

	ck_assert_int_eq(hosts_parse(&asked, filters[_i].asked, NULL), 0);
	allocation_match(at, &asked, &a);
	rc = allocation_filter(&asked, at, &a, "-H", &e);
	for (size_t i = 0; i < asked.n; i++)
		str_addf(&text, "%s%s:%d", i ? " " : "", asked.v[i].name,
			 asked.v[i].slots);
	ck_assert_msg(e.id == filters[_i].id, "%s", e.text);
	if (!rc)
		ck_assert_str_eq(str_text(&text), filters[_i].want);
	else
		ck_assert_msg(strstr(e.text, filters[_i].says) != NULL, "%s", e.text);
	str_free(&text);
	hosts_free(&asked);
	allocation_free(&a);
}
END_TEST

START_TEST(per_host)
{
	struct allocation a = example();
	struct err e = { 0 };

	ck_assert_int_eq(allocation_per_host(&a, 0, 8, "-ppn", &e), 0);
	ck_assert_int_eq(allocation_per_host(&a, 2, 99, "-ppn", &e), 0); /* unknown */
	ck_assert_int_eq(allocation_per_host(&a, 0, 9, "-ppn", &e), -1);
	ck_assert_int_eq(e.id, E_ALLOCATION_CPUS);
	ck_assert_str_eq(e.text, "-ppn 9 is too many: this Slurm job has 8 CPUs on "
				 "'n1' (SLURM_JOB_CPUS_PER_NODE)");
	a.hosts.v[0].slots = 9; /* sbatch --overcommit */
	ck_assert_int_eq(allocation_per_host(&a, 0, 9, "-ppn", &e), 0);
	allocation_free(&a);
}
END_TEST

static const struct {
	const char *env[6];
	bool terminal;
	const char *says; /* NULL: it is no such launcher */
	bool say;
} fronts[] = {
	{ { "HOME=/" }, false, NULL, false },
	{ { "SLURM_STEP_NUM_TASKS=8", "SLURM_PROCID=0" },
	  false,
	  "SLURM_STEP_NUM_TASKS=8: srun has started 8 runners",
	  true },
	{ { "SLURM_STEP_NUM_TASKS=8", "SLURM_PROCID=3" }, false, "srun", false },
	{ { "SLURM_STEP_NUM_TASKS=1", "SLURM_NTASKS=8", "SLURM_PROCID=0" },
	  false,
	  NULL,
	  false },
	{ { "SLURM_STEP_NUM_TASKS=8", "SLURM_PROCID=0", "SLURM_PTY_PORT=9",
	    "SLURM_TASK_PID=5" },
	  true,
	  NULL,
	  false },
	{ { "SLURM_STEP_NUM_TASKS=8", "SLURM_PROCID=0", "SLURM_PTY_PORT=9",
	    "SLURM_TASK_PID=77" }, /* the task is runner itself */
	  true,
	  "srun",
	  true },
	{ { "SLURM_STEP_NUM_TASKS=8", "SLURM_PROCID=0", "SLURM_PTY_PORT=9",
	    "SLURM_TASK_PID=5" }, /* srun in a script that such a shell submitted */
	  false,
	  "srun",
	  true },
	{ { "OMPI_COMM_WORLD_SIZE=2", "OMPI_COMM_WORLD_RANK=1" },
	  false,
	  "mpirun",
	  false },
	{ { "PMI_SIZE=2", "PMI_RANK=0" }, false, "PMI_SIZE=2", true },
	{ { "BERTH_SIZE=2", "BERTH_RANK=0", "PMI_SIZE=2", "PMI_RANK=0" },
	  false,
	  "BERTH_SIZE=2: another runner has started",
	  true },
	{ { "BERTH_SIZE=1", "PMI_SIZE=1" }, false, NULL, false },
	{ { "FLUX_JOB_SIZE=4", "FLUX_TASK_RANK=2" }, false, "flux run", false },
	{ { "PMI_SIZE=two" }, false, NULL, false },
	{ { "PMI_SIZE=99999999999999999999" }, false, NULL, false },
	{ { "PMI_SIZE=-2" }, false, NULL, false },
};

START_TEST(in_front)
{
	const struct in_front f = { (char *const *)fronts[_i].env, 77,
				    fronts[_i].terminal };
	struct err e = { 0 };
	bool say = false;

	ck_assert_int_eq(in_front_check(&f, &say, &e), fronts[_i].says ? -1 : 0);
	ck_assert_int_eq(say, fronts[_i].say);
	if (!fronts[_i].says)
		return;
	ck_assert_int_eq(e.id, E_IN_FRONT);
	ck_assert_msg(strstr(e.text, fronts[_i].says) != NULL, "%s", e.text);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("allocation");
	TCase *t = tcase_create("allocation");
	SRunner *r;
	int failed;

	tcase_add_loop_test(t, read_good, 0, COUNT(good));
	tcase_add_loop_test(t, read_none, 0, COUNT(none));
	tcase_add_loop_test(t, read_bad, 0, COUNT(bad));
	tcase_add_loop_test(t, read_gpus, 0, COUNT(gpus));
	tcase_add_loop_test(t, filter, 0, COUNT(filters));
	tcase_add_test(t, per_host);
	tcase_add_loop_test(t, in_front, 0, COUNT(fronts));
	suite_add_tcase(s, t);
	r = srunner_create(s);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed > 0;
}
