/* plan_groups.h - pure: hosts of a plan whose ranks have equal berths, together. */
#ifndef BERTH_LAUNCHER_JOB_PLAN_GROUPS_H
#define BERTH_LAUNCHER_JOB_PLAN_GROUPS_H

#include "launcher/job/job.h"

/* The first rank of each host is STEP above that of the host before. */
struct plan_group {
	uint32_t *host, step;
	size_t n;
};

/* All hosts with ranks; N groups. */
struct plan_group *plan_groups(const struct job *j, size_t *n);
void plan_groups_free(struct plan_group *group, size_t n);

/* Append "n1-n3: 2 ranks each, shown for n1; 2 higher on each host after it". */
void plan_group_words(struct str *out, const struct job *j, const struct plan_group *g);

const struct rank *plan_rank(const struct job *j, uint32_t host, uint32_t local);

#endif
