/* callback.h - tells whether this thread is in a function of the caller's that the
 * library has called.  A function that waits may not be called there.
 *
 * Such a function may take long.  A thread of the library that does something for all
 * sets asks to be told when it is in one (callback_tell()). */
#ifndef BERTH_LIB_CALLBACK_H
#define BERTH_LIB_CALLBACK_H

#include <stdbool.h>

extern _Thread_local unsigned callback_depth;
extern _Thread_local struct callback_told {
	void (*is_in)(void *ctx, bool is_in);
	void *ctx;
} callback_told;

/* From here on IS_IN is called in this thread, before and after such a function. */
static inline void callback_tell(void (*is_in)(void *ctx, bool is_in), void *ctx)
{
	callback_told = (struct callback_told){ is_in, ctx };
}

static inline void callback_begin(void)
{
	if (!callback_depth++ && callback_told.is_in)
		callback_told.is_in(callback_told.ctx, true);
}

static inline void callback_end(void)
{
	if (!--callback_depth && callback_told.is_in)
		callback_told.is_in(callback_told.ctx, false);
}

static inline bool callback_runs(void)
{
	return callback_depth;
}

#endif
