/* engine_round.h - what the files of a round (plan.h) share: engine_turn.c (a step that
 * all ranks do), engine_round.c (what ranks have told each other), engine_differ.c
 * (different operations) and engine_joined.c (ranks without data). */
#ifndef BERTH_LIB_ENGINE_ROUND_H
#define BERTH_LIB_ENGINE_ROUND_H

#include "lib/core/engine_tell.h"

/* A step begins, for who looks at this rank meanwhile: the first of N in e->list stands
 * for all. */
void engine_begin_turn(struct engine *e, size_t n);
/* It came to RC. */
void engine_end_turn(struct engine *e, berth_result rc);
/* A round did: if it is broken, all that is pending ends. */
enum engine_step engine_round_failed(struct engine *e, berth_result rc);

/* The set was aborted: what is in flight ends.  WORK is held. */
void engine_end_aborted(struct engine *e);

/* R, which ranks have called for in different ways, fails on all of them.  NULL: this
 * rank has joined without it. */
berth_result engine_tell_difference(struct engine *e, struct berth_request *r);
/* What a thread of each rank had blocked on, which are different operations, fails.  R:
 * of this rank. */
enum engine_step engine_all_have_blocked(struct engine *e, struct berth_request *r);

/* Some ranks have joined, and all others have R, which is done one operation after the
 * other: each is first told to those that have joined.  NULL: this rank has. */
berth_result engine_do_with_joined(struct engine *e, struct berth_request *r);
/* No rank has any more to do: they go on as if none had joined. */
enum engine_step engine_all_have_joined(struct engine *e);

/* A round, to which all ranks come. */
enum engine_step engine_round(struct engine *e);

#endif
