/* check.h - what hosts say of a start before it.
 *
 * Each agent looks for the programs of its ranks while it places them.  With --check it
 * is asked for more, and no rank starts.  The lines go to stdout. */
#ifndef BERTH_LAUNCHER_JOB_CHECK_H
#define BERTH_LAUNCHER_JOB_CHECK_H

#include "launcher/job/job.h"

/* 0 if every host can run the programs of its ranks.  Else -1 with j->err: one error
 * for all hosts, with the status of the first one's. */
int check_programs(struct job *j);

/* --check: ask the hosts that placed their ranks. */
void check_ask(struct job *j);
/* Frames: what is wrong with them, or NULL. */
const char *check_result(struct job *j, struct host *h,
			 const struct wire_check_result *m);
const char *check_done(struct job *j, struct host *h, const struct wire_check_done *m);
/* Print what is known of all hosts, those that were lost among them.  Sets
 * j->checks.failed. */
void check_say(struct job *j);

#endif
