/* sets.h - the sets of a world, and their ends. */
#ifndef BERTH_LIB_SETS_H
#define BERTH_LIB_SETS_H

#include "lib/core/set.h"

/* A blocking operation in SET, in which this rank is, with the thread's last error.
 * D's set is not looked at. */
berth_result set_run(struct berth_set *set, const struct berth_desc *d);
/* As set_run(), for SLICE_MS: after BERTH_BUSY *LATER is a request for it. */
berth_result set_run_for(struct berth_set *set, const struct berth_desc *d,
			 int64_t slice_ms, berth_request **later);
/* Notes the last error: TEXT is what op_make() has against D; WHY is why RC. */
berth_result set_refuse(const struct berth_desc *d, const char *text);
berth_result set_tell(berth_result rc, const struct failure *why);
/* All operations in all sets of W end with BERTH_ABORTED. */
void set_stop_all(struct world *w);
/* When no call is in them: handle_wait_all().  The other ranks are not told. */
void set_free_all(struct world *w);
/* After fork(2) in the child: the sets are its parent's. */
void set_in_child(void);
/* *SUM: the operations of all sets, also of those that were removed. */
void set_count_all(struct world *w, struct berth_metrics *sum);
/* SET, whose handle is closed, is this rank's no more. */
void set_remove(struct berth_set *set);
/* As berth_set_abort(). */
void set_abort(struct berth_set *set, const char *why);

/* ---- for set_make.c ---- */

/* A set of N members, RANKs of the job; NULL: out of memory. */
struct berth_set *set_alloc(struct world *w, const unsigned *rank, unsigned n);
/* It is complete: set_stop_all() may look at it. */
void set_list(struct berth_set *s);
/* It was not complete: no caller has it.  KEEP: others may look at its region, which
 * goes with the world. */
void set_free_part(struct berth_set *s, bool keep);
/* Regions of sets that this rank has left, and now all others on this host as well, are
 * freed. */
void set_free_regions(struct world *w);

#endif
