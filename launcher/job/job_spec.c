/* From plan and request to each host's job frame. */
#include "launcher/job/job.h"

#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "launcher/job/env_forward.h"
#include "launcher/job/report.h"
#include "launcher/transport/lookup.h"
#include "launcher/job/fence.h"

extern char **environ;

enum {
	/* Output in flight over all hosts, which runner holds in memory while a slow
	 * terminal holds everything up. */
	CREDIT_ALL = 8 << 20,
	CREDIT_LEAST = 16 << 10,
	CREDIT_MOST = 1 << 20
};

/* MASTER_ADDR: rank 0's host as the others reach it. */
static void choose_master(struct session *s)
{
	const struct host *h = &s->agents.host[s->plan.rank[0].host];
	char text[64] = "127.0.0.1";

	s->master_port = h->port;
	if (s->plan.nodes > 1 && !h->local && *h->address) {
		s->master_addr = xstrdup(h->address);
		return;
	}
	for (size_t i = 0; s->plan.nodes > 1 && i < s->agents.n; i++) {
		const struct host *other = &s->agents.host[i];

		if (session_needs(s, i) && !other->local && other->target.naddr &&
		    !lookup_local_towards(other->target.addr, text, sizeof text))
			break;
	}
	s->master_addr = xstrdup(text);
}

static uint64_t soft_limit(int what)
{
	struct rlimit l = { RLIM_INFINITY, RLIM_INFINITY };

	getrlimit((__rlimit_resource_t)what, &l);
	return l.rlim_cur == RLIM_INFINITY ? UINT64_MAX : l.rlim_cur;
}

static mode_t current_umask(void)
{
	mode_t mask = umask(0);

	umask(mask);
	return mask;
}

static uint32_t job_flags(const struct request *r)
{
	uint32_t flags = 0;

	if (r->plan != PLAN_OFF)
		flags |= JOB_PLAN;
	if (r->pty || isatty(STDOUT_FILENO))
		flags |= JOB_PTY;
	if (r->no_gpu_sharing)
		flags |= JOB_NO_GPU_SHARING;
	if (report_in_managed_job())
		flags |= JOB_MANAGED;
	return flags;
}

/* What is the same for all hosts. */
static struct wire_job common_job(const struct session *s, const struct strv *env)
{
	const struct request *r = s->request;

	return (struct wire_job){
		.epoch = s->epoch,
		.restarts = (uint32_t)r->restarts,
		.job_id = s->job_id,
		.key = { s->key, sizeof s->key },
		.flags = job_flags(r),
		.np = s->plan.np,
		.nodes = s->plan.nodes,
		.master_addr = s->master_addr,
		.master_port = s->master_port,
		.bind_to = r->bind_to,
		.bind_count = r->bind_count,
		.share = r->share,
		.gpu_visible = s->visible,
		.gpu_id = r->gpu_id,
		.gpus = r->gpus ? r->gpus : "",
		.stdin_rank = r->stdin_rank,
		.umask = current_umask(),
		.nofile = s->nofile,
		.core = soft_limit(RLIMIT_CORE),
		.stack = soft_limit(RLIMIT_STACK),
		.memlock = soft_limit(RLIMIT_MEMLOCK),
		.credit_bytes = (uint32_t)s->credit_bytes,
		.host_timeout_ms = (uint32_t)r->host_timeout_s * 1000,
		.env = { (const char *const *)env->v, env->n },
	};
}

/* The lists of one host's job frame, by local rank. */
static void fill_lists(const struct session *s, uint32_t host, uint32_t *apps,
		       uint32_t *cross_ranks, uint32_t *cross_sizes)
{
	for (uint32_t i = 0; i < s->plan.local_size[host]; i++) {
		const struct plan_rank *p = &s->plan.rank[s->plan.ranks[host][i]];

		apps[i] = p->app;
		cross_ranks[i] = p->cross_rank;
		cross_sizes[i] = p->cross_size;
	}
}

static void send_job(struct session *s, struct host *h, const struct buf *apps,
		     const struct wire_job *common)
{
	uint32_t index = session_index(s, h);
	size_t n = s->plan.local_size[index];
	uint32_t *list = xcalloc(3 * n, sizeof *list);
	struct wire_job m = *common;

	fill_lists(s, index, list, list + n, list + 2 * n);
	m.flags |= h->local ? JOB_LOCAL : 0;
	m.node = s->plan.node[index];
	m.host = h->name;
	m.ranks = (wire_u32v){ s->plan.ranks[index], n };
	m.apps = (wire_u32v){ list, n };
	m.cross_ranks = (wire_u32v){ list + n, n };
	m.cross_sizes = (wire_u32v){ list + 2 * n, n };
	buf_add(&h->out, buf_head(apps), apps->len);
	wire_pack_job(&h->out, &m);
	s->run[index].window = s->credit_bytes;
	free(list);
	agents_flush(h);
}

static void pack_apps(const struct session *s, struct buf *out,
		      const struct strv *app_env)
{
	for (size_t i = 0; i < s->request->napp; i++) {
		const struct app *a = &s->request->app[i];
		struct wire_app app = { (uint32_t)i,
					{ (const char *const *)a->argv.v, a->argv.n },
					{ (const char *const *)app_env[i].v,
					  app_env[i].n },
					a->wdir ? a->wdir : s->cwd };

		wire_pack_app(out, &app);
	}
}

static void send_jobs(struct session *s, const struct strv *env,
		      const struct strv *app_env)
{
	const struct wire_job common = common_job(s, env);
	struct buf apps = { 0 };

	pack_apps(s, &apps, app_env);
	for (size_t i = 0; i < s->agents.n; i++)
		if (s->agents.host[i].state == HOST_UP && session_needs(s, i))
			send_job(s, &s->agents.host[i], &apps, &common);
	buf_free(&apps);
}

static void choose_credit(struct session *s)
{
	size_t each = CREDIT_ALL / s->plan.nodes;

	s->credit_bytes = each < CREDIT_LEAST  ? CREDIT_LEAST
			  : each > CREDIT_MOST ? CREDIT_MOST
					       : each;
}

/* -x, --env-file and what the environment says of every app. */
static int app_environments(struct session *s, struct strv *app_env,
			    const struct strv *own)
{
	const struct request *r = s->request;

	for (size_t i = 0; i < r->napp; i++) {
		if (r->env_file && env_forward_file(&app_env[i], r->env_file, &s->err))
			return -1;
		if (env_forward_export(&app_env[i], &r->export, own, &s->err) ||
		    env_forward_export(&app_env[i], &r->app[i].export, own, &s->err))
			return -1;
	}
	return 0;
}

int job_spec_send(struct session *s)
{
	struct strv env = { 0 }, own = { 0 };
	struct strv *app_env = xcalloc(s->request->napp, sizeof *app_env);
	int rc;

	choose_master(s);
	choose_credit(s);
	session_random(s->key, sizeof s->key);
	s->world = fence_open(s);
	for (char **p = environ; *p; p++)
		strv_add(&own, *p);
	env_forward(&env, environ, report_in_managed_job(),
		    s->request->option_variables, s->request->noption_variables);
	rc = app_environments(s, app_env, &own);
	if (!rc)
		send_jobs(s, &env, app_env);
	for (size_t i = 0; i < s->request->napp; i++)
		strv_free(&app_env[i]);
	free(app_env);
	strv_free(&env);
	strv_free(&own);
	return rc;
}
