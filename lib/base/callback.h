/* callback.h - whether this thread is in a function of the caller's, which the library
 * has called: what waits may not be called there. */
#ifndef BERTH_LIB_CALLBACK_H
#define BERTH_LIB_CALLBACK_H

#include <stdbool.h>

extern _Thread_local unsigned callback_depth;

static inline void callback_begin(void)
{
	callback_depth++;
}

static inline void callback_end(void)
{
	callback_depth--;
}

static inline bool callback_runs(void)
{
	return callback_depth;
}

#endif
