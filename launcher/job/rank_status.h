/* rank_status.h - what ranks do in libberth, asked of their agents: for a rank that
 * waits long, for the rank status of Ctrl-\, for the report of a failure.
 *
 * Agents have 1 s to answer.  Reports of stalls are shown after 1 s, corrected by what
 * all agents say then: those with the same cause are one line.  Of the reports of one
 * host 1000 are shown in an epoch, so that a hostile agent cannot have all others asked
 * without end. */
#ifndef BERTH_LAUNCHER_JOB_RANK_STATUS_H
#define BERTH_LAUNCHER_JOB_RANK_STATUS_H

#include "launcher/job/job.h"
#include "launcher/job/rank_waits.h"

/* What agents say: each returns what is wrong with it, or NULL. */
const char *rank_status_stall(struct job *j, struct host *h,
			      const struct wire_stall *m);
const char *rank_status_op(struct job *j, struct host *h, const struct wire_rank_op *m);
const char *rank_status_done(struct job *j, struct host *h);
const char *rank_status_missing_request(struct job *j, struct host *h,
					const struct wire_missing_request *m);

/* Ask all agents, then print the status of each rank. */
void rank_status_print(struct job *j);
void rank_status_free(struct job *j);

#endif
