/* berth_spank - Slurm's plugin for `srun --berth`.
 *
 * plugstack.conf:
 *	optional /usr/lib/slurm/berth_spank.so agent=/usr/lib/berth/berth-agent
 * and, for steps without the option, default=on, report or off (as it is without that).
 * topology=FILE, an XML file of hwloc, stands for the hosts' own.
 *
 * The option goes from srun, sbatch and salloc to the slurmstepd of each host.  There
 * user_init() asks `berth-agent --step` once, and task_init() gives each task what that
 * said.  Call-backs of options run as root in slurmstepd, so the option is only copied
 * there; the agent reads it.  A failure is one warning, and the tasks run as Slurm
 * started them, unless the option has the word strict.  Links libc alone. */
#include <errno.h>
#include <sched.h>
#include <slurm/slurm.h>
#include <slurm/spank.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/exits.h"
#include "contrib/slurm/answer.h"
#include "contrib/slurm/ask.h"

#define EXPORT __attribute__((visibility("default")))
#pragma GCC visibility push(default)
SPANK_PLUGIN(berth, 1)
#pragma GCC visibility pop

enum { OPTION_BYTES = 1024, REQUEST_BYTES = 65536, DEADLINE_MS = 1000 };

/* Of this process, which is srun's, sbatch's, salloc's or one step's slurmstepd. */
static struct {
	char option[OPTION_BYTES]; /* --berth=OPTION */
	bool given;
	const char *agent, *by_default, *topology; /* plugstack.conf's */
	char request[REQUEST_BYTES];
	size_t n;
	bool too_long;
	char step_gpus[OPTION_BYTES]; /* SLURM_STEP_GPUS of the step */
	char *text;                   /* of the answer */
	struct answer answer;
	bool strict, failed;
} me;

/* ---- the option and plugstack.conf ---- */

static int on_option(int val, const char *value, int remote)
{
	(void)val;
	(void)remote;
	/* sbatch and salloc pass an option without a value on as "(null)" */
	if (!value || !strcmp(value, "(null)"))
		value = "";
	if (strlen(value) >= sizeof me.option) {
		slurm_spank_log("berth: the value of --berth is too long");
		return -1;
	}
	memcpy(me.option, value, strlen(value) + 1);
	me.given = true;
	return 0;
}

static struct spank_option option = {
	.name = (char[]){ "berth" },
	.arginfo = (char[]){ "[words]" },
	.usage = (char[]){ "bind tasks to CPUs near their GPU; words: off, report, "
			   "strict, bind-to=..." },
	.has_arg = 2,
	.cb = on_option,
};

static const char *after(const char *text, const char *prefix)
{
	const size_t n = strlen(prefix);

	return strncmp(text, prefix, n) ? NULL : text + n;
}

EXPORT int slurm_spank_init(spank_t sp, int ac, char **av)
{
	const spank_context_t context = spank_context();

	if (context != S_CTX_LOCAL && context != S_CTX_ALLOCATOR &&
	    context != S_CTX_REMOTE)
		return 0;
	for (int i = 0; i < ac; i++) {
		const char *value;

		if ((value = after(av[i], "agent=")))
			me.agent = value;
		else if ((value = after(av[i], "default=")))
			me.by_default = value;
		else if ((value = after(av[i], "topology=")))
			me.topology = value;
		else
			slurm_error("berth: plugstack.conf: unknown '%s'", av[i]);
	}
	return spank_option_register(sp, &option) == ESPANK_SUCCESS ? 0 : -1;
}

/* Whether LIST, words with commas between them, has WORD. */
static bool has_word(const char *list, const char *word)
{
	const size_t n = strlen(word);

	for (;; list += strcspn(list, ",") + 1) {
		if (strcspn(list, ",") == n && !strncmp(list, word, n))
			return true;
		if (!list[strcspn(list, ",")])
			return false;
	}
}

/* The words that hold for this step.  NULL: off. */
static const char *words(void)
{
	const char *site = me.by_default ? me.by_default : "off";
	const char *text = me.given ? me.option : site;

	return has_word(text, "off") ? NULL : text;
}

/* ---- the request ---- */

static void add(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void add(const char *format, ...)
{
	const size_t room = sizeof me.request - me.n;
	va_list ap;
	int n;

	va_start(ap, format);
	n = vsnprintf(me.request + me.n, room, format, ap);
	va_end(ap);
	if (n < 0 || (size_t)n >= room)
		me.too_long = true;
	else
		me.n += (size_t)n;
}

/* A text of the user's is one line, or the request is not sent. */
static void add_text(const char *word, const char *text)
{
	if (strchr(text, '\n'))
		me.too_long = true;
	add("%s %s\n", word, text);
}

static void add_variable(spank_t sp, const char *word, const char *name)
{
	static char value[16384];
	const spank_err_t e = spank_getenv(sp, name, value, sizeof value);

	if (e == ESPANK_SUCCESS)
		add_text(word, value);
	else if (e != ESPANK_ENV_NOEXIST)
		me.too_long = true;
}

static void add_number(spank_t sp, const char *word, enum spank_item item)
{
	uint32_t n = 0;

	spank_get_item(sp, item, &n);
	add("%s %u\n", word, n);
}

static void add_ranks(spank_t sp, uint32_t tasks)
{
	for (uint32_t i = 0; i < tasks; i++) {
		uint32_t rank = 0;

		spank_get_item(sp, S_JOB_LOCAL_TO_GLOBAL_ID, i, &rank);
		add("%s%u", i ? "," : "ranks ", rank);
	}
	add("\n");
}

/* In a step of several components of a het job, Slurm's items are of this one, and its
 * variables of all: these are added later, and so win. */
static void add_het(spank_t sp)
{
	enum { COMPONENTS = 128 };
	uint32_t job = 0, own = 0;
	char name[64], value[32];

	spank_get_item(sp, S_JOB_TOTAL_TASK_COUNT, &own);
	if (spank_getenv(sp, "SLURM_STEP_NUM_TASKS", value, sizeof value) !=
		    ESPANK_SUCCESS ||
	    strtoul(value, NULL, 10) == own)
		return;
	add_variable(sp, "size", "SLURM_STEP_NUM_TASKS");
	add_variable(sp, "nodes", "SLURM_STEP_NUM_NODES");
	add_variable(sp, "job", "SLURM_JOB_ID");
	spank_get_item(sp, S_JOB_ID, &job);
	for (int i = 0; i < COMPONENTS; i++) {
		snprintf(name, sizeof name, "SLURM_JOB_ID_PACK_GROUP_%d", i);
		if (spank_getenv(sp, name, value, sizeof value) != ESPANK_SUCCESS ||
		    strtoul(value, NULL, 10) == job)
			return;
		snprintf(name, sizeof name, "SLURM_JOB_NODELIST_PACK_GROUP_%d", i);
		add_variable(sp, "before", name);
	}
}

static void make_request(spank_t sp, uint32_t tasks, uid_t uid, const char *text)
{
	char *cores = NULL;

	add("berth-step 1\nuid %u\n", uid);
	add_number(sp, "job", S_JOB_ID);
	add_number(sp, "step", S_JOB_STEPID);
	add_number(sp, "node", S_JOB_NODEID);
	add_number(sp, "nodes", S_JOB_NNODES);
	add_number(sp, "size", S_JOB_TOTAL_TASK_COUNT);
	add_ranks(sp, tasks);
	add_text("options", strcmp(text, "on") ? text : "");
	if (spank_get_item(sp, S_STEP_ALLOC_CORES, &cores) == ESPANK_SUCCESS && cores)
		add_text("cores", cores);
	add_variable(sp, "hosts", "SLURM_STEP_NODELIST");
	add_variable(sp, "layout", "SLURM_STEP_TASKS_PER_NODE");
	add_variable(sp, "bind-type", "SLURM_CPU_BIND_TYPE");
	add_variable(sp, "bind-list", "SLURM_CPU_BIND_LIST");
	add_variable(sp, "cuda", "CUDA_VISIBLE_DEVICES");
	add_variable(sp, "rocr", "ROCR_VISIBLE_DEVICES");
	add_variable(sp, "step-gpus", "SLURM_STEP_GPUS");
	add_het(sp);
	if (me.topology)
		add_text("topology", me.topology);
}

/* ---- once for each host and step ---- */

static const char *ask_agent(spank_t sp, const char *text)
{
	struct ask_user user = { 0 };
	uint32_t tasks = 0;
	gid_t *groups = NULL;
	int ngroups = 0;
	const char *why = NULL;

	if (!me.agent)
		return "plugstack.conf does not say agent=PATH";
	if ((why = ask_distrust(me.agent)))
		return why;
	if (spank_get_item(sp, S_JOB_UID, &user.uid) != ESPANK_SUCCESS ||
	    spank_get_item(sp, S_JOB_GID, &user.gid) != ESPANK_SUCCESS ||
	    spank_get_item(sp, S_JOB_SUPPLEMENTARY_GIDS, &groups, &ngroups) !=
		    ESPANK_SUCCESS ||
	    spank_get_item(sp, S_JOB_LOCAL_TASK_COUNT, &tasks) != ESPANK_SUCCESS ||
	    ngroups < 0)
		return "Slurm does not say what the step is";
	user.groups = groups;
	user.ngroups = (size_t)ngroups;
	make_request(sp, tasks, user.uid, text);
	if (me.too_long)
		return "the step's description is too long";
	me.text = ask(me.agent, &user, me.request, me.n, DEADLINE_MS, &why);
	if (me.text && !answer_read(&me.answer, me.text, tasks))
		why = "its answer is not valid";
	return why;
}

/* Steps of tasks: not a batch script, a shell of salloc, or what holds a job's
 * place. */
static bool is_for_us(spank_t sp)
{
	uint32_t step = UINT32_MAX;
	char mark[8];

	spank_get_item(sp, S_JOB_STEPID, &step);
	return step <= SLURM_MAX_NORMAL_STEP_ID &&
	       spank_getenv(sp, "BERTH_STEP_OF_RUNNER", mark, sizeof mark) ==
		       ESPANK_ENV_NOEXIST;
}

static void tell_failure(const char *text, const char *hint)
{
	me.failed = true;
	slurm_spank_log("berth: %s%s; the tasks %s", me.strict ? "" : "warning: ", text,
			me.strict ? "do not run, as the word strict says"
				  : "run as Slurm binds them");
	if (hint)
		slurm_spank_log("hint: %s", hint);
}

EXPORT int slurm_spank_user_init(spank_t sp, int ac, char **av)
{
	const char *text, *why;
	char line[4608];

	(void)ac;
	(void)av;
	text = words();
	if (spank_context() != S_CTX_REMOTE || !text || !is_for_us(sp))
		return 0;
	me.strict = has_word(text, "strict");
	spank_getenv(sp, "SLURM_STEP_GPUS", me.step_gpus, sizeof me.step_gpus);
	why = ask_agent(sp, text);
	if (why) {
		snprintf(line, sizeof line, "%s: %s",
			 me.agent ? me.agent : "berth-agent", why);
		tell_failure(line, NULL);
	} else if (me.answer.error) {
		tell_failure(me.answer.error, me.answer.hint);
	}
	for (size_t i = 0; i < me.answer.warnings; i++)
		slurm_spank_log("berth: warning: %s", me.answer.warning[i]);
	return 0;
}

/* ---- in each task ---- */

static bool may_open(long gpu)
{
	char path[64];

	snprintf(path, sizeof path, "/dev/nvidia%ld", gpu);
	return !access(path, R_OK | W_OK);
}

/* The berth near the GPU that Slurm has given a task, MINE if it is that one.  Where a
 * cgroup hides the others, SLURM_STEP_GPUS counts from 0 for each task, and the device
 * files tell which it is; else FIRST, its first number, does.  NULL: there is none. */
static const struct answer_task *berth_near(const struct answer_task *mine,
					    const char *first)
{
	const struct answer *a = &me.answer;
	bool hidden = false;

	for (size_t i = 0; i < a->tasks; i++)
		hidden |= a->task[i].gpu >= 0 && !may_open(a->task[i].gpu);
	if (hidden && mine->gpu >= 0 && may_open(mine->gpu))
		return mine;
	for (size_t i = 0; i < a->tasks; i++) {
		const long gpu = a->task[i].gpu;

		if (gpu >= 0 &&
		    (hidden ? may_open(gpu) : gpu == strtol(first, NULL, 10)))
			return &a->task[i];
	}
	return NULL;
}

enum about { ABOUT_RANK, ABOUT_BERTH, ABOUT_VISIBLE };

/* What variable NAME tells of. */
static enum about about(const char *name)
{
	if (strstr(name, "_VISIBLE_DEVICES"))
		return ABOUT_VISIBLE;
	return !strncmp(name, "BERTH_GPU", 9) || !strcmp(name, "BERTH_CPUS") ||
			       !strcmp(name, "BERTH_NUMA") ||
			       !strcmp(name, "OMP_NUM_THREADS")
		       ? ABOUT_BERTH
		       : ABOUT_RANK;
}

static void set_variables(spank_t sp, const struct answer_task *t, enum about which)
{
	for (size_t i = 0; i < t->n; i++) {
		const struct answer_variable *v = &t->v[i];

		if (about(v->name) != which)
			continue;
		if (v->value)
			spank_setenv(sp, v->name, v->value, !v->if_unset);
		else
			spank_unsetenv(sp, v->name);
	}
}

/* Slurm's list of the GPUs that this task can open, shortened to the first. */
static void show_one(spank_t sp, const char *name)
{
	char list[OPTION_BYTES];

	if (spank_getenv(sp, name, list, sizeof list) != ESPANK_SUCCESS)
		return;
	list[strcspn(list, ",")] = '\0';
	spank_setenv(sp, name, list, 1);
}

static void report(const struct answer_task *mine, const struct answer_task *berth,
		   bool chosen)
{
	if (!me.answer.print || !mine->report)
		return;
	slurm_spank_log("berth: %s%s", mine->report,
			chosen ? "; Slurm chose its GPU (--gpus-per-task)" : "");
	if (berth != mine)
		slurm_spank_log("berth: instead it has %s", berth && berth->report
								    ? berth->report
								    : "Slurm's CPUs");
}

/* With --gpus-per-task Slurm has given each task GPUs of its own, and a cgroup may hide
 * all others: such a task gets the berth near one of them, and Slurm's name for it. */
static void apply(spank_t sp, const struct answer_task *mine)
{
	const struct answer_task *berth = mine;
	char gpus[OPTION_BYTES] = "";
	bool chosen;

	spank_getenv(sp, "SLURM_STEP_GPUS", gpus, sizeof gpus);
	chosen = strcmp(gpus, me.step_gpus) != 0;
	if (chosen) {
		berth = berth_near(mine, gpus);
		show_one(sp, "CUDA_VISIBLE_DEVICES");
		show_one(sp, "ROCR_VISIBLE_DEVICES");
	} else {
		set_variables(sp, mine, ABOUT_VISIBLE);
	}
	set_variables(sp, mine, ABOUT_RANK);
	if (berth)
		set_variables(sp, berth, ABOUT_BERTH);
	if (berth && berth->bound &&
	    sched_setaffinity(0, sizeof berth->cpus, (const cpu_set_t *)berth->cpus))
		slurm_spank_log("berth: warning: cannot bind a task: %s",
				strerror(errno));
	report(mine, berth, chosen);
}

EXPORT int slurm_spank_task_init(spank_t sp, int ac, char **av)
{
	int local = -1;

	(void)ac;
	(void)av;
	if (me.failed && me.strict)
		_exit(EXIT_START);
	if (me.failed || me.answer.off || !me.answer.task)
		return 0;
	if (spank_get_item(sp, S_TASK_ID, &local) == ESPANK_SUCCESS && local >= 0 &&
	    (size_t)local < me.answer.tasks)
		apply(sp, &me.answer.task[local]);
	return 0;
}
