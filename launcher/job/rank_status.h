/* rank_status.h - what ranks do in libberth, asked of their agents: for a rank that says that
 * it waits, or asks for whom, for the roll-call, for the report of a failure.
 *
 * An answer is waited for 1 s at most, and reports of waiting are shown after 1 s:
 * those that say the same by then are one. */
#ifndef BERTH_LAUNCHER_JOB_RANK_STATUS_H
#define BERTH_LAUNCHER_JOB_RANK_STATUS_H

#include "launcher/job/job.h"

/* What an agent said of one rank. */
struct rank_op {
	char *text;                  /* its last operation */
	uint32_t *set, *turn, *runs; /* its last in each of N sets of ranks */
	size_t n;
};
void rank_op_free(struct rank_op *d); /* takes NULL */

/* What agents say: each returns what is wrong with it, or NULL. */
const char *rank_status_stall(struct job *j, struct host *h,
			      const struct wire_stall *m);
const char *rank_status_op(struct job *j, struct host *h, const struct wire_rank_op *m);
const char *rank_status_done(struct job *j, struct host *h);
const char *rank_status_missing_request(struct job *j, struct host *h,
					const struct wire_missing_request *m);

/* Ask everybody, then print the roll-call. */
void rank_status_roll_call(struct job *j);
void rank_status_free(struct job *j);

/* The ranks that RANK, which is in an operation, waits for: one bit each in BITS, for
 * all ranks; how many. */
size_t rank_status_missing(const struct job *j, uint32_t rank, uint64_t *bits);

#endif
