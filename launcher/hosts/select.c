#include "launcher/hosts/select.h"

#include <pwd.h>
#include <unistd.h>

#include "launcher/hosts/hosts.h"
#include "launcher/transport/local.h"
#include "launcher/job/report.h"
#include "launcher/transport/lookup.h"

/* This machine alone: as many slots as -np asks for, else one per GPU or core. */
static void this_machine(struct session *s, struct hosts *hosts)
{
	char name[256] = "localhost";
	int np = 0;

	gethostname(name, sizeof name - 1);
	for (size_t i = 0; i < s->request->napp; i++)
		np += s->request->app[i].np;
	if (s->request->per_host)
		np = s->request->per_host;
	hosts->v = xcalloc(1, sizeof *hosts->v);
	hosts->n = 1;
	hosts->v[0] = (struct host_spec){ .name = xstrdup(name),
					  .slots = np ? np : SLOTS_AUTO };
	s->slots_from = xstrdup("this machine");
}

static int read_hosts(struct session *s, struct hosts *hosts)
{
	const struct request *r = s->request;

	if (r->hosts) {
		s->slots_from = xstrdup(r->hosts_from ? r->hosts_from : "-H");
		if (hosts_parse(hosts, r->hosts, &s->err))
			return err_in(&s->err, "%s", s->slots_from);
		return 0;
	}
	if (r->hostfile) {
		s->slots_from = xasprintf("host file '%s'", r->hostfile);
		return hosts_read_file(hosts, r->hostfile, &s->err);
	}
	this_machine(s, hosts);
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

static int choose_transport(struct session *s, struct host *h)
{
	struct str why = { 0 };

	switch (s->request->transport) {
	case TRANSPORT_LOCAL:
		if (!h->local)
			return err_set(&s->err, E_TRANSPORT_LOCAL, h->name);
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
	if (why.len && s->request->verbosity >= 0)
		report_note(s, "runner: %s: %s", h->name, str_text(&why));
	str_free(&why);
	return 0;
}

static void take_host(struct session *s, struct host *h, const struct host_spec *spec)
{
	*h = (struct host){ .agents = &s->agents,
			    .name = xstrdup(spec->name),
			    .user = spec->user ? xstrdup(spec->user) : NULL,
			    .slots = spec->slots,
			    .max_slots = spec->max_slots,
			    .exit_status = -1 };
	h->target = (struct target){ .name = h->name,
				     .user = h->user,
				     .topology = topology_of(s->request, h->name) };
}

/* With a saved topology no host is touched: an agent here answers for each. */
static bool offline(const struct request *r)
{
	return r->topology.n > 0;
}

static int find_hosts(struct session *s, bool alone)
{
	const char **names = xcalloc(s->agents.n, sizeof *names);
	struct resolved *found = xcalloc(s->agents.n, sizeof *found);
	int rc = 0;

	for (size_t i = 0; i < s->agents.n; i++)
		names[i] = s->agents.host[i].name;
	if (!alone && !offline(s->request))
		lookup_all(found, names, s->agents.n, s->agents.setup.deadline_ms);
	for (size_t i = 0; !rc && i < s->agents.n; i++) {
		struct host *h = &s->agents.host[i];

		h->addr = found[i].addr;
		h->target.addr = h->addr;
		h->target.naddr = found[i].naddr;
		h->local = alone || offline(s->request) ||
			   (found[i].is_local && is_me(h->user));
		rc = offline(s->request) ? (h->transport = &transport_local, 0)
					 : choose_transport(s, h);
	}
	free(names);
	free(found);
	return rc;
}

int hosts_select(struct session *s)
{
	struct hosts hosts = { 0 };
	bool alone = !s->request->hosts && !s->request->hostfile;
	int rc;

	if (offline(s->request) && s->request->plan == PLAN_OFF)
		return err_set(&s->err, E_TOPOLOGY_PLAN);
	if (read_hosts(s, &hosts))
		return -1;
	s->agents.host = xcalloc(hosts.n, sizeof *s->agents.host);
	s->agents.n = hosts.n;
	for (size_t i = 0; i < hosts.n; i++)
		take_host(s, &s->agents.host[i], &hosts.v[i]);
	hosts_free(&hosts);
	s->agents.setup.own_agent = local_agent_path();
	rc = find_hosts(s, alone);
	return rc;
}
