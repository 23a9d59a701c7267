/* The environment of each rank, and the part that all ranks of one app share. */
#include "agent/agent.h"

extern char **environ;

static struct spawn_limits limits_of(const struct wire_job *j)
{
	return (struct spawn_limits){ j->umask,
				      { j->nofile, j->core, j->stack, j->memlock } };
}

struct place_request agent_request(struct agent *a)
{
	const struct spawn_limits limits = limits_of(a->job);
	const int fd = spawn_pmi_fd(&limits);
	const bool pmi1 = a->ranks.server && a->mpi & MPI_GIVE_PMI1 && fd > 2;

	return (struct place_request){
		.job = a->job,
		.app = a->app,
		.tf_config = a->tf_config,
		.topo = &a->topo,
		.gpus = &a->chosen,
		.placement = &a->placement,
		.package = &a->packages.package,
		.has_folder = a->packages.has_folder,
		.server = a->ranks.server,
		.mpi = a->mpi,
		.pmi_fd = pmi1 ? (uint32_t)fd : 0,
		.memory = a->guarded.folders ? a->guarded.folders->memory : NULL,
	};
}

struct env_rank agent_env_rank(struct agent *a, uint32_t local)
{
	const struct place_request q = agent_request(a);
	struct env_rank r = env_rank_of(&q, local);

	if (!a->ranks.n)
		return r;
	r.restarts += a->ranks.v[local].life - 1;
	timeline_tell(&a->ranks.v[local].timeline, &r.paths);
	stack_tell(&a->ranks.stacks, &a->ranks.v[local].stack, &r.paths);
	return r;
}

struct app_start *agent_app_start(struct agent *a, uint32_t local)
{
	const struct wire_job *j = a->job;
	const struct env_rank r = agent_env_rank(a, local);
	struct app_start *app;

	if (!a->start)
		a->start = xcalloc(a->napp, sizeof *a->start);
	app = &a->start[j->apps.v[local]];
	if (app->ready)
		return app;
	app->ready = true;
	app->limits = limits_of(j);
	env_base(&app->env, &r, environ);
	program_find(&app->program, a->app[j->apps.v[local]].argv,
		     env_get(&app->env, "PATH"), r.wdir, &app->err);
	if (!app->err.id && a->packages.no_package.len)
		err_set(&app->err, E_HOROVOD, str_text(&a->packages.no_package));
	if (!app->err.id && a->packages.no_folder.len)
		err_set(&app->err, E_PACKAGE, str_text(&a->packages.no_folder));
	return app;
}
