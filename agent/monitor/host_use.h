/* host_use.h - what became of this machine since it was started, as /proc and /sys say:
 * pressure, memory, networks. */
#ifndef BERTH_AGENT_MONITOR_HOST_USE_H
#define BERTH_AGENT_MONITOR_HOST_USE_H

#include "common/wire.h"

/* Megabits a second of the fastest port to other machines that is up, InfiniBand's or a
 * network card's; 0: unknown, as in most virtual machines.  Drivers take their time to
 * answer. */
uint32_t host_link_mbit(const char *root);

/* Fills M in but for epoch, clock_ns, dropped and link_mbit.  ROOT: "", or a folder in
 * place of /.  What the machine does not say is 0. */
void host_use_read(struct wire_host_use *m, const char *root);

#endif
