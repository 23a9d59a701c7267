/* pmix_process.h - starts and ends the process of a PMIx server (pmix_child.h). */
#ifndef BERTH_AGENT_PMI_PMIX_PROCESS_H
#define BERTH_AGENT_PMI_PMIX_PROCESS_H

#include <sys/types.h>

#include "common/err.h"

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
