/* monitor.h - what agents say that ranks and hosts used, into the job's record; and the
 * verdict over it. */
#ifndef BERTH_LAUNCHER_JOB_MONITOR_H
#define BERTH_LAUNCHER_JOB_MONITOR_H

#include "launcher/insight/verdict.h"
#include "launcher/job/job.h"

/* Messages of agents: each function returns the fault of the message, or NULL. */
const char *monitor_use(struct job *j, struct host *h, const struct wire_rank_use *m);
const char *monitor_ops(struct job *j, struct host *h, const struct wire_rank_ops *m);
const char *monitor_host(struct job *j, struct host *h, const struct wire_host_use *m);

/* The verdict on J, so far.  To be freed by verdict_free(). */
void monitor_verdict(struct verdict *v, const struct job *j);

#endif
