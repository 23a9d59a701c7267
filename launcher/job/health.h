/* health.h - --health-check: a host gets ranks once the user's command has ended well.
 *
 * It runs when the agent of a host is up, before the host counts, and again before all
 * ranks start anew.  A host where it fails is lost. */
#ifndef BERTH_LAUNCHER_JOB_HEALTH_H
#define BERTH_LAUNCHER_JOB_HEALTH_H

#include "launcher/job/job.h"

/* H is to run it.  Without one H may have ranks at once. */
void health_ask(struct job *j, struct host *h);
/* H has run it.  NULL, or what is wrong with M. */
const char *health_take(struct job *j, struct host *h, const struct wire_healthy *m);

#endif
