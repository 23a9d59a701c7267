/* berth-agent - Berth's presence on one host.
 *
 * Read agent_main() and the calls below it in order; each step's header says the rest.
 *
 *   guard      two processes: kill -9 of either leaves nothing behind  guard.h
 *   topology   what machine is this, which GPUs                        topo.h gpu.h
 *   hello      tell the launcher                                       session.h
 *   job        its ranks come: a berth for each                        place.h
 *   start      the environment, then bind and exec                     env.h spawn.h
 *   watch      output, input, signals, endings, until nothing is left  rank.h io.h
 */
#include <event2/event.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "agent/cpuset.h"
#include "agent/env.h"
#include "agent/gpucheck.h"
#include "agent/guard.h"
#include "agent/port.h"
#include "agent/rank.h"
#include "agent/session.h"
#include "agent/sweep.h"

extern char **environ;

static const char usage[] =
	"usage: berth-agent                 talk to runner on stdin and stdout\n"
	"       berth-agent --place FILE    the same for the machine of an XML file:\n"
	"                                   places ranks, starts none\n"
	"       berth-agent --sweep JOB     kill own processes whose environment\n"
	"                                   has BERTH_JOB=JOB; print how many\n"
	"       berth-agent --version       print the version\n"
	"       berth-agent --help          print this\n"
	"\n"
	"runner starts it on each host of a job.  See berth-agent(8).\n";

struct agent {
	struct event_base *base;
	struct session session;
	const char *xml; /* --place: no machine of ours */
	struct topo topo;
	struct gpus gpus; /* of the machine */
	struct port port;
	int guardian; /* readable when it is dead, -1 for none */
	struct event *guardian_gone, *child, *term;

	const struct wire_job *job; /* the session's */
	const struct wire_app *app;
	size_t napp;
	struct gpus chosen; /* of the job */
	struct placement placement;
	bool placed;
	struct ranks ranks;
	struct gpucheck check;
	int status;
};

/* ---- topology and hello ---- */

static int find_machine(struct agent *a, struct err *e)
{
	const struct gpu_sources from = { .root = "",
					  .cuda_visible =
						  getenv("CUDA_VISIBLE_DEVICES"),
					  .cuda_order = getenv("CUDA_DEVICE_ORDER"),
					  .rocr_visible =
						  getenv("ROCR_VISIBLE_DEVICES") };

	return topo_load(&a->topo, a->xml, e) || gpu_find(&a->gpus, &a->topo, &from, e)
		       ? -1
		       : 0;
}

/* The address at which ssh reached us: "client port SERVER port". */
static char *own_address(void)
{
	const char *text = getenv("SSH_CONNECTION");
	char address[64] = "";

	if (!text || sscanf(text, "%*s %*s %63s", address) != 1)
		return xstrdup("");
	return xstrdup(address);
}

static void say_hello(struct agent *a)
{
	struct utsname u = { 0 };
	char *address = own_address();
	struct wire_hello m = { .version = BERTH_VERSION, .wire = WIRE_VERSION };

	uname(&u);
	if (!a->xml)
		port_hold(&a->port);
	m.hostname = u.nodename;
	m.arch = u.machine;
	m.cpus = a->topo.npu;
	m.cores = (uint32_t)a->topo.ncore;
	m.gpus = (uint32_t)a->gpus.n;
	m.address = address;
	m.port = a->port.number;
	m.clock_ns = clock_ns();
	wire_pack_hello(&a->session.out, &m);
	free(address);
}

/* ---- job: a berth for each rank ---- */

/* The job's own copy: --gpus and claims narrow and reorder it. */
static void copy_gpus(struct gpus *to, const struct gpus *from)
{
	*to = (struct gpus){ xcalloc(from->n, sizeof *to->v), from->n, { 0 } };
	if (from->n)
		memcpy(to->v, from->v, from->n * sizeof *to->v);
}

static bool claims_gpus(const struct agent *a)
{
	return !a->xml && a->chosen.n && !(a->job->flags & (JOB_MANAGED | JOB_PLAN));
}

static int place(struct agent *a, struct err *e)
{
	const struct wire_job *j = a->job;
	const struct place_options o = { (enum bind_to)j->bind_to, j->bind_count,
					 (enum share)j->share,
					 j->flags & JOB_NO_GPU_SHARING };

	copy_gpus(&a->chosen, &a->gpus);
	if (*j->gpus && gpu_select(&a->chosen, j->gpus, e))
		return -1;
	if (claims_gpus(a))
		gpu_claim(&a->chosen);
	if (place_ranks(&a->placement, &a->topo, &a->chosen, j->ranks.n, &o, e))
		return -1;
	if (j->gpu_visible == VISIBLE_NODE && a->chosen.n && a->placement.gpus_shared)
		return err_set(e, E_GPU_NODE, j->ranks.n, a->chosen.n);
	return 0;
}

/* Claim what is in use, give the rest back, and name the holders of what is not ours
 * alone. */
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
		session_log(&a->session, LOG_WARNING, &e);
	}
	gpu_claim_keep(&a->chosen, used);
	free(used);
}

static void warn(struct agent *a)
{
	struct err e = { 0 };

	for (size_t i = 0; i < a->gpus.notes.n; i++) {
		snprintf(e.text, sizeof e.text, "%s", a->gpus.notes.v[i]);
		session_log(&a->session, LOG_WARNING, &e);
	}
	if (a->chosen.n && a->placement.gpus_shared) {
		err_set(&e, E_GPU_SHARED, a->placement.n, a->chosen.n);
		session_log(&a->session, LOG_WARNING, &e);
	}
}

static struct env_rank env_of(const struct agent *a, uint32_t local)
{
	return (struct env_rank){ a->job,        &a->app[a->job->apps.v[local]],
				  local,         &a->chosen,
				  &a->placement, NULL };
}

static void say_berth(struct agent *a, uint32_t local)
{
	const struct berth *b = &a->placement.v[local];
	const struct gpu *g = b->gpu < 0 ? NULL : &a->chosen.v[b->gpu];
	const struct env_rank r = env_of(a, local);
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
	wire_pack_berth(&a->session.out, &m);
	str_free(&cpus);
	str_free(&visible);
	free(others);
}

static void on_job(void *ctx, const struct wire_job *job, const struct wire_app *app,
		   size_t napp)
{
	struct agent *a = ctx;
	struct wire_placed m = { job->epoch, "", "" };
	struct err e = { 0 };

	a->job = job;
	a->app = app;
	a->napp = napp;
	if (job->master_port != a->port.number)
		port_release(&a->port);
	ranks_begin(&a->ranks, a->base, &a->session.out, job);
	if (place(a, &e)) {
		session_log(&a->session, LOG_ERROR, &e);
		return;
	}
	if (claims_gpus(a))
		keep_claims(a);
	warn(a);
	for (uint32_t i = 0; i < a->placement.n; i++)
		say_berth(a, i);
	m.idle = a->placement.idle;
	m.certificate = a->placement.certificate;
	wire_pack_placed(&a->session.out, &m);
	a->placed = true;
}

/* ---- start: environment, bind, exec ---- */

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

static void prepare(struct app *app, const struct env_rank *r, const struct wire_job *j)
{
	app->ready = true;
	app->limits = (struct spawn_limits){ j->umask, j->nofile, j->core, j->stack,
					     j->memlock };
	env_base(&app->env, r, environ);
	if (dir_exists(r->app->wdir))
		program_find(&app->program, r->app->argv, env_get(&app->env, "PATH"),
			     r->app->wdir, &app->err);
	/* else the child's chdir() says why */
	else
		app->program = (struct program){ xstrdup(""), NULL,
						 xcalloc(2, sizeof(char *)) };
}

/* Returns the environment, which must stay until the rank has exec'd. */
static char **start_rank(struct agent *a, struct app *apps, uint32_t local,
			 struct spawn_batch *batch)
{
	struct env_rank r = env_of(a, local);
	struct app *app = &apps[a->job->apps.v[local]];
	const struct berth *b = &a->placement.v[local];
	char **env;

	r.dir_exists = dir_exists;
	if (!app->ready)
		prepare(app, &r, a->job);
	if (app->err.id) {
		ranks_fail(&a->ranks, local, &app->err);
		return NULL;
	}
	env = env_build(&app->env, &r);
	ranks_start(&a->ranks, local, batch,
		    &(struct spawn){ &app->program,
				     env,
				     r.app->wdir,
				     b->bound && a->topo.live ? &b->cpus : NULL,
				     &app->limits,
				     { -1, -1, -1 } });
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

static void on_start(void *ctx)
{
	enum { BATCH = 128 };
	struct agent *a = ctx;
	struct app *apps;
	uint32_t *order;
	struct err e = { 0 };
	int unbound = 0;

	if (!a->placed)
		return;
	if (a->xml) {
		err_set(&e, E_PLACE_ONLY);
		session_log(&a->session, LOG_ERROR, &e);
		return;
	}
	a->placed = false; /* a second start finds nothing to start */
	apps = xcalloc(a->napp, sizeof *apps);
	order = starting_order(a);
	for (size_t i = 0; i < a->placement.n; i += BATCH) {
		size_t left = a->placement.n - i;
		int rc = start_batch(a, apps, order + i, left < BATCH ? left : BATCH);

		unbound = rc ? rc : unbound;
		session_send(&a->session);
	}
	if (unbound) {
		err_set(&e, E_BIND, strerror(unbound));
		session_log(&a->session, LOG_WARNING, &e);
	}
	ranks_grant(&a->ranks);
	if (a->chosen.n && a->topo.live)
		gpucheck_begin(&a->check, &a->session, &a->chosen, &a->placement,
			       &a->ranks);
	free(order);
	free_apps(a, apps);
}

/* ---- watch ---- */

static void on_input(void *ctx, const void *data, size_t n)
{
	struct agent *a = ctx;

	io_input(&a->ranks.io, data, n);
}

static void on_credit(void *ctx, uint32_t bytes)
{
	struct agent *a = ctx;

	io_credit(&a->ranks.io, bytes);
}

static void on_signal(void *ctx, int signo, bool tree)
{
	struct agent *a = ctx;

	ranks_signal(&a->ranks, signo, tree);
}

static void on_end(void *ctx, uint32_t grace_ms)
{
	struct agent *a = ctx;

	ranks_end(&a->ranks, grace_ms);
}

static void forget_job(struct agent *a)
{
	gpucheck_end(&a->check);
	ranks_free(&a->ranks);
	placement_free(&a->placement);
	gpu_free(&a->chosen); /* and its claims */
	a->job = NULL;
	a->placed = false;
	a->session.busy = false;
}

static void on_turn(void *ctx)
{
	struct agent *a = ctx;

	if (!a->job)
		return;
	ranks_settle(&a->ranks);
	if (a->ranks.phase == RANKS_GONE)
		forget_job(a);
}

static void on_sweep(void *ctx, const char *cookie)
{
	struct agent *a = ctx;

	sweep_cookie(cookie);
	wire_pack_gone(&a->session.out, &(struct wire_gone){ 0, 0, "" });
}

static void on_bye(void *ctx)
{
	struct agent *a = ctx;

	session_stop(&a->session);
}

/* The launcher or the guardian is gone: nobody waits for anything any more. */
static void on_lost(void *ctx)
{
	struct agent *a = ctx;

	a->status = a->job ? EXIT_RUNNER : 0;
	session_stop(&a->session);
}

static void on_guardian_gone(evutil_socket_t fd, short what, void *arg)
{
	(void)fd;
	(void)what;
	on_lost(arg);
}

static void on_child(evutil_socket_t fd, short what, void *arg)
{
	struct agent *a = arg;

	(void)fd;
	(void)what;
	ranks_reap(&a->ranks);
}

/* Somebody on this host, or its resource manager, wants us to go: that is the ranks' to
 * hear. */
static void on_term(evutil_socket_t fd, short what, void *arg)
{
	struct agent *a = arg;

	(void)fd;
	(void)what;
	if (a->ranks.running)
		ranks_signal(&a->ranks, SIGTERM, false);
	else
		on_lost(a);
}

static const struct session_calls calls = {
	.job = on_job,
	.start = on_start,
	.input = on_input,
	.credit = on_credit,
	.signal = on_signal,
	.end = on_end,
	.sweep = on_sweep,
	.bye = on_bye,
	.lost = on_lost,
	.turn = on_turn,
};

static void watch(struct agent *a)
{
	a->session.base = a->base;
	a->session.calls = &calls;
	a->session.ctx = a;
	session_begin(&a->session);
	a->child = evsignal_new(a->base, SIGCHLD, on_child, a);
	a->term = evsignal_new(a->base, SIGTERM, on_term, a);
	event_add(a->child, NULL);
	event_add(a->term, NULL);
	if (a->guardian < 0)
		return;
	a->guardian_gone =
		event_new(a->base, a->guardian, EV_READ, on_guardian_gone, a);
	event_add(a->guardian_gone, NULL);
}

/* ---- the whole ---- */

/* Up to three descriptors a rank: what this user may have, for us; ranks get their own
 * limit. */
static void raise_own_limit(void)
{
	struct rlimit l;

	if (getrlimit(RLIMIT_NOFILE, &l))
		return;
	l.rlim_cur = l.rlim_max;
	setrlimit(RLIMIT_NOFILE, &l);
}

static void forget_machine(struct agent *a)
{
	session_end(&a->session);
	port_release(&a->port);
	gpu_free(&a->gpus);
	topo_free(&a->topo);
	event_free(a->child);
	event_free(a->term);
	if (a->guardian_gone)
		event_free(a->guardian_gone);
	event_base_free(a->base);
}

static int agent_main(const char *xml)
{
	enum { PATIENCE_MS = 5000 };
	struct agent a = { .xml = xml, .guardian = -1, .port = { .fd = -1 } };
	struct err e = { 0 };

	if (!xml && (a.guardian = guard_split(&e)) < 0) {
		err_print("berth-agent", &e);
		return EXIT_RUNNER;
	}
	raise_own_limit();
	signal(SIGPIPE, SIG_IGN);
	a.base = event_base_new();
	watch(&a);
	if (find_machine(&a, &e)) {
		session_log(&a.session, LOG_ERROR, &e);
		session_send_all(&a.session, PATIENCE_MS);
		forget_machine(&a);
		return EXIT_RUNNER;
	}
	say_hello(&a);
	session_loop(&a.session);
	guard_kill_all(PATIENCE_MS);
	session_send_all(&a.session, 1000);
	forget_job(&a);
	forget_machine(&a);
	return a.status;
}

/* A launcher is at the other end of a pipe or a socket; a person is not. */
static bool has_launcher(void)
{
	struct stat st;

	return !fstat(STDIN_FILENO, &st) &&
	       (S_ISFIFO(st.st_mode) || S_ISSOCK(st.st_mode));
}

int main(int argc, char **argv)
{
	if (argc == 1 && has_launcher())
		return agent_main(NULL);
	if (argc == 3 && !strcmp(argv[1], "--place") && has_launcher())
		return agent_main(argv[2]);
	if (argc == 3 && !strcmp(argv[1], "--sweep") && *argv[2]) {
		printf("%zu\n", sweep_cookie(argv[2]));
		return 0;
	}
	if (argc == 2 && !strcmp(argv[1], "--version")) {
		printf("berth-agent %s\n", BERTH_VERSION);
		return 0;
	}
	if (argc == 2 && !strcmp(argv[1], "--help")) {
		fputs(usage, stdout);
		return 0;
	}
	if (argc == 1 || !strcmp(argv[1], "--place"))
		fputs("berth-agent: runner starts this program on each host of a job; "
		      "it is "
		      "not for the command line (berth-agent --help)\n",
		      stderr);
	else
		fprintf(stderr, "berth-agent: unknown arguments from '%s' on\n%s",
			argv[1], usage);
	return EXIT_USAGE;
}
