/* cleanup.h - hosts whose stream was lost: a new agent over a new stream kills what
 * carries the job's id.
 *
 * The host may still answer, and what was daemonised there may have survived its agent.
 * A host stays unconfirmed until its new agent said that nothing is left. */
#ifndef BERTH_LAUNCHER_JOB_CLEANUP_H
#define BERTH_LAUNCHER_JOB_CLEANUP_H

#include "launcher/hosts/agents.h"

struct job;

struct cleanup {
	struct agents agents; /* one for each host of the job; none before the first */
	size_t running;       /* of them */
	uint64_t until_ms; /* clock_ms() after which no answer is worth waiting for */
};

/* Begin to clean LOST up. */
void cleanup_send(struct job *j, const struct host *lost);

#endif
