/* report.h - what runner says: plans, bindings, failures, rank status.
 *
 * Composes text from the session; plans go to stdout, everything else to stderr in
 * order with what the ranks wrote. */
#ifndef BERTH_LAUNCHER_JOB_REPORT_H
#define BERTH_LAUNCHER_JOB_REPORT_H

#include "launcher/job/job.h"

/* Append "3 of 5" or "3, at most 5 in 3600 s": the restarts, and how many there may
 * be. */
void report_add_budget(struct str *out, const struct job *j);
/* H is lost, or is to be left, and the ranks of the other hosts go on. */
void report_left(struct job *j, const struct host *h);
/* All ranks start again: after a failure, or since the hosts are others. */
void report_restart(struct job *j, bool resized);
/* They are ended for that. */
void report_resize(struct job *j);
/* RANK has failed, and it alone starts again. */
void report_replaced(struct job *j, uint32_t rank);
/* It is in a world of RANKS of libberth. */
void report_back(struct job *j, uint32_t rank, uint32_t ranks);
/* One line (or several) to stderr. */
void report_note(struct job *j, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
/* "runner: ..." and its hint. */
void report_error(struct job *j, const struct err *e);

/* Every lost host's error, the same one said once with the hosts folded; the last is
 * left in s->err for main to print.  Always -1. */
int report_lost_hosts(struct job *j);
/* The first failure: rank, host, pid, GPU, how it ended, its last lines on stderr,
 * unless the user has seen these. */
void report_cause(struct job *j);
/* Hosts that did not confirm that all is gone. */
void report_unconfirmed(struct job *j);
/* More ranks than cores on a host: one loud line (of GPUs the agent tells). */
void report_overload(struct job *j);
/* --report-bindings: what the ranks of the epoch got, as read back, in their order. */
void report_bindings(struct job *j);
/* Append why the job ends, in the order of phase_status(); "" for no reason. */
void report_reason(struct str *out, const struct job *j);
/* The last words on the job, which ends with STATUS: --nccl-transports, --summary, and
 * what --monitor found. */
void report_end(struct job *j, int status);
/* --plan, to stdout. */
void report_plan(struct job *j);

#endif
