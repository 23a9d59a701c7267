/* sweep.h - finds processes: those below this one, those that carry a job's job_id.
 *
 * Both ways read /proc.  A process whose parent died hangs below the nearest subreaper,
 * which the agent is, so "below this one" misses nothing that did not ask another
 * subreaper for shelter; the job_id (BERTH_JOB in the environment) finds what is left
 * when agent and guardian were killed in one blow. */
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
/* Only those below ROOT, children and theirs, dead ones left out; and in front of the
 * others those whose parent is ROOT. */
int procs_load_below(struct procs *p, pid_t root);
void procs_free(struct procs *p);

/* Is PID past saving: on its way out, or killed and without a turn since? */
bool proc_dying(pid_t pid);

/* Send SIGNO to everything below this process, KILL to all of their process groups.
 * STOP is sent until a look finds nobody new, so that what forks meanwhile is stopped
 * too.  0, or procs_load()'s errno: the children at least have it (theirs come to a
 * subreaper when they die). */
int procs_sweep_tree(int signo);

/* What agents and guardians are called, in a folder of their own name or not. */
#define AGENT_COMM "berth-agent"

/* Be found by procs_sweep_job(COOKIE), also when no rank is left: a socket that listens
 * under an abstract name and never accepts, whose holder the kernel tells.  Returns it,
 * or -1. */
int procs_sweep_mark(const char *job_id);

/* KILL, until a look finds none, own processes whose environment has BERTH_JOB=COOKIE;
 * how many there were.  The job's agents are continued if somebody stopped them, and
 * ended if they do not end within a second. */
size_t procs_sweep_job(const char *job_id);

#endif
