/* live.h - pure: what the ranks do now, as one line or as a table. */
#ifndef BERTH_LAUNCHER_INSIGHT_LIVE_H
#define BERTH_LAUNCHER_INSIGHT_LIVE_H

#include "launcher/insight/verdict.h"

/* The ranks that run, of all of the epoch. */
struct live {
	uint32_t up, np;
	const struct verdict *verdict; /* so far */
};

/* Append "16/16 up, step 1204, 31 steps/s, cpu 96 %, rank 13 slow", what is known of
 * it. */
void live_line(struct str *out, const struct look *l, const struct live *now);

/* Append that line, then a table: a row for each rank, without a last newline.  No row
 * is longer than WIDTH: columns are left out, the least telling ones first.  There are
 * at most ROWS rows in all; the ranks that findings name come first then. */
void live_table(struct str *out, const struct look *l, const struct live *now,
		size_t width, size_t rows);

#endif
