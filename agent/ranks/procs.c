#include "agent/ranks/procs.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "agent/ranks/cgroup.h"
#include "common/file.h"

/* ---- /proc ---- */

/* File WHAT of process PID, as text. */
static ssize_t read_proc(pid_t pid, const char *what, char *out, size_t size)
{
	char path[64];

	snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, what);
	return file_start(path, out, size);
}

/* "123 (name) S 1 ...": the name may hold anything, so its end is the last parenthesis.
 * False, with errno, if PID does not exist. */
static bool read_stat(struct proc *p, pid_t pid)
{
	char text[512], *open, *close, *end;

	errno = 0;
	if (read_proc(pid, "stat", text, sizeof text) <= 0)
		return false;
	open = strchr(text, '(');
	close = strrchr(text, ')');
	if (!open || !close || close[1] != ' ' || !close[2])
		return false;
	p->pid = pid;
	p->state = close[2];
	/* sscanf() took a tenth of the instructions of a whole agent. */
	p->ppid = (pid_t)strtol(close + 3, &end, 10);
	p->group = (pid_t)strtol(end, NULL, 10);
	*close = '\0';
	snprintf(p->comm, sizeof p->comm, "%.15s", open + 1);
	return true;
}

int procs_load(struct procs *p)
{
	DIR *dir = opendir("/proc");
	struct dirent *d;
	size_t cap = 0;
	int error = 0;

	*p = (struct procs){ 0 };
	if (!dir)
		return errno;
	while (!error && (d = readdir(dir))) {
		struct proc one, *v;

		if (!isdigit((unsigned char)*d->d_name))
			continue;
		if (!read_stat(&one, (pid_t)strtol(d->d_name, NULL, 10))) {
			if (errno == EMFILE || errno == ENFILE || errno == ENOMEM)
				error = errno;
			continue;
		}
		if (p->n == cap) {
			cap = cap ? cap * 2 : 128;
			v = reallocarray(p->v, cap, sizeof *v);
			if (!v) {
				error = ENOMEM;
				break;
			}
			p->v = v;
		}
		p->v[p->n++] = one;
	}
	closedir(dir);
	return error;
}

static void procs_swap(struct proc *a, struct proc *b)
{
	struct proc old = *a;

	*a = *b;
	*b = old;
}

static pid_t spared[PROCS_SPARED]; /* 0: free */

static bool is_spared(pid_t group)
{
	for (size_t i = 0; i < PROCS_SPARED; i++)
		if (spared[i] && spared[i] == group)
			return true;
	return false;
}

void procs_spare(pid_t group, bool is)
{
	const pid_t from = is ? 0 : group, to = is ? group : 0;

	for (size_t i = 0; i < PROCS_SPARED; i++)
		if (spared[i] == from) {
			spared[i] = to;
			return;
		}
}

/* Breadth first in place: v[0..found) is below us, the children of v[done..found) are
 * still to be found. */
int procs_load_below(struct procs *p)
{
	size_t found = 0, live = 0;
	int error = procs_load(p);

	for (size_t i = 0; i < p->n; i++)
		if (p->v[i].ppid == getpid())
			procs_swap(&p->v[i], &p->v[found++]);
	for (size_t done = 0; done < found; done++)
		for (size_t i = found; i < p->n; i++)
			if (p->v[i].ppid == p->v[done].pid)
				procs_swap(&p->v[i], &p->v[found++]);
	for (size_t i = 0; i < found; i++)
		if (!strchr("ZX", p->v[i].state) && !is_spared(p->v[i].group))
			p->v[live++] = p->v[i];
	p->n = live;
	return error;
}

const struct proc *procs_find(const struct procs *p, pid_t pid)
{
	for (size_t i = 0; i < p->n; i++)
		if (p->v[i].pid == pid)
			return &p->v[i];
	return NULL;
}

void procs_free(struct procs *p)
{
	free(p->v);
	*p = (struct procs){ 0 };
}

uint64_t proc_cpu_ms(pid_t pid)
{
	unsigned long long used[4] = { 0 }, ticks = (unsigned)sysconf(_SC_CLK_TCK);
	char text[1024], *at;

	if (read_proc(pid, "stat", text, sizeof text) > 0 && (at = strrchr(text, ')')))
		sscanf(at + 1,
		       " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %llu %llu %llu "
		       "%llu",
		       &used[0], &used[1], &used[2], &used[3]);
	return (used[0] + used[1] + used[2] + used[3]) * 1000 / ticks;
}

uint64_t proc_io_bytes(pid_t pid)
{
	unsigned long long in = 0, out = 0;
	char text[512];

	if (read_proc(pid, "io", text, sizeof text) > 0)
		sscanf(text, "rchar: %llu wchar: %llu", &in, &out);
	return in + out;
}

bool proc_exiting(pid_t pid)
{
	/* PF_EXITING, PF_DUMPCORE, PF_SIGNALED of the kernel's linux/sched.h */
	enum { EXITS = 0x4 | 0x200 | 0x400, KILL_BIT = 1 << (SIGKILL - 1) };
	char text[2048], *at;
	unsigned long flags = 0, pending = 0;

	if (read_proc(pid, "stat", text, sizeof text) > 0 && (at = strrchr(text, ')')))
		sscanf(at + 1, " %*c %*d %*d %*d %*d %*d %lu", &flags);
	if (read_proc(pid, "status", text, sizeof text) > 0 &&
	    (at = strstr(text, "\nSigPnd:")))
		sscanf(at, "\nSigPnd: %lx", &pending);
	return flags & EXITS || pending & KILL_BIT;
}

bool proc_has_open(pid_t pid, bool (*is_it)(const char *path))
{
	char path[64], link[256];
	struct dirent *d;
	bool found = false;
	DIR *dir;

	snprintf(path, sizeof path, "/proc/%d/fd", (int)pid);
	dir = opendir(path);
	while (dir && !found && (d = readdir(dir))) {
		ssize_t n = readlinkat(dirfd(dir), d->d_name, link, sizeof link - 1);

		link[n > 0 ? n : 0] = '\0';
		found = is_it(link);
	}
	if (dir)
		closedir(dir);
	return found;
}

bool proc_runs(pid_t pid, bool (*is_it)(const char *name))
{
	char path[64], program[512], *slash;
	ssize_t n;

	snprintf(path, sizeof path, "/proc/%d/exe", (int)pid);
	n = readlink(path, program, sizeof program - 1);
	program[n > 0 ? n : 0] = '\0';
	slash = strrchr(program, '/');
	return slash && is_it(slash + 1);
}

/* ---- the tree ---- */

/* Counts in FRESH the processes that got SIGNO and were not in KNOWN before.  KILL goes
 * to a whole group at once: then no member can fork out of it between our look and a
 * kill of its own.  All members of a group are of one session, and so below us like the
 * one that we found; except for our own group. */
static int signal_below(int signo, struct procs *known, size_t *fresh)
{
	struct procs now;
	int error = procs_load_below(&now);
	pid_t last = 0;

	*fresh = 0;
	for (size_t i = 0; i < now.n; i++) {
		const struct proc *p = &now.v[i];

		if (signo == SIGKILL && p->group > 1 && p->group != last &&
		    p->group != getpgrp())
			kill(-p->group, SIGKILL);
		last = p->group;
		if (!procs_find(known, p->pid) && !kill(p->pid, signo))
			++*fresh;
	}
	procs_free(known);
	*known = now;
	return error;
}

int procs_sweep_tree(int signo)
{
	struct procs known = { 0 };
	size_t fresh;
	int error = signal_below(signo, &known, &fresh);

	for (int look = 0; signo == SIGSTOP && fresh && look < 100; look++)
		error = signal_below(signo, &known, &fresh);
	if (error) {
		/* The children that the kernel lists in one read; the others come once
		 * these are dead. */
		char what[32], text[4096] = "", *at = text, *end;

		snprintf(what, sizeof what, "task/%d/children", (int)getpid());
		read_proc(getpid(), what, text, sizeof text);
		for (long pid; (pid = strtol(at, &end, 10)) > 0 && *end == ' ';
		     at = end)
			kill((pid_t)pid, signo);
	}
	procs_free(&known);
	return error;
}

/* ---- a job ---- */

/* Is WORD an entry of PID's environment?  The environment may be larger than the
 * buffer: read on, and keep what may be the beginning of the word. */
static bool has_entry(pid_t pid, const char *word)
{
	size_t len = strlen(word) + 1, kept = 1;
	char path[64], text[8192] = "";
	bool found = false;
	struct stat st;
	ssize_t n;
	int fd;

	snprintf(path, sizeof path, "/proc/%d/environ", (int)pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	if (fstat(fd, &st) || (st.st_uid != geteuid() && geteuid())) {
		close(fd);
		return false;
	}
	while (!found && (n = read(fd, text + kept, sizeof text - kept)) > 0) {
		size_t have = kept + (size_t)n;

		/* NUL in front of the word and behind it: a whole entry. */
		for (char *p = text;
		     (p = memmem(p, have - (size_t)(p - text), word, len)); p++)
			found |= p > text && !p[-1];
		kept = have < len ? have : len;
		memmove(text, text + have - kept, kept);
	}
	close(fd);
	return found;
}

size_t procs_end(pid_t group, const char *entry)
{
	struct procs below;
	size_t n = 0;

	procs_load_below(&below);
	for (size_t i = 0; i < below.n; i++) {
		const struct proc *p = &below.v[i];

		if (p->group != group && !has_entry(p->pid, entry))
			continue;
		kill(p->pid, SIGKILL);
		n++;
	}
	procs_free(&below);
	return n;
}

/* A process that stays the same one: its number may be another's by the time of a
 * signal.  FD is -1 where the kernel has no pidfds (before Linux 5.3), or a sandbox
 * forbids them. */
struct held {
	pid_t pid;
	int fd;
};

struct agents {
	struct held *v;
	size_t n;
};

enum { CALL_PIDFD_SEND_SIGNAL = 424, CALL_PIDFD_OPEN = 434 };

/* False if PID does not exist. */
static bool procs_hold(struct held *h, pid_t pid)
{
	*h = (struct held){ pid, (int)syscall(CALL_PIDFD_OPEN, pid, 0) };
	return h->fd >= 0 || errno != ESRCH;
}

static void let_go(const struct held *h)
{
	if (h->fd >= 0)
		close(h->fd);
}

static bool send_signal(const struct held *h, int signo)
{
	if (h->fd < 0)
		return !kill(h->pid, signo);
	return !syscall(CALL_PIDFD_SEND_SIGNAL, h->fd, signo, NULL, 0);
}

/* Until H has ended, or for PATIENCE_MS. */
static void await_end(const struct held *h, int patience_ms)
{
	struct pollfd p = { .fd = h->fd, .events = POLLIN };

	poll(&p, 1, patience_ms);
}

/* PID into AGENTS if it is an agent or a guardian, and then its parent. */
static void add_agent(struct agents *agents, pid_t pid)
{
	struct held h;
	struct proc p;

	for (size_t i = 0; i < agents->n; i++)
		if (agents->v[i].pid == pid)
			return;
	if (!procs_hold(&h, pid))
		return;
	if (!read_stat(&p, pid) || strcmp(p.comm, AGENT_COMM) != 0) {
		let_go(&h);
		return;
	}
	agents->v = xreallocarray(agents->v, agents->n + 1, sizeof *agents->v);
	agents->v[agents->n++] = h;
	add_agent(agents, p.ppid);
}

/* The parent of a process of the job may be its agent. */
static void add_parent(void *agents, pid_t pid)
{
	struct proc p;

	if (read_stat(&p, pid))
		add_agent(agents, p.ppid);
}

/* KILL the processes that have WORD in their environment; the agents among their
 * parents into AGENTS.  Returns how many, after one of them has ended, or 10 ms. */
static size_t kill_all_with(const char *word, struct agents *agents)
{
	enum { PAUSE_MS = 10 };
	struct held last = { .fd = -1 };
	struct procs all;
	int error = procs_load(&all);
	size_t n = 0;

	if (error)
		die("cannot look at the processes", error);
	for (size_t i = 0; i < all.n; i++) {
		const struct proc *p = &all.v[i];
		struct held h;

		if (p->pid == getpid() || !procs_hold(&h, p->pid))
			continue;
		if (has_entry(p->pid, word) && send_signal(&h, SIGKILL)) {
			n++;
			add_agent(agents, p->ppid);
			let_go(&last);
			last = h;
		} else {
			let_go(&h);
		}
	}
	if (n)
		await_end(&last, PAUSE_MS);
	let_go(&last);
	procs_free(&all);
	return n;
}

/* To those that have not ended.  Returns how many. */
static size_t signal_agents(const struct agents *agents, int signo)
{
	size_t n = 0;

	for (size_t i = 0; i < agents->n; i++) {
		const struct held *h = &agents->v[i];
		struct proc p;

		n += read_stat(&p, h->pid) && p.state != 'Z' &&
		     !strcmp(p.comm, AGENT_COMM) && send_signal(h, signo);
	}
	return n;
}

/* An agent that was stopped goes on, sees that its stream has ended, and exits.  If it
 * does not, it is killed. */
static void end_agents(struct agents *agents)
{
	enum { LOOKS = 100, PAUSE_MS = 10 };
	size_t left = agents->n;

	for (int look = 0; left && look < LOOKS; look++) {
		left = signal_agents(agents, SIGCONT);
		for (size_t i = 0; left && i < agents->n; i++)
			await_end(&agents->v[i], PAUSE_MS);
	}
	if (left)
		signal_agents(agents, SIGKILL);
	for (size_t i = 0; i < agents->n; i++)
		let_go(&agents->v[i]);
	free(agents->v);
}

/* A socket, and the name of the job's. */
static int open_socket(struct sockaddr_un *a, socklen_t *n, const char *job_id)
{
	int len;

	*a = (struct sockaddr_un){ .sun_family = AF_UNIX };
	len = snprintf(a->sun_path + 1, sizeof a->sun_path - 1, "berth-job-%.64s",
		       job_id);
	*n = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)len);
	return socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
}

int procs_job_socket(const char *job_id)
{
	struct sockaddr_un a;
	socklen_t n;
	int fd = open_socket(&a, &n, job_id);

	if (fd >= 0 && !bind(fd, (struct sockaddr *)&a, n) && !listen(fd, 8))
		return fd;
	if (fd >= 0)
		close(fd);
	return -1;
}

/* The owner of the job socket into AGENTS.  Another user may have taken its name. */
static void find_owner(struct agents *agents, const char *job_id)
{
	struct ucred owner;
	struct sockaddr_un a;
	socklen_t n, size = sizeof owner;
	int fd = open_socket(&a, &n, job_id);

	if (fd < 0)
		return;
	if (!connect(fd, (struct sockaddr *)&a, n) &&
	    !getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &owner, &size) &&
	    owner.uid == geteuid())
		add_agent(agents, owner.pid);
	close(fd);
}

size_t procs_sweep_job(const char *job_id)
{
	struct agents agents = { 0 };
	char *word;
	long n;

	find_owner(&agents, job_id);
	/* Where the job has a cgroup, it alone says which processes are the job's.
	 * Else their environment does, which a process has until it is gone: count
	 * each process once. */
	n = cgroup_sweep(job_id, add_parent, &agents);
	if (n < 0) {
		word = xasprintf("BERTH_JOB=%s", job_id);
		n = (long)kill_all_with(word, &agents);
		for (int look = 0, again = n > 0; again && look < 500; look++)
			again = kill_all_with(word, &agents) > 0;
		free(word);
	}
	end_agents(&agents);
	return (size_t)n;
}
