/* health.h - --health-check: the user's command says whether this host may have ranks.
 *
 * It runs by /bin/sh, with the environment and in the directory of the agent.  What is
 * left in its process group at its end is killed. */
#ifndef BERTH_AGENT_HEALTH_H
#define BERTH_AGENT_HEALTH_H

#include "common/wire.h"

struct agent;

/* Start what M asks for: `healthy` follows.  0, or -1 with E: a job is there. */
int health_begin(struct agent *a, const struct wire_health *m, struct err *e);
/* End it, if it runs. */
void health_end(struct agent *a);

#endif
