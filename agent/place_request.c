#include "agent/place_request.h"

#include <sys/stat.h>

int place_job(const struct place_request *q, struct err *e)
{
	const struct wire_job *j = q->job;
	const struct place_options o = { (enum bind_to)j->bind_to, j->bind_count,
					 (enum share)j->share,
					 j->flags & JOB_NO_GPU_SHARING };
	const size_t n = j->ranks.n;

	if (q->has)
		place_fixed(q->placement, q->topo, q->gpus, n, q->has, q->may);
	else if (place_ranks(q->placement, q->topo, q->gpus, n, &o, e))
		return -1;
	if (j->gpu_visible == VISIBLE_NODE && q->placement->gpus_shared)
		return err_set(e, E_GPU_NODE, n, q->gpus->n, str_plural(q->gpus->n));
	return 0;
}

static bool dir_exists(const char *path)
{
	struct stat st;

	return !stat(path, &st) && S_ISDIR(st.st_mode);
}

struct env_rank env_rank_of(const struct place_request *q, uint32_t local)
{
	static const char *const roles[] = { TF_ROLE_NAMES }; /* from TF_OUT on */
	static const struct wire_app none;
	const struct wire_job *j = q->job;
	const struct wire_app *app = q->app ? &q->app[j->apps.v[local]] : &none;
	const wire_strv pmix = server_pmix_environment(q->server, local);
	const bool horovod = j->flags & JOB_HOROVOD;
	const struct wire_tf_config *m = q->tf_config;
	struct env_tf tf = { j->flags & JOB_TF_CONFIG ? "" : NULL, "", 0 };

	if (m)
		tf = (struct env_tf){ m->cluster, roles[m->roles.v[local] - TF_OUT],
				      m->tasks.v[local] };
	return (struct env_rank){ .gpus = q->gpus,
				  .placement = q->placement,
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
				  .pmi_fd = q->pmi_fd,
				  .has_pmix = q->mpi & MPI_GIVE_PMIX,
				  .oversubscribed = place_oversubscribes(q),
				  .paths.shared_memory = pmix.n ? q->memory : NULL,
				  .pmix = { pmix.v, pmix.n },
				  .tf = tf,
				  .host = j->host,
				  .host_list = j->host_list,
				  .job_id = j->job_id,
				  .wdir = app->wdir,
				  .agent_socket = server_name(q->server),
				  .horovod = horovod ? q->package->horovod : NULL,
				  .python = horovod ? q->package->python : NULL,
				  .library = q->package->library,
				  .folder = q->has_folder ? j->folder : NULL,
				  .paths.nccl_log = j->flags & JOB_NCCL_LOG ? "" : NULL,
				  .managed = j->flags & JOB_MANAGED,
				  .own_few = j->flags & JOB_OWN_ENV,
				  .dir_exists = dir_exists,
				  .forwarded = { j->env.v, j->env.n },
				  .given = { app->env.v, app->env.n } };
}
