/* host_map.h - where all ranks are, for one host: the message `host_map`. */
#ifndef BERTH_LAUNCHER_JOB_HOST_MAP_H
#define BERTH_LAUNCHER_JOB_HOST_MAP_H

#include "launcher/job/job.h"

/* To host H, whose send queue becomes larger by it. */
void host_map_send(struct job *j, struct host *h);

#endif
