/* progress.h - what the engine of a set does next, step by step: what schedule.h
 * decides.  A thread that waits for a request takes steps itself, unless another thread
 * does.  Else the thread of all sets does, in the set's turn (turns.h). */
#ifndef BERTH_LIB_PROGRESS_H
#define BERTH_LIB_PROGRESS_H

#include "lib/core/engine_internal.h"

/* One step of E.  WORK is held.  IDLE: nothing to do until the bell; SOON: nor for
 * *NS. */
enum progress progress_step(struct engine *e, uint64_t *ns);

/* Before the first collective is pending: the lists are there, and the set has turns.
 * False: there is no memory, or no thread. */
bool progress_start(struct engine *e);
/* As progress_start(), with QUEUE held: so it stays while a request is pending. */
bool progress_start_held(struct engine *e);

/* The hooks of an engine's turn. */
extern const struct turn_hooks progress_turns;

#endif
