#include "agent/ranks/procs.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

/* "123 (name) S 1 ...": the name may hold anything, so its end is the last parenthesis.
 */
static int parse_stat(struct proc *p, char *text)
{
	char *open = strchr(text, '('), *close = strrchr(text, ')');
	int ppid, group;

	if (!open || !close ||
	    sscanf(close + 1, " %c %d %d", &p->state, &ppid, &group) != 3)
		return -1;
	*close = '\0';
	p->ppid = ppid;
	p->group = group;
	snprintf(p->comm, sizeof p->comm, "%.15s", open + 1);
	return 0;
}

static ssize_t read_proc(int proc, const char *pid, const char *what, char *out,
			 size_t size)
{
	char path[64];
	ssize_t n;
	int fd;

	snprintf(path, sizeof path, "%.20s/%s", pid, what);
	fd = openat(proc, path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -1;
	n = read(fd, out, size - 1);
	close(fd);
	if (n >= 0)
		out[n] = '\0';
	return n;
}

bool proc_dying(pid_t pid)
{
	/* PF_EXITING, PF_DUMPCORE, PF_SIGNALED of the kernel's linux/sched.h */
	enum { GOING = 0x4 | 0x200 | 0x400, KILL_BIT = 1 << (SIGKILL - 1) };
	char name[16], text[2048], *at;
	int proc = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	unsigned long flags = 0, pending = 0;

	snprintf(name, sizeof name, "%d", (int)pid);
	if (proc >= 0 && read_proc(proc, name, "stat", text, sizeof text) > 0 &&
	    (at = strrchr(text, ')')))
		sscanf(at + 1, " %*c %*d %*d %*d %*d %*d %lu", &flags);
	if (proc >= 0 && read_proc(proc, name, "status", text, sizeof text) > 0 &&
	    (at = strstr(text, "\nSigPnd:")))
		sscanf(at, "\nSigPnd: %lx", &pending);
	if (proc >= 0)
		close(proc);
	return flags & GOING || pending & KILL_BIT;
}

static int procs_add(struct procs *p, const struct proc *one, size_t *cap)
{
	if (p->n == *cap) {
		size_t more = *cap ? *cap * 2 : 128;
		struct proc *v = reallocarray(p->v, more, sizeof *v);

		if (!v)
			return ENOMEM;
		p->v = v;
		*cap = more;
	}
	p->v[p->n++] = *one;
	return 0;
}

/* The process of /proc's entry NAME joins P, if it is one and still there. */
static int procs_take(struct procs *p, int proc, const char *name, size_t *cap)
{
	struct proc one = { .pid = (pid_t)strtol(name, NULL, 10) };
	char text[512];
	ssize_t n;

	if (!isdigit((unsigned char)*name))
		return 0;
	n = read_proc(proc, name, "stat", text, sizeof text);
	if (n < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOMEM))
		return errno;
	return n <= 0 || parse_stat(&one, text) ? 0 : procs_add(p, &one, cap);
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
	while (!error && (d = readdir(dir)))
		error = procs_take(p, dirfd(dir), d->d_name, &cap);
	closedir(dir);
	return error;
}

void procs_free(struct procs *p)
{
	free(p->v);
	*p = (struct procs){ 0 };
}

static void swap(struct proc *a, struct proc *b)
{
	struct proc old = *a;

	*a = *b;
	*b = old;
}

/* Breadth first in place: v[0..found) is below ROOT, v[done..found) has children to
 * look for. */
int procs_load_below(struct procs *p, pid_t root)
{
	size_t found = 0, live = 0;
	int error = procs_load(p);

	for (size_t i = 0; i < p->n; i++)
		if (p->v[i].ppid == root)
			swap(&p->v[i], &p->v[found++]);
	for (size_t done = 0; done < found; done++)
		for (size_t i = found; i < p->n; i++)
			if (p->v[i].ppid == p->v[done].pid)
				swap(&p->v[i], &p->v[found++]);
	for (size_t i = 0; i < found; i++)
		if (!strchr("ZX", p->v[i].state))
			p->v[live++] = p->v[i];
	p->n = live;
	return error;
}

/* What the kernel lists of them in one read; those behind come once these are dead. */
static void signal_children(int signo)
{
	char text[4096], *at = text, *end;
	int fd = open("/proc/thread-self/children", O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);

	if (fd >= 0)
		close(fd);
	text[n > 0 ? n : 0] = '\0';
	for (long pid; (pid = strtol(at, &end, 10)) > 0 && *end == ' '; at = end)
		kill((pid_t)pid, signo);
}

/* A whole group at once: no member can fork out of it meanwhile, as it can between our
 * look and a kill of its own.  All of a group are of one session, and so below us like
 * P, but for ours. */
static void kill_group(const struct proc *p, pid_t *last)
{
	if (p->group > 1 && p->group != *last && p->group != getpgrp())
		kill(-p->group, SIGKILL);
	*last = p->group;
}

/* How many got it that were not KNOWN before into FRESH. */
static int signal_below(int signo, struct procs *known, size_t *fresh)
{
	struct procs now;
	int error = procs_load_below(&now, getpid());
	pid_t last = 0;

	*fresh = 0;
	for (size_t i = 0; i < now.n; i++) {
		size_t k = 0;

		if (signo == SIGKILL)
			kill_group(&now.v[i], &last);
		while (k < known->n && known->v[k].pid != now.v[i].pid)
			k++;
		if (k == known->n && !kill(now.v[i].pid, signo))
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
	if (error)
		signal_children(signo);
	procs_free(&known);
	return error;
}

/* An environment may be larger than any buffer of ours: read on, keeping what may be
 * the beginning of the word. */
static bool has_word(int fd, const char *word)
{
	size_t len = strlen(word) + 1, kept = 1;
	char text[8192] = "";
	ssize_t n;

	while ((n = read(fd, text + kept, sizeof text - kept)) > 0) {
		size_t have = kept + (size_t)n;

		/* NUL in front of the word and behind it: a whole entry. */
		for (char *p = text;
		     (p = memmem(p, have - (size_t)(p - text), word, len)); p++)
			if (p > text && !p[-1])
				return true;
		kept = have < len ? have : len;
		memmove(text, text + have - kept, kept);
	}
	return false;
}

static bool carries(int proc, const char *pid, const char *word)
{
	char path[64];
	bool yes = false;
	struct stat st;
	int fd;

	snprintf(path, sizeof path, "%.20s/environ", pid);
	fd = openat(proc, path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	if (!fstat(fd, &st) && (st.st_uid == geteuid() || !geteuid()))
		yes = has_word(fd, word);
	close(fd);
	return yes;
}

/* PID into AGENTS if it is an agent or a guardian, and what it was forked by. */
static void add_agent(struct procs *agents, const struct procs *all, pid_t pid)
{
	for (size_t i = 0; i < agents->n; i++)
		if (agents->v[i].pid == pid)
			return;
	for (size_t i = 0; i < all->n; i++) {
		if (all->v[i].pid != pid || strcmp(all->v[i].comm, AGENT_COMM) != 0)
			continue;
		agents->v = xreallocarray(agents->v, agents->n + 1, sizeof *agents->v);
		agents->v[agents->n++] = all->v[i];
		add_agent(agents, all, all->v[i].ppid);
		return;
	}
}

/* KILL what carries WORD; whose children these were into AGENTS. */
static size_t kill_carriers(const char *word, struct procs *agents)
{
	int proc = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct procs all;
	int error = procs_load(&all);
	size_t n = 0;

	if (proc < 0 || error)
		die("cannot look at the processes", error ? error : errno);
	for (size_t i = 0; i < all.n; i++) {
		char pid[16];

		snprintf(pid, sizeof pid, "%d", (int)all.v[i].pid);
		if (all.v[i].pid == getpid() || !carries(proc, pid, word) ||
		    kill(all.v[i].pid, SIGKILL))
			continue;
		n++;
		add_agent(agents, &all, all.v[i].ppid);
	}
	procs_free(&all);
	close(proc);
	return n;
}

static size_t signal_agents(const struct procs *agents, int signo)
{
	struct procs all;
	size_t n = 0;

	procs_load(&all);
	for (size_t i = 0; i < all.n; i++)
		for (size_t k = 0; k < agents->n; k++)
			n += all.v[i].pid == agents->v[k].pid &&
			     all.v[i].state != 'Z' && !kill(all.v[i].pid, signo);
	procs_free(&all);
	return n;
}

/* ---- the agent's mark ---- */

static socklen_t mark_name(struct sockaddr_un *a, const char *job_id)
{
	int n;

	*a = (struct sockaddr_un){ .sun_family = AF_UNIX };
	n = snprintf(a->sun_path + 1, sizeof a->sun_path - 1, "berth-job-%.64s",
		     job_id);
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
}

int procs_sweep_mark(const char *job_id)
{
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct sockaddr_un a;
	socklen_t n = mark_name(&a, job_id);

	if (fd >= 0 && !bind(fd, (struct sockaddr *)&a, n) && !listen(fd, 8))
		return fd;
	if (fd >= 0)
		close(fd);
	return -1;
}

static pid_t marked(const char *job_id)
{
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	struct ucred who = { 0 };
	socklen_t size = sizeof who;
	struct sockaddr_un a;
	socklen_t n = mark_name(&a, job_id);

	if (fd < 0)
		return 0;
	if (connect(fd, (struct sockaddr *)&a, n) ||
	    getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &size))
		who.pid = 0;
	close(fd);
	return who.pid;
}

static void find_marked(struct procs *agents, const char *job_id)
{
	pid_t pid = marked(job_id);
	struct procs all;

	procs_load(&all);
	if (pid)
		add_agent(agents, &all, pid);
	procs_free(&all);
}

/* ---- all of a job ---- */

/* One that somebody has stopped goes on, sees that its stream has ended, and clears up;
 * one that does not is ended. */
static void end_agents(const struct procs *agents)
{
	enum { LOOKS = 100 };
	const struct timespec pause = { .tv_nsec = 10000000 };
	size_t left = agents->n;

	for (int look = 0; left && look < LOOKS; look++) {
		left = signal_agents(agents, SIGCONT);
		if (left)
			nanosleep(&pause, NULL);
	}
	if (left)
		signal_agents(agents, SIGKILL);
}

size_t procs_sweep_job(const char *job_id)
{
	const struct timespec pause = { .tv_nsec = 10000000 };
	char *word = xasprintf("BERTH_JOB=%s", job_id);
	struct procs agents = { 0 };
	size_t all, again;

	find_marked(&agents, job_id);
	all = again = kill_carriers(word, &agents);

	/* The dying carry their environment until they are gone: count them once. */
	for (int look = 0; again && look < 500; look++) {
		nanosleep(&pause, NULL);
		again = kill_carriers(word, &agents);
	}
	end_agents(&agents);
	procs_free(&agents);
	free(word);
	return all;
}
