/* op_counts.h - an allgather or an alltoall of which each rank knows its own counts
 * alone: ranks tell each other, in the operation, what they give and what they have
 * room for. */
#ifndef BERTH_LIB_OP_COUNTS_H
#define BERTH_LIB_OP_COUNTS_H

#include "lib/core/set.h"

/* OP as COLL says.  BERTH_MISMATCH without a text: the ranks called for different
 * operations; with one: their counts do not fit, which all ranks say alike. */
berth_result op_counts_run(struct comm *c, const struct op *op, const struct coll *coll,
			   uint64_t deadline_ns, struct failure *why);

#endif
