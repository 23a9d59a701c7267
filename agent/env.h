/* env.h - the environment of a rank: one table of what it gets, who reads it, and why.
 *
 * Pure: forwarded environment, the rank's place in the job and its berth in, a list out. */
#ifndef BERTH_ENV_H
#define BERTH_ENV_H

#include "agent/place.h"
#include "common/wire.h"

struct env_rank {
	const struct wire_job *job;
	const struct wire_app *app;
	uint32_t local;               /* local rank */
	const struct gpus *gpus;
	const struct placement *placement;
	bool (*dir_exists)(const char *path); /* for TMPDIR */
};

/* The value of CUDA_VISIBLE_DEVICES (or the AMD variable) for local rank LOCAL under the job's
 * gpu_visible mode; "" where it stays unset.  Appends to S. */
void env_visible(struct str *s, const struct env_rank *r);

/* Build the environment of R into OUT ({0}): own environment of the host, what the launcher
 * forwarded, the table's variables.  OWN is the agent's own environment. */
void env_build(struct strv *out, const struct env_rank *r, char *const *own);

#endif
