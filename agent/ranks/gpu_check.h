/* gpu_check.h - do the ranks use the GPUs that they were given?
 *
 * Once per job the agent compares NVML's list of processes with the plan.  The usual
 * finding is a program that ignores its environment, or one that leaves a context on
 * the first GPU.  First the agent looks now and then into /proc, which wakes no driver,
 * whether a process has opened a GPU.  Half a minute after one did, a child of the
 * agent asks NVML, which may take seconds, and the findings go out as warnings. */
#ifndef BERTH_AGENT_RANKS_GPU_CHECK_H
#define BERTH_AGENT_RANKS_GPU_CHECK_H

#include "agent/placement/gpu.h"
#include "agent/placement/place.h"
#include "agent/ranks/rank.h"

struct gpu_check {
	struct event_base *base;
	struct buf *out; /* the agent's send queue */
	const struct gpus *gpus;
	const struct placement *placement;
	const struct ranks *ranks;
	struct event *timer, *answer; /* NULL: not begun; no child */
	int fd;                       /* the child's end of its pipe */
	bool used;
	int pause_s;      /* from one look to the next */
	struct str lines; /* the child's answer so far */
};

/* Begin to look.  What C points to must stay until gpu_check_end(). */
void gpu_check_begin(struct gpu_check *c, struct event_base *base, struct buf *out,
		     const struct gpus *g, const struct placement *p,
		     const struct ranks *r);
/* Takes {0} too. */
void gpu_check_end(struct gpu_check *c);

/* Has a process below this one opened a GPU's device file? */
bool gpu_check_any_use(void);

/* Append one line to FOUND for each GPU that a rank uses and that is not its own; one
 * line if NVML cannot tell.  All processes that descend from a rank's main process
 * count as the rank.  0; -1 if NVML cannot tell.  Reads C's gpus, placement and
 * ranks. */
int gpu_check_findings(struct strv *found, const struct gpu_check *c);

#endif
