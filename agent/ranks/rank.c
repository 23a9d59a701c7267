#include "agent/ranks/rank.h"

#include <errno.h>
#include <event2/event.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/ranks/listener.h"
#include "common/loop.h"

enum {
	FIRST_PAUSE_MS = 4,
	LONGEST_PAUSE_MS = 128,
	/* 5 s of looks.  They are counted, since on a busy machine neither we nor the
	   processes get many turns in a given time. */
	MOST_LOOKS = 43,
	NAMED_UNKILLABLE = 16
};

static void rank_on_timer(evutil_socket_t fd, short what, void *arg)
{
	(void)fd;
	(void)what;
	(void)arg; /* the loop settles after each turn */
}

/* The job goes on without those that cannot be. */
static void open_timelines(struct ranks *r)
{
	int error = 0;

	for (size_t i = 0; i < r->n && !error && r->job->timeline_last; i++)
		error = timeline_open(&r->v[i].timeline, r->job->timeline_first,
				      r->job->timeline_last);
	if (error) {
		char *text = xasprintf("no timeline of some ranks: a file in TMPDIR "
				       "or /tmp: %s",
				       strerror(error));

		wire_pack_log(r->out, &(struct wire_log){ .level = LOG_WARNING,
							  .id = "",
							  .text = text,
							  .hint = "" });
		free(text);
	}
}

void ranks_begin(struct ranks *r, struct event_base *base, struct buf *out,
		 const struct wire_job *job)
{
	struct rlimit l;

	*r = (struct ranks){ .out = out, .job = job, .n = job->ranks.n };
	r->v = xcalloc(r->n, sizeof *r->v);
	for (size_t i = 0; i < r->n; i++)
		r->v[i] =
			(struct rank){ .rank = job->ranks.v[i], .life = 1, .warm = -1 };
	r->io = (struct io){ .base = base,
			     .out = out,
			     .epoch = job->epoch,
			     .credit = job->credit_bytes };
	STAILQ_INIT(&r->io.waiting);
	r->timer = event_new(base, -1, 0, rank_on_timer, r);
	oom_begin(&r->oom, "");
	r->entry.fd = -1;
	open_timelines(r);
	/* their pipes need descriptors first */
	if (!getrlimit(RLIMIT_NOFILE, &l) && l.rlim_cur >= 32 + 6 * r->n)
		stack_hook_open(&r->stacks);
	for (size_t i = 0; i < r->n && *r->stacks.path; i++)
		stack_open(&r->v[i].stack);
}

void ranks_enclose(struct ranks *r, struct cgroup *c)
{
	cgroup_make(c, r->job->job_id, r->job->epoch);
	r->cgroup = c;
	r->entry = cgroup_open(c);
}

static void close_entry(struct ranks *r)
{
	if (r->entry.fd >= 0)
		close(r->entry.fd);
	r->entry.fd = -1;
}

/* A sweep must not believe that the cgroup has all of the job. */
void ranks_enclosed(struct ranks *r, const struct spawn_batch *batch)
{
	if (!spawn_batch_outside(batch))
		return;
	close_entry(r);
	cgroup_drop(r->cgroup);
}

/* ---- start ---- */

void ranks_fail(struct ranks *r, size_t local, const struct err *e)
{
	struct rank *one = &r->v[local];
	struct wire_exited m = { .epoch = r->job->epoch,
				 .rank = one->rank,
				 .status = (uint32_t)err_status(e->id) << 8,
				 .began_ns = clock_ns(),
				 .text = e->text,
				 .hint = e->hint };

	one->state = RANK_EXITED;
	server_ended(r->server, local, true);
	wire_pack_exited(r->out, &m);
}

const char *ranks_nccl_log(struct ranks *r, size_t local)
{
	struct rank *one = &r->v[local];

	if (!(r->job->flags & JOB_NCCL_LOG))
		return NULL;
	io_log_open(&one->nccl, &r->io, one->rank);
	return one->nccl.path;
}

/* Open the streams of local rank LOCAL, and its PMI-1, into S.  False: it has
 * failed. */
static bool rank_open(struct ranks *r, size_t local, struct spawn *s)
{
	struct rank *one = &r->v[local];
	uint32_t reader = r->job->stdin_rank;
	bool reads = reader == one->rank || reader == STDIN_ALL;
	struct err e = { 0 };

	io_free_rank(&one->io); /* of an attempt before */
	if (io_open(&one->io, &r->io, one->rank, r->job->flags & JOB_PTY, reads, s->fd,
		    &e)) {
		ranks_fail(r, local, &e);
		return false;
	}
	if (server_pmi1(r->server, local, &s->pmi, &e)) {
		io_close_child(s->fd);
		io_free_rank(&one->io);
		ranks_fail(r, local, &e);
		return false;
	}
	return true;
}

static void rank_close_child(struct spawn *s)
{
	io_close_child(s->fd);
	if (s->pmi >= 0)
		close(s->pmi);
}

void ranks_start(struct ranks *r, size_t local, struct spawn_batch *batch,
		 struct spawn *s)
{
	struct rank *one = &r->v[local];

	one->warm = -1;
	if (!rank_open(r, local, s))
		return;
	one->launched = true;
	one->slot = spawn_batch_add(batch, s);
	rank_close_child(s);
}

bool ranks_ask(struct ranks *r, size_t local, int p, struct spawn *s)
{
	bool asked;

	if (!rank_open(r, local, s))
		return true;
	asked = warm_ask(r->warm, p, local, s, r->entry);
	rank_close_child(s);
	r->v[local].warm = asked ? p : -1;
	return asked;
}

/* Alone, with new streams: its first were closed when it failed. */
static void start_again(struct ranks *r, size_t local, struct spawn s)
{
	struct err e = { 0 };
	struct spawn_batch *batch = spawn_batch_open(1, r->entry, &e);

	if (!batch) {
		io_free_rank(&r->v[local].io);
		ranks_fail(r, local, &e);
		return;
	}
	ranks_start(r, local, batch, &s);
	spawn_batch_wait(batch);
	ranks_enclosed(r, batch);
	ranks_started(r, local, batch);
	spawn_batch_free(batch);
}

/* Its process is one->pid. */
static void rank_runs(struct ranks *r, size_t local, int bind_errno)
{
	struct rank *one = &r->v[local];
	struct wire_started m = { .epoch = r->job->epoch, .rank = one->rank };
	struct str cpus = { 0 };
	uint64_t mask[128];
	long bytes;
	size_t words;

	if (bind_errno)
		r->bind_errno = bind_errno;
	one->state = RANK_RUNNING;
	r->running++;
	bytes = syscall(SYS_sched_getaffinity, one->pid, sizeof mask, mask);
	words = bytes > 0 ? (size_t)bytes / sizeof *mask : 0;
	while (words && !mask[words - 1])
		words--;
	str_add_bits(&cpus, mask, words);
	m.pid = (uint32_t)one->pid;
	m.cpus = str_text(&cpus);
	wire_pack_started(r->out, &m);
	str_free(&cpus);
}

void ranks_started(struct ranks *r, size_t local, struct spawn_batch *batch)
{
	struct rank *one = &r->v[local];
	const struct spawn *again;
	int bind_errno = 0;
	struct err e = { 0 };

	if (!one->launched)
		return;
	one->launched = false;
	again = spawn_batch_text(batch, one->slot);
	if (again) {
		start_again(r, local, *again);
		return;
	}
	one->pid = spawn_batch_result(batch, one->slot, &bind_errno, &e);
	if (one->pid < 0) {
		io_free_rank(&one->io);
		ranks_fail(r, local, &e);
		return;
	}
	rank_runs(r, local, bind_errno);
}

void ranks_forked(struct ranks *r, size_t local, pid_t pid, int bind_errno)
{
	r->v[local].pid = pid;
	r->v[local].started_ms = clock_ms();
	rank_runs(r, local, bind_errno);
}

bool ranks_wait(const struct ranks *r)
{
	for (size_t i = 0; i < r->n; i++)
		if (r->v[i].state == RANK_WAITING)
			return true;
	return false;
}

/* ---- exits ---- */

static uint64_t in_us(struct timeval t)
{
	return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_usec;
}

static bool lost_pmix(const struct ranks *r, const char **why)
{
	const pid_t pid = server_pmix_pid(r->server);

	if (server_pmix(r->server, why) == SERVER_PMIX_LOST)
		return true;
	*why = SERVER_PMIX_GONE;
	return pid && proc_exiting(pid);
}

/* Tells the end of local rank LOCAL as MPI knows it, before its status. */
static void say_mpi_end(struct ranks *r, size_t local, int status,
			struct wire_exited *m, struct str *why)
{
	const char *failure = server_ended(r->server, local, status != 0), *said;
	int code;
	uint64_t aborted_ns = server_aborted(r->server, local, &code, &said);

	if (aborted_ns) {
		/* Others fail because it is killed, and may be reaped before it. */
		if (aborted_ns < m->began_ns)
			m->began_ns = aborted_ns;
		str_addf(why, "called MPI_Abort with %d%s%s", code, *said ? ": " : "",
			 said);
		m->status = (uint32_t)(code & 255 ? code & 255 : 1) << 8;
		m->text = str_text(why);
	} else if (WIFEXITED(status) && (status || failure) && lost_pmix(r, &said)) {
		/* in MPI_Init it may not have been present yet */
		if (!failure)
			str_addf(why, "exited with status %d after it ",
				 WEXITSTATUS(status));
		str_addf(why, "lost its PMIx server: %s", said);
		m->status = (uint32_t)(status ? status : 1 << 8);
		m->text = str_text(why);
	} else if (failure && !status) {
		m->status = 1 << 8;
		m->text = failure;
	}
}

/* A rank that soon dies so may have inherited what breaks it. */
static void blame_warm(struct ranks *r, size_t local, int status)
{
	static const int signals[] = { SIGSEGV, SIGBUS, SIGILL, SIGABRT, SIGFPE };
	enum { EARLY_MS = 10000 };
	const struct rank *one = &r->v[local];
	bool early = WIFEXITED(status) && status && server_idle(r->server, local);

	if (one->warm < 0)
		return;
	for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
		early |= WIFSIGNALED(status) && WTERMSIG(status) == signals[i] &&
			 clock_ms() - one->started_ms <= EARLY_MS;
	if (early)
		warm_drop(r->warm, one->warm,
			  "a rank that was forked from it died early");
}

static void rank_exited(struct ranks *r, size_t local, int status, uint64_t reaped_ns,
			const struct rusage *used)
{
	struct rank *one = &r->v[local];
	bool kill9 = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
	struct str why = { 0 }, hint = { 0 }, who = { 0 };
	struct wire_exited m = {
		.epoch = r->job->epoch,
		.rank = one->rank,
		.pid = (uint32_t)one->pid,
		.status = (uint32_t)status,
		.began_ns = exit_time_began(&one->io.exit, reaped_ns),
		/* an error that is read only now has no time of its own */
		.error_printed_ns = one->io.exit.error_printed_ns,
		.cpu_us = in_us(used->ru_utime) + in_us(used->ru_stime),
		.peak_bytes = (uint64_t)used->ru_maxrss * 1024,
	};

	blame_warm(r, local, status);
	m.oom = kill9 && !one->killed && oom_risen(&r->oom);
	if (m.oom)
		oom_why(&r->oom, &why);
	if (status && !one->rank &&
	    !one->killed && /* it may have found its port taken */
	    listener_is_stranger(&who, r->job->master_port))
		str_addf(&hint,
			 "run it again with another MASTER_PORT: %s listens on %u",
			 str_text(&who), r->job->master_port);
	m.text = str_text(&why);
	m.hint = str_text(&hint);
	one->state = RANK_EXITED;
	r->running--;
	io_drain(&one->io);
	io_log_drain(&one->nccl);
	say_mpi_end(r, local, status, &m, &why);
	wire_pack_exited(r->out, &m);
	str_free(&why);
	str_free(&hint);
	str_free(&who);
}

/* The local rank that runs as PID, or the number of ranks. */
static size_t running_as(const struct ranks *r, pid_t pid)
{
	size_t i = 0;

	while (i < r->n && (r->v[i].pid != pid || r->v[i].state != RANK_RUNNING))
		i++;
	return i;
}

/* waitpid returns processes that have died by now in the order in which they were
 * started, not in which they died.  So all get one time, and the launcher decides. */
void ranks_reap(struct ranks *r)
{
	uint64_t reaped_ns = clock_ns();
	struct rusage used;
	int status;
	pid_t pid;

	while ((pid = wait4(-1, &status, WNOHANG, &used)) > 0) {
		size_t i = running_as(r, pid);

		if (i == r->n) { /* a warm process said its pid before it ended */
			warm_answers(r->warm);
			i = running_as(r, pid);
		}
		if (i < r->n)
			rank_exited(r, i, status, reaped_ns, &used);
		else
			warm_reaped(r->warm, pid);
	}
	r->alone = pid < 0 && errno == ECHILD;
}

/* ---- another life ---- */

void ranks_clear(struct ranks *r, size_t local, uint32_t life, bool joins)
{
	struct rank *one = &r->v[local];

	if (one->state != RANK_EXITED || r->phase != RANKS_RUN)
		return;
	one->state = RANK_CLEARING;
	one->life = life;
	server_another_life(r->server, local, joins);
	one->looks = 0;
	one->killed = false;
	one->kill_at_ms = 0;
}

/* Nothing is left of it, and its output is sent. */
static bool is_clear(struct ranks *r, struct rank *one)
{
	char entry[32];

	snprintf(entry, sizeof entry, "BERTH_RANK=%u", one->rank);
	if (procs_end(one->pid, entry)) {
		one->looks++;
		loop_after_ms(r->timer, FIRST_PAUSE_MS);
		return false;
	}
	if (one->io.io)
		io_finish(&one->io);
	io_log_finish(&one->nccl);
	if ((one->io.io && !io_is_over(&one->io)) || !io_log_is_over(&one->nccl) ||
	    !timeline_send(&one->timeline, &r->io, one->rank))
		return false;
	timeline_again(&one->timeline);
	return true;
}

long ranks_cleared(struct ranks *r)
{
	enum { MOST = 1250 }; /* looks, of 4 ms */
	struct err e = { 0 };

	for (size_t i = 0; i < r->n && r->phase == RANKS_RUN && !r->stop_delayed_ms;
	     i++) {
		struct rank *one = &r->v[i];

		if (one->state != RANK_CLEARING)
			continue;
		if (is_clear(r, one)) {
			one->state = RANK_WAITING;
			return (long)i;
		}
		if (one->looks < MOST)
			continue;
		err_set(&e, E_SPAWN, "the rank",
			"processes of its last life do not end");
		ranks_fail(r, i, &e);
	}
	return -1;
}

/* ---- signals ---- */

static bool is_shell(const char *name)
{
	static const char *const shells[] = { "sh",   "bash", "dash", "zsh",  "ksh",
					      "mksh", "ash",  "fish", "tcsh", "csh" };

	for (size_t i = 0; i < sizeof shells / sizeof *shells; i++)
		if (!strcmp(name, shells[i]))
			return true;
	return false;
}

bool ranks_is_shell(const struct proc *p)
{
	return is_shell(p->comm) || proc_runs(p->pid, is_shell);
}

/* A shell gets it before its children: else it would go on to its script's next line
 * once its child has died.  A script with "#!/bin/bash" has the script's name, so the
 * program counts, too. */
static void signal_main(const struct procs *all, pid_t pid, int signo)
{
	const struct proc *p = procs_find(all, pid);
	bool shell = p && ranks_is_shell(p);

	kill(pid, signo);
	for (size_t i = 0; shell && i < all->n; i++)
		if (all->v[i].ppid == pid)
			kill(all->v[i].pid, signo);
}

void ranks_signal_one(const struct ranks *r, size_t local, int signo)
{
	struct procs all;

	procs_load_below(&all);
	signal_main(&all, r->v[local].pid, signo);
	procs_free(&all);
}

/* A rank whose warm process still imports has no handler either: SIGNO ends it. */
static void signal_asked(struct ranks *r, int signo)
{
	warm_answers(r->warm);
	warm_cancel(r->warm);
	for (size_t i = 0; i < r->n; i++) {
		const struct wire_exited m = { .epoch = r->job->epoch,
					       .rank = r->v[i].rank,
					       .status = (uint32_t)signo,
					       .began_ns = clock_ns(),
					       .text = "",
					       .hint = "" };

		if (r->v[i].warm < 0 || r->v[i].state != RANK_WAITING)
			continue;
		r->v[i].state = RANK_EXITED;
		server_ended(r->server, i, true);
		wire_pack_exited(r->out, &m);
	}
}

/* Memory or descriptors may be short for a moment.  If they stay short, the guardian
 * has its own, and kills the processes that this agent cannot see. */
static const char blind[] = "cannot look at the processes";

void ranks_signal(struct ranks *r, int signo, bool tree)
{
	struct procs all;

	for (size_t i = 0; i < r->n; i++)
		r->v[i].killed |= signo == SIGKILL;
	if (tree) {
		int error = procs_sweep_tree(signo);

		if (signo == SIGKILL)
			cgroup_kill(r->cgroup);
		if (error && r->blind)
			die(blind, error);
		r->blind = error != 0;
		return;
	}
	if (r->warm && r->phase == RANKS_RUN && (signo == SIGINT || signo == SIGTERM))
		signal_asked(r, signo);
	procs_load_below(&all);
	for (size_t i = 0; i < r->n; i++)
		if (r->v[i].state == RANK_RUNNING)
			signal_main(&all, r->v[i].pid, signo);
	procs_free(&all);
}

/* The kernel tells only the sessions whose terminal a pty is, and the ranks have no
 * session of their own (spawn.c). */
void ranks_window(struct ranks *r, const struct winsize *size)
{
	r->io.window = *size;
	for (size_t i = 0; i < r->n; i++)
		if (r->v[i].state == RANK_RUNNING && io_resize(&r->v[i].io))
			kill(-r->v[i].pid, SIGWINCH);
}

/* ---- the stop ---- */

static void kill_tree(struct ranks *r)
{
	r->phase = RANKS_KILLING;
	r->looks = 0;
	r->look_ms = 0;
	r->pause_ms = FIRST_PAUSE_MS;
	ranks_reap(r);
}

static bool exit_is_near(const struct ranks *r)
{
	for (size_t i = 0; i < r->n; i++)
		if (r->v[i].state == RANK_RUNNING &&
		    exit_time_is_near(&r->v[i].io.exit, r->v[i].pid))
			return true;
	return false;
}

static void stop_now(struct ranks *r, uint32_t grace_ms)
{
	r->stop_delayed_ms = 0;
	warm_cancel(r->warm);
	wire_pack_stop_ack(r->out, &(struct wire_stop_ack){ r->job->epoch });
	if (r->phase > RANKS_TERMED)
		return;
	if (!grace_ms || !r->running) {
		kill_tree(r);
		return;
	}
	r->kill_at_ms = grace_ms == GRACE_NEVER ? 0 : clock_ms() + grace_ms;
	event_del(r->timer);
	if (r->kill_at_ms)
		loop_after_ms(r->timer, grace_ms);
	if (r->phase == RANKS_TERMED)
		return;
	r->phase = RANKS_TERMED;
	ranks_signal(r, SIGTERM, false);
	/* A stopped process acts on TERM only once it goes on. */
	ranks_signal(r, SIGCONT, false);
}

/* A rank whose exit is near may be the cause: it gets the time to exit with a status of
 * its own. */
void ranks_stop(struct ranks *r, uint32_t grace_ms)
{
	ranks_reap(r);
	if (r->phase != RANKS_RUN || !grace_ms || !exit_is_near(r)) {
		stop_now(r, grace_ms);
		return;
	}
	if (!r->stop_delayed_ms) {
		r->stop_delayed_ms = clock_ms() + EXIT_LASTS_MS;
		loop_after_ms(r->timer, EXIT_LASTS_MS);
	}
	r->grace_ms = grace_ms;
}

static void on_emptied(evutil_socket_t fd, short what, void *arg)
{
	char events[4096];

	(void)what;
	(void)arg; /* the loop settles after each turn */
	while (read(fd, events, sizeof events) > 0)
		;
}

/* No process of the job is left: no child, and the cgroup is empty.  It is watched
 * first, so that no change is missed. */
static bool all_gone(struct ranks *r)
{
	int watch;

	if (!r->alone && r->warm) { /* its processes are children, too */
		struct procs below;

		r->alone = !procs_load_below(&below) && !below.n;
		procs_free(&below);
	}
	if (!r->alone || !cgroup_populated(r->cgroup))
		return r->alone;
	watch = r->emptied ? -1 : cgroup_watch(r->cgroup);
	if (watch >= 0) {
		r->emptied = event_new(r->io.base, watch, EV_READ | EV_PERSIST,
				       on_emptied, r);
		loop_watch(r->emptied);
	}
	return !cgroup_populated(r->cgroup);
}

/* One look at the tree: KILL what is there, and look again soon for what was forked
 * meanwhile.  What survives all looks is stuck in the kernel, or another user's. */
static void settle_killing(struct ranks *r, uint64_t now)
{
	struct procs p;
	int error;

	if (all_gone(r)) {
		r->phase = RANKS_DRAINING;
		return;
	}
	if (now < r->look_ms)
		return;
	if (r->looks < MOST_LOOKS) {
		ranks_signal(r, SIGKILL, true);
		r->looks++;
		r->look_ms = now + r->pause_ms;
		loop_after_ms(r->timer, r->pause_ms);
		if (r->pause_ms < LONGEST_PAUSE_MS)
			r->pause_ms *= 2;
		return;
	}
	r->phase = RANKS_DRAINING;
	error = procs_load_below(&p);
	if (error)
		die(blind, error);
	r->unkillable = (uint32_t)p.n;
	for (size_t i = 0; i < p.n && i < NAMED_UNKILLABLE; i++)
		str_addf(&r->which, "%spid %d (%s)", i ? ", " : "", (int)p.v[i].pid,
			 p.v[i].comm);
	if (!p.n && cgroup_populated(r->cgroup)) {
		r->unkillable = 1;
		str_addf(&r->which, "in cgroup '%s'", r->cgroup->path);
	}
	procs_free(&p);
}

void ranks_settle(struct ranks *r)
{
	uint64_t now = clock_ms();
	const char *text;
	size_t local;
	uint32_t stream;

	io_room(&r->io);
	/* what ranks gave PMIx to show goes with their own output */
	while ((text = server_says(r->server, &local, &stream)) &&
	       io_say(&r->io, r->v[local].rank, stream, text))
		server_said(r->server);
	while (server_ends(r->server, &local)) /* by MPI_Abort, or stuck in it */
		if (r->v[local].state == RANK_RUNNING) {
			r->v[local].killed = true;
			kill(-r->v[local].pid, SIGKILL);
		}
	if (r->stop_delayed_ms && (now >= r->stop_delayed_ms || !exit_is_near(r)))
		stop_now(r, r->grace_ms);
	if (r->phase == RANKS_TERMED &&
	    (!r->running || (r->kill_at_ms && now >= r->kill_at_ms)))
		kill_tree(r);
	if (r->phase == RANKS_KILLING)
		settle_killing(r, now);
	if (r->phase != RANKS_DRAINING)
		return;
	for (size_t i = 0; i < r->n; i++) {
		if (r->v[i].io.io)
			io_finish(&r->v[i].io);
		io_log_finish(&r->v[i].nccl);
	}
	if (r->io.open || server_says(r->server, &local, &stream))
		return;
	for (size_t i = 0; i < r->n; i++) /* behind all output */
		if (!timeline_send(&r->v[i].timeline, &r->io, r->v[i].rank))
			return;
	r->phase = RANKS_CLEARED;
}

void ranks_free(struct ranks *r)
{
	for (size_t i = 0; i < r->n; i++) {
		struct str none = { 0 };

		stack_tool_take(&r->v[i].tool, &none);
		str_free(&none);
		io_free_rank(&r->v[i].io);
		io_log_free(&r->v[i].nccl);
		timeline_free(&r->v[i].timeline);
		stack_free(&r->v[i].stack);
	}
	stack_hook_free(&r->stacks);
	io_free(&r->io);
	if (r->emptied) {
		close(event_get_fd(r->emptied));
		event_free(r->emptied);
	}
	if (r->cgroup)
		close_entry(r);
	free(r->v);
	str_free(&r->which);
	if (r->timer)
		event_free(r->timer);
	if (r->hung)
		event_free(r->hung);
	if (r->dump)
		event_free(r->dump);
	late_free(&r->late);
	*r = (struct ranks){ 0 };
}
