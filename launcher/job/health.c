#include "launcher/job/health.h"

#include <stdlib.h>

#include "launcher/job/growth.h"
#include "launcher/job/phase.h"

void health_ask(struct job *j, struct host *h)
{
	const struct reach *r = &j->request->reach;
	const struct wire_health m = { .command = r->health,
				       .timeout_ms = (uint32_t)r->start_timeout_ms };

	if (r->health && j->request->plan == PLAN_OFF)
		AGENTS_SEND(h, health, &m);
	else
		phase_host(j, job_index(j, h), RUN_EV_HEALTHY);
}

const char *health_take(struct job *j, struct host *h, const struct wire_healthy *m)
{
	const enum host_phase at = j->run[job_index(j, h)].phase;
	struct err e;
	char *why;

	if (at == RUN_LEAVING) /* it may have answered before it was told */
		return NULL;
	if (!j->request->reach.health || at != RUN_TRYING)
		return "'healthy' message that nobody asked for";
	if (*m->why) {
		why = str_plain(xstrdup(m->why));
		err_set(&e, E_HEALTH, h->name, why);
		free(why);
		agents_give_up(h, &e);
		return NULL;
	}
	phase_host(j, job_index(j, h), RUN_EV_HEALTHY);
	growth_look(j);
	return NULL;
}
