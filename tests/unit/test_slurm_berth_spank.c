/* contrib/slurm/berth_spank.c, in a Slurm and with an agent that are this file: what
 * the plugin asks, and what each task then has.  Its state is that of a process, and
 * each test has its own.
 * takes_s: 0 */
#include <check.h>
#include <inttypes.h>
#include <sched.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/exits.h"
#include "common/str.h"
#include "contrib/slurm/ask.h"
#include "tests/standin/slurm/slurm.h"
#include "tests/standin/slurm/spank.h"

#define HEAD "berth-step 1\n"
#define REQUEST_OF_TWO                                                                 \
	"berth-step 1\nuid 7\njob 55\nstep 3\nnode 1\nnodes 2\nsize 4\n"               \
	"ranks 2,3\noptions "

enum { TASKS = 2, VARIABLES = 32 };

/* What this Slurm says. */
static struct {
	spank_context_t context;
	uint32_t step, size;
	int task;
	bool unknown; /* whose step it is */
	struct {
		char name[64], value[256];
		bool set;
	} v[VARIABLES];
} slurm = { .context = S_CTX_REMOTE, .step = 3, .size = 4 };

static struct spank_option *registered;
static struct str logged;
static const char *distrust, *no_answer, *answers[3]; /* the agent's, in order */
/* As each task asks in a process of its own. */
static struct {
	char request[8][8192];
	size_t n;
} * asked;

/* ---- Slurm ---- */

spank_context_t spank_context(void)
{
	return slurm.context;
}

spank_err_t spank_option_register(spank_t sp, struct spank_option *option)
{
	(void)sp;
	registered = option;
	return ESPANK_SUCCESS;
}

spank_err_t spank_get_item(spank_t sp, enum spank_item item, ...)
{
	static gid_t groups[] = { 9, 10 };
	static char cores[] = "0-3";
	static const uint32_t of[] = {
		[S_JOB_UID] = 7,    [S_JOB_GID] = 8,    [S_JOB_ID] = 55,
		[S_JOB_NNODES] = 2, [S_JOB_NODEID] = 1, [S_JOB_LOCAL_TASK_COUNT] = TASKS
	};
	va_list ap;

	(void)sp;
	va_start(ap, item);
	if (item == S_JOB_LOCAL_TO_GLOBAL_ID) {
		const uint32_t local = va_arg(ap, uint32_t);

		*va_arg(ap, uint32_t *) = 2 + local;
	} else if (item == S_JOB_SUPPLEMENTARY_GIDS) {
		*va_arg(ap, gid_t **) = groups;
		*va_arg(ap, int *) = 2;
	} else if (item == S_STEP_ALLOC_CORES) {
		*va_arg(ap, char **) = cores;
	} else if (item == S_TASK_ID) {
		*va_arg(ap, int *) = slurm.task;
	} else {
		*va_arg(ap, uint32_t *) = item == S_JOB_STEPID             ? slurm.step
					  : item == S_JOB_TOTAL_TASK_COUNT ? slurm.size
									   : of[item];
	}
	va_end(ap);
	return slurm.unknown && item == S_JOB_GID ? ESPANK_ERROR : ESPANK_SUCCESS;
}

/* The place of NAME, or a free one. */
static size_t place_of(const char *name)
{
	size_t i = 0;

	while (i < VARIABLES && *slurm.v[i].name && strcmp(slurm.v[i].name, name) != 0)
		i++;
	ck_assert_uint_lt(i, VARIABLES);
	return i;
}

static const char *value_of(const char *name)
{
	const size_t i = place_of(name);

	return slurm.v[i].set ? slurm.v[i].value : NULL;
}

spank_err_t spank_getenv(spank_t sp, const char *name, char *value, int bytes)
{
	const char *now = value_of(name);

	(void)sp;
	if (!now)
		return ESPANK_ENV_NOEXIST;
	if (strlen(now) >= (size_t)bytes || !strcmp(now, "too long"))
		return ESPANK_NOSPACE;
	memcpy(value, now, strlen(now) + 1);
	return ESPANK_SUCCESS;
}

spank_err_t spank_setenv(spank_t sp, const char *name, const char *value, int overwrite)
{
	const size_t i = place_of(name);

	(void)sp;
	if (slurm.v[i].set && !overwrite)
		return ESPANK_ERROR;
	ck_assert_uint_lt(strlen(name), sizeof slurm.v[i].name);
	ck_assert_uint_lt(strlen(value), sizeof slurm.v[i].value);
	memcpy(slurm.v[i].name, name, strlen(name) + 1);
	memcpy(slurm.v[i].value, value, strlen(value) + 1);
	slurm.v[i].set = true;
	return ESPANK_SUCCESS;
}

spank_err_t spank_unsetenv(spank_t sp, const char *name)
{
	(void)sp;
	slurm.v[place_of(name)].set = false;
	return ESPANK_SUCCESS;
}

static void log_line(const char *format, va_list ap)
{
	char line[8192];

	vsnprintf(line, sizeof line, format, ap);
	str_addf(&logged, "%s\n", line);
}

void slurm_spank_log(const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	log_line(format, ap);
	va_end(ap);
}

void slurm_error(const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	log_line(format, ap);
	va_end(ap);
}

/* ---- the agent ---- */

const char *__wrap_ask_distrust(const char *path);
const char *__wrap_ask_distrust(const char *path)
{
	ck_assert_str_eq(path, "/agent");
	return distrust;
}

char *__wrap_ask(const char *path, const struct ask_user *user, const char *request,
		 size_t n, int deadline_ms, const char **why);
char *__wrap_ask(const char *path, const struct ask_user *user, const char *request,
		 size_t n, int deadline_ms, const char **why)
{
	ck_assert_str_eq(path, "/agent");
	ck_assert_int_eq(deadline_ms, 1000);
	ck_assert_uint_eq(strlen(request), n);
	if (slurm.context == S_CTX_REMOTE) {
		ck_assert_uint_eq(user->uid, 7);
		ck_assert_uint_eq(user->gid, 8);
		ck_assert_uint_eq(user->ngroups, 2);
	}
	ck_assert_uint_lt(asked->n, 3);
	ck_assert_uint_lt(n, sizeof asked->request[0]);
	memcpy(asked->request[asked->n], request, n + 1);
	*why = no_answer;
	return no_answer ? NULL : xstrdup(answers[asked->n++]);
}

/* ---- what the tests share ---- */

static void set(const char *name, const char *value)
{
	spank_setenv(NULL, name, value, 1);
}

static void has(const char *name, const char *value)
{
	ck_assert_pstr_eq(value_of(name), value);
}

static void says(const char *text)
{
	ck_assert_str_eq(str_text(&logged), text);
	str_free(&logged);
}

static void begin(void)
{
	static char agent[] = "agent=/agent";
	char *av[] = { agent };

	asked = mmap(NULL, sizeof *asked, PROT_READ | PROT_WRITE,
		     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	ck_assert_ptr_ne(asked, MAP_FAILED);
	ck_assert_int_eq(slurm_spank_init(NULL, 1, av), 0);
	says("");
}

/* The step has --berth=VALUE, and the agent says these. */
static void step(const char *value, const char *first, const char *second)
{
	answers[0] = first;
	answers[1] = second;
	ck_assert_int_eq(registered->cb(0, value, 1), 0);
	ck_assert_int_eq(slurm_spank_user_init(NULL, 0, NULL), 0);
}

/* ---- the option and plugstack.conf ---- */

START_TEST(words_of_plugstack)
{
	char a[] = "agent=/agent", b[] = "default=off", c[] = "topology=/topo.xml",
	     d[] = "color=red";
	char *av[] = { a, b, c, d };

	registered = NULL;
	slurm.context = S_CTX_SLURMD;
	ck_assert_int_eq(slurm_spank_init(NULL, 4, av), 0);
	ck_assert_ptr_null(registered);
	slurm.context = S_CTX_ALLOCATOR;
	ck_assert_int_eq(slurm_spank_init(NULL, 4, av), 0);
	ck_assert_str_eq(registered->name, "berth");
	says("berth: plugstack.conf: unknown 'color=red'\n");
	slurm.context = S_CTX_REMOTE;
	ck_assert_int_eq(slurm_spank_user_init(NULL, 0, NULL),
			 0); /* the default: off */
	ck_assert_uint_eq(asked->n, 0);
	step("report", HEAD "off\nend\n", NULL);
	ck_assert_ptr_nonnull(strstr(asked->request[0], "\ntopology /topo.xml\n"));
}
END_TEST

START_TEST(values_of_the_option)
{
	char value[1100];

	slurm.context = S_CTX_LOCAL;
	memset(value, 'x', sizeof value);
	value[sizeof value - 1] = '\0';
	ck_assert_int_eq(registered->cb(0, value, 0), -1);
	says("berth: the value of --berth is too long\n");
	ck_assert_int_eq(registered->cb(0, "a\nb", 0), -1);
	says("berth: the value of --berth has a line break in it\n");
	ck_assert_int_eq(registered->cb(0, "(null)", 0), 0);
	ck_assert_uint_eq(asked->n, 0);
	answers[0] = HEAD "error no word 'x'\nhint say y\nend\n";
	ck_assert_int_eq(registered->cb(0, "x", 0), -1);
	says("berth: no word 'x'\nhint: say y\n");
	snprintf(value, sizeof value, HEAD "uid %u\nonly options\noptions x\n",
		 (unsigned)getuid());
	ck_assert_str_eq(asked->request[0], value);
	answers[1] = HEAD "off\nend\n";
	ck_assert_int_eq(registered->cb(0, "y", 0), 0);
	distrust = "it is of another user";
	ck_assert_int_eq(registered->cb(0, "z", 0), 0); /* the hosts decide */
	says("");
}
END_TEST

/* ---- the request ---- */

START_TEST(request_of_a_step)
{
	set("SLURM_STEP_NODELIST", "n[1-2]");
	set("SLURM_STEP_TASKS_PER_NODE", "2(x2)");
	set("SLURM_CPU_BIND_TYPE", "none");
	set("CUDA_VISIBLE_DEVICES", "0,1");
	set("SLURM_STEP_GPUS", "4,5");
	step("on", HEAD "off\nend\n", NULL);
	says("");
	ck_assert_str_eq(asked->request[0],
			 REQUEST_OF_TWO "\ncores 0-3\nhosts n[1-2]\nlayout 2(x2)\n"
					"bind-type none\ncuda 0,1\nstep-gpus 4,5\n");
	ck_assert_int_eq(slurm_spank_task_init(NULL, 0, NULL), 0);
	ck_assert_uint_eq(asked->n, 1);
}
END_TEST

/* Variables tell of all components, the items of one. */
START_TEST(request_of_a_het_step)
{
	set("SLURM_STEP_NUM_TASKS", "6");
	set("SLURM_STEP_NUM_NODES", "3");
	set("SLURM_JOB_ID", "54");
	set("SLURM_JOB_ID_PACK_GROUP_0", "54");
	set("SLURM_JOB_NODELIST_PACK_GROUP_0", "n9");
	set("SLURM_JOB_ID_PACK_GROUP_1", "55");
	step("report", HEAD "off\nend\n", NULL);
	ck_assert_str_eq(asked->request[0], REQUEST_OF_TWO
			 "report\ncores 0-3\nsize 6\nnodes 3\njob 54\nbefore n9\n");
}
END_TEST

START_TEST(steps_that_are_not_ours)
{
	slurm.step = 0xfffffffb;
	step("report", NULL, NULL);
	slurm.step = 3;
	set("BERTH_STEP_OF_RUNNER", "1");
	step("report", NULL, NULL);
	spank_unsetenv(NULL, "BERTH_STEP_OF_RUNNER");
	step("report,off", NULL, NULL);
	slurm.context = S_CTX_LOCAL;
	step("", NULL, NULL);
	ck_assert_uint_eq(asked->n, 0);
	says("");
	ck_assert_int_eq(slurm_spank_task_init(NULL, 0, NULL), 0);
}
END_TEST

/* ---- failures ---- */

static void warned(const char *text)
{
	char line[512];

	snprintf(line, sizeof line,
		 "berth: warning: %s; the tasks run as Slurm binds them\n", text);
	says(line);
	ck_assert_int_eq(slurm_spank_task_init(NULL, 0, NULL), 0);
	has("RANK", NULL);
}

START_TEST(no_answers)
{
	distrust = "it is of another user";
	step("report", NULL, NULL);
	warned("/agent: it is of another user");
	distrust = NULL;
	slurm.unknown = true;
	step("report", NULL, NULL);
	warned("/agent: Slurm does not say what the step is");
	slurm.unknown = false;
	no_answer = "it did not answer in time";
	step("report", NULL, NULL);
	warned("/agent: it did not answer in time");
	no_answer = NULL;
	step("report", HEAD "end\n", NULL);
	warned("/agent: its answer is not valid");
}
END_TEST

START_TEST(agent_says_an_error)
{
	step("report", HEAD "warning old\nerror no GPU\nend\n", NULL);
	says("berth: warning: no GPU; the tasks run as Slurm binds them\n"
	     "berth: warning: old\n");
}
END_TEST

START_TEST(a_line_break)
{
	set("SLURM_STEP_NODELIST", "n1\nuid 0");
	step("report", NULL, NULL);
	warned("/agent: the step's description has a line break in a value");
}
END_TEST

START_TEST(a_long_variable)
{
	set("SLURM_STEP_NODELIST", "too long");
	step("report", NULL, NULL);
	warned("/agent: a variable of the step is too long");
}
END_TEST

START_TEST(strict_tasks_do_not_run)
{
	int status;
	pid_t pid;

	step("strict", HEAD "error no GPU\nhint ask for one\nend\n", NULL);
	says("berth: no GPU; the tasks do not run, as the word strict says\n"
	     "hint: ask for one\n");
	pid = fork();
	if (!pid) {
		slurm_spank_task_init(NULL, 0, NULL);
		_exit(0);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert(WIFEXITED(status));
	ck_assert_int_eq(WEXITSTATUS(status), EXIT_START);
}
END_TEST

/* ---- tasks ---- */

START_TEST(a_task_has_its_own)
{
	cpu_set_t cpus;
	char answer[512];
	size_t cpu;

	ck_assert_int_eq(sched_getaffinity(0, sizeof cpus, &cpus), 0);
	for (cpu = 0; !CPU_ISSET(cpu, &cpus); cpu++)
		;
	snprintf(answer, sizeof answer,
		 HEAD
		 "print\ntask 0\ntask 1\ncpus %zu\ngpu 1\nset RANK=3\nset BERTH_GPU=1\n"
		 "set CUDA_VISIBLE_DEVICES=1\ndefault MASTER_PORT=1\nunset OMPI\n"
		 "report rank 3\nend\n",
		 cpu);
	set("MASTER_PORT", "2");
	set("OMPI", "1");
	slurm.task = 1;
	step("", answer, NULL);
	ck_assert_int_eq(slurm_spank_task_init(NULL, 0, NULL), 0);
	says("berth: rank 3\n");
	has("RANK", "3");
	has("BERTH_GPU", "1");
	has("CUDA_VISIBLE_DEVICES", "1");
	has("MASTER_PORT", "2");
	has("OMPI", NULL);
	ck_assert_int_eq(sched_getaffinity(0, sizeof cpus, &cpus), 0);
	ck_assert_int_eq(CPU_COUNT(&cpus), 1);
	ck_assert(CPU_ISSET(cpu, &cpus));
}
END_TEST

START_TEST(a_mask_that_cannot_be)
{
	step("", HEAD "task 0\ncpus 8191\nset RANK=2\ntask 1\nend\n", NULL);
	ck_assert_int_eq(slurm_spank_task_init(NULL, 0, NULL), 0);
	says("berth: warning: cannot bind a task: Invalid argument\n");
	has("RANK", "2");
	slurm.task = TASKS;
	ck_assert_int_eq(slurm_spank_task_init(NULL, 0, NULL), 0);
}
END_TEST

/* Both tasks, as forked children; the status of each is 0. */
static void both(void (*test)(void))
{
	for (slurm.task = 0; slurm.task < TASKS; slurm.task++)
		if (!fork()) {
			ck_assert_int_eq(slurm_spank_task_init(NULL, 0, NULL), 0);
			test();
			_exit(0);
		}
	for (int i = 0; i < TASKS; i++) {
		int status;

		ck_assert_int_gt(wait(&status), 0);
		ck_assert_int_eq(status, 0);
	}
}

static void has_its_rank(void)
{
	has("RANK", slurm.task ? "13" : "12");
	has("BERTH_CPUS", slurm.task ? NULL : "0");
}

#define FIRST HEAD "masks\ntask 0\nset RANK=2\ntask 1\nset RANK=3\nend\n"

START_TEST(masks_are_asked_for_all)
{
	cpu_set_t cpus;
	uint64_t low;
	char lines[128];

	ck_assert_int_eq(sched_getaffinity(0, sizeof cpus, &cpus), 0);
	step("", FIRST,
	     HEAD "task 0\nset RANK=12\nset BERTH_CPUS=0\ntask 1\nset RANK=13\nend\n");
	both(has_its_rank);
	ck_assert_uint_eq(asked->n, 2);
	memcpy(&low, &cpus, sizeof low);
	snprintf(lines, sizeof lines,
		 "\nbind-type mask_cpu:\nbind-list %#" PRIx64 ",%#" PRIx64 "\n", low,
		 low);
	if (CPU_COUNT(&cpus) == __builtin_popcountll(low))
		ck_assert_ptr_nonnull(strstr(asked->request[1], lines));
	ck_assert_int_eq(strncmp(asked->request[0], asked->request[1],
				 strlen(asked->request[0])),
			 0);
}
END_TEST

static void has_nothing(void)
{
	has("RANK", NULL);
}

START_TEST(no_second_answer)
{
	step("", FIRST, HEAD "end\n");
	both(has_nothing);
}
END_TEST

START_TEST(an_error_as_second_answer)
{
	step("", FIRST, HEAD "error no\nend\n");
	both(has_nothing);
}
END_TEST

/* Slurm gave each task both GPUs, whose device files no machine has: one is chosen. */
static void has_one_gpu(void)
{
	has("CUDA_VISIBLE_DEVICES", slurm.task ? "1" : "0");
	has("BERTH_GPU", slurm.task ? "65" : "64");
	ck_assert_str_eq(str_text(&logged),
			 slurm.task ? "berth: r 3; one of the 2 that Slurm gave it "
				      "(--gpus-per-task)\n"
				    : "");
}

START_TEST(gpus_that_slurm_chose)
{
	static const char answer[] =
		HEAD "print\ntask 0\ngpu 64\nset BERTH_GPU=64\nset "
		     "CUDA_VISIBLE_DEVICES=64\ntask 1\ngpu 65\n"
		     "set BERTH_GPU=65\nset CUDA_VISIBLE_DEVICES=65\nreport r 3\nend\n";

	set("SLURMD_TRES_BIND", "gpu:per_task:2");
	set("SLURM_STEP_GPUS", "64,65");
	set("CUDA_VISIBLE_DEVICES", "0,1");
	step("", answer, answer);
	both(has_one_gpu);
	ck_assert_uint_eq(asked->n, 2);
	ck_assert_ptr_nonnull(strstr(asked->request[1], "\ntask-gpus 64,65;64,65\n"));
}
END_TEST

/* Slurm gave the task one GPU, and the agent wanted another: it keeps Slurm's CPUs. */
START_TEST(a_gpu_that_is_not_near)
{
	set("SLURM_STEP_GPUS", "64,65");
	step("",
	     HEAD "print\ntask 0\ngpu 65\nset BERTH_GPU=65\nset RANK=2\nreport r "
		  "2\ntask 1\nend\n",
	     NULL);
	set("SLURM_STEP_GPUS", "64");
	ck_assert_int_eq(slurm_spank_task_init(NULL, 0, NULL), 0);
	says("berth: r 2; Slurm chose its GPU (--gpus-per-task)\n"
	     "berth: instead it has Slurm's CPUs\n");
	has("RANK", "2");
	has("BERTH_GPU", NULL);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("spank");
	TCase *c = tcase_create("plugin");
	SRunner *r;
	int failed;

	tcase_set_timeout(c, 60);
	tcase_add_checked_fixture(c, begin, NULL);
	tcase_add_test(c, words_of_plugstack);
	tcase_add_test(c, values_of_the_option);
	tcase_add_test(c, request_of_a_step);
	tcase_add_test(c, request_of_a_het_step);
	tcase_add_test(c, steps_that_are_not_ours);
	tcase_add_test(c, no_answers);
	tcase_add_test(c, agent_says_an_error);
	tcase_add_test(c, a_line_break);
	tcase_add_test(c, a_long_variable);
	tcase_add_test(c, strict_tasks_do_not_run);
	tcase_add_test(c, a_task_has_its_own);
	tcase_add_test(c, a_mask_that_cannot_be);
	tcase_add_test(c, masks_are_asked_for_all);
	tcase_add_test(c, no_second_answer);
	tcase_add_test(c, an_error_as_second_answer);
	tcase_add_test(c, gpus_that_slurm_chose);
	tcase_add_test(c, a_gpu_that_is_not_near);
	suite_add_tcase(s, c);
	r = srunner_create(s);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? 1 : 0;
}
