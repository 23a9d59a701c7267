/* progress.h - what the engine of a set does next, step by step: what schedule.h
 * decides.  A thread that waits for a request takes steps itself, unless another thread
 * does.  Else the engine's thread does. */
#ifndef BERTH_LIB_PROGRESS_H
#define BERTH_LIB_PROGRESS_H

#include "lib/core/engine_internal.h"

/* WORK is held.  IDLE: nothing to do until the bell; SOON: nor for *NS. */
enum progress progress_step(struct engine *e, uint64_t *ns);

/* Before the first collective is pending: the lists are there, and the thread runs.
 * False: there is no memory, or no thread. */
bool progress_start(struct engine *e);
/* As progress_start(), with QUEUE held: the thread stays while a request is pending. */
bool progress_start_held(struct engine *e);

#endif
