/* plan_print.h - --plan: the berth of each rank and why, for people. */
#ifndef BERTH_LAUNCHER_JOB_PLAN_PRINT_H
#define BERTH_LAUNCHER_JOB_PLAN_PRINT_H

#include "launcher/job/job.h"

/* Pure: the plan of J in lines of at most COLUMNS, with a short reason for each rank.
 * 0: in lines of any length, with the whole reasons.  Hosts whose ranks have equal
 * berths share one table.  A name, a GPU or a NUMA list is never cut. */
void plan_print_text(struct str *out, const struct job *j, size_t columns);

#endif
