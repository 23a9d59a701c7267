#include "agent/ranks/turns.h"

#include <linux/sched.h>
#include <linux/sched/types.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

void turns_short(void)
{
	enum { TURN_NS = 100000 }; /* the least there is; 3 ms is usual */
	struct sched_attr a = { .size = sizeof a,
				.sched_policy = SCHED_NORMAL,
				.sched_flags = SCHED_FLAG_RESET_ON_FORK,
				.sched_nice = getpriority(PRIO_PROCESS, 0),
				.sched_runtime = TURN_NS };

	syscall(SYS_sched_setattr, 0, &a, 0);
}
