#include "lib/core/totals.h"

#include <unistd.h>

#include "lib/base/clock.h"

_Atomic uint64_t totals_asleep_ns;

/* A training step reduces its largest gradient, or its largest bucket, once.  Names
 * tell two of one size apart. */
void totals_step(struct boot_rank *me, uint64_t bytes, const char *name)
{
	const uint64_t most = (UINT64_C(1) << 48) - 1;
	const uint64_t step = atomic_load(&me->step), number = atomic_load(&me->number);
	uint32_t h = 2166136261u;
	uint64_t key;

	for (const char *s = name ? name : ""; *s; s++)
		h = (h ^ (unsigned char)*s) * 16777619u;
	key = (bytes < most ? bytes : most) << 16 | ((h ^ h >> 16) & 0xffff);
	if (key == step)
		totals_count(&me->steps, 1);
	else if (key >> 16 <= step >> 16 &&
		 number - atomic_load(&me->step_number) <= TOTALS_LOST)
		return;
	atomic_store(&me->step, key);
	atomic_store(&me->step_number, number);
}

void totals_tell(struct boot_rank *me)
{
	const uint64_t asleep_ns = atomic_exchange(&totals_asleep_ns, 0);

	if (atomic_load(&me->first_ns))
		totals_count(&me->blocked_ns, asleep_ns);
	else
		atomic_store(&me->first_ns, clock_coarse_ns());
}

void totals_blocked(uint64_t ns)
{
	if (getpid() == gettid())
		atomic_fetch_add(&totals_asleep_ns, ns);
}
