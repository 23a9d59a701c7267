#include "agent/step.h"

#include <errno.h>
#include <unistd.h>

#include "agent/place_request.h"
#include "agent/step_request.h"
#include "common/file.h"

/* One step on this host. */
struct step {
	struct step_request q;
	struct step_options o;
	struct topo topo;
	struct gpus gpus;
	struct placement placement;
	struct package package;   /* Berth's own, as far as it is used */
	bool fixed;               /* the masks are the user's */
	bool known;               /* and the request has them */
	struct place_request ask; /* all this, as of a job of runner's */
	struct wire_job job;
	char master[256], host[256], id[64];
	uint32_t *cross_ranks, *cross_sizes;
};

/* ---- in and out ---- */

/* All of IN into TEXT[SIZE], with a NUL.  False if it is longer or has a NUL. */
static bool read_all(int in, char *text, size_t size)
{
	size_t n = 0;
	ssize_t got;

	while ((got = read(in, text + n, size - n)) != 0) {
		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return false;
		n += (size_t)got;
		if (n == size)
			return false;
	}
	text[n] = '\0';
	return strlen(text) == n;
}

static void add_line(struct str *s, const char *word, const char *text)
{
	char *copy = str_plain(xstrdup(text));

	str_addf(s, "%s %s\n", word, copy);
	free(copy);
}

/* ---- the machine ---- */

/* The plugin starts us with no right but the user's; a start by anything else that has
 * more is a mistake. */
static int check_user(const struct step_request *q, struct err *e)
{
	uid_t real, effective, saved;

	if (getresuid(&real, &effective, &saved))
		return err_set(e, E_SYSTEM, "getresuid", strerror(errno));
	if (real != effective || real != saved || real != q->uid)
		return err_set(e, E_STEP_UID, real, effective, saved, q->uid);
	return 0;
}

/* Without ConstrainCores in cgroup.conf the step's cores are a list alone: a process
 * may use them all.  With it, the affinity mask is the limit already, and Slurm's
 * numbers are those of the whole machine. */
static void bind_to_step(struct step *s)
{
	struct cpuset all = cpuset_new((s->topo.ncore + 63) / 64);
	struct cpuset ours = cpuset_new(s->topo.allowed.nwords);
	const bool whole =
		cpuset_within(&s->topo.node[0].cpus, &s->topo.allowed) && *s->q.cores;

	if (whole && cpuset_parse(&all, s->q.cores))
		for (uint32_t c = 0; c < s->topo.ncore; c++)
			for (uint32_t k = 0;
			     cpuset_has(&all, c) && k < s->topo.core[c].npu; k++)
				cpuset_add(&ours, s->topo.core[c].pu[k]);
	if (cpuset_count(&ours))
		topo_restrict(&s->topo, &ours);
	cpuset_free(&all);
	cpuset_free(&ours);
}

/* The GPU whose device file Slurm counts as NUMBER. */
static const struct gpu *gpu_of_minor(const struct gpus *g, long number)
{
	for (size_t i = 0; i < g->n; i++)
		if (g->v[i].minor == number)
			return &g->v[i];
	for (size_t i = 0; i < g->n; i++)
		if (g->v[i].minor < 0 && g->v[i].index == number)
			return &g->v[i];
	return NULL;
}

/* Only the GPUs of SLURM_STEP_GPUS.  In CUDA_VISIBLE_DEVICES Slurm names the same GPUs
 * in the same order, but counts from 0 where a cgroup hides all others. */
static void keep_step_gpus(struct gpus *g, const char *step_gpus, const char *visible)
{
	struct gpu *v = xcalloc(g->n + 1, sizeof *v);
	const char *at = step_gpus;
	size_t n = 0;
	char *end;

	while (n < g->n) {
		const long number = strtol(at, &end, 10);
		const struct gpu *found = end != at ? gpu_of_minor(g, number) : NULL;
		const long shown = visible ? strtol(visible, NULL, 10) : number;

		if (found) {
			v[n] = *found;
			v[n].minor = (int)number;
			v[n++].index = (int)shown;
		}
		if (visible && (visible = strchr(visible, ',')))
			visible++;
		if (end == at || *end != ',')
			break;
		at = end + 1;
	}
	free(g->v);
	g->v = v;
	g->n = n;
}

static void find_gpus(struct step *s)
{
	const struct step_request *q = &s->q;
	const bool amd = !q->cuda && q->rocr;
	struct gpu_sources from = { .root = "", .closed_too = q->task_gpus };

	if (!q->step_gpus) {
		from.cuda_visible = q->cuda;
		from.rocr_visible = q->rocr;
	}
	gpu_find(&s->gpus, &s->topo, &from);
	if (q->step_gpus)
		keep_step_gpus(&s->gpus, q->step_gpus, amd ? q->rocr : q->cuda);
	else if (!q->cuda && !q->rocr && !s->o.all_gpus)
		s->gpus.n = 0;
}

/* ---- a berth for each task ---- */

/* The GPUs that Slurm gave each task, for place_fit().  NULL: all tasks have all. */
static bool *own_gpus(const struct step *s)
{
	const struct gpus *g = &s->gpus;
	int *numbers = xcalloc(g->n + 1, sizeof *numbers);
	bool *may = NULL;

	for (size_t i = 0; i < g->n; i++)
		numbers[i] = g->v[i].minor;
	if (g->n && s->q.task_gpus) {
		may = xcalloc(s->q.tasks * g->n, sizeof *may);
		if (!step_gpu_lists(may, s->q.tasks, s->q.task_gpus, numbers, g->n)) {
			free(may);
			may = NULL;
		}
	}
	free(numbers);
	return may;
}

/* GPU I becomes that of task I, also if it is that of other tasks: place_ranks() then
 * gives each task its own.  Nothing changes if a task has none. */
static void deal_gpus(struct step *s, const bool *may)
{
	struct gpus *g = &s->gpus;
	const size_t n = s->q.tasks;
	struct gpu *v = xcalloc(n, sizeof *v);
	int *gpu = xcalloc(n, sizeof *gpu);
	size_t i = 0;

	place_fit(gpu, &s->topo, g, n, NULL, may);
	for (; i < n && gpu[i] >= 0; i++)
		v[i] = g->v[gpu[i]];
	if (i == n) {
		free(g->v);
		g->v = v;
		g->n = n;
		v = NULL;
	}
	free(v);
	free(gpu);
}

/* Fill J as runner would, with Slurm's words about the step. */
static void step_describe(struct step *s, struct wire_job *j)
{
	const struct step_request *q = &s->q;
	const struct place_options *o = &s->o.place;

	step_first_host(s->master, sizeof s->master, q->hosts);
	gethostname(s->host, sizeof s->host - 1);
	snprintf(s->id, sizeof s->id, "slurm-%u.%u", q->job, q->step);
	s->cross_ranks = xcalloc(q->tasks, sizeof *s->cross_ranks);
	s->cross_sizes = xcalloc(q->tasks, sizeof *s->cross_sizes);
	for (uint32_t i = 0; i < q->tasks; i++) {
		if (step_cross(&s->cross_ranks[i], &s->cross_sizes[i], q->layout, i,
			       q->node))
			continue;
		s->cross_ranks[i] = q->node;
		s->cross_sizes[i] = q->nodes;
	}
	*j = (struct wire_job){
		.epoch = 1,
		.job_id = s->id,
		.flags = JOB_MANAGED | (o->no_gpu_sharing ? JOB_NO_GPU_SHARING : 0),
		.np = q->size,
		.node = q->node,
		.nodes = q->nodes,
		.host = s->host,
		.ranks = { q->ranks, q->tasks },
		.cross_ranks = { s->cross_ranks, q->tasks },
		.cross_sizes = { s->cross_sizes, q->tasks },
		.master_addr = s->master,
		.master_port = *s->master ? step_port(q->job, q->step) : 0,
		.bind_to = o->bind_to,
		.bind_count = o->bind_count,
		.share = o->share,
		.gpu_visible = s->o.gpu_visible,
		.gpu_id = s->o.gpu_id,
	};
}

static int step_place(struct step *s, struct err *e)
{
	struct cpuset *masks = xcalloc(s->q.tasks, sizeof *masks);
	bool *may = own_gpus(s);
	int rc;

	s->fixed = *s->q.bind_type;
	s->known = step_masks(masks, s->q.tasks, s->q.bind_type, s->q.bind_list,
			      &s->topo.allowed);
	if (s->fixed && !s->known)
		s->o.place.bind_to = BIND_NONE;
	if (may && !s->known)
		deal_gpus(s, may);
	step_describe(s, &s->job);
	s->ask = (struct place_request){ .job = &s->job,
					 .topo = &s->topo,
					 .gpus = &s->gpus,
					 .placement = &s->placement,
					 .package = &s->package,
					 .has = s->known ? masks : NULL,
					 .may = may };
	rc = place_job(&s->ask, e);
	for (size_t i = 0; i < s->q.tasks; i++)
		cpuset_free(&masks[i]);
	free(masks);
	free(may);
	s->ask.has = NULL;
	s->ask.may = NULL;
	return rc;
}

static void add_task(struct str *out, const struct step *s, uint32_t local)
{
	const struct env_rank r = env_rank_of(&s->ask, local);
	static const char *const words[] = { "set", "default", "unset" };
	const struct berth *b = &s->placement.v[local];
	struct strv lists[3] = { 0 };
	struct str cpus = { 0 }, report = { 0 };

	str_add_bits(&cpus, b->cpus.w, b->cpus.nwords);
	str_addf(out, "task %u\n", local);
	if (b->bound && !s->fixed)
		add_line(out, "cpus", str_text(&cpus));
	if (b->gpu >= 0 && s->gpus.v[b->gpu].minor >= 0)
		str_addf(out, "gpu %d\n", s->gpus.v[b->gpu].minor);
	env_task(&lists[0], &lists[1], &lists[2], &r);
	for (size_t k = 0; k < 3; k++) {
		for (size_t i = 0; i < lists[k].n; i++)
			add_line(out, words[k], lists[k].v[i]);
		strv_free(&lists[k]);
	}
	str_addf(&report, "rank %u on %s: %s%s: %s", r.rank, r.host,
		 s->fixed ? "--cpu-bind's CPUs " : "cpus ", str_text(&cpus), b->why);
	add_line(out, "report", str_text(&report));
	str_free(&cpus);
	str_free(&report);
}

static int step_answer(struct str *out, struct step *s, char *text, struct err *e)
{
	struct err shared = { 0 };

	if (step_request_read(&s->q, text, e) || check_user(&s->q, e) ||
	    step_options_read(&s->o, s->q.options, e))
		return -1;
	if (s->o.off || s->q.only_options) {
		str_add(out, "off\n");
		return 0;
	}
	if (s->q.topology) { /* it stands for this machine: CPUs can be bound to */
		setenv("HWLOC_XMLFILE", s->q.topology, 1);
		setenv("HWLOC_THISSYSTEM", "1", 1);
	}
	if (topo_load(&s->topo, NULL, e))
		return -1;
	bind_to_step(s);
	find_gpus(s);
	if (step_place(s, e))
		return -1;
	package_find_library(&s->package, "", 0);
	if (s->o.report)
		str_add(out, "print\n");
	if (s->fixed && !s->known)
		str_add(out, "masks\n");
	if (s->o.all_gpus || s->o.gpu_visible == VISIBLE_NODE ||
	    s->o.gpu_visible == VISIBLE_INHERIT)
		str_add(out, "visible\n");
	for (size_t i = 0; i < s->gpus.notes.n; i++)
		add_line(out, "warning", s->gpus.notes.v[i]);
	if (s->placement.gpus_shared) {
		err_set(&shared, E_GPU_SHARED, s->q.tasks, s->gpus.n,
			str_plural(s->gpus.n));
		add_line(out, "warning", shared.text);
	}
	for (uint32_t i = 0; i < s->q.tasks; i++)
		add_task(out, s, i);
	return 0;
}

int step_main(int in, int out)
{
	char *text = xmalloc(STEP_REQUEST_BYTES + 1);
	struct step s = { 0 };
	struct str said = { 0 };
	struct err e = { 0 };
	int rc;

	str_add(&said, "berth-step 1\n");
	rc = read_all(in, text, STEP_REQUEST_BYTES + 1)
		     ? step_answer(&said, &s, text, &e)
		     : err_set(&e, E_STEP, "it is too long");
	if (rc) {
		add_line(&said, "error", e.text);
		if (*e.hint)
			add_line(&said, "hint", e.hint);
	}
	str_add(&said, "end\n");
	rc = file_write(out, said.s, said.len) ? EXIT_RUNNER : 0;
	package_free(&s.package);
	placement_free(&s.placement);
	gpu_free(&s.gpus);
	topo_free(&s.topo);
	step_request_free(&s.q);
	free(s.cross_ranks);
	free(s.cross_sizes);
	str_free(&said);
	free(text);
	return rc;
}
