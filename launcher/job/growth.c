#include "launcher/job/growth.h"

#include <event2/event.h>

#include "common/loop.h"
#include "launcher/hosts/discovery.h"
#include "launcher/hosts/select.h"
#include "launcher/job/cleanup.h"
#include "launcher/job/fence.h"
#include "launcher/job/forget.h"
#include "launcher/job/host_map.h"
#include "launcher/job/job_plan.h"
#include "launcher/job/job_spec.h"
#include "launcher/job/phase.h"
#include "launcher/job/rank_status.h"
#include "launcher/job/report.h"

enum { HOSTS_MORE = 4096 }; /* that the script may name, beyond those of the start */

void growth_lost(struct job *j, size_t host)
{
	const long *cooldown_ms = j->request->growing.cooldown_ms;
	struct host_run *run = &j->run[host];
	uint64_t ms = (uint64_t)cooldown_ms[0];

	if (!j->growth.tick)
		return;
	for (uint32_t i = 0; i < run->losses && ms < (uint64_t)cooldown_ms[1]; i++)
		ms *= 2;
	if (ms > (uint64_t)cooldown_ms[1])
		ms = (uint64_t)cooldown_ms[1];
	run->losses++;
	run->blocked_ms = clock_ms() + ms;
}

/* ---- hosts that are tried ---- */

/* Agents start on hosts that could give the job more ranks, or, if it lacks some, any;
 * and on as many spares as the user wants.  Those of the plan have, or had, one. */
static void try_hosts(struct job *j)
{
	const struct growing *g = &j->request->growing;
	const uint64_t start_ms = (uint64_t)j->request->reach.start_timeout_ms;
	const bool full =
		j->phase == JOB_RUN && j->plan.np - j->ended >= (uint32_t)g->max_np;
	uint32_t spares = 0; /* hosts whose agents listen, or start, without ranks */

	for (size_t i = 0; i < j->agents.n; i++)
		spares += !job_needs(j, i) && j->run[i].phase >= RUN_STARTING &&
			  j->run[i].phase <= RUN_PLACING;
	for (size_t i = 0; i < j->agents.n; i++) {
		struct host_run *run = &j->run[i];
		struct host *h = &j->agents.host[i];

		if (run->unnamed || run->unkillable || clock_ms() < run->blocked_ms ||
		    (j->phase == JOB_RUN && job_needs(j, i)) ||
		    (full && spares >= (uint32_t)g->spares))
			continue;
		if (h->state == HOST_LOST && run->unconfirmed)
			cleanup_send(j, h); /* first nothing is to be left there */
		else if (h->state == HOST_LOST && phase_host(j, i, RUN_EV_RETRY))
			h->state = HOST_IDLE;
		if ((h->state == HOST_IDLE || h->state == HOST_CLOSED) &&
		    phase_host(j, i, RUN_EV_START)) {
			j->agents.setup.deadline_ms = clock_ms() + start_ms;
			agents_start(&j->agents, h);
			spares++;
		}
	}
}

/* ---- what the job does then ---- */

/* Ranks for host I: the numbers of such as are on no host, then new ones.  An agent may
 * still speak of ranks of its host that have ended. */
static uint32_t *choose_ranks(const struct job *j, size_t i, uint32_t *n)
{
	const uint32_t most = (uint32_t)j->request->growing.max_np;
	const uint32_t room = most - (j->plan.np - j->ended);
	const uint32_t slots = job_plan_slots(j, i);
	uint32_t *list = xcalloc(room, sizeof *list);

	*n = 0;
	for (uint32_t r = 0; r < most && *n < room && *n < slots; r++)
		if (r >= j->plan.np || !plan_has(&j->plan, r))
			list[(*n)++] = r;
	return list;
}

/* The others go on; ranks start on host I, and join them when they change their
 * world. */
static void give_ranks(struct job *j, size_t i)
{
	uint32_t n, *list = choose_ranks(j, i, &n);

	for (uint32_t k = 0; k < n; k++) {
		struct rank *r = &j->rank[list[k]];

		j->ended -= r->left_out;
		j->growth.left_out -= r->left_out;
		forget_rank(r);
		rank_status_forget(j->serves.status, list[k]);
	}
	if (n) {
		forget_host(&j->run[i]);
		plan_come(&j->plan, (uint32_t)i, list, n);
		fence_host_came(j->serves.fence, (uint32_t)i, list, n);
		job_spec_send_one(j, &j->agents.host[i]);
		phase_await(j);
	}
	for (size_t k = 0; n && k < j->agents.n; k++)
		if (k != i && job_reaches(j, k)) {
			fence_uses(j->serves.fence, &j->agents.host[k]);
			host_map_send(j, &j->agents.host[k]);
		}
	free(list);
}

/* A host is to be left, or to have fewer ranks. */
static bool is_one_too_full(const struct job *j)
{
	for (size_t i = 0; i < j->agents.n; i++) {
		const int slots = j->agents.host[i].slots;

		if (job_needs(j, i) &&
		    (j->run[i].unnamed || (slots >= 0 && !j->request->per_host &&
					   !j->request->oversubscribe &&
					   j->plan.local_size[i] > (uint32_t)slots)))
			return true;
	}
	return false;
}

/* Host I gets ranks, or is to be left, while the ranks of others go on. */
static void change_host(struct job *j, size_t i)
{
	struct host_run *run = &j->run[i];

	if (run->phase == RUN_PLACING && !run->unnamed && !job_needs(j, i))
		give_ranks(j, i);
	if (run->unnamed && !run->leaves && job_needs(j, i) &&
	    phase_goes_on_without(j, i)) {
		run->leaves = true;
		fence_host_leaves(j->serves.fence, (uint32_t)i);
	}
}

void growth_look(struct job *j)
{
	struct growth *g = &j->growth;

	if (!g->tick)
		return;
	if (j->phase == JOB_WAIT) {
		try_hosts(j);
		g->lacks_hosts = !job_plan_possible(j, false);
		j->awaited = g->lacks_hosts;
	}
	if (j->phase != JOB_RUN || j->grace_signo || j->failed)
		return;
	/* ranks that change their world by themselves would lose what they have */
	if (fence_any_is_elastic(j->serves.fence)) {
		if (!fence_can_lose(j->serves.fence, UINT32_MAX))
			return;
		try_hosts(j);
		for (size_t i = 0; i < j->agents.n; i++)
			change_host(j, i);
		return;
	}
	if (j->ended)
		return;
	try_hosts(j);
	g->resizes = is_one_too_full(j) || job_plan_possible(j, true) > j->plan.np;
}

/* ---- what the script says ---- */

static size_t find_host(const struct job *j, const char *name)
{
	size_t i = 0;

	while (i < j->agents.n && strcmp(j->agents.host[i].name, name) != 0)
		i++;
	return i;
}

static void log_host(struct job *j, const char *event, const char *name)
{
	events_begin(j->events, event);
	events_text(j->events, "host", name);
	events_end(j->events);
}

/* Hosts that were not named before. */
static void add_hosts(struct job *j, const struct hosts *more)
{
	const size_t before = j->agents.n;
	struct strv notes = { 0 };
	struct err e = { 0 };

	if (hosts_select_more(&j->agents, more, j->request, &notes, &e))
		report_error(j, &e);
	for (size_t i = 0; i < notes.n && j->request->verbosity >= 0; i++)
		report_note(j, "runner: %s", notes.v[i]);
	strv_free(&notes);
	j->run = xreallocarray(j->run, j->agents.n, sizeof *j->run);
	j->account.usage =
		xreallocarray(j->account.usage, j->agents.n, sizeof *j->account.usage);
	for (size_t i = before; i < j->agents.n; i++) {
		j->run[i] = (struct host_run){ 0 };
		j->account.usage[i] = (struct usage){ 0 };
		log_host(j, "host found", j->agents.host[i].name);
	}
}

/* The script names HOSTS now. */
static void take_hosts(struct job *j, const struct hosts *hosts)
{
	struct hosts more = { xcalloc(hosts->n, sizeof *more.v), 0 };
	bool *named;

	for (size_t i = 0; i < hosts->n; i++)
		if (find_host(j, hosts->v[i].name) == j->agents.n)
			more.v[more.n++] = hosts->v[i];
	if (more.n)
		add_hosts(j, &more);
	free(more.v);
	named = xcalloc(j->agents.n, sizeof *named);
	for (size_t i = 0; i < hosts->n; i++) {
		const size_t at = find_host(j, hosts->v[i].name);

		if (at == j->agents.n || !j->agents.host[at].transport)
			continue;
		named[at] = true;
		j->agents.host[at].slots = hosts->v[i].slots;
		j->agents.host[at].max_slots = hosts->v[i].max_slots;
	}
	for (size_t i = 0; i < j->agents.n; i++) {
		if (!named[i] && !j->run[i].unnamed)
			log_host(j, "host left", j->agents.host[i].name);
		j->run[i].unnamed = !named[i] || j->run[i].dismissed;
	}
	free(named);
}

static void growth_on_found(void *ctx, struct hosts *hosts, const struct err *e)
{
	struct job *j = ctx;

	if (e && !j->growth.script_failed)
		report_error(j, e);
	j->growth.script_failed = e;
	if (e)
		return;
	take_hosts(j, hosts);
	hosts_free(hosts);
	growth_look(j);
}

void growth_dismiss(struct job *j, size_t host)
{
	struct host_run *run = &j->run[host];

	if (run->dismissed)
		return;
	run->unnamed = run->dismissed = true;
	log_host(j, "host left", j->agents.host[host].name);
	report_note(j, "runner: %s is to be left: its agent got SIGTERM",
		    j->agents.host[host].name);
	growth_look(j);
}

/* ---- its clock ---- */

static void growth_on_tick(evutil_socket_t fd, short what, void *ctx)
{
	struct job *j = ctx;

	(void)fd;
	(void)what;
	if (j->phase != JOB_RUN && j->phase != JOB_WAIT)
		return;
	if (j->growth.script)
		discovery_ask(j->growth.script);
	else
		growth_look(j);
}

void growth_open(struct job *j)
{
	const struct growing *g = &j->request->growing;
	struct agents *a = &j->agents;

	if (!g->min_np)
		return;
	if (g->script) {
		a->most = a->n + HOSTS_MORE;
		a->host = xreallocarray(a->host, a->most, sizeof *a->host);
		j->growth.script = discovery_open(j->base, g->script,
						  g->slots ? g->slots : SLOTS_AUTO,
						  growth_on_found, j);
	}
	j->growth.tick = event_new(j->base, -1, EV_PERSIST, growth_on_tick, j);
	loop_after_ms(j->growth.tick, DISCOVERY_EVERY_MS);
}

void growth_close(struct growth *g)
{
	discovery_close(g->script);
	if (g->tick)
		event_free(g->tick);
	*g = (struct growth){ 0 };
}
