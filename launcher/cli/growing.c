#include "launcher/cli/growing.h"

enum { RESTARTS = 3, SPAN_MS = 3600 * 1000 }; /* if the user does not say */

/* --nnodes MIN:MAX, in ranks. */
static int settle_nodes(struct growing *g, int per_host, struct err *e)
{
	if (!g->min_nodes)
		return 0;
	if (!per_host)
		return err_set(e, E_GROWING_PPN, g->min_nodes, g->max_nodes);
	if (!g->min_np)
		g->min_np = g->min_nodes * per_host;
	if (!g->max_np)
		g->max_np = g->max_nodes * per_host;
	return 0;
}

int growing_settle(struct request *r, struct err *e)
{
	struct growing *g = &r->growing;
	const int np = r->app[0].np;

	if (settle_nodes(g, r->per_host, e))
		return -1;
	if (!g->min_np && !g->max_np && !g->script && !g->spares)
		return 0;
	if (r->napp > 1 || r->rank_hosts.n)
		return err_set(e, E_GROWING_ONE);
	if (g->script && (r->hosts.n || r->hostfile))
		return err_set(e, E_TWO_HOSTS, "--host-discovery-script");
	if (!g->max_np)
		g->max_np = np;
	if (!g->max_np)
		return err_set(e, E_GROWING_MOST);
	if (!g->min_np)
		g->min_np = (g->script || g->spares) && np ? np : 1;
	if ((np && np < g->min_np) || g->max_np < (np ? np : g->min_np))
		return err_set(e, E_GROWING_RANGE, np ? np : g->min_np, g->min_np,
			       g->max_np);
	if (!r->lives.restarts_given) {
		r->lives.restarts = RESTARTS;
		r->lives.span_ms = SPAN_MS;
	}
	return 0;
}
