/* select.h - from request to the hosts of the agents: -H, a host file, or this machine.
 *
 * Looks names up and chooses a transport for each host.  A host is local by its
 * address, never by its spelling, unless the user gave a port: an sshd answers there,
 * maybe a container's. */
#ifndef BERTH_LAUNCHER_HOSTS_SELECT_H
#define BERTH_LAUNCHER_HOSTS_SELECT_H

#include "launcher/hosts/agents.h"
#include "launcher/request.h"

/* Fill A's hosts and its setup.own_agent.  *SLOTS_FROM, the caller's to free, says
 * where the slots came from.  NOTES gets lines for the user, "NAME: why".  0, or -1
 * with E. */
int hosts_select(struct agents *a, char **slots_from, const struct request *r,
		 struct strv *notes, struct err *e);

#endif
