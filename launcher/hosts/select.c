#include "launcher/hosts/select.h"

#include <pwd.h>
#include <unistd.h>

#include "launcher/hosts/hosts.h"
#include "launcher/transport/local.h"
#include "launcher/transport/lookup.h"

/* This machine alone: as many slots as -np asks for, else one per GPU or core. */
static void this_machine(char **slots_from, const struct request *r,
			 struct hosts *hosts)
{
	char name[256] = "localhost";
	int np = 0;

	gethostname(name, sizeof name - 1);
	for (size_t i = 0; i < r->napp; i++)
		np += r->app[i].np;
	if (r->per_host)
		np = r->per_host;
	hosts->v = xcalloc(1, sizeof *hosts->v);
	hosts->n = 1;
	hosts->v[0] = (struct host_spec){ .name = xstrdup(name),
					  .slots = np ? np : SLOTS_AUTO };
	*slots_from = xstrdup("this machine");
}

static int read_hosts(struct hosts *hosts, char **slots_from, const struct request *r,
		      struct err *e)
{
	if (r->hosts) {
		*slots_from = xstrdup(r->hosts_from ? r->hosts_from : "-H");
		if (hosts_parse(hosts, r->hosts, e))
			return err_in(e, "%s", *slots_from);
		return 0;
	}
	if (r->hostfile) {
		*slots_from = xasprintf("host file '%s'", r->hostfile);
		return hosts_read_file(hosts, r->hostfile, e);
	}
	this_machine(slots_from, r, hosts);
	return 0;
}

/* FILE of "[host=]file.xml" that is meant for NAME, or NULL. */
static const char *topology_of(const struct request *r, const char *name)
{
	const char *file = NULL;
	size_t len = strlen(name);

	for (size_t i = 0; i < r->topology.n; i++) {
		const char *t = r->topology.v[i], *eq = strchr(t, '=');

		if (!eq)
			file = file ? file : t;
		else if ((size_t)(eq - t) == len && !strncmp(t, name, len))
			return eq + 1;
	}
	return file;
}

static bool is_me(const char *user)
{
	const struct passwd *pw = getpwuid(geteuid());

	return !user || (pw && !strcmp(pw->pw_name, user));
}

static int choose_transport(struct host *h, const struct request *r, struct strv *notes,
			    struct err *e)
{
	struct str why = { 0 };

	switch (r->transport) {
	case TRANSPORT_LOCAL:
		if (!h->local)
			return err_set(e, E_TRANSPORT_LOCAL, h->name);
		h->transport = &transport_local;
		return 0;
	case TRANSPORT_SSH:
		h->transport = &transport_ssh;
		return 0;
	case TRANSPORT_OPENSSH:
		h->transport = &transport_openssh;
		return 0;
	case TRANSPORT_AUTO:
		break;
	}
	h->transport = h->local ? &transport_local : transport_remote(&h->target, &why);
	if (why.len)
		strv_take(notes, xasprintf("%s: %s", h->name, str_text(&why)));
	str_free(&why);
	return 0;
}

static void take_host(struct agents *a, struct host *h, const struct request *r,
		      const struct host_spec *spec)
{
	*h = (struct host){ .agents = a,
			    .name = xstrdup(spec->name),
			    .user = spec->user ? xstrdup(spec->user) : NULL,
			    .slots = spec->slots,
			    .max_slots = spec->max_slots,
			    .exit_status = -1 };
	h->target = (struct target){ .name = h->name,
				     .user = h->user,
				     .topology = topology_of(r, h->name) };
}

/* With a saved topology no host is touched: an agent here answers for each. */
static bool offline(const struct request *r)
{
	return r->topology.n > 0;
}

static int find_hosts(struct agents *a, bool alone, const struct request *r,
		      struct strv *notes, struct err *e)
{
	const char **names = xcalloc(a->n, sizeof *names);
	struct resolved *found = xcalloc(a->n, sizeof *found);
	int rc = 0;

	for (size_t i = 0; i < a->n; i++)
		names[i] = a->host[i].name;
	if (!alone && !offline(r))
		lookup_all(found, names, a->n, a->setup.deadline_ms);
	for (size_t i = 0; !rc && i < a->n; i++) {
		struct host *h = &a->host[i];

		h->addr = found[i].addr;
		h->target.addr = h->addr;
		h->target.naddr = found[i].naddr;
		h->local = alone || offline(r) || (found[i].is_local && is_me(h->user));
		rc = offline(r) ? (h->transport = &transport_local, 0)
				: choose_transport(h, r, notes, e);
	}
	free(names);
	free(found);
	return rc;
}

int hosts_select(struct agents *a, char **slots_from, const struct request *r,
		 struct strv *notes, struct err *e)
{
	struct hosts hosts = { 0 };
	bool alone = !r->hosts && !r->hostfile;

	if (offline(r) && r->plan == PLAN_OFF)
		return err_set(e, E_TOPOLOGY_PLAN);
	if (read_hosts(&hosts, slots_from, r, e))
		return -1;
	a->host = xcalloc(hosts.n, sizeof *a->host);
	a->n = hosts.n;
	for (size_t i = 0; i < hosts.n; i++)
		take_host(a, &a->host[i], r, &hosts.v[i]);
	hosts_free(&hosts);
	a->setup.own_agent = local_agent_path();
	return find_hosts(a, alone, r, notes, e);
}
