/* pmix_process.h - the process of a PMIx server (pmix_child.h): what it is told, how
 * far it is, its start and its end. */
#ifndef BERTH_AGENT_PMI_PMIX_PROCESS_H
#define BERTH_AGENT_PMI_PMIX_PROCESS_H

#include <sys/types.h>

#include "agent/pmi/pmix_folder.h"
#include "common/err.h"
#include "common/wire.h"

/* Facts, as texts, that a PMIx server cannot find out itself. */
struct server_pmix {
	/* to open */
	wire_strv libraries; /* libpmix, to be tried in this order */
	const char
		*topology; /* hwloc's XML; "": the server looks, and ranks share it */
	struct pmix_folders *folders; /* must stay */
	/* to start */
	wire_strv cpus; /* v[local rank] = OS indexes, "" if it is not bound */
	wire_strv commands, wdirs; /* of each app */
	bool oversubscribed;
};
enum server_pmix_state {
	SERVER_PMIX_NONE,
	SERVER_PMIX_OPENING,
	SERVER_PMIX_OPEN,
	SERVER_PMIX_STARTING,
	/* from here on, it is settled */
	SERVER_PMIX_READY,  /* ranks may start */
	SERVER_PMIX_FAILED, /* it cannot be opened or started */
	SERVER_PMIX_LOST    /* it has ended after it was ready */
};

struct pmix_process {
	pid_t pid; /* 0: none */
	int pidfd; /* -1: none; the kernel is older than 5.2 */
	int fd;    /* its socket */
};

/* Start this program again, with "--pmix", as a brother of this process: so the server
 * is not a child that could be taken for a rank, and a sweep of what ranks left does
 * not see it.  It has the socket, and no other descriptor of ours.  0, or -1 with E. */
int pmix_process_start(struct pmix_process *p, struct err *e);
/* Both take a P without a process.  pmix_process_end() also waits until the process is
 * dead, up to a second. */
void pmix_process_kill(const struct pmix_process *p);
void pmix_process_end(struct pmix_process *p);

#endif
