/* page_strip.h - pure: what ranks did over time, as SVG.
 *
 * A strip shows the time of main threads, from 0 to 1 of it: from below the part in
 * which they computed, on it the part without a CPU, from above the part in which they
 * waited for other ranks.  What is blank is another wait: a disk, a GPU, a lock. */
#ifndef BERTH_LAUNCHER_INSIGHT_PAGE_STRIP_H
#define BERTH_LAUNCHER_INSIGHT_PAGE_STRIP_H

#include "launcher/insight/columns.h"

struct str;

/* The strip V of c->n columns.  STYLE: a class of page_style.h; LABEL: for readers that
 * do not see it, without characters of HTML. */
void page_strip(struct str *out, const struct point *v, const struct columns *c,
		const char *style, const char *label);
/* A line over time, from 0 to MOST: the rate that VALUE reads. */
void page_lane(struct str *out, const struct point *v, const struct columns *c,
	       const char *style, const char *label, double most,
	       double (*value)(const struct point *p));
/* Vertical lines in it, at N times of the job; page_lane() leaves the SVG open if it
 * has no label. */
void page_marks(struct str *out, const struct columns *c, const double *at_s, size_t n);
/* The times below a strip. */
void page_axis(struct str *out, const struct columns *c);
/* The meaning of the parts of a strip. */
void page_legend(struct str *out);

#endif
