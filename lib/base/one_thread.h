/* one_thread.h - tells whether this process has one thread.  Then it does not need
 * locked instructions (7 ns each). */
#ifndef BERTH_LIB_ONE_THREAD_H
#define BERTH_LIB_ONE_THREAD_H

#include <stdbool.h>

#if defined(__has_include)
#if __has_include(<sys/single_threaded.h>)
#include <sys/single_threaded.h>
#define ONE_THREAD_IS_KNOWN 1
#endif
#endif

/* False: there may be more threads. */
static inline bool one_thread(void)
{
#if ONE_THREAD_IS_KNOWN
	return __libc_single_threaded;
#else
	return false;
#endif
}

#endif
