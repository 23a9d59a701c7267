#include "launcher/hosts/select.h"

#include <pwd.h>
#include <unistd.h>

#include "launcher/hosts/hosts.h"
#include "launcher/transport/libssh.h"
#include "launcher/transport/local.h"
#include "launcher/transport/lookup.h"

static int read_hosts(struct hosts *hosts, char **slots_from, const struct request *r,
		      struct err *e)
{
	char name[256] = "localhost";
	int np = 0;

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
	/* this machine: as many slots as -np asks for, else one per GPU or core */
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

static int choose_transport(struct host *h, const struct request *r, struct strv *notes,
			    struct err *e)
{
	const char *reason;
	struct str why = { 0 };

	switch (r->transport) {
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
		h->transport = &transport_srun;
		break;
	case TRANSPORT_AUTO:
		h->transport = h->local ? &transport_local
					: transport_remote(&h->agents->setup,
							   &h->target, &why);
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

int hosts_select(struct agents *a, char **slots_from, const struct request *r,
		 struct strv *notes, struct err *e)
{
	/* with a saved topology no host is touched: an agent here answers for each */
	const bool offline = r->topology.n > 0;
	const bool alone = !r->hosts && !r->hostfile;
	/* the hosts that are found need time as well */
	const uint64_t deadline_ms = clock_ms() + transport_left_ms(&a->setup) / 2;
	struct hosts hosts = { 0 };
	struct lookup_answer *found;
	const char **names;
	int rc = 0;

	if (offline && r->plan == PLAN_OFF)
		return err_set(e, E_TOPOLOGY_PLAN);
	if (read_hosts(&hosts, slots_from, r, e))
		return -1;
	if (r->nodes && hosts.n != (size_t)r->nodes) {
		err_set(e, E_NODES, r->nodes, hosts.n, *slots_from);
		hosts_free(&hosts);
		return -1;
	}
	names = xcalloc(hosts.n, sizeof *names);
	found = xcalloc(hosts.n, sizeof *found);
	for (size_t i = 0; i < hosts.n; i++)
		names[i] = hosts.v[i].name;
	if (!alone && !offline)
		lookup_all(found, names, hosts.n, deadline_ms);
	a->setup.own_agent = local_agent_path();
	a->host = xcalloc(hosts.n, sizeof *a->host);
	a->n = hosts.n;
	for (size_t i = 0; i < hosts.n; i++) {
		const struct host_spec *spec = &hosts.v[i];
		struct host *h = &a->host[i];

		*h = (struct host){ .agents = a,
				    .name = xstrdup(spec->name),
				    .user = spec->user ? xstrdup(spec->user) : NULL,
				    .slots = spec->slots,
				    .max_slots = spec->max_slots,
				    .addr = found[i].addr,
				    .exit_status = -1 };
		h->target = (struct target){ .name = h->name,
					     .user = h->user,
					     .addr = h->addr,
					     .naddr = found[i].naddr,
					     .port = spec->port,
					     .topology = topology_of(r, h->name) };
		h->local = alone || offline ||
			   (found[i].is_local && is_me(h->user) && !spec->port);
		if (offline)
			h->transport = &transport_local;
		else if (!rc)
			rc = choose_transport(h, r, notes, e);
	}
	free(names);
	free(found);
	hosts_free(&hosts);
	return rc;
}
