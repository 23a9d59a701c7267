#include "lib/core/cores.h"

#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { OWN_MOST = 1 << 16, MOUNTS_MOST = 4 << 20, DIGITS_MOST = 15 };

/* ---- quotas ---- */

/* Digits at *AT.  False: there are none, or too many. */
static bool read_number(const char **at, uint64_t *value)
{
	size_t n = strspn(*at, "0123456789");

	*value = 0;
	for (size_t i = 0; i < n && n <= DIGITS_MOST; i++)
		*value = *value * 10 + (uint64_t)((*at)[i] - '0');
	*at += n;
	return n && n <= DIGITS_MOST;
}

static bool is_end(const char *at)
{
	return !at[strspn(at, "\n")];
}

static uint64_t cores_thousandths(uint64_t quota, uint64_t period)
{
	return quota && period ? (quota * 1000 + period - 1) / period : CORES_NO_QUOTA;
}

uint64_t cores_quota(const char *text)
{
	uint64_t quota, period;

	if (!read_number(&text, &quota) || *text++ != ' ' ||
	    !read_number(&text, &period) || !is_end(text))
		return CORES_NO_QUOTA;
	return cores_thousandths(quota, period);
}

uint64_t cores_quota_v1(const char *quota, const char *period)
{
	uint64_t q, p;

	if (!read_number(&quota, &q) || !is_end(quota) || !read_number(&period, &p) ||
	    !is_end(period))
		return CORES_NO_QUOTA; /* "-1" */
	return cores_thousandths(q, p);
}

/* ---- cgroups ---- */

/* Is WORD one of the N bytes at LIST, which commas separate? */
static bool has_word(const char *list, size_t n, const char *word)
{
	const size_t bytes = strlen(word);

	for (const char *at = list, *end = list + n; at < end;) {
		const char *comma = memchr(at, ',', (size_t)(end - at));
		const size_t here = (size_t)((comma ? comma : end) - at);

		if (here == bytes && !memcmp(at, word, bytes))
			return true;
		at += here + 1;
	}
	return false;
}

/* A line of OWN is "0::/a" (version 2) or "4:cpu,cpuacct:/a" (version 1). */
static const char *own_path(const char *own, bool v2, size_t *bytes)
{
	for (const char *line = own; *line;) {
		const size_t n = strcspn(line, "\n");
		const char *list = memchr(line, ':', n);
		const char *path =
			list ? memchr(list + 1, ':', n - (size_t)(list + 1 - line))
			     : NULL;

		if (path) {
			const size_t list_bytes = (size_t)(path - list - 1);

			*bytes = n - (size_t)(path + 1 - line);
			if (*bytes && path[1] == '/' &&
			    (v2 ? !list_bytes : has_word(list + 1, list_bytes, "cpu")))
				return path + 1;
		}
		line += n + (line[n] == '\n');
	}
	return NULL;
}

/* A line of mountinfo is "36 35 0:31 ROOT FOLDER options [more] - TYPE source OPTIONS".
 * A '\' stands for a blank: such directorys are left out. */
static bool read_mount(const char *line, size_t n, bool v2, char root[512],
		       char directory[512])
{
	char text[2048], type[32] = "", options[512] = "";
	const char *rest;

	if (n >= sizeof text)
		return false;
	memcpy(text, line, n);
	text[n] = '\0';
	rest = strstr(text, " - ");
	if (!rest || sscanf(rest, " - %31s %*s %511s", type, options) < 1 ||
	    sscanf(text, "%*s %*s %*s %511s %511s", root, directory) != 2 ||
	    strchr(root, '\\') || strchr(directory, '\\'))
		return false;
	return v2 ? !strcmp(type, "cgroup2")
		  : !strcmp(type, "cgroup") &&
			       has_word(options, strlen(options), "cpu");
}

bool cores_find(struct cores_cgroup *c, bool v2, const char *own, const char *mounts)
{
	char root[512], directory[512];
	bool found = false;
	size_t bytes = 0;
	const char *path = own_path(own, v2, &bytes);

	/* A later mount may cover an earlier one. */
	for (const char *line = mounts; path && *line;) {
		const size_t n = strcspn(line, "\n");

		if (read_mount(line, n, v2, root, directory)) {
			const size_t skip = strcmp(root, "/") ? strlen(root) : 0;
			const bool below = skip <= bytes && !memcmp(path, root, skip) &&
					   (skip == bytes || path[skip] == '/');
			const size_t rest =
				below && bytes - skip > 1 ? bytes - skip : 0;

			if (below && strlen(directory) + rest < sizeof c->path) {
				c->mount = strlen(directory);
				memcpy(c->path, directory, c->mount);
				memcpy(c->path + c->mount, path + skip, rest);
				c->path[c->mount + rest] = '\0';
				found = true;
			}
		}
		line += n + (line[n] == '\n');
	}
	return found;
}

/* ---- files ---- */

/* The first SIZE - 1 bytes of file NAME in the directory that N bytes at PATH name.
 * "": it cannot be read. */
static void read_small(const char *path, size_t n, const char *name, char *out,
		       size_t size)
{
	char file[600];
	ssize_t got = -1;
	int fd;

	snprintf(file, sizeof file, "%.*s/%s", (int)n, path, name);
	fd = open(file, O_RDONLY | O_CLOEXEC);
	if (fd >= 0) {
		got = read(fd, out, size - 1);
		close(fd);
	}
	out[got > 0 ? got : 0] = '\0';
}

/* The whole file, for free(); NULL: it cannot be read, or has MOST bytes or more. */
static char *read_whole(const char *file, size_t most)
{
	const int fd = open(file, O_RDONLY | O_CLOEXEC);
	size_t n = 0, size = 0;
	char *text = NULL;
	ssize_t got = 1;

	while (fd >= 0 && got > 0) {
		if (n + 1 >= size) {
			char *more;

			size = size ? size * 2 : 8192;
			more = size <= most ? realloc(text, size) : NULL;
			if (!more) {
				got = -1;
				break;
			}
			text = more;
		}
		got = read(fd, text + n, size - 1 - n);
		n += got > 0 ? (size_t)got : 0;
	}
	if (fd >= 0)
		close(fd);
	if (text && !got)
		text[n] = '\0';
	if (got) {
		free(text);
		text = NULL;
	}
	return text;
}

/* ---- together ---- */

static uint64_t quota_at(bool v2, const char *path, size_t n)
{
	char quota[64], period[64];

	if (v2) {
		read_small(path, n, "cpu.max", quota, sizeof quota);
		return cores_quota(quota);
	}
	read_small(path, n, "cpu.cfs_quota_us", quota, sizeof quota);
	read_small(path, n, "cpu.cfs_period_us", period, sizeof period);
	return cores_quota_v1(quota, period);
}

/* The least quota of C's levels whose paths have FROM to TO bytes. */
static uint64_t least_quota(bool v2, const struct cores_cgroup *c, size_t from,
			    size_t to)
{
	uint64_t least = CORES_NO_QUOTA;

	for (size_t n = to; n >= from && n >= c->mount;) {
		const uint64_t here = quota_at(v2, c->path, n);

		least = here < least ? here : least;
		if (n == c->mount)
			break;
		do
			n--;
		while (n > c->mount && c->path[n] != '/');
	}
	return least;
}

static bool is_level(const struct cores_cgroup *c, size_t n)
{
	return c->path[n] == '/' || !c->path[n];
}

/* The path of the last level that both have is so long, and no longer than MOST, which
 * is a level of A. */
static size_t shared_level(const struct cores_cgroup *a, const struct cores_cgroup *b,
			   size_t most)
{
	size_t n = 0;

	while (n < most && a->path[n] == b->path[n])
		n++;
	while (n > a->mount && !(is_level(a, n) && is_level(b, n)))
		n--;
	return n;
}

uint64_t cores_quota_of(bool v2, char *const *own, size_t n, const char *mounts)
{
	struct cores_cgroup *c = calloc(n, sizeof *c);
	uint64_t sum = 0, common = CORES_NO_QUOTA;
	size_t level;

	if (!c || !own[0] || !cores_find(&c[0], v2, own[0], mounts)) {
		free(c);
		return CORES_NO_QUOTA;
	}
	level = strlen(c[0].path);
	for (size_t i = 1; i < n; i++) {
		if (!own[i] || !cores_find(&c[i], v2, own[i], mounts))
			c[i] = c[0];
		level = shared_level(&c[0], &c[i], level);
	}
	for (size_t i = 0; i < n && sum != CORES_NO_QUOTA; i++) {
		size_t first = 0; /* in the cgroup of I, which counts once */
		uint64_t below = 0;

		while (strcmp(c[first].path, c[i].path))
			first++;
		if (first == i)
			below = least_quota(v2, &c[i], level + 1, strlen(c[i].path));
		sum = below == CORES_NO_QUOTA ? below : sum + below;
	}
	common = least_quota(v2, &c[0], 0, level);
	free(c);
	return sum < common ? sum : common;
}

/* ---- this process ---- */

static uint64_t least_of_both(char *const *own, size_t n, const char *mounts)
{
	const uint64_t v2 = cores_quota_of(true, own, n, mounts);
	const uint64_t v1 = cores_quota_of(false, own, n, mounts);

	return v2 < v1 ? v2 : v1;
}

/* Where the others are is looked up only if this process has a quota. */
static uint64_t quota_of_ranks(const uint32_t *pid, unsigned n)
{
	char **own = calloc(n + 1, sizeof *own);
	char *mounts = read_whole("/proc/self/mountinfo", MOUNTS_MOST), file[64];
	uint64_t quota = CORES_NO_QUOTA;

	if (own && mounts) {
		own[0] = read_whole("/proc/self/cgroup", OWN_MOST);
		quota = least_of_both(own, 1, mounts);
	}
	if (quota != CORES_NO_QUOTA && n > 1) {
		for (unsigned i = 0; i < n; i++) {
			snprintf(file, sizeof file, "/proc/%u/cgroup", pid[i]);
			own[i + 1] = pid[i] ? read_whole(file, OWN_MOST) : NULL;
		}
		quota = least_of_both(own, n + 1, mounts);
	}
	for (unsigned i = 0; own && i <= n; i++)
		free(own[i]);
	free(own);
	free(mounts);
	return quota;
}

unsigned cores_of_ranks(const uint32_t *pid, unsigned n, bool *quota)
{
	const unsigned long online = (unsigned long)sysconf(_SC_NPROCESSORS_ONLN);
	const uint64_t bound = n > 1 ? quota_of_ranks(pid, n) : CORES_NO_QUOTA;
	unsigned most = 1024; /* if there are more than the set can hold */
	cpu_set_t set;

	if (!sched_getaffinity(0, sizeof set, &set))
		most = (unsigned)CPU_COUNT(&set);
	/* Ranks that are bound apart have cores of their own: those of one do not say
	 * how many they have together. */
	if (most * n <= online)
		most *= n;
	else if (most > online)
		most = (unsigned)online;
	*quota = bound != CORES_NO_QUOTA;
	if (bound > most * (uint64_t)1000)
		return most;
	return (unsigned)((bound + 999) / 1000);
}
