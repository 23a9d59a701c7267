/* gpuwatch.h - do the ranks use the GPUs that they were given?
 *
 * Some time after the first use the agent compares NVML's list of processes with the
 * plan.  The usual finding is a program that ignores its environment, or one that
 * leaves a context on the first GPU. */
#ifndef BERTH_AGENT_RANKS_GPU_CHECK_H
#define BERTH_AGENT_RANKS_GPU_CHECK_H

#include <sys/types.h>

#include "agent/placement/gpu.h"

struct gpu_check_rank {
	uint32_t rank; /* global, for the messages */
	int gpu;       /* index into gpus.v, -1: none */
	pid_t pid;     /* its main process; what descends from it counts as the rank */
};

/* Has a rank opened a GPU's device file?  Reads /proc only: no driver is woken. */
bool gpu_check_any_use(const struct gpu_check_rank *ranks, size_t n);

/* Append one line to WARNINGS for each rank that uses another GPU than its own, or
 * another beside its own; one line where NVML can't tell.  0; -1 where it could not
 * tell. */
int gpu_check_check(struct strv *warnings, const struct gpus *g,
		    const struct gpu_check_rank *ranks, size_t n);

#endif
