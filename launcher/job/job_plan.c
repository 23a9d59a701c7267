#include "launcher/job/job_plan.h"

#include "launcher/hosts.h"
#include "launcher/job/report.h"

bool job_has_gpu_slots(const struct job *j, size_t i)
{
	const struct host_in_list *list = j->agents.host[i].list;

	for (size_t a = 0; list && a < j->request->napp; a++)
		if (list[a].at && list[a].slots == SLOTS_GPUS)
			return true;
	return false;
}

/* SLOTS of H as a number. */
static int plan_resolve(const struct job *j, const struct host *h, int slots)
{
	const size_t given = j->spec.gpus.n; /* --gpus */

	if (slots == SLOTS_GPUS || (slots == SLOTS_AUTO && h->gpus))
		return given && given < h->gpus ? (int)given : (int)h->gpus;
	if (slots == SLOTS_AUTO)
		return h->node_cpus && (uint32_t)h->node_cpus < h->cores
			       ? h->node_cpus
			       : (int)h->cores;
	return slots;
}

uint32_t job_plan_slots(const struct job *j, size_t i)
{
	const struct host *h = &j->agents.host[i];
	const int slots = j->request->per_host ? j->request->per_host
					       : plan_resolve(j, h, h->slots);

	return slots > 0 ? (uint32_t)slots : 0;
}

/* The slots of each app on host I as numbers, of which it has SLOTS in all; or NULL. */
static struct host_in_list *resolve_lists(const struct job *j, size_t i, int slots)
{
	const struct host *h = &j->agents.host[i];
	struct host_in_list *list;

	if (!h->list)
		return NULL;
	list = xcalloc(j->request->napp, sizeof *list);
	for (size_t a = 0; a < j->request->napp; a++)
		list[a] = (struct host_in_list){
			h->list[a].at, h->list[a].slots == SLOTS_AUTO
					       ? slots
					       : plan_resolve(j, h, h->list[a].slots)
		};
	return list;
}

/* HOST takes no rank.  UP: the next plan is for hosts whose agents listen already. */
static bool is_out(const struct job *j, size_t host, bool up)
{
	const struct host *h = &j->agents.host[host];

	return h->state == HOST_LOST || j->run[host].unkillable ||
	       j->run[host].unnamed ||
	       (up && (h->state != HOST_UP || j->run[host].phase == RUN_TRYING));
}

/* The slots of each host as numbers. */
static int resolve_slots(const struct job *j, struct map_host *map, bool up,
			 struct err *e)
{
	for (size_t i = 0; i < j->agents.n; i++) {
		const struct host *h = &j->agents.host[i];
		int slots = plan_resolve(j, h, h->slots);

		if (!h->gpus && !(j->growth.tick && is_out(j, i, up)) &&
		    (h->slots == SLOTS_GPUS || job_has_gpu_slots(j, i)))
			return err_set(e, E_NO_GPUS, h->name);
		map[i] = (struct map_host){ .name = h->name,
					    .slots = slots,
					    .max_slots = h->max_slots,
					    .sockets = (int)h->sockets,
					    .numas = (int)h->numas,
					    .list = resolve_lists(j, i, slots) };
		map[i].lost = is_out(j, i, up);
	}
	return 0;
}

/* NP ranks, or as many as the request says, on the hosts that are not lost. */
static int make_plan(const struct job *j, struct plan *plan, uint32_t np, bool up,
		     struct err *e)
{
	struct map_host *map = xcalloc(j->agents.n, sizeof *map);
	struct request r = *j->request;
	struct app first = r.app[0];
	int rc;

	if (np && r.napp == 1 &&
	    !r.growing.min_np) { /* -np was not given: it is as before */
		first.np = (int)np;
		r.app = &first;
	}
	rc = resolve_slots(j, map, up, e) ||
	     map_ranks(plan, &r, map, j->agents.n, j->source.slots_from, e);
	for (size_t i = 0; i < j->agents.n; i++)
		free(map[i].list);
	free(map);
	if (rc && e->id == E_SLOTS && j->source.manager != ALLOCATION_NONE)
		err_hint(e, "ask the resource manager for more tasks, or use -ppn, or "
			    "--oversubscribe to start more ranks than slots");
	return rc ? -1 : 0;
}

int job_plan_make(struct job *j)
{
	const uint32_t reader = j->request->stdin_rank;
	uint32_t shown;

	if (j->plan.np)
		return 0;
	if (make_plan(j, &j->plan, 0, false, &j->err))
		return -1;
	j->rank = xcalloc(job_ranks_most(j), sizeof *j->rank);
	if (reader < STDIN_ALL && reader >= j->plan.np)
		return err_set(&j->err, E_STDIN_RANK, reader, j->plan.np);
	if (rank_set_first(&j->request->output.show, j->plan.np, &shown))
		return err_set(&j->err, E_SHOW_RANK, shown, j->plan.np);
	return 0;
}

uint32_t job_ranks_most(const struct job *j)
{
	return job_epoch(j).ranks_most;
}

uint32_t job_plan_possible(const struct job *j, bool up)
{
	struct plan plan = { 0 };
	struct err why;
	const uint32_t np = make_plan(j, &plan, j->plan.np, up, &why) ? 0 : plan.np;

	plan_free(&plan);
	return np;
}

int job_plan_next(struct job *j, struct plan *next)
{
	struct err e = { 0 }, whole;

	if (!make_plan(j, next, j->plan.np, false, &e))
		return 0;
	err_set(&whole, E_RESTART, e.text);
	report_error(j, &whole);
	return -1;
}
