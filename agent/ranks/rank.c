#include "agent/ranks/rank.h"

#include <errno.h>
#include <event2/event.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/ranks/procs.h"

enum {
	HELD_MS = 400,
	FIRST_PAUSE_MS = 4,
	LONGEST_PAUSE_MS = 128,
	/* 5 s of looks.  Not of time: where we got no turn, they got none to die in. */
	MOST_LOOKS = 43,
	NAMED_LEFT = 16
};

static void on_timer(evutil_socket_t fd, short what, void *arg)
{
	(void)fd;
	(void)what;
	(void)arg; /* the loop settles after each turn */
}

static void wake_in(struct ranks *r, uint64_t ms)
{
	const struct timeval t = { (time_t)(ms / 1000),
				   (suseconds_t)(ms % 1000 * 1000) };

	event_add(r->timer, &t);
}

void ranks_begin(struct ranks *r, struct event_base *base, struct buf *out,
		 const struct wire_job *job)
{
	*r = (struct ranks){ .base = base,
			     .out = out,
			     .epoch = job->epoch,
			     .n = job->ranks.n,
			     .pty = job->flags & JOB_PTY,
			     .stdin_rank = job->stdin_rank };
	r->v = xcalloc(r->n, sizeof *r->v);
	for (size_t i = 0; i < r->n; i++)
		r->v[i] = (struct rank){ .rank = job->ranks.v[i] };
	r->io = (struct io){ .base = base,
			     .out = out,
			     .epoch = job->epoch,
			     .credit = job->credit_bytes };
	r->timer = event_new(base, -1, 0, on_timer, r);
	oom_begin(&r->oom, "");
}

/* ---- start ---- */

static void send_started(struct ranks *r, const struct rank *one)
{
	struct str cpus = { 0 };
	struct wire_started m = { r->epoch, one->rank, (uint32_t)one->pid, clock_ns(),
				  "" };

	spawn_mask(&cpus, one->pid);
	m.cpus = str_text(&cpus);
	wire_pack_started(r->out, &m);
	str_free(&cpus);
}

void ranks_fail(struct ranks *r, size_t local, const struct err *e)
{
	struct rank *one = &r->v[local];
	struct wire_exited m = { r->epoch,   one->rank,
				 0,          (uint32_t)err_status(e->id) << 8,
				 clock_ns(), 0,
				 0,          err_name(e->id),
				 e->text,    e->hint };

	one->state = RANK_ENDED;
	server_ended(r->server, local, true);
	wire_pack_exited(r->out, &m);
}

void ranks_start(struct ranks *r, size_t local, struct spawn_batch *batch,
		 struct spawn *s)
{
	struct rank *one = &r->v[local];
	bool reads = r->stdin_rank == one->rank || r->stdin_rank == STDIN_ALL;
	struct err e = { 0 };

	if (io_open(&one->io, &r->io, one->rank, r->pty, reads, s->fd, &e)) {
		ranks_fail(r, local, &e);
		return;
	}
	one->launched = true;
	one->slot = r->launched++;
	spawn_batch_add(batch, s);
	io_close_child(s->fd);
}

/* Alone, with streams of its own: its first were closed when it failed. */
static int start_again(struct ranks *r, size_t local, struct spawn s)
{
	struct err e = { 0 };
	struct spawn_batch *batch = spawn_batch_open(1, &e);
	int rc = 0;

	io_free_rank(&r->v[local].io);
	if (!batch) {
		ranks_fail(r, local, &e);
		return 0;
	}
	r->launched = 0;
	ranks_start(r, local, batch, &s);
	spawn_batch_wait(batch);
	rc = ranks_started(r, local, batch);
	spawn_batch_free(batch);
	return rc;
}

int ranks_started(struct ranks *r, size_t local, struct spawn_batch *batch)
{
	struct rank *one = &r->v[local];
	const struct spawn *again;
	int bind_errno = 0;
	struct err e = { 0 };

	if (!one->launched)
		return 0;
	one->launched = false;
	again = spawn_batch_text(batch, one->slot);
	if (again)
		return start_again(r, local, *again);
	one->pid = spawn_batch_result(batch, one->slot, &bind_errno, &e);
	if (one->pid < 0) {
		io_free_rank(&one->io);
		ranks_fail(r, local, &e);
		return 0;
	}
	one->state = RANK_RUNNING;
	r->running++;
	send_started(r, one);
	return bind_errno;
}

void ranks_grant(struct ranks *r)
{
	io_grant(&r->io);
}

/* ---- endings ---- */

static struct rank *find(struct ranks *r, pid_t pid)
{
	for (size_t i = 0; i < r->n; i++)
		if (r->v[i].pid == pid && r->v[i].state == RANK_RUNNING)
			return &r->v[i];
	return NULL;
}

static void rank_ended(struct ranks *r, struct rank *one, int status, uint64_t at_ns)
{
	bool kill9 = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
	struct str why = { 0 };
	struct wire_exited m = { .epoch = r->epoch,
				 .rank = one->rank,
				 .pid = (uint32_t)one->pid,
				 .status = (uint32_t)status,
				 .at_ns = io_dying_ns(&one->io, at_ns),
				 .id = "",
				 .hint = "" };

	m.oom = kill9 && !one->killed && oom_risen(&r->oom);
	if (m.oom)
		oom_why(&r->oom, &why);
	m.text = str_text(&why);
	one->state = RANK_ENDED;
	r->running--;
	io_drain(&one->io);
	server_ended(r->server, (size_t)(one - r->v), status != 0);
	m.failing_ns = io_failing_ns(&one->io, at_ns);
	wire_pack_exited(r->out, &m);
	str_free(&why);
}

/* waitpid hands out those that died in one go in the order in which they were started,
 * not in which they died: they get one time, and the launcher's ranking of causes
 * decides. */
void ranks_reap(struct ranks *r)
{
	uint64_t at_ns = clock_ns();
	int status;
	pid_t pid;

	while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
		struct rank *one = find(r, pid);

		if (one)
			rank_ended(r, one, status, at_ns);
	}
	r->alone = pid < 0 && errno == ECHILD;
}

/* ---- signals ---- */

static bool names_shell(const char *name)
{
	static const char *const shells[] = { "sh",   "bash", "dash", "zsh",  "ksh",
					      "mksh", "ash",  "fish", "tcsh", "csh" };

	for (size_t i = 0; i < sizeof shells / sizeof *shells; i++)
		if (!strcmp(name, shells[i]))
			return true;
	return false;
}

/* By its file too: a script with "#!/bin/bash" has the script's name. */
static bool is_shell(const struct proc *p)
{
	char link[64], file[512], *slash;
	ssize_t n;

	if (names_shell(p->comm))
		return true;
	snprintf(link, sizeof link, "/proc/%d/exe", (int)p->pid);
	n = readlink(link, file, sizeof file - 1);
	if (n <= 0)
		return false;
	file[n] = '\0';
	slash = strrchr(file, '/');
	return names_shell(slash ? slash + 1 : file);
}

/* The shell first: once its child has died it would go on to its script's next line. */
static void signal_main(const struct procs *all, pid_t pid, int signo)
{
	bool shell = false;

	for (size_t i = 0; i < all->n; i++)
		shell |= all->v[i].pid == pid && is_shell(&all->v[i]);
	kill(pid, signo);
	for (size_t i = 0; shell && i < all->n; i++)
		if (all->v[i].ppid == pid)
			kill(all->v[i].pid, signo);
}

/* Memory or descriptors may be short for a moment; where they stay so, the guardian has
 * its own, and ends what an agent can't see. */
static const char blind[] = "cannot look at the processes";

static void signal_tree(struct ranks *r, int signo)
{
	int error = procs_sweep_tree(signo);

	if (error && r->blind)
		die(blind, error);
	r->blind = error != 0;
}

void ranks_signal(struct ranks *r, int signo, bool tree)
{
	struct procs all;

	for (size_t i = 0; i < r->n; i++)
		r->v[i].killed |= signo == SIGKILL;
	if (tree) {
		signal_tree(r, signo);
		return;
	}
	procs_load_below(&all, getpid());
	for (size_t i = 0; i < r->n; i++)
		if (r->v[i].state == RANK_RUNNING)
			signal_main(&all, r->v[i].pid, signo);
	procs_free(&all);
}

/* ---- the end ---- */

static void kill_tree(struct ranks *r)
{
	r->phase = RANKS_KILLING;
	r->looks = 0;
	r->look_ms = 0;
	r->pause_ms = FIRST_PAUSE_MS;
	ranks_reap(r);
}

static void tell_ending(const struct ranks *r)
{
	struct wire_stop_ack m = { r->epoch };

	wire_pack_stop_ack(r->out, &m);
}

/* Has a rank said that it fails, and still to end; or does it end just now? */
static bool any_failing(const struct ranks *r)
{
	uint64_t now_ns = clock_ns();

	for (size_t i = 0; i < r->n; i++)
		if (r->v[i].state == RANK_RUNNING &&
		    (io_failing_ns(&r->v[i].io, now_ns) || proc_dying(r->v[i].pid)))
			return true;
	return false;
}

static void begin_end(struct ranks *r, uint32_t grace_ms)
{
	r->held_ms = 0;
	tell_ending(r);
	if (r->phase > RANKS_TERMED)
		return;
	if (!grace_ms || !r->running) {
		kill_tree(r);
		return;
	}
	r->kill_at_ms = grace_ms == GRACE_NEVER ? 0 : clock_ms() + grace_ms;
	event_del(r->timer);
	if (r->kill_at_ms)
		wake_in(r, grace_ms);
	if (r->phase == RANKS_TERMED)
		return;
	r->phase = RANKS_TERMED;
	/* What is stopped acts on TERM only once it goes on. */
	ranks_signal(r, SIGTERM, false);
	ranks_signal(r, SIGCONT, false);
}

/* Who fails already ends by itself, with a status of its own: it may be the cause. */
void ranks_end(struct ranks *r, uint32_t grace_ms)
{
	ranks_reap(r);
	if (r->phase != RANKS_RUN || !grace_ms || !any_failing(r)) {
		begin_end(r, grace_ms);
		return;
	}
	if (!r->held_ms) {
		r->held_ms = clock_ms() + HELD_MS;
		wake_in(r, HELD_MS);
	}
	r->held_grace_ms = grace_ms;
}

/* One look at the tree: KILL what is there, come again soon for what was forked
 * meanwhile. */
static void look_at_tree(struct ranks *r, uint64_t now)
{
	if (now < r->look_ms)
		return;
	ranks_signal(r, SIGKILL, true);
	r->looks++;
	r->look_ms = now + r->pause_ms;
	wake_in(r, r->pause_ms);
	if (r->pause_ms < LONGEST_PAUSE_MS)
		r->pause_ms *= 2;
}

/* What defies KILL: in the kernel's hands, or another user's. */
static void name_left(struct ranks *r)
{
	struct procs p;
	int error;

	error = procs_load_below(&p, getpid());
	if (error)
		die(blind, error);
	r->left = (uint32_t)p.n;
	for (size_t i = 0; i < p.n && i < NAMED_LEFT; i++)
		str_addf(&r->which, "%spid %d (%s)", i ? ", " : "", (int)p.v[i].pid,
			 p.v[i].comm);
	procs_free(&p);
}

static void settle_killing(struct ranks *r, uint64_t now)
{
	if (r->alone) {
		r->phase = RANKS_DRAINING;
	} else if (r->looks == MOST_LOOKS && now >= r->look_ms) {
		name_left(r);
		r->phase = RANKS_DRAINING;
	} else {
		look_at_tree(r, now);
	}
}

static void settle_draining(struct ranks *r)
{
	for (size_t i = 0; i < r->n; i++)
		if (r->v[i].io.io)
			io_finish(&r->v[i].io);
	if (!r->io.open)
		r->phase = RANKS_GONE;
}

void ranks_settle(struct ranks *r)
{
	uint64_t now = clock_ms();

	io_room(&r->io);
	if (r->held_ms && (now >= r->held_ms || !any_failing(r)))
		begin_end(r, r->held_grace_ms);
	if (r->phase == RANKS_TERMED &&
	    (!r->running || (r->kill_at_ms && now >= r->kill_at_ms)))
		kill_tree(r);
	if (r->phase == RANKS_KILLING)
		settle_killing(r, now);
	if (r->phase == RANKS_DRAINING)
		settle_draining(r);
}

void ranks_free(struct ranks *r)
{
	for (size_t i = 0; i < r->n; i++)
		io_free_rank(&r->v[i].io);
	io_free(&r->io);
	free(r->v);
	str_free(&r->which);
	if (r->timer)
		event_free(r->timer);
	*r = (struct ranks){ 0 };
}
