/* berth_spank - Slurm's plugin for `srun --berth`.
 *
 * plugstack.conf:
 *	optional /usr/lib/slurm/berth_spank.so agent=/usr/lib/berth/berth-agent
 * and, for steps without the option, default=on, report or off (as it is without that).
 * topology=FILE, an XML file of hwloc, stands for the hosts' own.
 *
 * The option goes from srun, sbatch and salloc to the slurmstepd of each host.  There
 * user_init() asks `berth-agent --step` once, and task_init() gives each task what that
 * said.  What Slurm chooses for each task is known there alone: the masks of most kinds
 * of --cpu-bind, and the GPUs of --gpus-per-task and --gpu-bind.  Then the tasks
 * gather, and the last one asks again.
 *
 * The agent alone knows the words of the option.  srun, sbatch and salloc ask the agent
 * of their own host, and end if it does not know a word.  Call-backs of options run as
 * root in slurmstepd, so the option is only copied there.  A failure there is one
 * warning, and the tasks run as Slurm started them, unless the option has the word
 * strict.  Links libc alone. */
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
#include "contrib/slurm/gather.h"

#define EXPORT __attribute__((visibility("default")))
#pragma GCC visibility push(default)
SPANK_PLUGIN(berth, 1)
#pragma GCC visibility pop

enum {
	OPTION_BYTES = 1024,
	VALUE_BYTES = 131072,   /* of a variable: Linux's limit */
	REQUEST_BYTES = 262144, /* that of berth-agent */
	DEADLINE_MS = 1000,
	GATHER_MS = 5000 /* between the first task that comes and the answer */
};

/* The state of this process, which is srun's, sbatch's, salloc's or one step's
 * slurmstepd. */
static struct {
	char option[OPTION_BYTES]; /* --berth=OPTION */
	bool given;
	const char *agent, *by_default, *topology; /* plugstack.conf's */
	char request[REQUEST_BYTES];
	size_t n;
	const char *unfit;            /* why it cannot be sent, or NULL */
	char step_gpus[OPTION_BYTES]; /* SLURM_STEP_GPUS of the step */
	struct ask_user user;
	uint64_t cpus[ANSWER_CPUS / 64]; /* slurmstepd's own mask */
	uint32_t tasks;
	struct gather *gather;
	char *text; /* of the answer */
	struct answer answer;
	bool strict, failed;
} me;

/* ---- the option and plugstack.conf ---- */

/* Whether this host's agent takes VALUE.  If no agent answers here, the agents of the
 * step's hosts decide. */
static bool is_valid(const char *value)
{
	const struct ask_user user = { .uid = getuid(), .gid = getgid() };
	char request[OPTION_BYTES + 64];
	struct answer a = { 0 };
	const char *why;
	char *text;
	bool valid;
	int n;

	if (!me.agent || ask_distrust(me.agent))
		return true;
	n = snprintf(request, sizeof request,
		     "berth-step 1\nuid %u\nonly options\noptions %s\n", user.uid,
		     value);
	text = ask(me.agent, &user, request, (size_t)n, DEADLINE_MS, &why);
	valid = !text || !answer_read(&a, text, 1) || !a.error;
	if (!valid)
		slurm_spank_log("berth: %s", a.error);
	if (!valid && a.hint)
		slurm_spank_log("hint: %s", a.hint);
	free(a.task);
	free(text);
	return valid;
}

static int on_option(int val, const char *value, int remote)
{
	(void)val;
	/* sbatch and salloc pass an option without a value on as "(null)" */
	if (!value || !strcmp(value, "(null)"))
		value = "";
	if (strlen(value) >= sizeof me.option) {
		slurm_spank_log("berth: the value of --berth is too long");
		return -1;
	}
	if (strchr(value, '\n')) {
		slurm_spank_log("berth: the value of --berth has a line break in it");
		return -1;
	}
	if (!remote && *value && !is_valid(value))
		return -1;
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

static const char *spank_after(const char *text, const char *prefix)
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

		if ((value = spank_after(av[i], "agent=")))
			me.agent = value;
		else if ((value = spank_after(av[i], "default=")))
			me.by_default = value;
		else if ((value = spank_after(av[i], "topology=")))
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

/* ---- the request ---- */

static void spank_add(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void spank_add(const char *format, ...)
{
	const size_t room = sizeof me.request - me.n;
	va_list ap;
	int n;

	va_start(ap, format);
	n = vsnprintf(me.request + me.n, room, format, ap);
	va_end(ap);
	if (n < 0 || (size_t)n >= room)
		me.unfit = "the step's description is too long";
	else
		me.n += (size_t)n;
}

/* A text of the user's is one line, or the request is not sent. */
static void add_text(const char *word, const char *text)
{
	if (strchr(text, '\n'))
		me.unfit = "the step's description has a line break in a value";
	spank_add("%s %s\n", word, text);
}

static void add_variable(spank_t sp, const char *word, const char *name)
{
	static char value[VALUE_BYTES];
	const spank_err_t e = spank_getenv(sp, name, value, sizeof value);

	if (e == ESPANK_SUCCESS)
		add_text(word, value);
	else if (e != ESPANK_ENV_NOEXIST)
		me.unfit = "a variable of the step is too long";
}

static void add_number(spank_t sp, const char *word, enum spank_item item)
{
	uint32_t n = 0;

	spank_get_item(sp, item, &n);
	spank_add("%s %u\n", word, n);
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

	spank_add("berth-step 1\nuid %u\n", uid);
	add_number(sp, "job", S_JOB_ID);
	add_number(sp, "step", S_JOB_STEPID);
	add_number(sp, "node", S_JOB_NODEID);
	add_number(sp, "nodes", S_JOB_NNODES);
	add_number(sp, "size", S_JOB_TOTAL_TASK_COUNT);
	for (uint32_t i = 0; i < tasks; i++) {
		uint32_t rank = 0;

		spank_get_item(sp, S_JOB_LOCAL_TO_GLOBAL_ID, i, &rank);
		spank_add("%s%u", i ? "," : "ranks ", rank);
	}
	spank_add("\n");
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

/* The request is asked, and its answer is read. */
static const char *ask_request(void)
{
	const char *why = NULL;

	if (me.unfit)
		return me.unfit;
	me.text = ask(me.agent, &me.user, me.request, me.n, DEADLINE_MS, &why);
	return why;
}

static const char *read_answer(void)
{
	free(me.answer.task);
	return answer_read(&me.answer, me.text, me.tasks) ? NULL
							  : "its answer is not valid";
}

static const char *ask_agent(spank_t sp, const char *text)
{
	gid_t *groups = NULL;
	int ngroups = 0;
	const char *why;

	if (!me.agent)
		return "plugstack.conf does not say agent=PATH";
	if ((why = ask_distrust(me.agent)))
		return why;
	if (spank_get_item(sp, S_JOB_UID, &me.user.uid) != ESPANK_SUCCESS ||
	    spank_get_item(sp, S_JOB_GID, &me.user.gid) != ESPANK_SUCCESS ||
	    spank_get_item(sp, S_JOB_SUPPLEMENTARY_GIDS, &groups, &ngroups) !=
		    ESPANK_SUCCESS ||
	    spank_get_item(sp, S_JOB_LOCAL_TASK_COUNT, &me.tasks) != ESPANK_SUCCESS ||
	    ngroups < 0)
		return "Slurm does not say what the step is";
	me.user.groups = groups;
	me.user.ngroups = (size_t)ngroups;
	make_request(sp, me.tasks, me.user.uid, text);
	why = ask_request();
	return why ? why : read_answer();
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

static void tell_why(const char *why)
{
	char line[4608];

	snprintf(line, sizeof line, "%s: %s", me.agent ? me.agent : "berth-agent", why);
	tell_failure(line, NULL);
}

EXPORT int slurm_spank_user_init(spank_t sp, int ac, char **av)
{
	const char *text, *why;

	(void)ac;
	(void)av;
	text = me.given ? me.option : me.by_default ? me.by_default : "off";
	if (spank_context() != S_CTX_REMOTE || has_word(text, "off") || !is_for_us(sp))
		return 0;
	me.strict = has_word(text, "strict");
	spank_getenv(sp, "SLURM_STEP_GPUS", me.step_gpus, sizeof me.step_gpus);
	why = ask_agent(sp, text);
	if (why)
		tell_why(why);
	else if (me.answer.error)
		tell_failure(me.answer.error, me.answer.hint);
	for (size_t i = 0; i < me.answer.warnings; i++)
		slurm_spank_log("berth: warning: %s", me.answer.warning[i]);
	if (me.failed || me.answer.off)
		return 0;
	sched_getaffinity(0, sizeof me.cpus, (cpu_set_t *)me.cpus);
	me.gather = gather_new(me.tasks);
	if (!me.gather)
		tell_why(strerror(errno));
	return 0;
}

/* ---- what Slurm chose for a task ---- */

/* Whether Slurm gives each task GPUs of its own: "gpu:per_task:2", "gpu:single:1". */
static bool binds_gpus(spank_t sp)
{
	char how[OPTION_BYTES];
	const char *gpu;

	if (spank_getenv(sp, "SLURMD_TRES_BIND", how, sizeof how) != ESPANK_SUCCESS)
		return false;
	gpu = strstr(how, "gpu:");
	return gpu && !strstr(gpu, "none");
}

/* The place of NUMBER in LIST, "0,1", from 0; -1: it is not there. */
static int place_in(const char *list, long number)
{
	for (int i = 0; *list; i++) {
		if (strtol(list, NULL, 10) == number)
			return i;
		list += strcspn(list, ",");
		list += *list == ',';
	}
	return -1;
}

static int length_of(const char *list)
{
	int n = *list != '\0';

	for (; *list; list++)
		n += *list == ',';
	return n;
}

/* The numbers of this task's GPUs into OUT; "" if there is none.  Where a cgroup hides
 * the others, SLURM_STEP_GPUS counts from 0 for each task, and the device files tell
 * which they are. */
static void own_gpus(spank_t sp, char *out, size_t size)
{
	const char *at = me.step_gpus;
	char path[64];
	size_t n = 0;
	bool hidden = false;

	*out = '\0';
	while (*at && n + 16 < size) {
		const long gpu = strtol(at, NULL, 10);

		snprintf(path, sizeof path, "/dev/nvidia%ld", gpu);
		if (!access(path, R_OK | W_OK))
			n += (size_t)snprintf(out + n, size - n, "%s%ld", n ? "," : "",
					      gpu);
		else
			hidden = true;
		at += strcspn(at, ",");
		at += *at == ',';
	}
	if ((!hidden || !n) &&
	    (spank_getenv(sp, "SLURM_STEP_GPUS", out, (int)size) != ESPANK_SUCCESS ||
	     strspn(out, "0123456789,") != strlen(out)))
		*out = '\0';
}

/* ---- the second question ---- */

/* As mask_cpu: has it. */
static void add_mask(const uint64_t *cpus)
{
	size_t n = ANSWER_CPUS / 64;

	while (n > 1 && !cpus[n - 1])
		n--;
	spank_add("0x%llx", (unsigned long long)cpus[--n]);
	while (n)
		spank_add("%016llx", (unsigned long long)cpus[--n]);
}

/* Later lines win over those of the first question. */
static void ask_for_all(bool gpus)
{
	struct gather *g = me.gather;
	const char *why;

	if (me.answer.masks) {
		spank_add("bind-type mask_cpu:\n");
		for (uint32_t i = 0; i < g->tasks; i++) {
			spank_add(i ? "," : "bind-list ");
			add_mask(g->task[i].cpus);
		}
		spank_add("\n");
	}
	for (uint32_t i = 0; gpus && i < g->tasks; i++)
		spank_add("%s%s", i ? ";" : "task-gpus ", g->task[i].gpus);
	if (gpus)
		spank_add("\n");
	/* the agent asks for a machine that is not cut down to this task's CPUs */
	me.user.cpus = me.cpus;
	me.user.cpus_bytes = sizeof me.cpus;
	why = ask_request();
	if (!why) {
		memcpy(g->text, me.text, strlen(me.text) + 1);
		why = read_answer();
	}
	if (!why && !me.answer.error)
		gather_decide(g, GATHER_TEXT);
	else if (gather_decide(g, GATHER_NONE) && why)
		tell_why(why);
	else if (!why)
		tell_failure(me.answer.error, me.answer.hint);
}

static void spank_gather(spank_t sp, uint32_t local, bool gpus)
{
	struct gather *g = me.gather;
	struct gather_task *own = &g->task[local];
	enum gather_end end;

	sched_getaffinity(0, sizeof own->cpus, (cpu_set_t *)own->cpus);
	own_gpus(sp, own->gpus, sizeof own->gpus);
	if (gather_arrive(g))
		ask_for_all(gpus);
	end = gather_wait(g, GATHER_MS);
	if (end == GATHER_OPEN) {
		if (gather_decide(g, GATHER_NONE))
			tell_why("some tasks did not begin in time");
		end = gather_wait(g, 0);
	}
	me.failed = end == GATHER_NONE;
	me.text = me.failed ? NULL : strdup(g->text);
	if (!me.failed && (!me.text || read_answer()))
		me.failed = true;
}

/* ---- in each task ---- */

enum about { ABOUT_RANK, ABOUT_BERTH, ABOUT_VISIBLE };

/* The subject of variable NAME. */
static enum about spank_about(const char *name)
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

		if (spank_about(v->name) != which)
			continue;
		if (v->value)
			spank_setenv(sp, v->name, v->value, !v->if_unset);
		else
			spank_unsetenv(sp, v->name);
	}
}

/* Slurm's list of the GPUs that this task can open, shortened to that at PLACE. */
static void show_one(spank_t sp, const char *name, int place)
{
	char list[OPTION_BYTES], *at = list;

	if (spank_getenv(sp, name, list, sizeof list) != ESPANK_SUCCESS)
		return;
	for (; place > 0 && strchr(at, ','); place--)
		at = strchr(at, ',') + 1;
	at[strcspn(at, ",")] = '\0';
	spank_setenv(sp, name, at, 1);
}

static void spank_report(const struct answer_task *mine, bool bound, int chosen)
{
	char which[96] = "";

	if (!me.answer.print || !mine->report)
		return;
	if (chosen == 1)
		snprintf(which, sizeof which,
			 "; Slurm chose its GPU (--gpus-per-task)");
	else if (chosen)
		snprintf(which, sizeof which,
			 "; one of the %d that Slurm gave it (--gpus-per-task)%s",
			 chosen, me.answer.visible ? ", all visible" : "");
	slurm_spank_log("berth: %s%s", mine->report, which);
	if (!bound)
		slurm_spank_log("berth: instead it has Slurm's CPUs");
}

/* If Slurm gave each task GPUs of its own, a cgroup may hide all others: CUDA counts
 * these as Slurm says. */
static void spank_apply(spank_t sp, const struct answer_task *mine, bool gpus)
{
	char own[GATHER_LIST_BYTES] = "", now[OPTION_BYTES] = "";
	bool chosen, near;

	spank_getenv(sp, "SLURM_STEP_GPUS", now, sizeof now);
	chosen = *now && (gpus || strcmp(now, me.step_gpus) != 0);
	if (chosen)
		own_gpus(sp, own, sizeof own);
	near = !chosen || place_in(own, mine->gpu) >= 0;
	if (!chosen)
		set_variables(sp, mine, ABOUT_VISIBLE);
	else if (!me.answer.visible) {
		show_one(sp, "CUDA_VISIBLE_DEVICES", place_in(own, mine->gpu));
		show_one(sp, "ROCR_VISIBLE_DEVICES", place_in(own, mine->gpu));
	}
	set_variables(sp, mine, ABOUT_RANK);
	if (near)
		set_variables(sp, mine, ABOUT_BERTH);
	if (near && mine->bound &&
	    sched_setaffinity(0, sizeof mine->cpus, (const cpu_set_t *)mine->cpus))
		slurm_spank_log("berth: warning: cannot bind a task: %s",
				strerror(errno));
	spank_report(mine, near, chosen ? length_of(own) : 0);
}

EXPORT int slurm_spank_task_init(spank_t sp, int ac, char **av)
{
	int local = -1;
	bool gpus;

	(void)ac;
	(void)av;
	if (!me.failed && (me.answer.off || !me.answer.task ||
			   spank_get_item(sp, S_TASK_ID, &local) != ESPANK_SUCCESS ||
			   local < 0 || (uint32_t)local >= me.tasks))
		return 0;
	gpus = binds_gpus(sp);
	if (!me.failed && (me.answer.masks || gpus))
		spank_gather(sp, (uint32_t)local, gpus);
	if (me.failed && me.strict)
		_exit(EXIT_START);
	if (!me.failed)
		spank_apply(sp, &me.answer.task[local], gpus);
	return 0;
}
