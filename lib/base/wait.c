#include "lib/base/wait.h"
#include "lib/base/clock.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

void wait_tune(struct wait *w, unsigned ranks, unsigned cores)
{
	/* 20,000 spins are some 100 us: longer than a hand-over through a busy TCP
	 * stack, shorter than the time for which anybody minds a core. */
	w->oversubscribed = ranks > cores;
	w->spins = ranks <= cores ? 20000 : 8;
	w->yields = ranks <= cores ? 200 : 2000;
}

static bool here(struct post *p, uint32_t want)
{
	return wait_reached(atomic_load_explicit(&p->value, memory_order_acquire),
			    want);
}

/* Its low half, which the kernel looks at. */
static uint32_t *low(struct post *p)
{
	return (uint32_t *)&p->value;
}

static void sleep_on(struct post *p, uint32_t want, long ms)
{
	const struct timespec slice = { 0, ms * 1000000L };
	uint64_t seen = atomic_load(&p->value);

	if (!wait_reached(seen, want))
		syscall(SYS_futex, low(p), FUTEX_WAIT, (uint32_t)seen, &slice, NULL, 0);
}

void post_wake(struct post *p)
{
	syscall(SYS_futex, low(p), FUTEX_WAKE, 1 << 30, NULL, NULL, 0);
}

/* P's sleepers count this one for as long as this takes.  The first slice is short:
 * see post(). */
static berth_result sleep_till(struct wait *w, struct post *p, uint32_t want)
{
	for (long ms = 1; !here(p, want); ms = WAIT_SLICE_MS) {
		uint32_t broken = w->broken ? atomic_load(w->broken) : 0;

		if (broken)
			return (berth_result)broken;
		if (w->deadline_ns && clock_ns() >= w->deadline_ns)
			return BERTH_TIMEOUT;
		if (w->idle)
			w->idle(w->ctx);
		w->slept++;
		sleep_on(p, want, ms);
	}
	return BERTH_OK;
}

berth_result wait_long(struct wait *w, struct post *p, uint32_t want)
{
	berth_result rc;

	for (unsigned i = 0; i < w->yields; i++) {
		if (here(p, want))
			return BERTH_OK;
		sched_yield();
	}
	atomic_fetch_add(&p->sleepers, 1);
	rc = sleep_till(w, p, want);
	atomic_fetch_sub(&p->sleepers, 1);
	return rc;
}
