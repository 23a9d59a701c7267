/* `start`: the environment of each rank, then bind and exec, many at a time. */
#include "agent/agent.h"

#include "agent/placement/cpuset.h"
#include "agent/placement/env.h"

static struct spawn spawn_of(const struct agent *a, uint32_t local,
			     struct app_start *app, const struct env_rank *r,
			     char **env)
{
	const struct berth *b = &a->placement.v[local];

	return (struct spawn){ .program = &app->program,
			       .env = env,
			       .wdir = r->wdir,
			       .cpus = b->bound && a->topo.live ? &b->cpus : NULL,
			       .limits = &app->limits,
			       .pmi = -1 };
}

/* Returns the environment, which must stay until the rank has exec'd. */
static char **start_rank(struct agent *a, uint32_t local, struct spawn_batch *batch)
{
	struct env_rank r = agent_env_rank(a, local);
	struct app_start *app = agent_app_start(a, local);
	struct spawn s;
	char **env;

	if (app->err.id) {
		ranks_fail(&a->ranks, local, &app->err);
		return NULL;
	}
	r.paths.nccl_log = ranks_nccl_log(&a->ranks, local);
	env = env_build(&app->env, &r);
	s = spawn_of(a, local, app, &r, env);
	ranks_start(&a->ranks, local, batch, &s);
	return env;
}

/* Local ranks in the order in which they are started.  Ranks in a row that share their
 * CPUs are started in turns with those of other CPUs.  Started one after the other,
 * each would wait until its neighbour is out of the way (64 ranks on 2 cores: 30 ms, in
 * turns 18). */
static uint32_t *starting_order(const struct agent *a)
{
	const struct berth *b = a->placement.v;
	uint32_t *order = xcalloc(a->placement.n, sizeof *order);
	size_t step = 1, n = 0;

	while (step < a->placement.n && cpuset_within(&b[step].cpus, &b[0].cpus))
		step++;
	for (size_t first = 0; first < step; first++)
		for (size_t i = first; i < a->placement.n; i += step)
			order[n++] = (uint32_t)i;
	return order;
}

/* Start N ranks together. */
static void start_batch(struct agent *a, const uint32_t *order, size_t n)
{
	struct err e = { 0 };
	struct spawn_batch *batch = spawn_batch_open(n, a->ranks.entry, &e);
	char ***env = xcalloc(n, sizeof *env);

	for (size_t i = 0; i < n; i++)
		if (batch)
			env[i] = start_rank(a, order[i], batch);
		else
			ranks_fail(&a->ranks, order[i], &e);
	if (batch) {
		spawn_batch_wait(batch);
		ranks_enclosed(&a->ranks, batch);
	}
	for (size_t i = 0; i < n; i++) {
		ranks_started(&a->ranks, order[i], batch);
		free(env[i]);
	}
	free(env);
	spawn_batch_free(batch);
}

/* ---- warm processes ---- */

/* Input is not given to the streams of an attempt that fails. */
static void grant_input(struct agent *a)
{
	if (!ranks_wait(&a->ranks))
		io_grant(&a->ranks.io);
}

/* The answer of one: rank LOCAL runs as PID, or is exec'd now. */
static void on_forked(void *ctx, size_t local, pid_t pid, int bind_errno)
{
	struct agent *a = ctx;
	const uint32_t order = (uint32_t)local;

	if (pid > 0)
		ranks_forked(&a->ranks, local, pid, bind_errno);
	else if (a->ranks.phase == RANKS_RUN)
		start_batch(a, &order, 1);
	grant_input(a);
}

static void on_told(void *ctx, bool is_warm, const char *text)
{
	struct agent *a = ctx;
	char *line = xasprintf(
		"%s: %s", is_warm ? "warm" : "ranks are started without --warm", text);
	struct wire_log m = { .level = is_warm ? LOG_NOTE : LOG_WARNING,
			      .id = "",
			      .text = line,
			      .hint = "" };

	wire_pack_log(&a->stream.out, &m);
	free(line);
}

/* Is local rank LOCAL to be forked from a warm process?  Then that was asked. */
static bool start_warm(struct agent *a, uint32_t local)
{
	const struct wire_app *m = &a->app[a->job->apps.v[local]];
	struct app_start *app = agent_app_start(a, local);
	struct env_rank r = agent_env_rank(a, local);
	struct warm_way way = { .words = m->warm,
				.text = m->warm_text,
				.head = { env_own_names(), { r.horovod, r.python } },
				.search = env_get(&app->env, "PATH") };
	char **env, **common;
	struct spawn s;
	int p;

	if (!m->warm.n || app->err.id)
		return false;
	if (!a->warm)
		a->warm = warm_open(a->base, on_forked, on_told, a);
	a->ranks.warm = a->warm;
	r.paths.nccl_log = ranks_nccl_log(&a->ranks, local);
	common = env_build_common(&app->env, &r);
	env = env_build(&app->env, &r);
	s = spawn_of(a, local, app, &r, env);
	way.s = s;
	way.s.env = common;
	p = warm_process(a->warm, &way);
	if (p >= 0 && !ranks_ask(&a->ranks, local, p, &s))
		p = -1;
	free(common);
	free(env);
	return p >= 0;
}

void agent_start_rank(struct agent *a, uint32_t local)
{
	if (!start_warm(a, local))
		start_batch(a, &local, 1);
}

void agent_start_ranks(struct agent *a)
{
	enum { BATCH = 128 };
	uint32_t *order = starting_order(a);
	struct err e = { 0 };
	size_t n = 0; /* that are exec'd */

	for (size_t i = 0; i < a->placement.n; i++)
		if (!start_warm(a, order[i]))
			order[n++] = order[i];
	for (size_t i = 0; i < n; i += BATCH) {
		size_t left = n - i;

		start_batch(a, order + i, left < BATCH ? left : BATCH);
		stream_send(&a->stream);
	}
	if (a->ranks.bind_errno) {
		err_set(&e, E_BIND, strerror(a->ranks.bind_errno));
		stream_log(&a->stream, LOG_WARNING, &e);
	}
	grant_input(a);
	if (a->chosen.n && a->topo.live)
		gpu_check_begin(&a->check, a->base, &a->stream.out, &a->chosen,
				&a->placement, &a->ranks);
	monitor_begin(&a->monitor, a->base, &a->stream.out, &a->ranks, &a->chosen,
		      &a->placement);
	free(order);
}
