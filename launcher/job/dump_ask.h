/* dump_ask.h - `runner --dump[=JOB]`: asks the runner of a job of this user, on this
 * machine, where its ranks are. */
#ifndef BERTH_LAUNCHER_JOB_DUMP_ASK_H
#define BERTH_LAUNCHER_JOB_DUMP_ASK_H

#include "common/str.h"

/* JOB: the begin of its id; "": the only job.  Prints to stdout.  0, or -1 with E. */
int dump_ask_job(const char *job, struct err *e);

#endif
