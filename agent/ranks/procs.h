/* procs.h - reads /proc: the processes below this one, and those of a job.
 *
 * When a process exits, its children become those of the nearest subreaper, which the
 * agent is.  So "below this process" misses only a process that has made itself, or an
 * ancestor of its own, a subreaper.  The job id (BERTH_JOB in the environment) finds
 * the processes of a job whose agent and guardian were killed together. */
#ifndef BERTH_AGENT_RANKS_PROCS_H
#define BERTH_AGENT_RANKS_PROCS_H

#include <sys/types.h>

#include "common/str.h"

struct proc {
	pid_t pid, ppid, group;
	char state;    /* as in /proc/PID/stat; Z: dead, not reaped */
	char comm[16]; /* the program's name, cut off as the kernel does */
};

struct procs {
	struct proc *v;
	size_t n;
};

/* All processes of this machine that are visible to us.  0, or the errno of what we
 * lack to see them all: memory, or descriptors. */
int procs_load(struct procs *p);
/* Only those below this process, children and theirs, dead ones left out.  The children
 * come first. */
int procs_load_below(struct procs *p);
/* From now on procs_load_below() leaves the processes of GROUP out, which are not the
 * job's; or no longer.  At most PROCS_SPARED groups. */
enum { PROCS_SPARED = 64 };
void procs_spare(pid_t group, bool is_spared);
/* The process PID in P, or NULL. */
const struct proc *procs_find(const struct procs *p, pid_t pid);
void procs_free(struct procs *p);

/* CPU time of PID and of the children that it has reaped; bytes that PID has read and
 * written; 0 if that cannot be seen. */
uint64_t proc_cpu_ms(pid_t pid);
uint64_t proc_io_bytes(pid_t pid);

/* Does PID exit just now?  A process that was killed does, even before its next turn on
 * a CPU. */
bool proc_exiting(pid_t pid);
/* Has PID a file open whose path IS_IT accepts? */
bool proc_has_open(pid_t pid, bool (*is_it)(const char *path));
/* Does PID run a program whose name, without its folder, IS_IT accepts? */
bool proc_runs(pid_t pid, bool (*is_it)(const char *name));

/* Send SIGNO to everything below this process, KILL to all of their process groups.
 * STOP is sent until a look finds no new process, so that what forks meanwhile is
 * stopped, too.  0, or procs_load()'s errno: then only the children got it (their own
 * children come to a subreaper when they exit). */
int procs_sweep_tree(int signo);

/* KILL the processes of GROUP, and those below this process that have the variable
 * ENTRY in their environment.  Returns how many live processes were found. */
size_t procs_end(pid_t group, const char *entry);

/* The name of an agent's and a guardian's process, whatever their file is called. */
#define AGENT_COMM "berth-agent"

/* Open the job socket: procs_sweep_job(JOB_ID) finds this process by it, even if no
 * rank is left.  It listens under an abstract name and never accepts; the kernel tells
 * its owner.  Returns it, or -1. */
int procs_job_socket(const char *job_id);

/* KILL the processes in the job's cgroup; or, if the job has none here, own processes
 * whose environment has BERTH_JOB=JOB_ID, until a look finds none.  Returns how many
 * there were.  The job's agents are continued if they were stopped, and killed if they
 * do not exit within a second. */
size_t procs_sweep_job(const char *job_id);

#endif
