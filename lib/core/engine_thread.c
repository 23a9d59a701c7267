#include "lib/base/thread.h"
#include "lib/core/engine_internal.h"

enum {
	DOZE_NS = 10000000,    /* of the thread, to the next one while there is work */
	HEAR_NS = 50000000,    /* between two looks whether another host has aborted */
	RETIRE_NS = 2000000000 /* without work, until the thread ends */
};

static void listen(struct engine *e, uint32_t heard, uint64_t ns)
{
	atomic_fetch_add(&e->asleep, 1);
	if (atomic_load(&e->bell) == heard)
		sleep_on(&e->bell, heard, ns);
	atomic_fetch_sub(&e->asleep, 1);
}

/* An operation that the plan expects does not wake the thread, so the thread looks by
 * itself while there is work.  Without work it sleeps until it is
 * woken. */
static uint64_t doze(struct engine *e, uint64_t *seen)
{
	uint64_t ns = 0;

	atomic_store(&e->dozes, true);
	pthread_mutex_lock(&e->queue);
	if (e->entered != *seen || e->schedule.pending) {
		*seen = e->entered;
		ns = DOZE_NS;
		atomic_store(&e->dozes, false);
	}
	pthread_mutex_unlock(&e->queue);
	return ns;
}

/* While nothing runs, no wait of the comm's does it. */
static void hear(struct engine *e, uint64_t *heard_ns)
{
	struct comm *c = e->comm;
	uint64_t now = clock_coarse_ns();

	if (!c->hear || now - *heard_ns < HEAR_NS || c->broken)
		return;
	*heard_ns = now;
	c->hear(c->hear_ctx);
	if (atomic_load(&c->aborts))
		engine_end_aborted(e);
}

/* Without work since it HEARD the bell: the thread ends, and so does the rest, which
 * has a descriptor.  The next request starts another one. */
static bool retire(struct engine *e, uint32_t heard, uint64_t seen)
{
	bool idle;

	if (atomic_load(&e->bell) != heard)
		return false;
	pthread_mutex_lock(&e->work);
	pthread_mutex_lock(&e->queue);
	idle = !e->schedule.pending && !e->schedule.joined && e->entered == seen &&
	       atomic_load(&e->bell) == heard;
	if (idle) {
		engine_rest_free(e->rest);
		e->rest = NULL;
		e->retired = true;
	}
	pthread_mutex_unlock(&e->queue);
	pthread_mutex_unlock(&e->work);
	return idle;
}

static void *serve(void *arg)
{
	struct engine *e = arg;
	uint64_t seen = 0, heard_ns = 0;

	while (!atomic_load(&e->comm->aborted)) {
		uint32_t heard = atomic_load(&e->bell);
		enum engine_step step;
		bool is_over;
		uint64_t ns;

		pthread_mutex_lock(&e->work);
		do
			step = engine_step(e, &ns);
		while (step == ENGINE_DID && !atomic_load(&e->comm->aborted));
		hear(e, &heard_ns);
		/* only then, since the bell of a rest takes a system call more: over
		 * TCP a step of 64 gradients took twice as long */
		if (step == ENGINE_SOON && e->is_idle && e->rest) {
			engine_rest(e, heard, ns);
			continue;
		}
		pthread_mutex_unlock(&e->work);
		if (step == ENGINE_IDLE)
			ns = doze(e, &seen);
		is_over = step == ENGINE_IDLE && !ns;
		if (!atomic_load(&e->comm->aborted))
			listen(e, heard, is_over ? RETIRE_NS : ns);
		if (is_over && retire(e, heard, seen))
			break;
	}
	return NULL;
}

bool engine_start_held(struct engine *e)
{
	if (e->retired) { /* it holds no lock any more */
		pthread_join(e->thread, NULL);
		e->started = e->retired = false;
	}
	if (!e->started && !e->rest)
		e->rest = engine_rest_make(e->comm);
	if (!e->started && engine_make_lists(e))
		e->started = thread_start(&e->thread, "berth", serve, e);
	return e->started;
}

bool engine_start(struct engine *e)
{
	bool started;

	pthread_mutex_lock(&e->queue);
	started = engine_start_held(e);
	pthread_mutex_unlock(&e->queue);
	return started;
}
