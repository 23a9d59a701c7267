/* dump.h - where each rank of this host is now: state, place in the kernel, stack of
 * its Python (`dump`, `dumped` of wire.def).
 *
 * The process is that of hung.h: of a shell, the one below it.  A rank has 0.5 s for
 * its stack.  If it cannot be asked, a tool looks for it (stack_tool.h), for 1 s, and 8
 * of them at a time: that time is for all of this host. */
#ifndef BERTH_AGENT_RANKS_DUMP_H
#define BERTH_AGENT_RANKS_DUMP_H

#include "agent/ranks/rank.h"

/* Say it of each rank that runs, as soon as it is known. */
void dump_begin(struct ranks *r);

#endif
