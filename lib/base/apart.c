#include "lib/base/apart.h"

#include <pthread.h>
#include <stdlib.h>

#include "lib/base/fiber.h"
#include "lib/base/sleep.h"
#include "lib/base/thread.h"

enum { SLOW_NS = 1000000, RETIRE_NS = 2000000000 };

struct apart_call {
	void (*f)(void *ctx);
	void *ctx;
	struct apart_call *next;
	_Atomic uint32_t is_taken, is_over;
};

struct apart_thread {
	pthread_t thread;
	struct apart_thread *next;
};

static struct {
	pthread_mutex_t lock; /* of all that follows */
	struct apart_call *first, **last;
	struct apart_thread *running, *retired;
	unsigned idle;          /* threads without a call */
	_Atomic uint32_t calls; /* how many have ever come; threads sleep on it */
	bool ends;
} apart = { .lock = PTHREAD_MUTEX_INITIALIZER, .last = &apart.first };

/* The next call, or NULL.  The lock is held. */
static struct apart_call *apart_take(void)
{
	struct apart_call *c = apart.first;

	if (!c)
		return NULL;
	apart.first = c->next;
	if (!apart.first)
		apart.last = &apart.first;
	atomic_store(&c->is_taken, 1);
	return c;
}

/* The lock is held. */
static void apart_retire(struct apart_thread *t)
{
	struct apart_thread **at = &apart.running;

	while (*at != t)
		at = &(*at)->next;
	*at = t->next;
	t->next = apart.retired;
	apart.retired = t;
}

static void *apart_serve(void *thread)
{
	bool slept = false;

	pthread_mutex_lock(&apart.lock);
	for (;;) {
		const uint32_t seen = atomic_load(&apart.calls);
		struct apart_call *c = apart_take();

		if (!c && (slept || apart.ends))
			break;
		apart.idle += !c;
		pthread_mutex_unlock(&apart.lock);
		if (c) {
			c->f(c->ctx);
			/* C is gone as soon as its fiber sees this */
			atomic_store(&c->is_over, 1);
			fiber_wake(&c->is_over);
		} else {
			sleep_on(&apart.calls, seen, RETIRE_NS);
		}
		pthread_mutex_lock(&apart.lock);
		apart.idle -= !c;
		slept = !c && atomic_load(&apart.calls) == seen;
	}
	if (!apart.ends) /* else apart_end() has it */
		apart_retire(thread);
	pthread_mutex_unlock(&apart.lock);
	return NULL;
}

/* The lock is held. */
static void apart_join_retired(void)
{
	while (apart.retired) {
		struct apart_thread *t = apart.retired;

		apart.retired = t->next;
		pthread_join(t->thread, NULL); /* it needs the lock no more */
		free(t);
	}
}

/* One more thread.  The lock is held. */
static void apart_start(void)
{
	struct apart_thread *t = malloc(sizeof *t);

	apart_join_retired();
	if (!t)
		return;
	t->next = apart.running;
	apart.running = t;
	if (thread_start(&t->thread, "berth call", apart_serve, t))
		return;
	apart.running = t->next;
	free(t);
}

/* C has waited.  TRUE: there is no thread for it. */
static bool apart_is_stuck(struct apart_call *c)
{
	bool stuck;

	pthread_mutex_lock(&apart.lock);
	if (!c->is_taken && !apart.idle)
		apart_start();
	stuck = !c->is_taken && !apart.running;
	if (stuck) { /* it is the only one, since each call waits for its end */
		struct apart_call **at = &apart.first;

		while (*at != c)
			at = &(*at)->next;
		*at = c->next;
		if (!*at)
			apart.last = at;
	}
	pthread_mutex_unlock(&apart.lock);
	return stuck;
}

void apart_call(void (*f)(void *ctx), void *ctx)
{
	struct apart_call c = { .f = f, .ctx = ctx };

	if (!fiber_runs()) {
		f(ctx);
		return;
	}
	pthread_mutex_lock(&apart.lock);
	*apart.last = &c;
	apart.last = &c.next;
	atomic_fetch_add(&apart.calls, 1);
	if (!apart.running)
		apart_start();
	pthread_mutex_unlock(&apart.lock);
	sleep_wake(&apart.calls);
	while (!atomic_load(&c.is_over)) {
		fiber_sleep_on(&c.is_over, 0, atomic_load(&c.is_taken) ? 0 : SLOW_NS);
		if (!atomic_load(&c.is_taken) && apart_is_stuck(&c)) {
			f(ctx);
			return;
		}
	}
}

void apart_end(void)
{
	struct apart_thread *t;

	pthread_mutex_lock(&apart.lock);
	apart.ends = true;
	t = apart.running;
	apart.running = NULL;
	apart_join_retired();
	atomic_fetch_add(&apart.calls, 1);
	pthread_mutex_unlock(&apart.lock);
	sleep_wake(&apart.calls);
	while (t) {
		struct apart_thread *next = t->next;

		pthread_join(t->thread, NULL);
		free(t);
		t = next;
	}
	apart.ends = false;
}

void apart_in_child(void)
{
	pthread_mutex_init(&apart.lock, NULL);
	apart.first = NULL;
	apart.last = &apart.first;
	apart.running = apart.retired = NULL;
	apart.idle = 0;
}
