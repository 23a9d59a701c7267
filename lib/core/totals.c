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

void totals_large(struct boot_rank *me, unsigned kind, uint64_t bytes, unsigned n,
		  uint64_t ns)
{
	const bool whole = kind == BERTH_REDUCE || kind == BERTH_BROADCAST;
	const unsigned times = kind == BERTH_ALLREDUCE ? 2 : 1;
	struct boot_large *large;
	unsigned k;

	if (kind - 1 >= BOOT_LARGE_KINDS)
		return;
	if (kind == BERTH_ALLGATHER)
		bytes *= n;
	k = 63 - (unsigned)__builtin_clzll(bytes) - BOOT_LARGE_FIRST;
	large = &me->large[kind - 1][k < BOOT_LARGE_SIZES ? k : BOOT_LARGE_SIZES - 1];
	totals_count(&large->ops, 1);
	totals_count(&large->bytes, bytes);
	/* the factors of NCCL's tests for the bandwidth of a bus */
	totals_count(&large->bus_bytes, whole ? bytes : bytes / n * (n - 1) * times);
	totals_count(&large->ns, ns);
}
