/* local.h - where this machine's own agent is. */
#ifndef BERTH_LOCAL_H
#define BERTH_LOCAL_H

#include "common/str.h"

/* The berth-agent next to the running program, whether it exists or not; NULL where
 * /proc doesn't say.  The caller frees it. */
char *local_agent_path(void);

#endif
