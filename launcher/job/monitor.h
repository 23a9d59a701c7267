/* monitor.h - what agents say that ranks and hosts used, into the job's record; and the
 * verdict over it, on the terminal while the job runs, too. */
#ifndef BERTH_LAUNCHER_JOB_MONITOR_H
#define BERTH_LAUNCHER_JOB_MONITOR_H

#include "launcher/insight/verdict.h"
#include "launcher/job/job.h"

/* Messages of agents: each function returns the fault of the message, or NULL. */
const char *monitor_use(struct job *j, struct host *h, const struct wire_rank_use *m);
const char *monitor_ops(struct job *j, struct host *h, const struct wire_rank_ops *m);
const char *monitor_large(struct job *j, struct host *h,
			  const struct wire_large_ops *m);
const char *monitor_gpu(struct job *j, struct host *h, const struct wire_gpu_use *m);
const char *monitor_host(struct job *j, struct host *h, const struct wire_host_use *m);

/* Ranks are about to start: keys of the terminal, for --top. */
void monitor_begin(struct job *j);
/* The table of --top once more, or the line; if samples are taken. */
void monitor_draw(struct job *j);
/* That table as lines, once; if samples are taken. */
void monitor_print(struct job *j);
/* Nothing is shown any more, and the terminal is as it was. */
void monitor_close(struct job *j);

/* The verdict on J, so far.  To be freed by verdict_free(). */
void monitor_verdict(struct verdict *v, const struct job *j);

#endif
