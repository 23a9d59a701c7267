/* clock.h - CLOCK_MONOTONIC in ns. */
#ifndef BERTH_LIB_CLOCK_H
#define BERTH_LIB_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline uint64_t clock_read(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static inline uint64_t clock_ns(void)
{
	return clock_read(CLOCK_MONOTONIC);
}

/* clock_ns() at the kernel's last tick, 1 to 10 ms ago (4 ns instead of 18). */
static inline uint64_t clock_coarse_ns(void)
{
	return clock_read(CLOCK_MONOTONIC_COARSE);
}

/* The time in MS, which may be 0.  It is 0, which means never, if it lies behind the
 * end of the clock. */
static inline uint64_t clock_until(int64_t ms)
{
	uint64_t now = clock_ns();

	return (uint64_t)ms < (UINT64_MAX - now) / 1000000
		       ? now + (uint64_t)ms * 1000000
		       : 0;
}

#endif
