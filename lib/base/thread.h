/* thread.h - threads of the library's own. */
#ifndef BERTH_LIB_THREAD_H
#define BERTH_LIB_THREAD_H

#include <pthread.h>
#include <stdbool.h>

/* Starts a thread that runs RUN(CTX), called NAME (at most 15 characters).  The
 * caller's signals do not go to it.  False: it does not run. */
bool thread_start(pthread_t *thread, const char *name, void *(*run)(void *ctx),
		  void *ctx);

#endif
