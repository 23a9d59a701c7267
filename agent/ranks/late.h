/* late.h - the time in which a rank could run and had no CPU.
 *
 * The kernel counts it for each thread, in the second number of
 * /proc/PID/task/TID/schedstat; without that file it is 0.  What is said of a rank is
 * the wait of the thread that waited longest since the last look, less what the rank's
 * other threads used on the same CPUs meanwhile: for these it waits on a quiet machine,
 * too.
 *
 * A host has time that its ranks do not get at all: that which the machine below it
 * takes (stolen time), and that in which the agent itself waits for a CPU, as ranks
 * wait for the agent. */
#ifndef BERTH_AGENT_RANKS_LATE_H
#define BERTH_AGENT_RANKS_LATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct late_thread {
	pid_t id;
	uint64_t used_ns, waited_ns; /* since it began */
};

struct late_threads {
	struct late_thread *v;
	size_t n, cap;
};

struct late_rank {
	uint32_t cpus;    /* on which it may run */
	uint64_t used_ns; /* since the last look, by all threads */
	uint64_t most_ns; /* the most that one of them waited, and used of its CPUs */
	uint64_t late_ns; /* in all looks */
};

struct late {
	struct late_rank *rank; /* rank[n], by local rank */
	size_t n;
	struct late_threads was, now; /* at the last look, in the order of their ids */
	uint64_t at_ns;               /* of the last look; 0: none */
	uint64_t stolen_ns, own_ns;   /* then */
	uint64_t begun_ns;            /* CPU time of this thread as this look began */
	uint64_t due_ns;              /* the next one */
};

/* Is it time for a look?  They take a fiftieth of a CPU at most, however many threads
 * there are. */
bool late_is_due(const struct late *l);

/* Each look makes these calls, in this order.  N ranks. */
void late_begin(struct late *l, size_t n);
/* The main process of LOCAL is PID: how many CPUs may it use? */
void late_cpus(struct late *l, size_t local, pid_t pid);
/* Each process of LOCAL. */
void late_process(struct late *l, size_t local, pid_t pid);
void late_end(struct late *l);

/* Thread T of LOCAL; and the host: the time stolen from a CPU, and that which this
 * thread waited, until AT_NS. */
void late_thread(struct late *l, size_t local, const struct late_thread *t);
void late_host(struct late *l, uint64_t stolen_ns, uint64_t own_ns, uint64_t at_ns);

void late_free(struct late *l); /* takes {0} */

#endif
