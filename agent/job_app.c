/* What ranks start with: the environment of each, and what all of one app share. */
#include <sys/stat.h>

#include "agent/agent.h"
#include "agent/placement/env.h"

extern char **environ;

static bool dir_exists(const char *path)
{
	struct stat st;

	return !stat(path, &st) && S_ISDIR(st.st_mode);
}

static struct spawn_limits limits_of(const struct wire_job *j)
{
	return (struct spawn_limits){ j->umask,
				      { j->nofile, j->core, j->stack, j->memlock } };
}

/* 0: ranks get no PMI-1. */
static uint32_t pmi_fd(const struct agent *a)
{
	const struct spawn_limits limits = limits_of(a->job);
	const int fd = spawn_pmi_fd(&limits);

	return a->ranks.server && a->mpi & MPI_GIVE_PMI1 && fd > 2 ? (uint32_t)fd : 0;
}

struct env_rank agent_env_rank(const struct agent *a, uint32_t local)
{
	const struct wire_job *j = a->job;
	const struct wire_app *app = &a->app[j->apps.v[local]];
	const wire_strv pmix = server_pmix_environment(a->ranks.server, local);
	const bool horovod = j->flags & JOB_HOROVOD;

	return (struct env_rank){ .gpus = &a->chosen,
				  .placement = &a->placement,
				  .gpu_visible = (enum gpu_visible)j->gpu_visible,
				  .gpu_id = (enum gpu_id)j->gpu_id,
				  .rank = j->ranks.v[local],
				  .size = j->np,
				  .local_rank = local,
				  .local_size = (uint32_t)j->ranks.n,
				  .node = j->node,
				  .nodes = j->nodes,
				  .cross_rank = j->cross_ranks.v[local],
				  .cross_size = j->cross_sizes.v[local],
				  .restarts = j->epoch - 1,
				  .max_restarts = j->restarts,
				  .master_port = j->master_port,
				  .master_addr = j->master_addr,
				  .pmi_fd = pmi_fd(a),
				  .has_pmix = a->mpi & MPI_GIVE_PMIX,
				  .oversubscribed = agent_oversubscribed(a),
				  .shared_memory =
					  pmix.n ? a->guarded.folders->memory : NULL,
				  .pmix = { pmix.v, pmix.n },
				  .host = j->host,
				  .host_list = j->host_list,
				  .job_id = j->job_id,
				  .version = BERTH_VERSION,
				  .wdir = app->wdir,
				  .agent_socket = server_name(a->ranks.server),
				  .horovod = horovod ? a->package.horovod : NULL,
				  .python = horovod ? a->package.python : NULL,
				  .library = a->package.library,
				  .folder = a->has_folder ? j->folder : NULL,
				  .managed = j->flags & JOB_MANAGED,
				  .own_few = j->flags & JOB_OWN_ENV,
				  .dir_exists = dir_exists,
				  .forwarded = { j->env.v, j->env.n },
				  .given = { app->env.v, app->env.n } };
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
	if (!app->err.id && a->no_package.len)
		err_set(&app->err, E_HOROVOD, str_text(&a->no_package));
	if (!app->err.id && a->no_folder.len)
		err_set(&app->err, E_PACKAGE, str_text(&a->no_folder));
	return app;
}
