#include "launcher/job/job.h"

#include <errno.h>
#include <event2/event.h>
#include <signal.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <unistd.h>

#include "common/loop.h"
#include "launcher/hosts/hosts.h"
#include "launcher/job/rank_status.h"
#include "launcher/output/progress.h"
#include "launcher/job/report.h"
#include "launcher/transport/ssh_pool.h"
#include "launcher/job/gpu_visible.h"
#include "launcher/job/fence.h"

extern char **environ;

/* ---- the loop ---- */

void session_until(struct session *s, bool (*done)(struct session *s))
{
	while (!done(s) && s->phase != PHASE_OVER)
		event_base_loop(s->base, EVLOOP_ONCE);
}

bool session_waits(struct session *s,
		   bool (*pending)(const struct session *s, size_t host))
{
	for (size_t looks = 0; looks < s->agents.n; looks++) {
		if (pending(s, s->waited_for))
			return true;
		s->waited_for = (s->waited_for + 1) % s->agents.n;
	}
	return false;
}

static void on_signal(evutil_socket_t signo, short what, void *ctx)
{
	(void)what;
	stop_on_signal(ctx, (int)signo);
}

static void on_timer(evutil_socket_t fd, short what, void *ctx)
{
	(void)fd;
	(void)what;
	stop_on_timer(ctx);
}

void session_timer(struct session *s, uint64_t ms)
{
	struct timeval t = { (time_t)(ms / 1000), (suseconds_t)(ms % 1000 * 1000) };

	event_add(s->timer, &t);
}

/* A signal that whoever started us ignores (nohup, a shell's "&") stays ignored. */
static void watch_signals(struct session *s)
{
	static const int signals[] = { SIGINT,  SIGTERM, SIGHUP,  SIGUSR1,
				       SIGUSR2, SIGTSTP, SIGCONT, SIGQUIT };
	struct sigaction old;

	for (size_t i = 0; i < sizeof signals / sizeof *signals; i++) {
		sigaction(signals[i], NULL, &old);
		if (old.sa_handler == SIG_IGN)
			continue;
		s->watch[i] = evsignal_new(s->base, signals[i], on_signal, s);
		loop_watch(s->watch[i]);
	}
	signal(SIGPIPE, SIG_IGN);
}

void session_random(void *bytes, size_t n)
{
	if (getrandom(bytes, n, 0) != (ssize_t)n)
		die("no random numbers", errno);
}

static void make_job_id(char job_id[33])
{
	unsigned char random[16];

	session_random(random, sizeof random);
	str_hex(job_id, random, sizeof random);
}

/* One descriptor and more per host and rank: use what the system allows.  Returns the
 * soft limit as the user has it, which is what the ranks get. */
static uint64_t raise_nofile(void)
{
	struct rlimit l = { RLIM_INFINITY, RLIM_INFINITY };
	rlim_t soft;

	getrlimit(RLIMIT_NOFILE, &l);
	soft = l.rlim_cur;
	l.rlim_cur = l.rlim_max;
	setrlimit(RLIMIT_NOFILE, &l);
	return soft == RLIM_INFINITY ? UINT64_MAX : soft;
}

uint32_t session_index(const struct session *s, const struct host *h)
{
	return (uint32_t)(h - s->agents.host);
}

/* ---- output events ---- */

static void send_credit(struct session *s, uint32_t index)
{
	struct host *h = &s->agents.host[index];
	struct wire_credit m = { s->epoch, (uint32_t)s->run[index].credit };

	s->run[index].credit = 0;
	if (h->state != HOST_UP)
		return;
	s->run[index].window += m.bytes;
	wire_pack_credit(&h->out, &m);
	agents_flush(h);
}

/* Credits go back in quarters of the window: often enough to keep the host writing,
 * seldom enough to cost nothing. */
static void on_left(void *ctx, uint32_t host, size_t n)
{
	struct session *s = ctx;

	s->run[host].credit += n;
	if (s->run[host].credit >= s->credit_bytes / 4)
		send_credit(s, host);
}

static void on_unread(void *ctx, const char *which, int error)
{
	struct session *s = ctx;

	if (s->unread)
		return;
	s->unread = true;
	output_mute(s->output);
	if (error != EPIPE)
		err_set(&s->err, E_OUTPUT, which, strerror(error));
	if (s->phase == PHASE_RUN)
		stop_ranks(s, (uint32_t)s->request->kill_grace_s * 1000);
}

static void on_disk(void *ctx, const char *path, int error)
{
	struct session *s = ctx;
	struct err e;

	s->disk_failed = true;
	err_set(&e, E_DISK, path, strerror(error));
	report_error(s, &e);
}

/* ---- the steps ---- */

void session_open(struct session *s, const struct request *r)
{
	char cwd[4096];

	*s = (struct session){ .request = r, .epoch = 1, .begin_ns = clock_ns() };
	s->base = loop_open();
	s->timer = event_new(s->base, -1, 0, on_timer, s);
	watch_signals(s);
	make_job_id(s->job_id);
	s->nofile = raise_nofile();
	s->cwd = xstrdup(getcwd(cwd, sizeof cwd) ? cwd : "/");
	s->agents.base = s->base;
	s->agents.events = &session_agents_events;
	s->agents.ctx = s;
	s->agents.host_timeout_s = r->host_timeout_s;
	s->agents.setup = (struct transport_setup){
		.base = s->base,
		.ssh_port = r->ssh_port,
		.identity = r->identity,
		.accept_new_hosts = r->accept_new_hosts,
		.agent = r->launch_agent,
		.no_push = r->no_push,
		.verbosity = r->verbosity,
		.deadline_ms = clock_ms() + (uint64_t)r->start_timeout_s * 1000,
	};
}

bool session_needs(const struct session *s, size_t host)
{
	return !s->plan.np || s->plan.node[host] != PLAN_UNUSED;
}

static bool is_starting(const struct session *s, size_t host)
{
	return s->agents.host[host].state == HOST_STARTING;
}

static bool all_answered(struct session *s)
{
	return !session_waits(s, is_starting);
}

static bool slots_known(const struct session *s)
{
	for (size_t i = 0; i < s->agents.n; i++)
		if (s->agents.host[i].slots < 0)
			return false;
	return true;
}

/* How many hosts will be logged in to. */
static size_t count_remote(const struct session *s)
{
	size_t n = 0;

	for (size_t i = 0; i < s->agents.n; i++)
		n += session_needs(s, i) &&
		     s->agents.host[i].transport == &transport_ssh;
	return n;
}

/* Waiting for hosts can be cut short by their loss, or by a signal. */
static int came_up(const struct session *s)
{
	return s->lost || s->phase == PHASE_OVER ? -1 : 0;
}

int session_start_agents(struct session *s)
{
	session_timer(s, (uint64_t)s->request->start_timeout_s * 1000 + 500);
	for (size_t i = 0; i < s->agents.n; i++) {
		struct host *h = &s->agents.host[i];

		if (session_needs(s, i) &&
		    (h->state == HOST_IDLE || h->state == HOST_CLOSED))
			agents_start(&s->agents, h);
	}
	if (s->request->verbosity == 0 || s->request->verbosity == 1)
		s->progress = progress_open(&s->agents);
	session_until(s, all_answered);
	progress_close(s->progress);
	s->progress = NULL;
	event_del(s->timer);
	return came_up(s);
}

int session_gather(struct session *s)
{
	s->run = xcalloc(s->agents.n, sizeof *s->run);
	if (slots_known(s) && session_map(s)) /* hosts without a rank need no agent */
		return -1;
	if (events_open(&s->events, s->request->events_file, s->job_id, &s->err))
		return -1;
	s->agents.setup.pool = ssh_pool_open(s->base, count_remote(s));
	if (session_start_agents(s))
		return s->lost ? report_lost_hosts(s) : -1;
	return 0;
}

static int resolve_slots(const struct session *s, struct map_host *map, struct err *e)
{
	for (size_t i = 0; i < s->agents.n; i++) {
		const struct host *h = &s->agents.host[i];
		int slots = h->slots;

		if (slots == SLOTS_GPUS && !h->gpus)
			return err_set(e, E_NO_GPUS, h->name);
		if (slots == SLOTS_GPUS || (slots == SLOTS_AUTO && h->gpus))
			slots = (int)h->gpus;
		else if (slots == SLOTS_AUTO)
			slots = (int)h->cores;
		map[i] =
			(struct map_host){ h->name, slots, h->max_slots,
					   h->state == HOST_LOST || s->run[i].dropped ||
						   s->run[i].left };
	}
	return 0;
}

int session_plan(const struct session *s, struct plan *plan, uint32_t np, struct err *e)
{
	struct map_host *map = xcalloc(s->agents.n, sizeof *map);
	struct request r = *s->request;
	struct app first = r.app[0];
	int rc;

	if (np && r.napp == 1) { /* -np was not given: it is as before */
		first.np = (int)np;
		r.app = &first;
	}
	rc = resolve_slots(s, map, e) ||
	     map_ranks(plan, &r, map, s->agents.n, s->slots_from, e);
	free(map);
	return rc ? -1 : 0;
}

int session_map(struct session *s)
{
	if (s->plan.np)
		return 0;
	if (session_plan(s, &s->plan, 0, &s->err))
		return -1;
	s->rank = xcalloc(s->plan.np, sizeof *s->rank);
	if (s->request->stdin_rank < STDIN_ALL && s->request->stdin_rank >= s->plan.np)
		return err_set(&s->err, E_STDIN_RANK, s->request->stdin_rank,
			       s->plan.np);
	for (size_t i = 0; i < s->agents.n; i++)
		if (!session_needs(s, i) && s->agents.host[i].state == HOST_UP)
			agents_leave(&s->agents.host[i]);
	return 0;
}

/* Whose ranks read stdin in this epoch. */
static void aim_input(struct session *s)
{
	struct host **targets = xcalloc(s->agents.n, sizeof(struct host *));
	size_t n = 0;

	for (size_t i = 0; i < s->agents.n; i++)
		if (session_needs(s, i) &&
		    (s->request->stdin_rank == STDIN_ALL ||
		     s->plan.rank[s->request->stdin_rank].host == i))
			targets[n++] = &s->agents.host[i];
	input_aim(s->input, targets, n, s->epoch);
	free(targets);
}

static bool is_placing(const struct session *s, size_t host)
{
	return s->agents.host[host].state == HOST_UP && session_needs(s, host) &&
	       !s->run[host].placed;
}

static bool all_placed(struct session *s)
{
	return !session_waits(s, is_placing);
}

/* A node's list by local rank needs a GPU for each rank. */
static bool gpus_for_all(const struct session *s)
{
	for (size_t i = 0; i < s->agents.n; i++)
		if (s->agents.host[i].gpus < s->plan.local_size[i])
			return false;
	return true;
}

static bool any_gpu(const struct session *s)
{
	for (size_t i = 0; i < s->agents.n; i++)
		if (s->agents.host[i].gpus)
			return true;
	return false;
}

/* --gpu-visible auto is decided here once, for all hosts. */
static void choose_visible(struct session *s)
{
	const struct request *r = s->request;
	struct strv env = { 0 };

	s->visible = r->gpu_visible;
	s->visible_why = xstrdup("--gpu-visible");
	if (s->visible != VISIBLE_AUTO)
		return;
	s->visible = VISIBLE_ONE;
	free(s->visible_why);
	s->visible_why = xstrdup("no script that takes its local rank for a device");
	if (r->plan == PLAN_OFF && !any_gpu(s))
		return;
	for (char **p = environ; *p; p++)
		strv_add(&env, *p);
	for (size_t i = 0; i < r->napp && s->visible == VISIBLE_ONE; i++) {
		struct visible v = { 0 };

		visible_find(&v, &r->app[i].argv, r->app[i].wdir, &env);
		if (v.mode == VISIBLE_NODE &&
		    (r->plan != PLAN_OFF || gpus_for_all(s))) {
			s->visible = VISIBLE_NODE;
			free(s->visible_why);
			s->visible_why =
				v.line ? xasprintf("%s:%zu: %s", v.file, v.line, v.word)
				       : xstrdup(v.file);
		}
		visible_free(&v);
	}
	strv_free(&env);
}

int session_ask_places(struct session *s)
{
	if (s->input)
		aim_input(s);
	if (job_spec_send(s))
		return -1;
	session_timer(s, (uint64_t)s->request->start_timeout_s * 1000 + 500);
	session_until(s, all_placed);
	event_del(s->timer);
	return came_up(s);
}

int session_place(struct session *s)
{
	choose_visible(s);
	if (s->request->plan == PLAN_OFF && s->request->stdin_rank != STDIN_NONE)
		s->input = input_open(s->base);
	if (session_ask_places(s))
		return s->lost ? report_lost_hosts(s) : -1;
	return 0;
}

bool session_run_over(struct session *s)
{
	return s->phase == PHASE_STOP && stop_all_gone(s);
}

static bool all_written(struct session *s)
{
	return s->unread || !output_waiting(s->output);
}

static void start_ranks(struct session *s)
{
	struct wire_start start = { s->epoch };

	s->phase = PHASE_RUN;
	for (size_t i = 0; i < s->agents.n; i++) {
		if (s->agents.host[i].state != HOST_UP || !session_needs(s, i))
			continue;
		wire_pack_start(&s->agents.host[i].out, &start);
		agents_flush(&s->agents.host[i]);
	}
}

int session_run(struct session *s)
{
	static const struct output_events events = { on_left, on_unread, on_disk };

	if (output_open(&s->output, s->base, s->request, s->plan.np, &events, s,
			&s->err))
		return -1;
	report_overload(s);
	agents_watch(&s->agents);
	stop_time_limit(s);
	do {
		start_ranks(s);
		session_until(s, session_run_over);
		output_finish(s->output);
		session_until(s, all_written);
	} while (restart_ranks(s));
	if (stop_lost_late(s))
		return report_lost_hosts(s);
	return s->err.id == ERR_NONE ? 0 : -1;
}

void session_forget_ranks(struct session *s)
{
	for (uint32_t i = 0; s->rank && i < s->plan.np; i++) {
		struct rank *r = &s->rank[i];

		free(r->gpu);
		free(r->gpu_name);
		free(r->cpus);
		free(r->bound);
		free(r->numa);
		free(r->visible);
		free(r->why);
		free(r->shared);
		free(r->text);
		free(r->hint);
		rank_op_free(r->doing);
		*r = (struct rank){ 0 };
	}
	for (size_t i = 0; s->run && i < s->agents.n; i++) {
		struct host_run *run = &s->run[i];

		free(run->idle);
		free(run->certificate);
		*run = (struct host_run){ .unconfirmed = run->unconfirmed,
					  .dropped = run->dropped };
	}
	free(s->master_addr);
	s->master_addr = NULL;
	fence_free(s->world);
	s->world = NULL;
	rank_status_free(s);
}

void session_free(struct session *s)
{
	struct ssh_pool *pool = s->agents.setup.pool;

	session_forget_ranks(s);
	free(s->rank);
	free(s->run);
	free(s->slots_from);
	free(s->visible_why);
	free(s->cwd);
	plan_free(&s->plan);
	output_free(s->output);
	input_free(s->input);
	events_close(s->events);
	free((char *)s->agents.setup.own_agent);
	agents_free(&s->agents);
	agents_free(&s->cleanup);
	ssh_pool_close(pool);
	for (size_t i = 0; i < sizeof s->watch / sizeof *s->watch; i++)
		if (s->watch[i])
			event_free(s->watch[i]);
	/* what has nobody to go to any more does not change how the job ended */
	signal(SIGUSR1, SIG_IGN);
	signal(SIGUSR2, SIG_IGN);
	event_free(s->timer);
	if (s->time_limit)
		event_free(s->time_limit);
	event_base_free(s->base);
}
