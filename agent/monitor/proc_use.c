#include "agent/monitor/proc_use.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/file.h"

enum { CHILDREN_MOST = 64, DEPTH_MOST = 4, FILE_BYTES = 8192 };

/* A process that waits for its worker has used so many times less than that. */
enum { WORKER_USES = 4 };

static bool use_file(char *out, const char *root, pid_t pid, const char *what)
{
	char path[512];

	snprintf(path, sizeof path, "%s/proc/%d/%s", root, (int)pid, what);
	return file_start(path, out, FILE_BYTES) > 0;
}

/* The number behind KEY in TEXT, lines "KEY NUMBER"; 0: there is none. */
static uint64_t use_number(const char *text, const char *key)
{
	const size_t n = strlen(key);

	for (const char *line = text; line; line = strchr(line, '\n')) {
		line += *line == '\n';
		if (!strncmp(line, key, n))
			return strtoull(line + n, NULL, 10);
	}
	return 0;
}

/* "123 (name) S 1 ...": fields from the third on. */
static bool use_stat(struct proc_use *u, char *text)
{
	enum { UTIME = 14, STIME = 15, THREADS = 20, RSS = 24 };
	const char *at = strrchr(text, ')');
	uint64_t cpu = 0;
	char *end;

	if (!at || at[1] != ' ' || !at[2])
		return false;
	snprintf(u->state, sizeof u->state, "%c", at[2]);
	at += 3;
	for (int field = 4; field <= RSS; field++) {
		const uint64_t n = strtoull(at, &end, 10);

		if (end == at)
			return false;
		at = end;
		cpu += field == UTIME || field == STIME ? n : 0;
		if (field == THREADS)
			u->threads = (uint32_t)n;
		else if (field == RSS)
			u->resident_bytes = n * (uint64_t)sysconf(_SC_PAGESIZE);
	}
	u->cpu_us = cpu * 1000000 / (uint64_t)sysconf(_SC_CLK_TCK);
	return true;
}

static void use_status(struct proc_use *u, char *text)
{
	static const char key[] = "Cpus_allowed_list:\t";
	const char *list = strstr(text, key);
	size_t n;

	u->sleeps = use_number(text, "voluntary_ctxt_switches:");
	u->preempted = use_number(text, "nonvoluntary_ctxt_switches:");
	if (!list)
		return;
	list += sizeof key - 1;
	n = strcspn(list, "\n");
	if (n < sizeof u->cpus)
		snprintf(u->cpus, sizeof u->cpus, "%.*s", (int)n, list);
}

/* TEXT: their numbers. */
static void use_children(struct proc_use *u, const char *root, char *text)
{
	char stat[FILE_BYTES];
	char *at = text, *end;

	for (;; at = end) {
		const long pid = strtol(at, &end, 10);
		struct proc_use child = { 0 };

		if (end == at || pid <= 0)
			return;
		if (!u->children++)
			u->child = (pid_t)pid;
		if (u->children <= CHILDREN_MOST &&
		    use_file(stat, root, (pid_t)pid, "stat") && use_stat(&child, stat))
			u->children_us += child.cpu_us;
	}
}

bool proc_use_read(struct proc_use *u, const char *root, pid_t pid)
{
	char text[FILE_BYTES], children[64], *end;

	*u = (struct proc_use){ 0 };
	if (!use_file(text, root, pid, "stat") || !use_stat(u, text))
		return false;
	if (use_file(text, root, pid, "schedstat")) {
		u->main_us = strtoull(text, &end, 10) / 1000;
		u->delay_us = strtoull(end, NULL, 10) / 1000;
	}
	if (use_file(text, root, pid, "io")) {
		u->read_bytes = use_number(text, "rchar:");
		u->written_bytes = use_number(text, "wchar:");
		u->disk_bytes = use_number(text, "read_bytes:");
	}
	if (use_file(text, root, pid, "status"))
		use_status(u, text);
	snprintf(children, sizeof children, "task/%d/children", (int)pid);
	if (use_file(text, root, pid, children))
		use_children(u, root, text);
	return true;
}

pid_t proc_use_worker(struct proc_use *u, const char *root, pid_t pid)
{
	if (!proc_use_read(u, root, pid))
		return 0;
	for (int depth = 0; depth < DEPTH_MOST; depth++) {
		struct proc_use below;

		if (u->children != 1 || u->children_us < WORKER_USES * u->cpu_us ||
		    !proc_use_read(&below, root, u->child))
			return pid;
		pid = u->child;
		*u = below;
	}
	return pid;
}
