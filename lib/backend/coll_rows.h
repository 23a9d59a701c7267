/* coll_rows.h - an operation whose ranks know only their own counts.  Each rank tells
 * all others its row.  Then the data go. */
#ifndef BERTH_LIB_COLL_ROWS_H
#define BERTH_LIB_COLL_ROWS_H

#include "lib/backend/backend.h"

/* Does C, an allgather or alltoall with counts that has rows, by the back end B.  IN
 * and OUT do not overlap.  It may use the signature after C->signature, too. */
berth_result coll_run_rows(const struct backend *b, void *group, const struct coll *c,
			   uint64_t deadline_ns);
/* For a back end that has no faster way.  The rows go by an allreduce, then the data
 * go. */
berth_result coll_rows_in_steps(const struct backend *b, void *group,
				const struct coll *c, uint64_t deadline_ns);

#endif
