/* rank.h - what the job knows of one rank: messages.c writes it, and acts.c its
 * dismissal; the others read it. */
#ifndef BERTH_LAUNCHER_JOB_RANK_H
#define BERTH_LAUNCHER_JOB_RANK_H

#include "launcher/job/hang_judge.h"
#include "launcher/job/outcome.h"

/* RANK_STARTING: told to start, and not yet known to run. */
enum rank_state { RANK_WAITING, RANK_STARTING, RANK_RUNNING, RANK_ENDED };

struct rank {
	enum rank_state state;
	uint32_t pid;
	uint32_t starts;   /* in this epoch, after the first */
	uint64_t again_ms; /* clock_ms() of the last of these */
	struct ending ending;
	/* It hangs, and is to end: what follows, why; since when.  hang.c. */
	enum hang_act hung;
	char *hung_text;
	uint64_t hung_ms;
	bool late;      /* it ended after its agent had been told to stop: no cause */
	bool dismissed; /* all that it served have ended: its end is no failure */
	bool left_out;  /* lost with its host, and the others go on without it */
	/* its berth */
	char *gpu, *gpu_name, *cpus, *bound, *numa, *visible,
		*why; /* bound: read back */
	uint32_t gpu_index;
	uint32_t *shared;
	size_t nshared;
	/* why it never ran, or was out of memory */
	char *text, *hint;
};

#endif
