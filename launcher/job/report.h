/* report.h - what runner says: plans, bindings, failures, roll-call.
 *
 * Composes text from the session; plans go to stdout, everything else to stderr in
 * order with what the ranks wrote. */
#ifndef BERTH_LAUNCHER_JOB_REPORT_H
#define BERTH_LAUNCHER_JOB_REPORT_H

#include "launcher/job/job.h"

/* One line (or several) to stderr. */
void report_note(struct session *s, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
/* "runner: ..." and its hint. */
void report_error(struct session *s, const struct err *e);

/* Every lost host's error, the same one said once with the hosts folded; the last is
 * left in s->err for main to print.  Always -1. */
int report_lost_hosts(struct session *s);
/* The first failure: rank, host, pid, GPU, how it ended, its last stderr lines. */
void report_cause(struct session *s);
/* Hosts that did not confirm that all is gone. */
void report_unconfirmed(struct session *s);
/* More ranks than cores on a host: one loud line (of GPUs the agent tells). */
void report_overload(struct session *s);
/* --report-bindings: what one rank got, as read back. */
void report_binding(struct session *s, uint32_t rank);
/* Ctrl-\: every rank's host, pid, state and last output. */
void report_roll_call(struct session *s);
/* --plan, to stdout. */
void report_plan(struct session *s);

/* Inside a resource manager's job? */
bool report_in_managed_job(void);

#endif
