/* select.h - from request to the hosts of the agents: -H, a host file, the allocation
 * of a resource manager, or this machine.
 *
 * Inside an allocation -H and host files choose some of its hosts.  Looks names up and
 * chooses a transport for each host.  A host is local by its address, never by its
 * spelling, unless the user gave a port: an sshd answers there, maybe a container's. */
#ifndef BERTH_LAUNCHER_HOSTS_SELECT_H
#define BERTH_LAUNCHER_HOSTS_SELECT_H

#include "launcher/hosts/agents.h"
#include "launcher/hosts/allocation.h"
#include "launcher/request.h"

/* The hosts of a job, and where they come from. */
struct selection {
	struct host *host; /* without agents */
	size_t n;
	struct transport_setup setup; /* of their agents, but for the loop */
	uint64_t begin_ns;            /* clock_ns() when the search for hosts began */
	enum allocation_manager
		manager;  /* ALLOCATION_NONE: the user, or this machine */
	char *slots_from; /* for messages; NULL before slots are known */
	char *warning;    /* a line for the user, with -q as well; or NULL */
};

/* The hosts of R into S, which must be {0}.  A host file may be a terminal or a FIFO,
 * and a name server slow: this waits for them, so signals should still have their usual
 * effect.  NOTES gets lines for the user, "NAME: why".  0, or -1 with E; what S has
 * goes to job_open() then, too. */
int hosts_select(struct selection *s, const struct request *r, struct strv *notes,
		 struct err *e);

/* Add the hosts MORE to A, whose agents may run.  Those without a transport cannot be
 * used.  A name server may delay this by a second.  0, or -1 with E, the last fault. */
int hosts_select_more(struct agents *a, const struct hosts *more,
		      const struct request *r, struct strv *notes, struct err *e);

/* How agents are started for R.  The time that they have to start begins now. */
struct transport_setup hosts_setup(const struct reach *r, int verbosity);

#endif
