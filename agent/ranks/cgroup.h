/* cgroup.h - a cgroup for the ranks of one job on this host.
 *
 * A process may change its environment, its session and its parent, but it stays in
 * its cgroup, and so do its children.  So the kernel knows all processes of a job, and
 * ends them at once.
 *
 * The cgroup is a child of the agent's own cgroup: berth-JOB.PID.EPOCH, with the
 * agent's PID.  Only root and the owner of a delegated cgroup may make it; else there
 * is none.  The agent stays outside.  No controller is enabled and no limit is
 * written, so the limits above hold as before.  Version 2 needs cgroup.kill (Linux
 * 5.14).  Else the freezer of version 1 serves: what is frozen cannot fork, and cannot
 * exit before its number is used. */
#ifndef BERTH_AGENT_RANKS_CGROUP_H
#define BERTH_AGENT_RANKS_CGROUP_H

#include <sys/types.h>

#include "common/str.h"

/* In memory that agent and guardian share: either can end what the other left. */
struct cgroup {
	bool made;        /* PATH is whole, and ours */
	bool v2;          /* else the freezer of version 1 */
	char path[512];   /* its folder */
	char parent[512]; /* where it may be: the agent's own; "": nowhere */
};

/* How a new process gets into a cgroup. */
struct cgroup_entry {
	int fd;        /* -1: not at all */
	bool by_clone; /* clone3() takes FD; else the process writes "0" to it */
};

/* CPU time and the largest memory of all processes together; 0: not counted. */
struct cgroup_use {
	uint64_t cpu_us, peak_bytes;
};

/* A cgroup in memory that a child process will share.  NULL without such memory: then
 * there is no cgroup. */
struct cgroup *cgroup_shared(void);

/* The path, of LEN bytes, of a process's cgroup in OWN, which is its /proc/PID/cgroup:
 * under CONTROLLER of version 1, or of version 2 if that is NULL.  NULL: none. */
const char *cgroup_own(const char *own, const char *controller, size_t *len);

/* The folder of this process's own cgroup into OUT: from OWN, which is
 * /proc/self/cgroup, and MOUNTS, which is /proc/self/mountinfo.  False if it is not
 * mounted here, or longer than SIZE. */
bool cgroup_find(char *out, size_t size, bool v2, const char *own, const char *mounts);

/* Look for its parent, and remove there what dead agents left empty.  C may be NULL,
 * here and below. */
void cgroup_locate(struct cgroup *c);
/* Make C for JOB_ID, if this process may. */
void cgroup_make(struct cgroup *c, const char *job_id, uint32_t epoch);
/* Its descriptor is the caller's to close. */
struct cgroup_entry cgroup_open(const struct cgroup *c);
/* Remove it if no process is in it. */
void cgroup_drop(struct cgroup *c);
/* Has it a live process?  Not if it was not made. */
bool cgroup_populated(const struct cgroup *c);
/* A descriptor that is readable once cgroup_populated() may have changed; -1: none. */
int cgroup_watch(const struct cgroup *c);
struct cgroup_use cgroup_used(const struct cgroup *c);
/* KILL all its processes, those that are being forked too. */
void cgroup_kill(const struct cgroup *c);
/* KILL what is left, wait for that up to PATIENCE_MS, and remove it. */
void cgroup_remove(struct cgroup *c, int patience_ms);

/* Do both to each cgroup of JOB_ID that this user owns, wherever it is.  MEMBER gets
 * each process before it is killed.  Returns how many processes there were, or -1
 * without such a cgroup. */
long cgroup_sweep(const char *job_id, void (*member)(void *ctx, pid_t pid), void *ctx);

#endif
