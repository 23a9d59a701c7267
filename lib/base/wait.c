#include "lib/base/wait.h"
#include "lib/base/done.h"
#include "lib/base/fiber.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum {
	SPIN_NS = 100000, /* longer than a hand-over through a busy TCP stack, shorter
			     than the time for which anybody minds a core */
	LOOKS = 64,       /* between two reads of the clock */
	MISSED_NS = 50000 /* of the first sleep: see post() */
};

static _Atomic uint64_t each_ns = WAIT_SLICE_MS * 1000000ull;

void wait_look_often(bool often)
{
	atomic_store(&each_ns, (often ? WAIT_OFTEN_MS : WAIT_SLICE_MS) * 1000000ull);
}

uint64_t wait_look_ns(void)
{
	return atomic_load_explicit(&each_ns, memory_order_relaxed);
}

/* Spinning is limited by time, too.  One pause takes 5 ns on some processors, 50 on
 * others. */
void wait_tune(struct wait *w, unsigned ranks, unsigned cores)
{
	w->oversubscribed = ranks > cores;
	w->spins = w->oversubscribed ? 8 : 200;
	w->spin_ns = w->oversubscribed ? 0 : SPIN_NS;
	w->yields = w->oversubscribed ? 2000 : 200;
}

berth_result wait_ends(const struct wait *w)
{
	const uint64_t broken = w->broken ? atomic_load(w->broken) : 0;
	const uint32_t why = (uint32_t)broken, done = (uint32_t)(broken >> 32);

	if (!broken || done_is_more(done, done_count(w->done)))
		return BERTH_OK;
	return why >= BERTH_PEER_LOST && why <= BERTH_SYSTEM ? (berth_result)why
							     : BERTH_PEER_LOST;
}

bool wait_yield(uint64_t begun_ns)
{
	/* So many waits to come do not yield.  Threads may lose each other's
	 * counts. */
	static _Atomic unsigned crowded;
	const unsigned left = atomic_load_explicit(&crowded, memory_order_relaxed);
	uint64_t ns;

	if (left) {
		atomic_store_explicit(&crowded, left - 1, memory_order_relaxed);
		return false;
	}
	sched_yield();
	ns = clock_ns() - begun_ns;
	if (ns > WAIT_CROWDED_NS)
		atomic_store_explicit(&crowded, WAIT_CROWDED, memory_order_relaxed);
	return ns < WAIT_YIELD_NS;
}

static bool wait_here(struct post *p, uint32_t want)
{
	return wait_reached(atomic_load_explicit(&p->value, memory_order_acquire),
			    want);
}

/* The low half of P's value, which the kernel looks at. */
static uint32_t *wait_low(struct post *p)
{
	return (uint32_t *)&p->value;
}

static void sleep_on(struct post *p, uint32_t want, uint64_t ns)
{
	const struct timespec slice = { 0, (long)ns };
	uint64_t seen = atomic_load(&p->value);

	if (!wait_reached(seen, want))
		syscall(SYS_futex, wait_low(p), FUTEX_WAIT, (uint32_t)seen, &slice,
			NULL, 0);
}

void post_wake(struct post *p, const struct bells *bells)
{
	const uint32_t sleepers = atomic_load(&p->sleepers);

	if (sleepers % POST_BELL)
		syscall(SYS_futex, wait_low(p), FUTEX_WAKE, 1 << 30, NULL, NULL, 0);
	if (sleepers < POST_BELL || !bells)
		return;
	/* the post comes before the look at who sleeps, as the sleepers' marks come
	 * before their last look at the post */
	atomic_thread_fence(memory_order_seq_cst);
	bells_ring(bells);
}

/* P's sleepers count this rank while this runs. */
static berth_result sleep_till(struct wait *w, struct post *p, uint32_t want)
{
	uint64_t slice_ns = MISSED_NS;

	for (; !wait_here(p, want); slice_ns = wait_look_ns()) {
		const berth_result why = wait_ends(w);
		const uint64_t now = w->deadline_ns ? clock_ns() : 0;

		if (why)
			return why;
		if (w->deadline_ns && now >= w->deadline_ns)
			return BERTH_TIMEOUT;
		if (w->deadline_ns && w->deadline_ns - now < slice_ns)
			slice_ns = w->deadline_ns - now;
		if (w->idle)
			w->idle(w->ctx);
		w->slept++;
		sleep_on(p, want, slice_ns);
	}
	return BERTH_OK;
}

/* In a fiber.  The thread that resumes it spins, yields and sleeps for all. */
static berth_result wait_in_fiber(struct wait *w, struct post *p, uint32_t want)
{
	struct fiber_wait f = { .post = p, .want = want };
	uint64_t now = clock_ns(), look_ns = now + SPIN_NS;

	while (!wait_here(p, want)) {
		const berth_result why = wait_ends(w);

		if (why)
			return why;
		if (w->deadline_ns && now >= w->deadline_ns)
			return BERTH_TIMEOUT;
		if (now >= look_ns) {
			if (w->idle)
				w->idle(w->ctx);
			look_ns = now + wait_look_ns();
		}
		f.until_ns = w->deadline_ns && w->deadline_ns < look_ns ? w->deadline_ns
									: look_ns;
		fiber_wait(&f);
		now = clock_ns();
	}
	return BERTH_OK;
}

static bool wait_spin(struct post *p, uint32_t want, uint64_t ns)
{
	for (uint64_t until = clock_ns() + ns; clock_ns() < until;)
		for (unsigned i = 0; i < LOOKS; i++) {
			if (wait_here(p, want))
				return true;
			wait_pause();
		}
	return false;
}

berth_result wait_long(struct wait *w, struct post *p, uint32_t want)
{
	uint64_t begun_ns;
	berth_result rc;

	if (fiber_runs())
		return wait_in_fiber(w, p, want);
	if (w->spin_ns && wait_spin(p, want, w->spin_ns))
		return BERTH_OK;
	begun_ns = clock_ns();
	for (unsigned i = 0; i < w->yields; i++) {
		if (wait_here(p, want))
			return BERTH_OK;
		if (!wait_yield(begun_ns))
			break;
	}
	atomic_fetch_add(&p->sleepers, 1);
	rc = sleep_till(w, p, want);
	atomic_fetch_sub(&p->sleepers, 1);
	return rc;
}
