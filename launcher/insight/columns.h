/* columns.h - pure: strips of several ranks on one time axis.
 *
 * The time of a job is cut into columns of equal width.  A strip ends when its last
 * sample was taken; its points fill the columns before, each by the time that they have
 * in common. */
#ifndef BERTH_LAUNCHER_INSIGHT_COLUMNS_H
#define BERTH_LAUNCHER_INSIGHT_COLUMNS_H

#include "launcher/insight/record.h"

enum { COLUMNS_MOST = 120 };

struct columns {
	uint32_t n;
	double width_s;
};

/* For a job that took WALL_S seconds: at most MOST, none narrower than a sample. */
struct columns columns_of(const struct record *r, double wall_s, uint32_t most);

/* S to OUT[0..c->n): means over each column.  END_S: when S ended, in seconds of the
 * job.  A column of which too little is known has the span 0. */
void columns_rank(struct point *out, const struct columns *c, const struct strip *s,
		  double end_s);

/* Add ONE to SUM, both of c->n columns.  The span of a sum counts its members. */
void columns_add(struct point *sum, const struct point *one, const struct columns *c);
/* A sum to a mean. */
void columns_mean(struct point *sum, const struct columns *c);

/* The time that S covers, and its last point, which may not be whole yet. */
double columns_span_s(const struct strip *s);

#endif
