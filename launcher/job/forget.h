/* forget.h - what the job knew of a rank, or of a host, before its ranks start anew. */
#ifndef BERTH_LAUNCHER_JOB_FORGET_H
#define BERTH_LAUNCHER_JOB_FORGET_H

#include "launcher/job/job.h"

/* R is {0} again. */
void forget_rank(struct rank *r);
/* Only what outlasts an epoch stays. */
void forget_host(struct host_run *run);

#endif
