/* host_use.h - what became of this machine since it was started, as /proc and /sys say:
 * pressure, memory, networks. */
#ifndef BERTH_AGENT_MONITOR_HOST_USE_H
#define BERTH_AGENT_MONITOR_HOST_USE_H

#include "common/wire.h"

/* Fills M in but for epoch, clock_ns and dropped.  ROOT: "", or a folder in place of
 * /.  What the machine does not say is 0. */
void host_use_read(struct wire_host_use *m, const char *root);

#endif
