#include "launcher/job/host_map.h"

void host_map_send(struct job *j, struct host *h)
{
	const size_t nodes = j->plan.nodes, napp = j->request->napp;
	const char **names = xcalloc(nodes, sizeof *names);
	const char **own = xcalloc(nodes, sizeof *own);
	uint32_t *hosts = xcalloc(j->plan.np, sizeof *hosts);
	uint32_t *apps = xcalloc(napp, sizeof *apps);
	const size_t before = h->out.len;

	for (size_t i = 0; i < nodes; i++) /* of hosts that were lost */
		names[i] = own[i] = "";
	for (size_t i = 0; i < j->agents.n; i++)
		if (job_needs(j, i)) {
			const struct host *one = &j->agents.host[i];

			names[j->plan.node[i]] = one->name;
			own[j->plan.node[i]] = job_own_name(j, one);
		}
	for (uint32_t i = j->plan.np; i-- > 0;) {
		const uint32_t node = j->plan.node[j->plan.rank[i].host];

		hosts[i] = node == PLAN_UNUSED ? 0 : node; /* it is on none */
		apps[j->plan.rank[i].app] = i;
	}
	wire_pack_host_map(&h->out,
			   &(struct wire_host_map){ .epoch = j->epoch,
						    .hosts = { hosts, j->plan.np },
						    .names = { names, nodes },
						    .own = { own, nodes },
						    .apps = { apps, napp } });
	h->out_due += h->out.len - before;
	agents_flush(h);
	free(names);
	free(own);
	free(hosts);
	free(apps);
}
