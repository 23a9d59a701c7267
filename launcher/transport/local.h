/* local.h - where this machine's own agent is. */
#ifndef BERTH_LAUNCHER_TRANSPORT_LOCAL_H
#define BERTH_LAUNCHER_TRANSPORT_LOCAL_H

/* The berth-agent next to the running program, whether it exists or not; NULL if /proc
 * does not say.  The caller frees it. */
char *local_agent_path(void);

#endif
