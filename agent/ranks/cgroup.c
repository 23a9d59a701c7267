#include "agent/ranks/cgroup.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "common/file.h"

enum { V1_MAGIC = 0x27e0eb, V2_MAGIC = 0x63677270, PATH_BYTES = 512, DEEPEST = 64 };

/* ---- files ---- */

/* The first SIZE - 1 bytes of file NAME in FOLDER. */
static ssize_t read_file(const char *folder, const char *name, char *out, size_t size)
{
	char path[PATH_BYTES + 32];

	snprintf(path, sizeof path, "%s/%s", folder, name);
	return file_start(path, out, size);
}

static char *read_whole(const char *path)
{
	enum { MOST_BYTES = 4 << 20 };
	struct str text = { 0 };

	file_read(&text, path, MOST_BYTES, false);
	return str_take(&text);
}

static bool write_file(const char *folder, const char *name, const char *text)
{
	char path[PATH_BYTES + 32];
	bool done;
	int fd;

	snprintf(path, sizeof path, "%s/%s", folder, name);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	done = write(fd, text, strlen(text)) > 0;
	close(fd);
	return done;
}

/* ---- where ---- */

/* Is WORD one of the words of LIST, which commas separate? */
static bool has_word(const char *list, size_t n, const char *word)
{
	const size_t len = strlen(word);

	for (const char *at = list, *end = list + n; at < end;) {
		const char *comma = memchr(at, ',', (size_t)(end - at));
		size_t here = (size_t)((comma ? comma : end) - at);

		if (here == len && !memcmp(at, word, len))
			return true;
		at += here + 1;
	}
	return false;
}

/* A line of OWN is "0::/x" (v2), or "4:cpu,freezer:/x" (v1). */
const char *cgroup_own(const char *own, const char *controller, size_t *len)
{
	for (const char *line = own; *line;) {
		const size_t n = strcspn(line, "\n");
		const char *list = memchr(line, ':', n);
		const char *path =
			list ? memchr(list + 1, ':', n - (size_t)(list + 1 - line))
			     : NULL;

		if (path) {
			const size_t list_len = (size_t)(path - list - 1);

			*len = n - (size_t)(path + 1 - line);
			if (controller ? has_word(list + 1, list_len, controller)
				       : !list_len)
				return path + 1;
		}
		line += n + (line[n] == '\n');
	}
	return NULL;
}

/* A line of mountinfo is "36 35 0:31 ROOT FOLDER options [more] - TYPE source
 * OPTIONS".  False if it is none of the wanted hierarchy. */
static bool read_mount(const char *line, bool v2, char root[PATH_BYTES],
		       char folder[PATH_BYTES])
{
	char type[32] = "", options[PATH_BYTES] = "";
	const char *rest = strstr(line, " - ");

	if (!rest || sscanf(rest, " - %31s %*s %511s", type, options) < 1 ||
	    sscanf(line, "%*s %*s %*s %511s %511s", root, folder) != 2)
		return false;
	if (strchr(root, '\\') || strchr(folder, '\\'))
		return false; /* has a blank, which the file writes as \040 */
	return v2 ? !strcmp(type, "cgroup2")
		  : !strcmp(type, "cgroup") &&
			       has_word(options, strlen(options), "freezer");
}

/* The next line of mountinfo for this version, or NULL at the end. */
static char *next_cgroup(const char **text, bool v2)
{
	const char *hit = strstr(*text, v2 ? " - cgroup2 " : " - cgroup ");
	const char *begin = hit;
	char *line;

	if (!hit)
		return NULL;
	while (begin > *text && begin[-1] != '\n')
		begin--;
	line = xasprintf("%.*s", (int)strcspn(begin, "\n"), begin);
	*text = begin + strcspn(begin, "\n");
	*text += **text == '\n';
	return line;
}

bool cgroup_find(char *out, size_t size, bool v2, const char *own, const char *mounts)
{
	char root[PATH_BYTES], folder[PATH_BYTES], *line;
	bool found = false;
	size_t len = 0;
	const char *path = cgroup_own(own, v2 ? NULL : "freezer", &len);

	/* A later mount may cover an earlier one. */
	for (; path && (line = next_cgroup(&mounts, v2)); free(line)) {
		size_t skip;

		if (!read_mount(line, v2, root, folder))
			continue;
		skip = strcmp(root, "/") ? strlen(root) : 0;
		if (skip > len || memcmp(path, root, skip) ||
		    (skip < len && path[skip] != '/'))
			continue;
		found = (size_t)snprintf(out, size, "%s%.*s", folder,
					 len - skip > 1 ? (int)(len - skip) : 0,
					 path + skip) < size;
	}
	return found;
}

/* ---- one cgroup ---- */

struct cgroup *cgroup_shared(void)
{
	struct cgroup *c = mmap(NULL, sizeof *c, PROT_READ | PROT_WRITE,
				MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	return c == MAP_FAILED ? NULL : c;
}

/* The other process sees MADE only with the whole path. */
static void set_made(struct cgroup *c, bool made)
{
	atomic_thread_fence(memory_order_seq_cst);
	*(volatile bool *)&c->made = made;
	atomic_thread_fence(memory_order_seq_cst);
}

/* Look for version V2.  False if this process may not make a child there. */
static bool ranks_cgroup_locate(struct cgroup *c, bool v2, const char *own,
				const char *mounts)
{
	struct statfs fs;
	bool found = cgroup_find(c->parent, sizeof c->parent, v2, own, mounts) &&
		     !statfs(c->parent, &fs) &&
		     fs.f_type == (v2 ? V2_MAGIC : V1_MAGIC) &&
		     !access(c->parent, W_OK);

	c->v2 = v2;
	if (!found)
		*c->parent = '\0';
	return found;
}

/* Version NEWEST, else version 1. */
static bool locate_newest(struct cgroup *c, int newest)
{
	char *own = read_whole("/proc/self/cgroup");
	char *mounts = read_whole("/proc/self/mountinfo");
	bool found = (newest > 1 && ranks_cgroup_locate(c, true, own, mounts)) ||
		     ranks_cgroup_locate(c, false, own, mounts);

	free(own);
	free(mounts);
	return found;
}

/* Is NAME "berth-JOB.PID.EPOCH", and PID gone? */
static bool is_stale(const char *name)
{
	const char *dot = strrchr(name, '.');

	if (strncmp(name, "berth-", 6) != 0 || !dot)
		return false;
	do
		dot--;
	while (dot > name && *dot != '.');
	return kill((pid_t)strtol(dot + 1, NULL, 10), 0) && errno == ESRCH;
}

void cgroup_locate(struct cgroup *c)
{
	DIR *dir = NULL;
	struct dirent *d;

	if (c && locate_newest(c, 2))
		dir = opendir(c->parent);
	/* An agent was killed together with its guardian and runner.  The kernel keeps
	 * a cgroup that has a process. */
	while (dir && (d = readdir(dir)))
		if (is_stale(d->d_name))
			unlinkat(dirfd(dir), d->d_name, AT_REMOVEDIR);
	if (dir)
		closedir(dir);
}

static bool try_make(struct cgroup *c, const char *name)
{
	char file[PATH_BYTES + 32];

	if (!*c->parent || (size_t)snprintf(c->path, sizeof c->path, "%s/%s", c->parent,
					    name) >= sizeof c->path)
		return false;
	set_made(c, true);
	if (!mkdir(c->path, 0755)) {
		snprintf(file, sizeof file, "%s/%s", c->path,
			 c->v2 ? "cgroup.kill" : "freezer.state");
		if (!access(file, W_OK))
			return true;
		rmdir(c->path);
	}
	set_made(c, false);
	return false;
}

/* Names of cgroups of JOB_ID begin with this; false if it cannot be a file's name. */
static bool name_prefix(char *out, size_t size, const char *job_id)
{
	static const char plain[] = "abcdefghijklmnopqrstuvwxyz0123456789"
				    "ABCDEFGHIJKLMNOPQRSTUVWXYZ-_.";

	return *job_id && !job_id[strspn(job_id, plain)] &&
	       (size_t)snprintf(out, size, "berth-%s.", job_id) < size;
}

void cgroup_make(struct cgroup *c, const char *job_id, uint32_t epoch)
{
	char name[160], prefix[120];

	if (!c || c->made || !name_prefix(prefix, sizeof prefix, job_id))
		return;
	snprintf(name, sizeof name, "%s%d.%u", prefix, (int)getpid(), epoch);
	/* Version 2 without cgroup.kill stands beside version 1. */
	if (!try_make(c, name) && c->v2 && locate_newest(c, 1))
		try_make(c, name);
}

struct cgroup_entry cgroup_open(const struct cgroup *c)
{
	char tasks[PATH_BYTES + 32];

	if (!c || !c->made)
		return (struct cgroup_entry){ .fd = -1 };
	if (c->v2)
		return (struct cgroup_entry){
			open(c->path, O_PATH | O_DIRECTORY | O_CLOEXEC), true
		};
	/* The kernel moves a thread that moves itself without waiting for others: 0.1
	 * ms; through cgroup.procs 10. */
	snprintf(tasks, sizeof tasks, "%s/tasks", c->path);
	return (struct cgroup_entry){ open(tasks, O_WRONLY | O_CLOEXEC), false };
}

void cgroup_drop(struct cgroup *c)
{
	if (c && c->made && !rmdir(c->path))
		set_made(c, false);
}

/* CALL for FOLDER and each cgroup below it, the deepest first. */
static void cgroup_walk(const char *folder, int depth,
			void (*call)(void *ctx, const char *folder), void *ctx)
{
	DIR *dir = depth < DEEPEST ? opendir(folder) : NULL;
	char path[PATH_BYTES];
	struct dirent *d;

	while (dir && (d = readdir(dir)))
		if (d->d_type == DT_DIR && strcmp(d->d_name, ".") != 0 &&
		    strcmp(d->d_name, "..") != 0 &&
		    (size_t)snprintf(path, sizeof path, "%s/%s", folder, d->d_name) <
			    sizeof path)
			cgroup_walk(path, depth + 1, call, ctx);
	if (dir)
		closedir(dir);
	call(ctx, folder);
}

struct members {
	void (*call)(void *ctx, pid_t pid);
	void *ctx;
	long n;
};

/* Processes of another PID namespace are 0. */
static void list_members(void *ctx, const char *folder)
{
	char *path = xasprintf("%s/cgroup.procs", folder), *text = read_whole(path);
	struct members *m = ctx;

	for (char *at = text, *end; *at; at = end + (*end == '\n')) {
		long pid = strtol(at, &end, 10);

		if (end == at)
			break;
		m->n++;
		if (pid > 0 && m->call)
			m->call(m->ctx, (pid_t)pid);
	}
	free(text);
	free(path);
}

static void kill_one(void *ctx, pid_t pid)
{
	(void)ctx;
	kill(pid, SIGKILL);
}

bool cgroup_populated(const struct cgroup *c)
{
	struct members m = { 0 };
	char text[256];

	if (!c || !c->made)
		return false;
	if (c->v2)
		return read_file(c->path, "cgroup.events", text, sizeof text) > 0 &&
		       strstr(text, "populated 1");
	cgroup_walk(c->path, 0, list_members, &m);
	return m.n > 0;
}

int cgroup_watch(const struct cgroup *c)
{
	char path[PATH_BYTES + 32];
	int watch;

	if (!c || !c->made || !c->v2)
		return -1;
	watch = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
	snprintf(path, sizeof path, "%s/cgroup.events", c->path);
	if (watch >= 0 && inotify_add_watch(watch, path, IN_MODIFY) < 0) {
		close(watch);
		watch = -1;
	}
	return watch;
}

struct cgroup_use cgroup_used(const struct cgroup *c)
{
	struct cgroup_use use = { 0 };
	unsigned long long n;
	char text[256];

	if (!c || !c->made || !c->v2)
		return use;
	if (read_file(c->path, "cpu.stat", text, sizeof text) > 0 &&
	    sscanf(text, "usage_usec %llu", &n) == 1)
		use.cpu_us = n;
	if (read_file(c->path, "memory.peak", text, sizeof text) > 0 &&
	    sscanf(text, "%llu", &n) == 1)
		use.peak_bytes = n;
	return use;
}

void cgroup_kill(const struct cgroup *c)
{
	struct members m = { .call = kill_one };

	if (!c || !c->made)
		return;
	if (c->v2) {
		write_file(c->path, "cgroup.kill", "1");
		return;
	}
	/* If some are not frozen yet, the next look finds what they forked. */
	write_file(c->path, "freezer.state", "FROZEN");
	cgroup_walk(c->path, 0, list_members, &m);
	write_file(c->path, "freezer.state", "THAWED");
}

/* Until it has no live process, or for PATIENCE_MS. */
static void wait_empty(const struct cgroup *c, int patience_ms)
{
	enum { LOOK_MS = 2 }; /* of version 1, which reports nothing */
	const uint64_t end_ms = clock_ms() + (uint64_t)patience_ms;
	struct pollfd p = { .fd = cgroup_watch(c), .events = POLLIN };
	char events[4096];
	uint64_t now;

	while (cgroup_populated(c) && (now = clock_ms()) < end_ms) {
		cgroup_kill(c);
		if (poll(&p, 1, p.fd < 0 ? LOOK_MS : (int)(end_ms - now)) > 0 &&
		    read(p.fd, events, sizeof events) < 0)
			break;
	}
	if (p.fd >= 0)
		close(p.fd);
}

static void remove_one(void *ctx, const char *folder)
{
	(void)ctx;
	rmdir(folder);
}

void cgroup_remove(struct cgroup *c, int patience_ms)
{
	if (!c || !c->made)
		return;
	if (rmdir(c->path) && errno != ENOENT) {
		wait_empty(c, patience_ms);
		/* A rank may have made cgroups of its own. */
		cgroup_walk(c->path, 0, remove_one, NULL);
	}
	set_made(c, false);
}

/* ---- all of a job ---- */

struct sweep {
	const char *prefix;
	bool v2, found;
	struct members members;
};

static void sweep_one(void *ctx, const char *folder)
{
	enum { PATIENCE_MS = 5000 };
	const char *name = strrchr(folder, '/');
	struct sweep *s = ctx;
	struct cgroup c = { .made = true, .v2 = s->v2 };
	struct stat st;

	/* Another user may give a cgroup of his this name. */
	if (!name || strncmp(name + 1, s->prefix, strlen(s->prefix)) != 0 ||
	    stat(folder, &st) || st.st_uid != geteuid())
		return;
	s->found = true;
	snprintf(c.path, sizeof c.path, "%s", folder);
	cgroup_walk(folder, 0, list_members, &s->members);
	cgroup_remove(&c, PATIENCE_MS);
}

long cgroup_sweep(const char *job_id, void (*member)(void *ctx, pid_t pid), void *ctx)
{
	char root[PATH_BYTES], folder[PATH_BYTES], prefix[120], *mounts, *line;
	struct sweep s = { .prefix = prefix,
			   .members = { .call = member, .ctx = ctx } };
	const char *rest;

	if (!name_prefix(prefix, sizeof prefix, job_id))
		return -1;
	mounts = read_whole("/proc/self/mountinfo");
	for (int v2 = 0; v2 < 2; v2++) {
		s.v2 = v2;
		for (rest = mounts; (line = next_cgroup(&rest, v2)); free(line))
			if (read_mount(line, v2, root, folder))
				cgroup_walk(folder, 0, sweep_one, &s);
	}
	free(mounts);
	return s.found ? s.members.n : -1;
}
