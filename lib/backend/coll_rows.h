/* coll_rows.h - operations of which each rank knows its own counts alone (struct
 * coll_rows), for any back end. */
#ifndef BERTH_LIB_COLL_ROWS_H
#define BERTH_LIB_COLL_ROWS_H

#include "lib/backend/backend.h"

/* C, which has rows, of a GROUP of N ranks in which this is ME.  BERTH_MISMATCH: the
 * ranks called for different things, or what settle() returned. */
berth_result coll_run_rows(const struct backend *back, void *group,
			   const struct coll *c, unsigned n, unsigned me,
			   uint64_t deadline_ns);

#endif
