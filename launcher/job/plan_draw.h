/* plan_draw.h - --plan=svg, --plan=png: the machines of a plan, as hwloc's lstopo draws
 * them.
 *
 * Agents send their machine with its ranks, as XML.  A hostile one may send anything,
 * and lstopo writes names into its SVG as they are: what could be markup is taken out
 * before. */
#ifndef BERTH_LAUNCHER_JOB_PLAN_DRAW_H
#define BERTH_LAUNCHER_JOB_PLAN_DRAW_H

#include "launcher/job/job.h"

/* To stdout, one machine for each group of plan_groups.h; PNG has but one.  What goes
 * wrong is J's error. */
void plan_draw(struct job *j);

/* Pure.  TEXT of lstopo's input, without what could be markup in its output. */
void plan_draw_clean(char *text);
/* Pure: append the SVG images V[0..n), one below the other, as one.  False: one of them
 * is none of lstopo's. */
bool plan_draw_stack(struct str *out, const struct str *v, size_t n);

#endif
