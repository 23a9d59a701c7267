#include "lib/base/thread.h"

#include <signal.h>

bool thread_start(pthread_t *thread, const char *name, void *(*run)(void *ctx),
		  void *ctx)
{
	sigset_t all, before;
	int rc;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	rc = pthread_create(thread, NULL, run, ctx);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (!rc)
		pthread_setname_np(*thread, name);
	return !rc;
}
