#include "contrib/slurm/gather.h"

#include <limits.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

struct gather *gather_new(uint32_t tasks)
{
	const size_t size = sizeof(struct gather) + tasks * sizeof(struct gather_task);
	struct gather *g = mmap(NULL, size, PROT_READ | PROT_WRITE,
				MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (g == MAP_FAILED)
		return NULL;
	g->tasks = tasks;
	return g;
}

bool gather_arrive(struct gather *g)
{
	return __atomic_add_fetch(&g->arrived, 1, __ATOMIC_ACQ_REL) == g->tasks;
}

bool gather_decide(struct gather *g, enum gather_end end)
{
	uint32_t open = GATHER_OPEN;
	const bool first = __atomic_compare_exchange_n(
		&g->end, &open, end, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);

	if (first)
		syscall(SYS_futex, &g->end, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
	return first;
}

static long long gather_now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000LL + t.tv_nsec / 1000000;
}

enum gather_end gather_wait(struct gather *g, int ms)
{
	const long long until = gather_now_ms() + ms;

	for (;;) {
		const uint32_t end = __atomic_load_n(&g->end, __ATOMIC_ACQUIRE);
		const long long left = until - gather_now_ms();
		const struct timespec t = { left / 1000, left % 1000 * 1000000 };

		if (end != GATHER_OPEN || left <= 0)
			return (enum gather_end)end;
		syscall(SYS_futex, &g->end, FUTEX_WAIT, GATHER_OPEN, &t, NULL, 0);
	}
}
