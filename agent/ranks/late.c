#include "agent/ranks/late.h"

#include <ctype.h>
#include <dirent.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "common/file.h"
#include "common/str.h"

enum { COST_SHARE = 50 };

/* ---- numbers ---- */

static uint64_t cpu_ns(void)
{
	struct timespec t = { 0 };

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

bool late_is_due(const struct late *l)
{
	return clock_ns() >= l->due_ns;
}

void late_begin(struct late *l, size_t n)
{
	if (n != l->n) {
		l->rank = xreallocarray(l->rank, n + 1, sizeof *l->rank);
		memset(l->rank, 0, (n + 1) * sizeof *l->rank);
		l->n = n;
	}
	for (size_t i = 0; i < n; i++) {
		l->rank[i].cpus = 1;
		l->rank[i].used_ns = l->rank[i].most_ns = 0;
	}
	l->now.n = 0;
	l->begun_ns = cpu_ns();
}

static int by_id(const void *a, const void *b)
{
	const struct late_thread *x = a, *y = b;

	return (x->id > y->id) - (x->id < y->id);
}

void late_thread(struct late *l, size_t local, const struct late_thread *t)
{
	static const struct late_thread none;
	const struct late_thread *was = NULL;
	struct late_rank *r = &l->rank[local];
	struct late_threads *now = &l->now;
	uint64_t used_ns, most_ns;

	if (l->was.n)
		was = bsearch(t, l->was.v, l->was.n, sizeof *t, by_id);
	/* Another thread may have had this number, and no look was between. */
	if (!was || was->used_ns > t->used_ns || was->waited_ns > t->waited_ns)
		was = &none;
	used_ns = t->used_ns - was->used_ns;
	most_ns = t->waited_ns - was->waited_ns + used_ns / r->cpus;
	r->used_ns += used_ns;
	if (most_ns > r->most_ns)
		r->most_ns = most_ns;
	if (now->n == now->cap) {
		now->cap = now->cap ? 2 * now->cap : 64;
		now->v = xreallocarray(now->v, now->cap, sizeof *now->v);
	}
	now->v[now->n++] = *t;
}

static uint64_t late_less(uint64_t a, uint64_t b)
{
	return a > b ? a - b : 0;
}

void late_host(struct late *l, uint64_t stolen_ns, uint64_t own_ns, uint64_t at_ns)
{
	const uint64_t past_ns = late_less(at_ns, l->at_ns),
		       stolen = late_less(stolen_ns, l->stolen_ns),
		       own = late_less(own_ns, l->own_ns);
	const struct late_threads old = l->was;

	for (size_t i = 0; l->at_ns && i < l->n; i++) {
		struct late_rank *r = &l->rank[i];
		uint64_t ns = late_less(r->most_ns, r->used_ns / r->cpus);

		ns = ns > own ? ns : own;
		/* In a part of the rest the machine had no CPU, either. */
		if (ns < past_ns)
			ns += (uint64_t)((double)stolen * (double)(past_ns - ns) /
					 (double)past_ns);
		r->late_ns += ns;
	}
	if (l->now.n)
		qsort(l->now.v, l->now.n, sizeof *l->now.v, by_id);
	l->was = l->now;
	l->now = old;
	l->stolen_ns = stolen_ns;
	l->own_ns = own_ns;
	l->at_ns = at_ns;
}

void late_free(struct late *l)
{
	free(l->rank);
	free(l->was.v);
	free(l->now.v);
	*l = (struct late){ 0 };
}

/* ---- /proc ---- */

static bool read_thread(struct late_thread *t, const char *path)
{
	char text[96], *end;

	if (file_start(path, text, sizeof text) <= 0)
		return false;
	t->used_ns = strtoull(text, &end, 10);
	t->waited_ns = strtoull(end, NULL, 10);
	return true;
}

void late_cpus(struct late *l, size_t local, pid_t pid)
{
	enum { CPUS = 8192, WORD = 8 * (int)sizeof(unsigned long) };
	unsigned long mask[CPUS / WORD] = { 0 };
	const long bytes = syscall(SYS_sched_getaffinity, pid, sizeof mask, mask);
	uint32_t n = 0;

	for (long i = 0; i < bytes / (long)sizeof *mask; i++)
		n += (uint32_t)__builtin_popcountl(mask[i]);
	l->rank[local].cpus = n ? n : 1;
}

void late_process(struct late *l, size_t local, pid_t pid)
{
	char path[80];
	struct dirent *d;
	DIR *dir;

	snprintf(path, sizeof path, "/proc/%d/task", (int)pid);
	dir = opendir(path);
	while (dir && (d = readdir(dir))) {
		struct late_thread t = { .id = (pid_t)strtol(d->d_name, NULL, 10) };

		if (!isdigit((unsigned char)*d->d_name))
			continue;
		snprintf(path, sizeof path, "/proc/%d/task/%d/schedstat", (int)pid,
			 (int)t.id);
		if (read_thread(&t, path))
			late_thread(l, local, &t);
	}
	if (dir)
		closedir(dir);
}

void late_end(struct late *l)
{
	const uint64_t tick_ns = 1000000000u / (uint64_t)sysconf(_SC_CLK_TCK);
	const long cpus = sysconf(_SC_NPROCESSORS_ONLN);
	struct late_thread own = { 0 };
	unsigned long long ticks = 0; /* of all CPUs */
	char text[256];

	read_thread(&own, "/proc/thread-self/schedstat");
	if (file_start("/proc/stat", text, sizeof text) > 0)
		sscanf(text, "cpu %*u %*u %*u %*u %*u %*u %*u %llu", &ticks);
	late_host(l, ticks * tick_ns / (uint64_t)(cpus > 0 ? cpus : 1), own.waited_ns,
		  clock_ns());
	l->due_ns = l->at_ns + COST_SHARE * (cpu_ns() - l->begun_ns);
}
