/* select.h - from request to the hosts of the agents: -H, a host file, the allocation
 * of a resource manager, or this machine.
 *
 * Inside an allocation -H and host files choose some of its hosts.  Looks names up and
 * chooses a transport for each host.  A host is local by its address, never by its
 * spelling, unless the user gave a port: an sshd answers there, maybe a container's. */
#ifndef BERTH_LAUNCHER_HOSTS_SELECT_H
#define BERTH_LAUNCHER_HOSTS_SELECT_H

#include <stdlib.h>

#include "launcher/hosts/agents.h"
#include "launcher/hosts/allocation.h"
#include "launcher/request.h"

/* Where the hosts come from.  hosts_select() fills it; hosts_source_free(). */
struct hosts_source {
	enum allocation_manager
		manager;  /* ALLOCATION_NONE: the user, or this machine */
	char *job_id;     /* the manager's, or NULL */
	char *slots_from; /* for messages; NULL before slots are known */
	char *warning;    /* a line for the user, with -q as well; or NULL */
};

/* The hosts of -H or of the host file into H, which must be {0}; none if R names
 * neither.  A host file may be a terminal or a FIFO: this waits for it, so signals
 * should still have their usual effect, and no deadline run.  0, or -1 with E. */
int hosts_read_asked(struct hosts *h, const struct request *r, struct err *e);

/* Fill A's hosts, its setup.own_agent, and SOURCE from ASKED, which it takes over, or
 * from what else there is.  NOTES gets lines for the user, "NAME: why".  0, or -1 with
 * E. */
int hosts_select(struct agents *a, struct hosts_source *source, struct hosts *asked,
		 const struct request *r, struct strv *notes, struct err *e);

static inline void hosts_source_free(struct hosts_source *s)
{
	free(s->job_id);
	free(s->slots_from);
	free(s->warning);
}

#endif
