/* check.h - what hosts say of a start before it.
 *
 * Each agent looks for the programs of its ranks while it places them. */
#ifndef BERTH_LAUNCHER_JOB_CHECK_H
#define BERTH_LAUNCHER_JOB_CHECK_H

#include "launcher/job/job.h"

/* 0 if every host can run the programs of its ranks.  Else -1 with j->err: one error
 * for all hosts, with the status of the first one's. */
int check_programs(struct job *j);

#endif
