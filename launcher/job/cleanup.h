/* cleanup.h - hosts whose stream was lost: a new agent over a new stream kills what
 * carries the job's id.
 *
 * The host may still answer, and what was daemonised there may have survived its agent.
 * A host stays unconfirmed until its new agent said that nothing is left. */
#ifndef BERTH_LAUNCHER_JOB_CLEANUP_H
#define BERTH_LAUNCHER_JOB_CLEANUP_H

#include "launcher/job/job.h"

/* Begin to clean LOST up, unless that has begun. */
void cleanup_send(struct job *j, const struct host *lost);
/* Its deadlines move by MS. */
void cleanup_postpone(struct cleanup *c, uint64_t ms);

#endif
