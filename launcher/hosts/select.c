#include "launcher/hosts/select.h"

#include <limits.h>
#include <pwd.h>
#include <unistd.h>

#include "launcher/hosts/allocation_load.h"
#include "launcher/hosts/discovery.h"
#include "launcher/transport/libssh.h"
#include "launcher/transport/local.h"
#include "launcher/transport/lookup.h"

enum { LOOKUP_MS = 1000 }; /* of names that come while a job runs */

extern char **environ;

/* The hosts of a job before they have addresses. */
struct chosen {
	struct hosts hosts;
	struct allocation allocation; /* none, or the one that hosts are of */
	size_t *at;                   /* at[i]: the place of host i in allocation */
	struct host_in_list **list;   /* of each host, or NULL; see struct host */
	char *from;                   /* the source of hosts, for messages */
	uint64_t deadline_ms;         /* for their addresses */
	/* With a saved topology no host is touched: an agent here answers for each. */
	bool offline;
};

static void chosen_free(struct chosen *c)
{
	for (size_t i = 0; i < c->hosts.n && c->list; i++)
		free(c->list[i]);
	free(c->list);
	hosts_free(&c->hosts);
	allocation_free(&c->allocation);
	free(c->at);
	free(c->from);
}

/* The first app behind a ':' that has -H, or 0. */
static size_t first_list(const struct request *r)
{
	for (size_t a = 1; a < r->napp; a++)
		if (r->app[a].hosts.n)
			return a;
	return 0;
}

/* For so many ranks H has room; -1: unknown before agents run there. */
static long count_room(const struct hosts *h, const struct request *r)
{
	long n = 0;

	for (size_t i = 0; i < h->n; i++) {
		if (!r->per_host && h->v[i].slots < 0)
			return -1;
		n += r->per_host ? r->per_host : h->v[i].slots;
	}
	return n;
}

/* Wait until the script names hosts for the ranks of --min-np. */
static int ask_script(struct hosts *h, const struct request *r, struct err *e)
{
	const struct growing *g = &r->growing;
	const uint64_t until_ms = clock_ms() + (uint64_t)g->timeout_ms;
	bool said = r->verbosity < 0;
	struct str limit = { 0 };
	int rc;

	str_add_seconds(&limit, (uint64_t)g->timeout_ms);
	while (!(rc = discovery_once(h, g->script, g->slots ? g->slots : SLOTS_AUTO,
				     e))) {
		const long room = count_room(h, r);

		if (room < 0 || room >= g->min_np)
			break;
		if (!said)
			fprintf(stderr,
				"runner: waits up to %s s for hosts: '%s' names %zu\n",
				str_text(&limit), g->script, h->n);
		said = true;
		hosts_free(h);
		if (clock_ms() + DISCOVERY_EVERY_MS > until_ms) {
			rc = err_set(e, E_FEW_HOSTS, g->min_np, str_text(&limit));
			break;
		}
		usleep(DISCOVERY_EVERY_MS * 1000);
	}
	str_free(&limit);
	return rc;
}

/* The hosts of -H, of the host file or of the script; none if R names none. */
static int read_asked(struct hosts *h, const struct request *r, struct err *e)
{
	if (r->growing.script)
		return ask_script(h, r, e);
	if (!r->hosts.n && r->hostfile)
		return hosts_read_file(h, r->hostfile, e);
	for (size_t a = 0; a < r->napp; a++)
		if (hosts_merge(h, a ? &r->app[a].hosts : &r->hosts, e)) {
			err_in(e, "%s", r->app[a].hosts_from);
			return err_in(e, "app %zu", a + 1);
		}
	return 0;
}

/* This machine: as many slots as -np asks for, else one per GPU or core. */
static void take_this_machine(struct chosen *c, const struct request *r)
{
	char name[256] = "localhost";
	int np = 0;

	gethostname(name, sizeof name - 1);
	for (size_t i = 0; i < r->napp; i++)
		np += r->app[i].np;
	if (r->per_host)
		np = r->per_host;
	c->hosts.v = xcalloc(1, sizeof *c->hosts.v);
	c->hosts.n = 1;
	c->hosts.v[0] = (struct host_spec){ .name = xstrdup(name),
					    .slots = np ? np : SLOTS_AUTO };
	c->from = xstrdup("this machine");
}

/* All hosts of the allocation. */
static void take_all(struct chosen *c)
{
	const struct hosts *all = &c->allocation.hosts;

	c->hosts = (struct hosts){ xcalloc(all->n, sizeof *all->v), all->n };
	c->at = xcalloc(all->n, sizeof *c->at);
	for (size_t i = 0; i < all->n; i++) {
		struct host_spec *h = &c->hosts.v[i];

		*h = all->v[i];
		h->name = xstrdup(h->name);
		h->user = h->user ? xstrdup(h->user) : NULL;
		c->at[i] = i;
	}
	c->from = xstrdup(c->allocation.slots_from);
}

/* The hosts that were asked for are a part of the allocation. */
static int take_part(struct chosen *c, struct err *e)
{
	c->at = xcalloc(c->hosts.n, sizeof *c->at);
	if (allocation_match(c->at, &c->hosts, &c->allocation) && !c->offline)
		allocation_match_addresses(c->at, &c->hosts, &c->allocation,
					   c->deadline_ms);
	return allocation_filter(&c->hosts, c->at, &c->allocation, c->from, e);
}

/* All hosts of the allocation; those in lists of apps, which are a part of it, keep
 * their names. */
static int take_rest(struct chosen *c, struct err *e)
{
	struct hosts part = c->hosts;
	size_t *at = c->at;
	bool *named = xcalloc(c->allocation.hosts.n, sizeof *named);
	int rc = 0;

	free(c->from);
	take_all(c);
	for (size_t i = 0; i < part.n; i++) {
		struct host_spec *h = &c->hosts.v[at[i]], swap = *h;

		if (named[at[i]])
			rc = err_set(e, E_SAME_HOST, part.v[i].name);
		named[at[i]] = true;
		h->name = part.v[i].name;
		h->user = part.v[i].user;
		h->port = part.v[i].port;
		part.v[i] = swap;
	}
	hosts_free(&part);
	free(named);
	free(at);
	return rc;
}

/* If an app behind a ':' has a list of hosts, notes how much each list of R gives on
 * each host. */
static void read_lists(struct chosen *c, const struct request *r)
{
	const bool managed = c->allocation.manager != ALLOCATION_NONE;

	if (!first_list(r))
		return;
	c->list = xcalloc(c->hosts.n, sizeof *c->list);
	for (size_t i = 0; i < c->hosts.n; i++) {
		c->list[i] = xcalloc(r->napp, sizeof **c->list);
		if (!r->hosts.n)
			c->list[i][0] =
				(struct host_in_list){ (uint32_t)i + 1, SLOTS_AUTO };
	}
	for (size_t a = 0; a < r->napp; a++) {
		const struct hosts *own = a ? &r->app[a].hosts : &r->hosts;
		size_t at = 0; /* most often a list has the order of all hosts */

		for (size_t i = 0; i < own->n; i++) {
			const struct host_spec *h = &own->v[i];

			while (strcasecmp(c->hosts.v[at].name, h->name) != 0)
				at = (at + 1) % c->hosts.n;
			c->list[at][a].at = (uint32_t)i + 1;
			c->list[at][a].slots =
				h->counted || !managed ? h->slots : SLOTS_AUTO;
		}
	}
}

/* The most ranks that -ppn of all apps of R gives host I, and one such option. */
static int sum_per_host(const char **from, const struct chosen *c,
			const struct request *r, size_t i)
{
	const struct host_in_list *list = c->list ? c->list[i] : NULL;
	long sum = !list || list[0].at ? r->per_host : 0;

	*from = r->per_host_from ? r->per_host_from : "-ppn";
	for (size_t a = 1; a < r->napp; a++) {
		const struct app *app = &r->app[a];

		if (app->per_host)
			*from = app->per_host_from;
		if (!app->hosts.n && !app->per_host)
			continue; /* as the first app */
		if (!list || list[app->hosts.n ? a : 0].at)
			sum += app->per_host ? app->per_host : r->per_host;
	}
	return sum < INT_MAX ? (int)sum : INT_MAX;
}

/* Whether -ppn fits into the CPUs that the allocation has on each host. */
static int check_per_host(const struct chosen *c, const struct request *r,
			  struct err *e)
{
	int rc = 0;

	for (size_t i = 0; i < c->hosts.n && !r->oversubscribe && !rc; i++) {
		const char *from;
		const int n = sum_per_host(&from, c, r, i);

		if (n)
			rc = allocation_per_host(&c->allocation, c->at[i], n, from, e);
	}
	return rc;
}

/* One rank beside many GPUs is right for a program that starts one more for each GPU
 * itself, as torchrun does; here it is seldom what the user wants. */
static void note_gpus(const struct chosen *c, const struct request *r,
		      struct strv *notes)
{
	const struct allocation *a = &c->allocation;
	const int gpus = (int)a->gpus;
	bool room = true;

	if (gpus < 2 || r->per_host || r->app[0].np)
		return;
	for (size_t i = 0; i < c->hosts.n; i++) {
		if (c->hosts.v[i].slots != 1 || a->hosts.v[c->at[i]].slots != 1)
			return;
		room = room && !allocation_per_host(a, c->at[i], gpus, "-ppn", NULL);
	}
	strv_take(
		notes,
		xasprintf("%s gives each host 1 rank beside %d GPUs; for one rank per "
			  "GPU, %suse -ppn %d",
			  a->slots_from, gpus,
			  room ? "" : "ask the job for as many CPUs, and ", gpus));
}

/* With -v: the source of hosts and slots. */
static void note_source(const struct chosen *c, const struct request *r,
			struct strv *notes)
{
	const struct allocation *a = &c->allocation;
	const char *slots = c->hosts.n && c->hosts.v[0].slots == SLOTS_AUTO
				    ? "one per GPU, else per core"
				    : c->from;

	if (r->verbosity < 1)
		return;
	if (a->manager != ALLOCATION_NONE)
		strv_take(notes, xasprintf("hosts: %s (job %s of %s), slots: %s",
					   a->hosts_from, a->job_id ? a->job_id : "?",
					   a->name, slots));
	else
		strv_take(notes, xasprintf("hosts: %s, slots: %s", c->from, slots));
}

/* -H or a host file, as a part of the allocation if runner is in one; else all of that;
 * else this machine. */
static int choose_hosts(struct chosen *c, const struct request *r, struct strv *notes,
			struct err *e)
{
	const bool asked = r->hosts.n || r->hostfile;
	const size_t list = first_list(r);
	struct err why = { 0 };

	if (r->growing.script) {
		c->from = xasprintf("script '%s'", r->growing.script);
		note_source(c, r, notes);
		return 0;
	}
	if (asked)
		c->from = r->hosts.n ? xstrdup(r->hosts_from)
				     : xasprintf("host file '%s'", r->hostfile);
	else if (list)
		c->from = xstrdup(r->app[list].hosts_from);
	allocation_find(&c->allocation, environ);
	if (c->allocation.manager != ALLOCATION_NONE &&
	    allocation_load(&c->allocation, environ, asked ? &why : e)) {
		if (!asked)
			return -1;
		strv_take(notes, xasprintf("%s; so %s is not compared with it",
					   why.text, c->from));
		allocation_free(&c->allocation);
	}
	if (c->allocation.manager == ALLOCATION_NONE) {
		if (!asked && list)
			return err_set(e, E_APP_HOSTS, list + 1, r->napp);
		if (!asked)
			take_this_machine(c, r);
		read_lists(c, r);
	} else {
		if (!asked && !list)
			take_all(c);
		else if (take_part(c, e))
			return -1;
		if (!asked && list && take_rest(c, e))
			return -1;
		read_lists(c, r);
		if (check_per_host(c, r, e))
			return -1;
		note_gpus(c, r, notes);
	}
	note_source(c, r, notes);
	if (r->nodes && c->hosts.n != (size_t)r->nodes)
		return err_set(e, E_NODES, r->nodes, c->hosts.n, c->from);
	return 0;
}

/* The file of --topology that is meant for NAME, or NULL. */
static const char *topology_of(const struct request *r, const char *name)
{
	const char *file = NULL;

	for (size_t i = 0; i < r->topology.n; i++)
		if (!strcmp(r->topology_host.v[i], name))
			return r->topology.v[i];
		else if (!file && !*r->topology_host.v[i])
			file = r->topology.v[i];
	return file;
}

static bool in_path(const char *program)
{
	const char *at = getenv("PATH");
	bool found = false;

	for (; at && *at && !found; at += strcspn(at, ":"), at += *at == ':') {
		char *path = xasprintf("%.*s/%s", (int)strcspn(at, ":"), at, program);

		found = !access(path, X_OK);
		free(path);
	}
	return found;
}

/* How agents are started on all hosts of FROM, if the user did not choose. */
static enum transport_choice usual_transport(const struct allocation *from)
{
	return from->manager == ALLOCATION_SLURM && in_path("srun") ? TRANSPORT_SRUN
								    : TRANSPORT_AUTO;
}

static int choose_transport(struct host *h, const struct transport_setup *setup,
			    enum transport_choice choice, struct strv *notes,
			    struct err *e)
{
	const char *reason;
	struct str why = { 0 };

	switch (choice) {
	case TRANSPORT_LOCAL:
		if (!h->local)
			return err_set(e, E_TRANSPORT_LOCAL, h->name);
		h->transport = &transport_local;
		break;
	case TRANSPORT_SSH:
		h->transport =
			libssh_load(&reason) ? &transport_ssh : &transport_openssh;
		break;
	case TRANSPORT_OPENSSH:
		h->transport = &transport_openssh;
		break;
	case TRANSPORT_SRUN:
		if (!h->node)
			return err_set(e, E_TRANSPORT_SRUN);
		h->transport = &transport_srun;
		break;
	case TRANSPORT_AUTO:
		h->transport = h->local ? &transport_local
					: transport_remote(setup, &h->target, &why);
	}
	if (why.len)
		strv_take(notes, xasprintf("%s: %s", h->name, why.s));
	str_free(&why);
	return 0;
}

static bool is_me(const char *user)
{
	const struct passwd *pw = user ? getpwuid(geteuid()) : NULL;

	return !user || (pw && !strcmp(pw->pw_name, user));
}

/* Host I of C, whose addresses are FOUND's. */
static void fill_host(struct host *h, struct chosen *c, size_t i,
		      const struct lookup_answer *found, const struct request *r)
{
	const struct host_spec *spec = &c->hosts.v[i];
	const struct allocation *from = &c->allocation;

	*h = (struct host){ .name = xstrdup(spec->name),
			    .user = spec->user ? xstrdup(spec->user) : NULL,
			    .slots = spec->slots,
			    .max_slots = spec->max_slots,
			    .addr = found->addr,
			    .exit_status = -1 };
	if (c->list) {
		h->list = c->list[i];
		c->list[i] = NULL;
	}
	if (from->manager != ALLOCATION_NONE) {
		h->node = xstrdup(from->hosts.v[c->at[i]].name);
		h->node_cpus = from->cpus[c->at[i]];
	}
	h->target = (struct target){ .name = h->name,
				     .user = h->user,
				     .addr = h->addr,
				     .naddr = found->naddr,
				     .node = h->node,
				     .het_group = -1,
				     .port = spec->port,
				     .topology = topology_of(r, h->name) };
}

/* A key in clear is one of the things that -q does not hide. */
static int prepare_key(struct selection *s, const struct allocation *from,
		       struct err *e)
{
	struct str why = { 0 }, config = { 0 };
	enum srun_key key = transport_srun_key(NULL, &why);

	if (key == SRUN_KEY_UNKNOWN) {
		str_free(&why);
		allocation_load_config(&config, from, environ);
		key = transport_srun_key(str_text(&config), &why);
		str_free(&config);
	}
	if (key == SRUN_KEY_CLEAR)
		s->warning =
			xasprintf("agents call back without MUNGE (%s): a process that "
				  "reads what srun sends can pose as an agent, or as "
				  "runner; to use ssh, --transport ssh",
				  str_text(&why));
	else if (key != SRUN_KEY_MUNGE)
		err_set(e, E_SRUN_MUNGE, str_text(&why));
	str_free(&why);
	return key == SRUN_KEY_MUNGE || key == SRUN_KEY_CLEAR ? 0 : -1;
}

/* Notes the facts of each host that srun needs. */
static int prepare_srun(struct selection *s, const struct chosen *c, struct err *e)
{
	char **gpus = xcalloc(c->allocation.hosts.n, sizeof *gpus);
	bool own_gpus;
	int rc = allocation_load_gpus(gpus, &own_gpus, &c->allocation, environ, e);

	for (size_t i = 0; i < s->n && !rc; i++) {
		struct host *h = &s->host[i];

		h->step_gpus = gpus[c->at[i]] ? xstrdup(gpus[c->at[i]]) : NULL;
		h->target.gpus = h->step_gpus;
		h->target.own_gpus = own_gpus;
		h->target.het_group = c->allocation.group[c->at[i]];
	}
	for (size_t i = 0; i < c->allocation.hosts.n; i++)
		free(gpus[i]);
	free(gpus);
	return rc ? rc : prepare_key(s, &c->allocation, e);
}

/* The hosts of C, with addresses and transports. */
static int fill_hosts(struct selection *s, struct chosen *c, const struct request *r,
		      struct strv *notes, struct err *e)
{
	const bool alone = !r->hosts.n && !r->hostfile && !r->growing.script &&
			   c->allocation.manager == ALLOCATION_NONE;
	const enum transport_choice choice = r->reach.transport != TRANSPORT_AUTO
						     ? r->reach.transport
						     : usual_transport(&c->allocation);
	const size_t n = c->hosts.n;
	const char **names = xcalloc(n, sizeof *names);
	struct lookup_answer *found = xcalloc(n, sizeof *found);
	int rc = 0;

	for (size_t i = 0; i < n; i++)
		names[i] = c->hosts.v[i].name;
	if (!alone && !c->offline)
		lookup_all(found, names, n, c->deadline_ms);
	s->host = xcalloc(n, sizeof *s->host);
	s->n = n;
	for (size_t i = 0; i < n; i++) {
		struct host *h = &s->host[i];

		fill_host(h, c, i, &found[i], r);
		h->local = alone || c->offline ||
			   (found[i].is_local && is_me(h->user) && !h->target.port);
		if (c->offline)
			h->transport = &transport_local;
		else if (!rc)
			rc = choose_transport(h, &s->setup, choice, notes, e);
	}
	if (choice == TRANSPORT_SRUN && !rc && !c->offline)
		rc = prepare_srun(s, c, e);
	free(names);
	free(found);
	return rc;
}

int hosts_select_more(struct agents *a, const struct hosts *more,
		      const struct request *r, struct strv *notes, struct err *e)
{
	struct chosen c = { .hosts = *more };
	const char **names = xcalloc(more->n, sizeof *names);
	struct lookup_answer *found = xcalloc(more->n, sizeof *found);
	size_t n = more->n;
	int rc = 0;

	if (n > a->most - a->n) {
		n = a->most - a->n;
		rc = err_set(e, E_HOSTS_FULL, a->most);
	}
	for (size_t i = 0; i < n; i++)
		names[i] = more->v[i].name;
	lookup_all(found, names, n, clock_ms() + LOOKUP_MS);
	for (size_t i = 0; i < n; i++) {
		struct host *h = &a->host[a->n++];

		fill_host(h, &c, i, &found[i], r);
		h->agents = a;
		h->local = found[i].is_local && is_me(h->user) && !h->target.port;
		if (choose_transport(h, &a->setup, r->reach.transport, notes, e))
			rc = -1;
	}
	free(names);
	free(found);
	return rc;
}

struct transport_setup hosts_setup(const struct reach *r, int verbosity)
{
	return (struct transport_setup){
		.ssh_port = r->ssh_port,
		.identity = r->identity,
		.accept_new_hosts = r->accept_new_hosts,
		.agent = r->agent,
		.own_agent = local_agent_path(),
		.no_push = r->no_push,
		.net = r->net,
		.nnet = r->nnet,
		.verbosity = verbosity,
		.deadline_ms = clock_ms() + (uint64_t)r->start_timeout_ms,
	};
}

int hosts_select(struct selection *s, const struct request *r, struct strv *notes,
		 struct err *e)
{
	struct chosen c = { .offline = r->topology.n > 0 };
	int rc = read_asked(&c.hosts, r, e);

	s->begin_ns = clock_ns();
	s->setup = hosts_setup(&r->reach, r->verbosity);
	/* the hosts that are found need time as well */
	c.deadline_ms = clock_ms() + transport_left_ms(&s->setup) / 2;
	if (!rc && c.offline && r->plan == PLAN_OFF)
		rc = err_set(e, E_TOPOLOGY_PLAN);
	rc = rc || choose_hosts(&c, r, notes, e) || fill_hosts(s, &c, r, notes, e);
	s->manager = c.allocation.manager;
	s->slots_from = c.from;
	c.from = NULL;
	chosen_free(&c);
	return rc ? -1 : 0;
}
