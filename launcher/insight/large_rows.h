/* large_rows.h - pure: the large operations of all ranks, by kind and size. */
#ifndef BERTH_LAUNCHER_INSIGHT_LARGE_ROWS_H
#define BERTH_LAUNCHER_INSIGHT_LARGE_ROWS_H

#include "launcher/insight/record.h"

/* Ranks wait in an operation for the last one that comes; the rank that waits least
 * tells how long the operation takes. */
struct large_row {
	const char *kind;
	uint32_t size;
	double ops;    /* of the rank that did most */
	double bytes;  /* of an operation, mean */
	double mean_s; /* of an operation, mean of all ranks */
	/* the rank with the least time: its time of an operation, its bus bandwidth in
	 * bytes a second, as NCCL's tests define that */
	uint32_t fastest;
	double least_s, bandwidth;
};

/* Rows into ROW, by kind, the smallest size first; returns how many. */
size_t large_rows(const struct record *r, struct large_row row[LARGE_MOST]);

#endif
