/* gather.h - what the tasks of one step on this host tell each other before they begin,
 * in memory that they share with nobody else.
 *
 * Slurm's masks are known in the tasks alone, and so are the GPUs that it gives each.
 * Each task writes down its own and arrives.  The last one to arrive learns from
 * berth-agent what all of them get, and the others wait for that.  All come to the same
 * end: the first that is decided. */
#ifndef BERTH_SLURM_GATHER_H
#define BERTH_SLURM_GATHER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "contrib/slurm/answer.h"

enum { GATHER_LIST_BYTES = 256 };

/* How it ends. */
enum gather_end {
	GATHER_OPEN, /* not yet */
	GATHER_TEXT, /* text is an answer */
	GATHER_NONE  /* there is none */
};

struct gather_task {
	uint64_t cpus[ANSWER_CPUS / 64];
	char gpus[GATHER_LIST_BYTES]; /* numbers with commas between them, or "" */
};

struct gather {
	uint32_t tasks, arrived, end;
	char text[ANSWER_BYTES];
	struct gather_task task[]; /* by local number */
};

/* For TASKS tasks that are forked later.  NULL: no memory. */
struct gather *gather_new(uint32_t tasks);
/* This task has written its own.  True: it is the last, and calls gather_decide(). */
bool gather_arrive(struct gather *g);
/* The end is END, if there was none before.  True if there was none. */
bool gather_decide(struct gather *g, enum gather_end end);
/* Wait until there is an end, MS at most. */
enum gather_end gather_wait(struct gather *g, int ms);

#endif
