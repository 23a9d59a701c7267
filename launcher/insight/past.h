/* past.h - pure: ranks that are slower than they were.
 *
 * All ranks of a world take their steps together, so the rates of all fall when one
 * rank gets slow.  The time of a step that a rank takes itself, without the time that
 * it waits for others, tells whose time has grown. */
#ifndef BERTH_LAUNCHER_INSIGHT_PAST_H
#define BERTH_LAUNCHER_INSIGHT_PAST_H

#include "launcher/insight/record.h"
#include "launcher/request.h"

/* Seconds of a step. */
struct part_of_step {
	double all, own; /* own: all but the time that it waits for others */
	double main, delay;
};

struct past {
	struct part_of_step then, now; /* of the first of the ranks */
	double since_s;                /* before the last sample */
};

/* The ranks to RANKS whose own time has grown from the best third of the time to the
 * last one, if that explains why steps take longer now; false: there are none. */
bool past_find(struct past *p, struct rank_set *ranks, const struct record *r);

#endif
