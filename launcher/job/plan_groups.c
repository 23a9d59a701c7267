#include "launcher/job/plan_groups.h"

#include "launcher/hosts.h"

const struct rank *plan_rank(const struct job *j, uint32_t host, uint32_t local)
{
	return &j->rank[j->plan.ranks[host][local]];
}

static bool equal_berths(const struct job *j, uint32_t a, uint32_t b)
{
	if (j->plan.local_size[a] != j->plan.local_size[b] ||
	    strcmp(j->run[a].idle, j->run[b].idle) ||
	    strcmp(j->run[a].certificate, j->run[b].certificate))
		return false;
	for (uint32_t i = 0; i < j->plan.local_size[a]; i++) {
		const struct rank *x = plan_rank(j, a, i), *y = plan_rank(j, b, i);

		if (x->gpu_index != y->gpu_index || strcmp(x->gpu, y->gpu) ||
		    strcmp(x->cpus, y->cpus) || strcmp(x->numa, y->numa) ||
		    strcmp(x->why, y->why))
			return false;
	}
	return true;
}

/* The ranks of B are those of A, each higher by the same number, which is STEP unless
 * that is 0.  Returns it; 0: they are not. */
static uint32_t rank_step(const struct job *j, uint32_t a, uint32_t b, uint32_t step)
{
	const uint32_t *x = j->plan.ranks[a], *y = j->plan.ranks[b];

	if (!step)
		step = y[0] - x[0];
	for (uint32_t i = 0; i < j->plan.local_size[a]; i++)
		if (y[i] - x[i] != step)
			return 0;
	return step;
}

/* Add HOST to the group that it belongs to, if there is one. */
static bool join_group(const struct job *j, struct plan_group *group, size_t n,
		       uint32_t host)
{
	for (struct plan_group *g = group; g < group + n; g++) {
		uint32_t step;

		if (!equal_berths(j, g->host[0], host))
			continue;
		step = rank_step(j, g->host[g->n - 1], host, g->step);
		if (!step)
			continue;
		g->step = step;
		g->host = xreallocarray(g->host, g->n + 1, sizeof *g->host);
		g->host[g->n++] = host;
		return true;
	}
	return false;
}

struct plan_group *plan_groups(const struct job *j, size_t *n)
{
	struct plan_group *group = xcalloc(j->agents.n, sizeof *group);

	*n = 0;
	for (uint32_t i = 0; i < j->agents.n; i++) {
		if (!job_needs(j, i) || join_group(j, group, *n, i))
			continue;
		group[*n].host = xcalloc(1, sizeof *group->host);
		group[*n].host[0] = i;
		group[(*n)++].n = 1;
	}
	return group;
}

void plan_group_words(struct str *out, const struct job *j, const struct plan_group *g)
{
	const char **names = xcalloc(g->n, sizeof *names);
	const uint32_t ranks = j->plan.local_size[g->host[0]];

	for (size_t i = 0; i < g->n; i++)
		names[i] = j->agents.host[g->host[i]].name;
	hosts_fold(out, names, g->n);
	str_addf(out, ": %u rank%s", ranks, str_plural(ranks));
	if (g->n > 1)
		str_addf(out, " each, shown for %s; %u higher on each host after it",
			 names[0], g->step);
	free(names);
}

void plan_groups_free(struct plan_group *group, size_t n)
{
	for (size_t i = 0; i < n; i++)
		free(group[i].host);
	free(group);
}
