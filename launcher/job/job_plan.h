/* job_plan.h - the plan of each epoch: the slots of the hosts that are left, and the
 * ranks on them.  map.h decides. */
#ifndef BERTH_LAUNCHER_JOB_JOB_PLAN_H
#define BERTH_LAUNCHER_JOB_JOB_PLAN_H

#include "launcher/job/job.h"

/* Whether the list of some app says "HOST:gpus" of host I. */
bool job_has_gpu_slots(const struct job *j, size_t i);
/* The first one and j->rank, if there is none.  0, or -1 with j->err. */
int job_plan_make(struct job *j);
/* The slots of host I, whose agent listens, or those of -ppn. */
uint32_t job_plan_slots(const struct job *j, size_t i);
/* The most ranks that an epoch of J has. */
uint32_t job_ranks_most(const struct job *j);
/* The ranks that the next epoch could have; 0: none can be.  UP: on hosts whose agents
 * listen. */
uint32_t job_plan_possible(const struct job *j, bool up);
/* For a restart: the same number of ranks on the hosts that are left, or as many as
 * --min-np and --max-np allow.  Hosts that were
 * lost are left out if the others have the slots; hosts that had no rank so far are
 * spares.  NEXT is {0}.  0, or -1 once the user has been told. */
int job_plan_next(struct job *j, struct plan *next);

#endif
