/* engine_bell.c - who sleeps in an engine, and who wakes it. */
#include <limits.h>
#include <linux/futex.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "lib/core/engine_internal.h"

void engine_sleep(_Atomic uint32_t *word, uint32_t value, uint64_t ns)
{
	struct timespec t = { (time_t)(ns / 1000000000), (long)(ns % 1000000000) };

	syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, ns ? &t : NULL, NULL, 0);
}

void engine_wake(_Atomic uint32_t *word)
{
	syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

void engine_ring(struct engine *e)
{
	atomic_fetch_add(&e->bell, 1);
	if (atomic_load(&e->asleep))
		engine_wake(&e->bell);
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
