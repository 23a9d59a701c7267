/* gpu_use.h - what becomes of the ranks' GPUs, by NVML, each so often.
 *
 * A child of the agent asks NVML, whose calls may take long: 40 ms for PCIe alone.  It
 * writes frames `gpu_use`, which the agent passes on, or drops if the launcher does not
 * read.  The child ends with the agent.  On a host without NVIDIA's GPUs there is
 * none. */
#ifndef BERTH_AGENT_MONITOR_GPU_USE_H
#define BERTH_AGENT_MONITOR_GPU_USE_H

#include "agent/placement/gpu.h"
#include "agent/placement/place.h"
#include "common/wire.h"

struct event;
struct event_base;

struct gpu_use {
	struct buf *out;        /* the agent's send queue */
	struct buf in;          /* the begin of a frame of the child */
	struct event *readable; /* NULL: there is no child */
	int fd;
};

/* The GPUs of the ranks of JOB, each PERIOD_MS.  OUT must stay until gpu_use_end(). */
void gpu_use_begin(struct gpu_use *u, struct event_base *base, struct buf *out,
		   const struct wire_job *job, const struct gpus *g,
		   const struct placement *p);
/* Takes {0} too. */
void gpu_use_end(struct gpu_use *u);

#endif
