/* guard.h - the agent is two processes, so that kill -9 of either leaves no process of
 * a rank.
 *
 * The transport starts the guardian.  It opens a session of its own (^C in a terminal
 * does not reach it), becomes a subreaper, forks the agent and holds only the write end
 * of one pipe.  The agent holds the read end and is a subreaper, too.  If the agent
 * dies, every orphan becomes a child of the guardian, which kills its children until
 * none is left, and exits with the agent's status.  If the guardian dies, the pipe is
 * at its end, and the agent does the same.  Parent death signals are not enough: they
 * reach direct children only.  Whatever is left removes the job's cgroup, too, and the
 * folders of its PMIx server. */
#ifndef BERTH_AGENT_RANKS_GUARD_H
#define BERTH_AGENT_RANKS_GUARD_H

#include "agent/pmi/pmix_folder.h"
#include "agent/ranks/cgroup.h"
#include "common/err.h"

/* The things that the agent or its guardian removes, in memory of both; NULL if there
 * is no such memory. */
struct guarded {
	struct cgroup *cgroup;        /* of the job */
	struct pmix_folders *folders; /* of its PMIx server */
};

/* Become guardian and agent.  Returns in the agent, with a descriptor that is readable
 * (at its end) once the guardian is dead; -1 with E.  The guardian exits inside.
 * Closes all descriptors above 2.  Sets all signals to their defaults, except INT, HUP,
 * QUIT, USR1, USR2 and PIPE: both processes ignore these, since a job lives as long as
 * its stream.  The guardian forwards TERM to the agent.  Fills in G. */
int guard_split(struct guarded *g, struct err *e);

/* Kill everything below this process and in G's cgroup, and reap it; the cgroup and the
 * folders go.  Gives up once no process has died for PATIENCE_MS. */
void guard_kill_all(struct guarded *g, unsigned patience_ms);

#endif
