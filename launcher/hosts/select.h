/* who.h - from request to the hosts of the agents: -H, a host file, or this machine.
 *
 * Looks names up (local is recognised by address, never by spelling) and chooses a
 * transport for each host. */
#ifndef BERTH_LAUNCHER_HOSTS_SELECT_H
#define BERTH_LAUNCHER_HOSTS_SELECT_H

#include "launcher/job/job.h"

/* Fill S's agents and slots_from.  0, or -1 with s->err. */
int hosts_select(struct session *s);

#endif
