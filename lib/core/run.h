/* run.h - runs operations that are checked: one that a thread blocks in, or a bucket of
 * requests together; also beside ranks that have joined. */
#ifndef BERTH_LIB_RUN_H
#define BERTH_LIB_RUN_H

#include "lib/core/set.h"
#include "lib/core/trace.h"

/* Run OP; *WHY is set where it returns anything but BERTH_OK.  BERTH_MISMATCH: all
 * ranks get it, and the comm goes on; without a text, the ranks called for different
 * operations, and nothing is done.  The other errors are for good, and TIMEOUT and
 * PEER_LOST reach all ranks. */
berth_result run_blocking(struct comm *c, const struct op *op, struct failure *why);
/* Run N requests that go together, with SIGNATURE.  BERTH_MISMATCH: nothing was done,
 * and they are still pending; else they are complete. */
berth_result run_bucket(struct berth_set *s, struct berth_request **r, size_t n,
			uint32_t signature);
/* The bare operation OP, as COLL says.  After BERTH_MISMATCH its input is as it was.
 * WHY is set only if the result does not say enough. */
berth_result run_op(struct comm *c, const struct op *op, struct coll *coll,
		    uint64_t deadline_ns, struct failure *why);

/* No more requests are run together in F. */
void run_free_fusion(struct memory *m, struct fusion *f);

/* A rank that has joined says this when others call for an operation. */
#define RUN_JOINED "J\n"

bool run_has_joined(const char *said);

/* For a rank without data, after comm_explain(): take part in what the others call
 * for, if they agree and it can. */
berth_result run_without_data(struct comm *c, const char **said, uint64_t deadline_ns);
/* For a rank with data, after comm_explain(): BERTH_STATE, with WHY, if the operation
 * cannot go on beside ranks that have joined. */
berth_result run_refuse_joined(struct comm *c, const struct op *op, const char **said,
			       struct failure *why);
/* After comm_explain(): do the ranks differ in the memories of their arrays alone? */
bool run_are_alike(const struct comm *c, const char **said);
/* The operation itself, of a rank with data. */
berth_result run_with_joined(struct comm *c, struct op *op, uint64_t deadline_ns);
/* With which those and it then run. */
uint32_t run_joined_signature(uint32_t signature);
/* After comm_explain(), of a rank that called for OP: who called for what. */
void run_say_sides(struct comm *c, const struct op *op, const char **said,
		   struct failure *why);
/* The operation in flight came to RC after it had been asleep (c->begun_ns): note when,
 * count that, and forget it. */
void run_slept(struct comm *c, berth_result rc);
/* Ends the operation, whether the rank was asleep or not. */
static inline void run_end(struct comm *c, berth_result rc)
{
	if (!rc || rc == BERTH_MISMATCH)
		atomic_store_explicit(&c->done, c->seq, memory_order_relaxed);
	if (c->begun_ns)
		run_slept(c, rc);
	else
		trace_end(c->record, rc);
}

#endif
