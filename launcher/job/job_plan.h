/* job_plan.h - the plan of each epoch: the slots of the hosts that are left, and the
 * ranks on them.  map.h decides. */
#ifndef BERTH_LAUNCHER_JOB_JOB_PLAN_H
#define BERTH_LAUNCHER_JOB_JOB_PLAN_H

#include "launcher/job/job.h"

/* Whether the list of some app says "HOST:gpus" of host I. */
bool job_has_gpu_slots(const struct job *j, size_t i);
/* The first one and j->rank, if there is none.  0, or -1 with j->err. */
int job_plan_make(struct job *j);
/* For a restart: the same number of ranks on the hosts that are left.  Hosts that were
 * lost are left out if the others have the slots; hosts that had no rank so far are
 * spares.  0, or -1 once the user has been told. */
int job_plan_renew(struct job *j);

#endif
