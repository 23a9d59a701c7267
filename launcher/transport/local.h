/* local.h - this machine's own agent: where it is, and that it ends. */
#ifndef BERTH_LAUNCHER_TRANSPORT_LOCAL_H
#define BERTH_LAUNCHER_TRANSPORT_LOCAL_H

#include "common/str.h"

/* The berth-agent next to the running program, whether it exists or not; NULL where
 * /proc doesn't say.  The caller frees it. */
char *local_agent_path(void);

/* Wait MS milliseconds for agents whose stream is closed; then KILL them: an agent's
 * guardian takes its ranks along. */
void local_wait(unsigned ms);

#endif
