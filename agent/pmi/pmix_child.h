/* pmix_child.h - the PMIx server of a host: a process of its own, which loads
 * libpmix.so.2, so that no crash and no hang of that library reaches the agent.
 *
 * The agent, its host in the words of PMIx, starts it for an epoch and talks with it
 * over one socket (wire.def, messages from 64 on).  libpmix runs two threads of its
 * own.  What they are asked for by ranks becomes a message to the host (pmix_upcall.c);
 * the main thread reads the host's messages and calls libpmix (pmix_child.c; the job's
 * data: pmix_job.c).  libpmix is never asked to finalize, since that may hang: the host
 * kills the process.  If the host is gone, it removes its folders and exits; if it
 * can't, it dies two seconds after the guardian, whose child it is. */
#ifndef BERTH_AGENT_PMI_PMIX_CHILD_H
#define BERTH_AGENT_PMI_PMIX_CHILD_H

/* Serve the host at descriptor FD until it is gone.  The exit status. */
int pmix_child_main(int fd);

#endif
