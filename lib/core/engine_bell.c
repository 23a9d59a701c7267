/* engine_bell.c - who sleeps in an engine, and who wakes it. */
#include <stdlib.h>

#include "lib/core/engine_internal.h"

void engine_ring(struct engine *e)
{
	atomic_fetch_add(&e->bell, 1);
	if (atomic_load(&e->asleep))
		sleep_wake(&e->bell);
	if (!atomic_load(&e->rests))
		return;
	pthread_mutex_lock(&e->queue);
	if (e->rest)
		engine_wake_rest(e);
	pthread_mutex_unlock(&e->queue);
}

void engine_let_go(struct engine *e)
{
	if (atomic_fetch_sub(&e->users, 1) > 1)
		return;
	pthread_mutex_destroy(&e->work);
	pthread_mutex_destroy(&e->queue);
	free(e);
}

/* ---- of which process ---- */

static unsigned forks;

void engine_in_child(void)
{
	forks++;
}

unsigned engine_forks(void)
{
	return forks;
}

bool engine_has(const struct berth_request *r)
{
	return r->engine->forks == forks;
}
