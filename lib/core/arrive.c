#include "lib/core/arrive.h"

#include <sched.h>

#include "lib/base/clock.h"
#include "lib/base/wait.h"

enum { SPINS = 64 /* before it yields */ };

/* Have all reached MINE?  If one is further, so is this rank from now on: it was not
 * counted in an operation that it had submitted. */
static bool all_have(struct arrival *all, unsigned n, unsigned me, uint32_t *mine)
{
	bool reached = true;

	for (unsigned i = 0; i < n; i++) {
		uint32_t calls =
			atomic_load_explicit(&all[i].calls, memory_order_acquire);

		if (i == me || calls == *mine)
			continue;
		reached = false;
		if (wait_reached(calls, *mine)) {
			*mine = calls;
			atomic_store_explicit(&all[me].calls, calls,
					      memory_order_release);
		}
	}
	return reached;
}

bool arrive(struct arrival *all, unsigned n, unsigned me, uint64_t patience_ns)
{
	uint32_t mine = atomic_load_explicit(&all[me].calls, memory_order_relaxed) + 1;
	uint64_t until = 0;

	atomic_store_explicit(&all[me].calls, mine, memory_order_release);
	for (unsigned spins = 0;; spins++) {
		if (all_have(all, n, me, &mine))
			return true;
		if (spins < SPINS) {
			wait_pause();
			continue;
		}
		if (!until)
			until = clock_ns() + patience_ns;
		else if (clock_ns() >= until)
			return false;
		sched_yield();
	}
}
