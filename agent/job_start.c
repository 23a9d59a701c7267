/* "start": the environment of each rank, then bind and exec, many at a time. */
#include "agent/agent.h"

#include <sys/stat.h>

#include "agent/placement/cpuset.h"
#include "agent/placement/env.h"

extern char **environ;

/* What the ranks of one app have in common. */
struct app {
	struct env_base env;
	struct program program;
	struct spawn_limits limits;
	struct err err; /* why none of them can be started */
	bool ready;
};

static bool dir_exists(const char *path)
{
	struct stat st;

	return !stat(path, &st) && S_ISDIR(st.st_mode);
}

static void prepare(struct app *app, const struct env_rank *r, const struct wire_job *j,
		    const wire_strv argv)
{
	app->ready = true;
	app->limits = (struct spawn_limits){ j->umask, j->nofile, j->core, j->stack,
					     j->memlock };
	env_base(&app->env, r, environ);
	if (dir_exists(r->wdir))
		program_find(&app->program, argv, env_get(&app->env, "PATH"), r->wdir,
			     &app->err);
	/* else the child's chdir() says why */
	else
		app->program = (struct program){ xstrdup(""), NULL,
						 xcalloc(2, sizeof(char *)) };
}

/* Returns the environment, which must stay until the rank has exec'd. */
static char **start_rank(struct agent *a, struct app *apps, uint32_t local,
			 struct spawn_batch *batch)
{
	struct env_rank r = agent_env_rank(a, local);
	struct app *app = &apps[a->job->apps.v[local]];
	const struct berth *b = &a->placement.v[local];
	char **env;

	r.dir_exists = dir_exists;
	if (!app->ready)
		prepare(app, &r, a->job, a->app[a->job->apps.v[local]].argv);
	if (app->err.id) {
		ranks_fail(&a->ranks, local, &app->err);
		return NULL;
	}
	env = env_build(&app->env, &r);
	ranks_start(&a->ranks, local, batch,
		    &(struct spawn){ &app->program,
				     env,
				     r.wdir,
				     b->bound && a->topo.live ? &b->cpus : NULL,
				     &app->limits,
				     { -1, -1, -1, -1 } });
	return env;
}

/* How many ranks in a row share their CPUs.  Started one after the other, each would
 * wait for its neighbour to get out of the way: 64 ranks on 2 cores 30 ms, taking
 * turns 18. */
static size_t ranks_in_a_row(const struct agent *a)
{
	const struct berth *b = a->placement.v;
	size_t n = 1;

	while (n < a->placement.n && cpuset_within(&b[n].cpus, &b[0].cpus))
		n++;
	return n;
}

/* Local ranks in the order in which they are started. */
static uint32_t *starting_order(const struct agent *a)
{
	uint32_t *order = xcalloc(a->placement.n, sizeof *order);
	size_t turns = ranks_in_a_row(a), n = 0;

	for (size_t first = 0; first < turns; first++)
		for (size_t i = first; i < a->placement.n; i += turns)
			order[n++] = (uint32_t)i;
	return order;
}

/* Start N ranks together.  0, or the errno of one that could not be bound. */
static int start_batch(struct agent *a, struct app *apps, const uint32_t *order,
		       size_t n)
{
	struct err e = { 0 };
	struct spawn_batch *batch = spawn_batch_open(n, &e);
	char ***env = xcalloc(n, sizeof *env);
	int unbound = 0;

	a->ranks.launched = 0;
	for (size_t i = 0; i < n; i++)
		if (batch)
			env[i] = start_rank(a, apps, order[i], batch);
		else
			ranks_fail(&a->ranks, order[i], &e);
	if (batch)
		spawn_batch_wait(batch);
	for (size_t i = 0; i < n; i++) {
		int rc = ranks_started(&a->ranks, order[i], batch);

		unbound = rc ? rc : unbound;
		free(env[i]);
	}
	free(env);
	spawn_batch_free(batch);
	return unbound;
}

static void free_apps(struct agent *a, struct app *apps)
{
	for (size_t i = 0; i < a->napp; i++) {
		env_base_free(&apps[i].env);
		program_free(&apps[i].program);
	}
	free(apps);
}

void agent_start(struct agent *a)
{
	enum { BATCH = 128 };
	struct app *apps;
	uint32_t *order;
	struct err e = { 0 };
	int unbound = 0;

	if (!a->placed)
		return;
	if (a->xml) {
		err_set(&e, E_PLACE_ONLY);
		stream_log(&a->stream, LOG_ERROR, &e);
		return;
	}
	a->placed = false; /* a second start finds nothing to start */
	a->server = server_open(a->base, &a->stream.out, a->job);
	a->ranks.server = a->server;
	apps = xcalloc(a->napp, sizeof *apps);
	order = starting_order(a);
	for (size_t i = 0; i < a->placement.n; i += BATCH) {
		size_t left = a->placement.n - i;
		int rc = start_batch(a, apps, order + i, left < BATCH ? left : BATCH);

		unbound = rc ? rc : unbound;
		stream_send(&a->stream);
	}
	if (unbound) {
		err_set(&e, E_BIND, strerror(unbound));
		stream_log(&a->stream, LOG_WARNING, &e);
	}
	ranks_grant(&a->ranks);
	if (a->chosen.n && a->topo.live)
		gpucheck_begin(&a->check, &a->stream, &a->chosen, &a->placement,
			       &a->ranks);
	free(order);
	free_apps(a, apps);
}
