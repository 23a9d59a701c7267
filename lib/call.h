/* call.h - an operation, from checked to done: what channel_run() shares with join.c
 * and engine.c. */
#ifndef BERTH_LIB_CALL_H
#define BERTH_LIB_CALL_H

#include "lib/channel.h"

/* What a rank that has joined says when others call for something. */
#define CALL_JOINED "J\n"

bool call_has_joined(const char *said);

/* Of a rank without data, after channel_explain(): take part in what the others call
 * for, if they agree. */
berth_result call_take_part(struct channel *c, const char **said, uint64_t deadline_ns);
/* In the other ranks: the same. */
berth_result call_with_joined(struct channel *c, const struct coll *coll,
			      const char *record, const char **said,
			      uint64_t deadline_ns);
/* With which those and it then run. */
uint32_t call_joined_signature(uint32_t signature);
/* OP as COLL says, but for what comes after.  After BERTH_MISMATCH its input is as it
 * was.  WHY: where it is more than the result. */
berth_result call_perform(struct channel *c, const struct op *op, struct coll *coll,
			  uint64_t deadline_ns, struct failure *why);
/* After channel_explain(), of a rank that called for OP: who called for what. */
void call_say_sides(struct channel *c, const struct op *op, const char **said,
		    struct failure *why);
/* The operation in flight came to RC after it had been asleep (c->begun_ns): note when,
 * count that, and forget it. */
void call_slept(struct channel *c, berth_result rc);
/* The same, whether it was asleep or not. */
static inline void call_end(struct channel *c, berth_result rc)
{
	if (c->begun_ns)
		call_slept(c, rc);
	else
		trace_end(c->flight, rc);
}
/* As the timeline calls it. */
const char *call_event(enum berth_kind kind);
/* The average and postscale of OP, of N elements. */
void call_scale_output(const struct op *op, void *out, uint64_t n);

#endif
