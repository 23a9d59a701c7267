/* callback.h - tells whether this thread is in a function of the caller's that the
 * library has called.  A function that waits may not be called there. */
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
