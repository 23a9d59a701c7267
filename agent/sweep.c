#include "agent/sweep.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* "123 (name) S 1 ...": the name may hold anything, so its end is the last parenthesis.
 */
static int parse_stat(struct proc *p, char *text)
{
	char *open = strchr(text, '('), *close = strrchr(text, ')');
	int ppid;

	if (!open || !close || sscanf(close + 1, " %c %d", &p->state, &ppid) != 2)
		return -1;
	*close = '\0';
	p->ppid = ppid;
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

void procs_load(struct procs *p)
{
	DIR *dir = opendir("/proc");
	size_t cap = 0;
	struct dirent *d;
	char text[512];

	*p = (struct procs){ 0 };
	while (dir && (d = readdir(dir))) {
		struct proc one = { .pid = (pid_t)strtol(d->d_name, NULL, 10) };

		if (!isdigit((unsigned char)*d->d_name) ||
		    read_proc(dirfd(dir), d->d_name, "stat", text, sizeof text) <= 0 ||
		    parse_stat(&one, text))
			continue;
		if (p->n == cap) {
			cap = cap ? cap * 2 : 128;
			p->v = xreallocarray(p->v, cap, sizeof *p->v);
		}
		p->v[p->n++] = one;
	}
	if (dir)
		closedir(dir);
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
void procs_load_below(struct procs *p, pid_t root)
{
	size_t found = 0, live = 0;

	procs_load(p);
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
}

static size_t signal_below(int signo, struct procs *known)
{
	struct procs now;
	size_t fresh = 0;

	procs_load_below(&now, getpid());
	for (size_t i = 0; i < now.n; i++) {
		size_t k = 0;

		while (k < known->n && known->v[k].pid != now.v[i].pid)
			k++;
		if (k == known->n && !kill(now.v[i].pid, signo))
			fresh++;
	}
	procs_free(known);
	*known = now;
	return fresh;
}

size_t sweep_tree(int signo)
{
	struct procs known = { 0 };
	size_t all = signal_below(signo, &known), fresh = all;

	for (int look = 0; signo == SIGSTOP && fresh && look < 100; look++) {
		fresh = signal_below(signo, &known);
		all += fresh;
	}
	procs_free(&known);
	return all;
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
	size_t n = 0;

	procs_load(&all);
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
	if (proc >= 0)
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

size_t sweep_cookie(const char *cookie)
{
	const struct timespec pause = { .tv_nsec = 10000000 };
	char *word = xasprintf("BERTH_JOB=%s", cookie);
	struct procs agents = { 0 };
	size_t all = kill_carriers(word, &agents), again = all;

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
