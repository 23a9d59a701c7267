/* On which hosts all ranks of the job are: asked of the launcher once it is needed. */
#include "agent/pmi/server_internal.h"

bool host_map_known(struct server *s)
{
	if (s->host || s->job->nodes == 1)
		return true;
	if (!s->host_map_requested)
		wire_pack_host_map_request(
			s->out, &(struct wire_host_map_request){ s->job->epoch });
	s->host_map_requested = true;
	return false;
}

void host_map_alone(struct server *s)
{
	const struct wire_job *job = s->job;

	for (size_t i = 0; i < job->apps.n; i++)
		if (job->apps.v[i] >= s->napps)
			s->napps = job->apps.v[i] + 1;
	s->app = xcalloc(s->napps, sizeof *s->app);
	for (size_t i = job->apps.n; i--;)
		s->app[job->apps.v[i]] = job->ranks.v[i];
}

int host_map_take(struct server *s, const struct wire_host_map *m, struct err *e)
{
	const struct wire_job *job = s->job;
	bool sound = m->hosts.n == job->np && m->names.n == job->nodes &&
		     m->own.n == job->nodes && m->apps.n && !m->apps.v[0];

	for (size_t i = 0; sound && i < m->hosts.n; i++)
		sound = m->hosts.v[i] < job->nodes;
	if (!sound || !wire_ascends(&m->apps, job->np))
		return err_set(e, E_WIRE, "malformed 'host_map' message");
	host_map_free(s); /* of a time when the job had other hosts */
	s->nhosts = job->nodes;
	s->host = xcalloc(job->np, sizeof *s->host);
	memcpy(s->host, m->hosts.v, job->np * sizeof *s->host);
	s->host_name = xcalloc(job->nodes, sizeof *s->host_name);
	s->own_name = xcalloc(job->nodes, sizeof *s->own_name);
	for (size_t i = 0; i < job->nodes; i++) {
		s->host_name[i] = xstrdup(m->names.v[i]);
		s->own_name[i] = xstrdup(m->own.v[i]);
	}
	s->napps = m->apps.n;
	s->app = xcalloc(s->napps, sizeof *s->app);
	memcpy(s->app, m->apps.v, s->napps * sizeof *s->app);
	return 0;
}

void host_map_free(struct server *s)
{
	for (size_t i = 0; s->host_name && i < s->nhosts; i++) {
		free(s->host_name[i]);
		free(s->own_name[i]);
	}
	free(s->host);
	free(s->host_name);
	free(s->own_name);
	free(s->app);
}

uint32_t host_of(const struct server *s, uint32_t rank)
{
	return s->host ? s->host[rank] : 0;
}

const char *host_name_of(const struct server *s, uint32_t host)
{
	return s->host_name ? s->host_name[host] : s->job->host;
}

const char *own_name_of(const struct server *s, uint32_t host)
{
	return s->own_name ? s->own_name[host] : s->job->own;
}

uint32_t *ranks_by_host(const struct server *s)
{
	uint32_t *rank = xcalloc(s->job->np, sizeof *rank),
		 *end = xcalloc(s->job->nodes, sizeof *end), n = 0;

	for (uint32_t i = 0; i < s->job->np; i++)
		end[host_of(s, i)]++;
	for (uint32_t i = 0; i < s->job->nodes; i++)
		end[i] = n += end[i];
	for (uint32_t i = s->job->np; i--;)
		rank[--end[host_of(s, i)]] = i;
	free(end);
	return rank;
}

/* From rank I on: how many in a row are on one host. */
static uint32_t run_from(const struct server *s, uint32_t i)
{
	uint32_t n = 1;

	while (i + n < s->job->np && host_of(s, i + n) == host_of(s, i))
		n++;
	return n;
}

char *host_map_vector(const struct server *s)
{
	struct str text = { 0 };

	str_add(&text, "(vector");
	for (uint32_t i = 0; i < s->job->np;) {
		const uint32_t first = host_of(s, i), each = run_from(s, i);
		uint32_t hosts = 1;

		i += each;
		while (i < s->job->np && host_of(s, i) == first + hosts &&
		       run_from(s, i) == each) {
			hosts++;
			i += each;
		}
		str_addf(&text, ",(%u,%u,%u)", first, hosts, each);
	}
	str_add(&text, ")");
	return str_take(&text);
}
