/* coll_rows.h - an operation whose ranks know only their own counts: what each tells
 * goes to all, then the data. */
#ifndef BERTH_LIB_COLL_ROWS_H
#define BERTH_LIB_COLL_ROWS_H

#include "lib/backend/backend.h"

/* C, which has rows, by the back end B: an allgather or alltoall with counts.  IN and
 * OUT are apart.  After C->signature, it may use the next one. */
berth_result coll_run_rows(const struct backend *b, void *group, const struct coll *c,
			   uint64_t deadline_ns);
/* Of a back end that has no faster way: the rows by an allreduce, then the data. */
berth_result coll_rows_in_steps(const struct backend *b, void *group,
				const struct coll *c, uint64_t deadline_ns);

#endif
