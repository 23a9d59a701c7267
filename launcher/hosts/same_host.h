/* same_host.h - pure: hosts that are one machine under several names.
 *
 * Each agent's hello names its machine: boot id, network and PID namespace.  Two names
 * of one machine would give each of its CPUs and GPUs to two ranks. */
#ifndef BERTH_LAUNCHER_HOSTS_SAME_HOST_H
#define BERTH_LAUNCHER_HOSTS_SAME_HOST_H

#include "launcher/hosts/agents.h"

/* 0 if the N hosts are different machines, as far as is known; else -1 with E, which
 * names those that are not, one machine after the other. */
int same_host_check(const struct host *const *hosts, size_t n, struct err *e);

#endif
