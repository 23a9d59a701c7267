#include "launcher/job/monitor.h"

#include <stdlib.h>

static const char no_rank[] = "message of a rank that is not its";

/* The record has room for all ranks and hosts. */
static struct record *monitor_record(struct job *j)
{
	record_grow(&j->account.record, j->plan.np, j->agents.n);
	return &j->account.record;
}

const char *monitor_use(struct job *j, struct host *h, const struct wire_rank_use *m)
{
	if (!job_has_rank(j, h, m->rank))
		return no_rank;
	record_use(monitor_record(j), m, j->rank[m->rank].bound);
	return NULL;
}

const char *monitor_ops(struct job *j, struct host *h, const struct wire_rank_ops *m)
{
	if (!job_has_rank(j, h, m->rank))
		return no_rank;
	record_ops(monitor_record(j), m);
	return NULL;
}

const char *monitor_host(struct job *j, struct host *h, const struct wire_host_use *m)
{
	record_host(monitor_record(j), job_index(j, h), m);
	return NULL;
}

void monitor_verdict(struct verdict *v, const struct job *j)
{
	struct ranked *rank = xcalloc(j->account.record.nranks + 1, sizeof *rank);
	struct look l = { .record = &j->account.record, .rank = rank };

	for (uint32_t i = 0; i < j->account.record.nranks; i++) {
		const uint32_t host = i < j->plan.np ? j->plan.rank[i].host : 0;

		rank[i].host = j->agents.host[host].name;
		if (i < j->plan.np && j->rank) {
			rank[i].bound = j->rank[i].bound;
			rank[i].gpu = j->rank[i].gpu && *j->rank[i].gpu;
		}
		l.crowded |= i < j->plan.np &&
			     j->plan.local_size[host] > j->agents.host[host].cpus;
	}
	verdict_make(v, &l);
	free(rank);
}
