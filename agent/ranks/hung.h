/* hung.h - ranks that may hang: what they have done so far, and their end.
 *
 * The launcher compares what a rank has done with what it said of it before (wire.def:
 * `looked`).  A rank counts with all processes below it: one that waits for a program
 * that it started works as long as that does.
 *
 * A rank that hangs gets ABRT, so that Python and others print where it is, then CONT;
 * KILL follows after 2 s.  If it is stopped or in the kernel, KILL comes at once.  It
 * leaves no core: the memory of a trainer would take minutes to write. */
#ifndef BERTH_AGENT_RANKS_HUNG_H
#define BERTH_AGENT_RANKS_HUNG_H

#include "agent/ranks/rank.h"

/* The use of one rank, as the kernel counts it. */
struct hung_use {
	char state; /* of its main process; of a shell: of the first one below it, */
	pid_t pid;  /* which is this one */
	uint64_t cpu_ms, bytes;
	uint64_t late_ms; /* as late.h says: from look to look, never less */
};

/* The use of each local rank into USE[r->n]; state 0: it does not run. */
void hung_look(struct ranks *r, struct hung_use *use);

/* Rank RANK hangs, in life LIFE: end it, and say in which state it was.  Nothing is
 * done if that life is over. */
void hung_end(struct ranks *r, uint32_t rank, uint32_t life);

#endif
