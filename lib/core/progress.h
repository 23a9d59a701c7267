/* progress.h - what a set does next, step by step: what schedule.h
 * decides.  A thread that waits for a request takes steps itself, unless another thread
 * does.  Else the thread of all sets does, in the set's turn (turns.h). */
#ifndef BERTH_LIB_PROGRESS_H
#define BERTH_LIB_PROGRESS_H

#include "lib/core/set.h"

/* One step of S.  WORK is held.  IDLE: nothing to do until the bell; SOON: nor for
 * *NS. */
enum progress progress_step(struct berth_set *s, uint64_t *ns);

/* Before the first collective is pending: the lists are there, and the set has turns.
 * False: there is no memory, or no thread. */
bool progress_start(struct berth_set *s);
/* As progress_start(), with QUEUE held: so it stays while a request is pending. */
bool progress_start_held(struct berth_set *s);

/* The hooks of a set's turn. */
extern const struct turn_hooks progress_turns;

#endif
