/* plan_internal.h - what the files of the plan share: plan.c (a cycle, step by step),
 * plan_fuse.c (which units go together) and plan_learn.c (what cycles teach). */
#ifndef BERTH_LIB_PLAN_INTERNAL_H
#define BERTH_LIB_PLAN_INTERNAL_H

#include "lib/core/plan.h"

/* The id of a unit in p->index.  PLACE: from the beginning of the cycle on; 0: the unit
 * has a name. */
static inline uint64_t plan_id(uint64_t key, uint64_t place, uint32_t signature)
{
	const uint64_t what[2] = { place ? 0 : key, place };

	return op_hash(what, sizeof what, signature);
}

/* The line of UNIT in LIST, or PLAN_NONE. */
size_t plan_line_of(const struct plan_list *list, const struct plan_unit *unit);
static inline bool plan_has(const struct plan_list *list, const struct plan_unit *unit)
{
	return plan_line_of(list, unit) != PLAN_NONE;
}
berth_result plan_append(struct plan_list *list, const struct plan_line *line);

/* A cycle ends that did at least half of the plan: what it teaches. */
berth_result plan_learn(struct plan *p);
/* There is no plan any more, and nothing of which to make one. */
void plan_forget(struct plan *p);

#endif
