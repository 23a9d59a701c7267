#include "lib/core/arrive.h"

#include <sched.h>

#include "lib/base/clock.h"
#include "lib/base/wait.h"

enum { SPINS = 64 /* before it yields */ };

enum arrived { ALL_HERE, SOME_LATE, OTHER_NAME };

/* Have all reached MINE?  If one is further, so is this rank from now on: it was not
 * counted in an operation that it had submitted. */
static enum arrived arrive_look(struct arrival *all, unsigned n, unsigned me,
				uint64_t *mine)
{
	enum arrived found = ALL_HERE;

	for (unsigned i = 0; i < n; i++) {
		uint64_t word =
			atomic_load_explicit(&all[i].word, memory_order_acquire);

		if (i == me || word == *mine)
			continue;
		if ((uint32_t)word == (uint32_t)*mine)
			return OTHER_NAME;
		found = SOME_LATE;
		if (wait_reached(word, (uint32_t)*mine)) {
			*mine = *mine >> 32 << 32 | (uint32_t)word;
			atomic_store_explicit(&all[me].word, *mine,
					      memory_order_release);
		}
	}
	return found;
}

bool arrive(struct arrival *all, unsigned n, unsigned me, uint32_t name,
	    uint64_t patience_ns)
{
	const uint64_t last = atomic_load_explicit(&all[me].word, memory_order_relaxed);
	uint64_t mine = (uint64_t)name << 32 | ((uint32_t)last + 1), until = 0;

	atomic_store_explicit(&all[me].word, mine, memory_order_release);
	for (unsigned spins = 0;; spins++) {
		const enum arrived found = arrive_look(all, n, me, &mine);

		if (found != SOME_LATE)
			return found == ALL_HERE;
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
