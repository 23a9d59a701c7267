/* epoch.h - one epoch of a job, for modules that serve its ranks and need no more:
 * where the ranks are, and the agents there. */
#ifndef BERTH_LAUNCHER_JOB_EPOCH_H
#define BERTH_LAUNCHER_JOB_EPOCH_H

#include "launcher/hosts/agents.h"
#include "launcher/job/map.h"
#include "launcher/job/rank.h"

struct epoch {
	struct event_base *base;
	const struct agents *agents;
	const struct plan *plan;
	const struct rank *rank; /* rank[0..plan->np) */
	uint32_t number;         /* 1, then one more with each restart */
	uint32_t ranks_most;     /* plan->np may grow up to it, */
	size_t hosts_most;       /* and plan->nhosts */
};

static inline uint32_t epoch_index(const struct epoch *e, const struct host *h)
{
	return (uint32_t)(h - e->agents->host);
}

/* HOST has ranks, and an agent that listens. */
static inline bool epoch_reaches(const struct epoch *e, size_t host)
{
	return host < e->plan->nhosts && e->agents->host[host].state == HOST_UP &&
	       e->plan->node[host] != PLAN_UNUSED;
}

static inline bool epoch_has_ended(const struct epoch *e, uint32_t rank)
{
	return e->rank[rank].state == RANK_ENDED;
}

/* RANK is one of host H's. */
static inline bool epoch_has_rank(const struct epoch *e, const struct host *h,
				  uint32_t rank)
{
	return rank < e->plan->np && e->plan->rank[rank].host == epoch_index(e, h);
}

#endif
