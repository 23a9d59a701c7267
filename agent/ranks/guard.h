/* guard.h - the agent is two processes, so that kill -9 of either leaves no process of
 * a rank.
 *
 * The guardian is what the transport starts.  It opens a session of its own (^C in a
 * terminal does not reach it), is a subreaper, forks the agent and holds nothing but
 * the write end of one pipe; the agent reads the other end and is a subreaper too.  The
 * agent dies: every orphan comes to the guardian, which kills its children until there
 * is none and ends with the agent's status.  The guardian dies: the pipe is at its end
 * and the agent does the same.  Death signals alone would not do: they reach direct
 * children only. */
#ifndef BERTH_AGENT_RANKS_GUARD_H
#define BERTH_AGENT_RANKS_GUARD_H

#include "common/err.h"

/* Become guardian and agent.  Returns in the agent, with a descriptor that is readable
 * (at its end) once the guardian is dead; -1 with E.  The guardian ends inside.  Closes
 * all descriptors above 2 and puts all signals back to their defaults, INT, HUP, QUIT,
 * USR1, USR2 and PIPE excepted: both ignore these, since a job lives as long as its
 * stream.  TERM to the guardian goes on to the agent. */
int guard_split(struct err *e);

/* Kill everything below this process and reap it, for PATIENCE_MS at most once nothing
 * more gives in to KILL. */
void guard_kill_all(unsigned patience_ms);

#endif
