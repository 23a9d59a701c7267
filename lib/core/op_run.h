/* op_run.h - an operation, from checked to done: what comm_run() shares with the
 * engine. */
#ifndef BERTH_LIB_OP_RUN_H
#define BERTH_LIB_OP_RUN_H

#include "lib/core/comm.h"

/* A rank that has joined says this when others call for an operation. */
#define OP_RUN_JOINED "J\n"

bool op_run_has_joined(const char *said);

/* For a rank without data, after comm_explain(): take part in what the others call
 * for, if they agree and it can. */
berth_result op_run_take_part(struct comm *c, const char **said, uint64_t deadline_ns);
/* For a rank with data, after comm_explain(): BERTH_STATE, with WHY, if the operation
 * cannot go on beside ranks that have joined. */
berth_result op_run_refuse(struct comm *c, const struct op *op, const char **said,
			   struct failure *why);
/* The operation itself, of a rank with data. */
berth_result op_run_with_joined(struct comm *c, const struct op *op,
				uint64_t deadline_ns);
/* With which those and it then run. */
uint32_t op_run_joined_signature(uint32_t signature);
/* OP as COLL says, but for what comes after.  After BERTH_MISMATCH its input is as it
 * was.  WHY: where it is more than the result. */
berth_result op_run_perform(struct comm *c, const struct op *op, struct coll *coll,
			    uint64_t deadline_ns, struct failure *why);
/* After comm_explain(), of a rank that called for OP: who called for what. */
void op_run_say_sides(struct comm *c, const struct op *op, const char **said,
		      struct failure *why);
/* The operation in flight came to RC after it had been asleep (c->begun_ns): note when,
 * count that, and forget it. */
void op_run_slept(struct comm *c, berth_result rc);
/* Ends the operation, whether the rank was asleep or not. */
static inline void op_run_end(struct comm *c, berth_result rc)
{
	if (!rc || rc == BERTH_MISMATCH)
		atomic_store_explicit(&c->done, c->seq, memory_order_relaxed);
	if (c->begun_ns)
		op_run_slept(c, rc);
	else
		trace_end(c->record, rc);
}
/* As the timeline calls it. */
const char *op_run_event(berth_kind kind);
#endif
