/* `job`: GPUs and topology to a berth for each rank, and the messages about it. */
#include "agent/agent.h"
#include "agent/placement/env.h"

/* Claims are taken for this job: it has GPUs, and no resource manager shares them. */
static bool claims_gpus(const struct agent *a)
{
	return !a->xml && a->chosen.n && !(a->job->flags & (JOB_MANAGED | JOB_PLAN));
}

static int job_place_ranks(struct agent *a, struct err *e)
{
	const struct wire_job *j = a->job;
	const struct place_request q = agent_request(a);

	/* The job's own copy: --gpus and claims narrow and reorder it. */
	a->chosen = (struct gpus){ .v = xcalloc(a->gpus.n, sizeof *a->chosen.v),
				   .n = a->gpus.n };
	if (a->gpus.n)
		memcpy(a->chosen.v, a->gpus.v, a->gpus.n * sizeof *a->chosen.v);
	if (j->gpus.n && gpu_select(&a->chosen, j->gpus.v, j->gpus.n, e))
		return -1;
	if (claims_gpus(a))
		gpu_claim(&a->chosen);
	return place_job(&q, e);
}

/* Claim the GPUs in use, give the others back, and name the jobs that hold the same
 * GPUs. */
static void keep_claims(struct agent *a)
{
	bool *used = xcalloc(a->chosen.n, sizeof *used);
	struct err e = { 0 };

	for (size_t i = 0; i < a->placement.n; i++)
		if (a->placement.v[i].gpu >= 0)
			used[a->placement.v[i].gpu] = true;
	for (size_t i = 0; i < a->chosen.n; i++) {
		if (!used[i] || !*a->chosen.v[i].holder)
			continue;
		err_set(&e, E_GPU_HELD, a->chosen.v[i].pci, a->chosen.v[i].holder);
		stream_log(&a->stream, LOG_WARNING, &e);
	}
	gpu_claim_keep(&a->chosen, used);
	free(used);
}

static void say_berth(struct agent *a, uint32_t local)
{
	const struct berth *b = &a->placement.v[local];
	const struct gpu *g = b->gpu < 0 ? NULL : &a->chosen.v[b->gpu];
	const struct env_rank r = agent_env_rank(a, local);
	uint32_t *others = xcalloc(a->placement.n, sizeof *others);
	struct str cpus = { 0 }, visible = { 0 };
	struct wire_berth m = { .epoch = a->job->epoch,
				.rank = a->job->ranks.v[local] };

	for (uint32_t i = 0; g && i < a->placement.n; i++)
		if (i != local && a->placement.v[i].gpu == b->gpu)
			others[m.shared_with.n++] = a->job->ranks.v[i];
	str_add_bits(&cpus, b->cpus.w, b->cpus.nwords);
	env_visible(&visible, &r);
	m.gpu = g ? g->pci : "";
	m.gpu_index = g ? (uint32_t)g->index : 0;
	m.gpu_name = !g ? "" : *g->model ? g->model : g->uuid;
	m.cpus = str_text(&cpus);
	m.numa = b->numa;
	m.shared_with.v = others;
	m.visible = str_text(&visible);
	m.why = b->why;
	wire_pack_berth(&a->stream.out, &m);
	str_free(&cpus);
	str_free(&visible);
	free(others);
}

/* The first program that cannot run here, to M.  What is found is kept. */
static void find_programs(struct agent *a, struct wire_placed *m)
{
	a->ranks.server = server_open(a->base, &a->stream.out, a->job);
	a->mpi = (a->job->flags & JOB_PMI1 ? MPI_GIVE_PMI1 : 0) |
		 (a->job->flags & JOB_PMIX ? MPI_GIVE_PMIX : 0);
	for (uint32_t i = 0; i < a->placement.n && !*m->id; i++) {
		const struct err *e = &agent_app_start(a, i)->err;

		if (e->id == ERR_NONE)
			continue;
		m->id = err_name(e->id);
		m->text = e->text;
		m->hint = e->hint;
		m->rank = a->job->ranks.v[i];
	}
}

/* Berth's Python package for --horovod, libberth for each job, which may be missing;
 * and the directory of berth.run(). */
static void find_packages(struct packages *p, const struct wire_job *j)
{
	struct str why = { 0 };
	int rc;

	if (!(j->flags & JOB_HOROVOD))
		package_find_library(&p->package, j->python, j->owner);
	else if (package_find(&p->package, j->python, j->owner, &p->no_package))
		str_free(&p->no_package);
	rc = *j->folder == '/' ? package_in(j->folder, j->owner, &why) : 0;
	p->has_folder = rc > 0;
	if (rc < 0)
		str_addf(&p->no_folder, "'%s': %s", j->folder, str_text(&why));
	str_free(&why);
}

static char *draw_ranks(const struct agent *a)
{
	const size_t n = a->placement.n;
	struct topo_rank *v = xcalloc(n + 1, sizeof *v);
	char *text;

	for (size_t i = 0; i < n; i++) {
		const struct berth *b = &a->placement.v[i];

		v[i] = (struct topo_rank){ a->job->ranks.v[i], &b->cpus,
					   b->gpu < 0 ? NULL
						      : a->chosen.v[b->gpu].pci };
	}
	text = topo_draw(a->xml, v, n);
	free(v);
	return text;
}

void agent_place(struct agent *a)
{
	const struct wire_job *job = a->job;
	struct err e = { 0 };
	const size_t ports = job->flags & JOB_TF_CONFIG ? job->ranks.n : 0;
	bool waits = false;

	if (job_place_ranks(a, &e) ||
	    (!ports_hold(&a->ports, ports) && err_set(&e, E_TF_PORTS, ports))) {
		stream_log(&a->stream, LOG_ERROR, &e);
		return;
	}
	if (claims_gpus(a))
		keep_claims(a);
	for (size_t i = 0; i < a->gpus.notes.n; i++) {
		snprintf(e.text, sizeof e.text, "%s", a->gpus.notes.v[i]);
		stream_log(&a->stream, LOG_WARNING, &e);
	}
	if (a->placement.gpus_shared) {
		err_set(&e, E_GPU_SHARED, a->placement.n, a->chosen.n,
			str_plural(a->chosen.n));
		stream_log(&a->stream, LOG_WARNING, &e);
	}
	if (!a->xml)
		find_packages(&a->packages, a->job);
	for (uint32_t i = 0; i < a->placement.n; i++)
		say_berth(a, i);
	if (job->flags & JOB_DRAW)
		a->drawing = draw_ranks(a);
	a->answer = (struct wire_placed){ .epoch = job->epoch,
					  .idle = a->placement.idle,
					  .certificate = a->placement.certificate,
					  .id = "",
					  .text = "",
					  .hint = "",
					  .ports = { a->ports.number, ports },
					  .drawing = a->drawing ? a->drawing : "" };
	if (!a->xml && !(job->flags & JOB_PLAN)) {
		find_programs(a, &a->answer);
		if (!*a->answer.id)
			waits = agent_find_mpi(a);
	}
	if (job->flags & JOB_LISTEN && !a->xml && !job->ranks.v[0])
		agent_listen(a);
	agent_event(a, waits ? START_EV_OPENING : START_EV_PLACED);
}
