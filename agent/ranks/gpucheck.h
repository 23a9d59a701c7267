/* gpucheck.h - when to ask gpuwatch.h, and without making anybody wait for the driver.
 *
 * Looks whether a rank has opened a GPU, at first every few seconds; half a minute
 * after the first one was seen a child of the agent asks NVML, which may take seconds,
 * and its lines go out as warnings. Once per job. */
#ifndef BERTH_AGENT_RANKS_GPUCHECK_H
#define BERTH_AGENT_RANKS_GPUCHECK_H

#include "agent/placement/place.h"
#include "agent/ranks/rank.h"
#include "agent/stream.h"

struct gpucheck {
	struct stream *session;
	const struct gpus *gpus;
	const struct placement *placement;
	const struct ranks *ranks;
	struct event *timer, *answer; /* NULL: not begun; no child */
	int fd;                       /* what the child says */
	bool used;
	int pause_s; /* from one look to the next */
	struct str text;
};

/* Begin to look.  What C points to must stay until gpucheck_end(). */
void gpucheck_begin(struct gpucheck *c, struct stream *s, const struct gpus *g,
		    const struct placement *p, const struct ranks *r);
/* Takes {0} too. */
void gpucheck_end(struct gpucheck *c);

#endif
