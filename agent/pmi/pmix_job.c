/* The job-level data of the PMIx standard: they tell libpmix of the ranks.  Names of
 * hosts and ranks of each go as plain lists ("raw:").  Of ranks elsewhere only their
 * place is said, and in a large job not even that, but for the host's name: what
 * libpmix holds of a rank costs it 1 KiB and more in each server (64,000 ranks:
 * 780 MB). */
#include <errno.h>
#include <dlfcn.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/pmi/pmix_child_internal.h"

/* ---- lists ---- */

static struct px_value *job_add(struct px_list *l, const char *key, uint16_t type)
{
	struct px_info *i;

	l->v = xreallocarray(l->v, l->n + 1, sizeof *l->v);
	i = &l->v[l->n++];
	*i = (struct px_info){ .value = { .type = type } };
	snprintf(i->key, sizeof i->key, "%s", key);
	return &i->value;
}

void px_text(struct px_list *l, const char *key, const char *text)
{
	job_add(l, key, PX_STRING)->data.string = xstrdup(text);
}

void px_flag(struct px_list *l, const char *key, bool flag)
{
	job_add(l, key, PX_BOOL)->data.flag = flag;
}

void px_u32(struct px_list *l, const char *key, uint32_t number)
{
	job_add(l, key, PX_UINT32)->data.uint32 = number;
}

void px_size(struct px_list *l, const char *key, size_t size)
{
	job_add(l, key, PX_SIZE)->data.size = size;
}

static void px_u16(struct px_list *l, const char *key, size_t number)
{
	job_add(l, key, PX_UINT16)->data.uint16 = (uint16_t)number;
}

void px_rank(struct px_list *l, const char *key, uint32_t rank)
{
	job_add(l, key, PX_RANK)->data.uint32 = rank;
}

/* Takes over TEXT. */
static void px_regex(struct px_list *l, const char *key, char *text)
{
	job_add(l, key, PX_REGEX)->data.bytes =
		(struct px_bytes){ text, strlen(text) + 1 };
}

/* Takes over INNER. */
static void px_array(struct px_list *l, const char *key, const struct px_list *inner)
{
	struct px_array *a = xmalloc(sizeof *a);

	*a = (struct px_array){ PX_INFO, inner->n, inner->v };
	job_add(l, key, PX_ARRAY)->data.array = a;
}

void px_list_free(struct px_list *l)
{
	for (size_t i = 0; i < l->n; i++) {
		struct px_value *v = &l->v[i].value;

		if (v->type == PX_STRING)
			free(v->data.string);
		else if (v->type == PX_REGEX)
			free(v->data.bytes.bytes);
		else if (v->type == PX_ARRAY) {
			struct px_array *a = v->data.array;

			px_list_free(&(struct px_list){ a->v, a->size });
			free(a);
		}
	}
	free(l->v);
	*l = (struct px_list){ 0 };
}

/* ---- the job ---- */

/* The ranks of each host. */
struct layout {
	struct str *peers; /* "0,1,2" */
	uint32_t *n, *first;
};

static struct layout lay_out(const struct wire_pmix_job *m)
{
	struct layout l = { xcalloc(m->names.n, sizeof *l.peers),
			    xcalloc(m->names.n, sizeof *l.n),
			    xcalloc(m->names.n, sizeof *l.first) };

	for (uint32_t rank = 0; rank < m->np; rank++) {
		const uint32_t host = m->hosts.v[rank];

		if (!l.n[host]++)
			l.first[host] = rank;
		str_addf(&l.peers[host], "%s%u", l.peers[host].len ? "," : "", rank);
	}
	return l;
}

static void add_maps(struct px_list *l, const struct wire_pmix_job *m,
		     const struct layout *lay)
{
	struct str hosts = { 0 }, ranks = { 0 }, vector = { 0 };

	str_add(&hosts, "raw:");
	str_add(&ranks, "raw:");
	str_add(&vector, "(vector");
	for (size_t i = 0; i < m->names.n; i++) {
		str_addf(&hosts, "%s%s", i ? "," : "", m->names.v[i]);
		str_addf(&ranks, "%s%s", i ? ";" : "", str_text(&lay->peers[i]));
	}
	for (uint32_t rank = 0, n; rank < m->np; rank += n) {
		n = 1;
		while (rank + n < m->np && m->hosts.v[rank + n] == m->hosts.v[rank])
			n++;
		str_addf(&vector, ",(%u,1,%u)", m->hosts.v[rank], n);
	}
	str_add(&vector, ")");
	px_regex(l, PX_NODE_MAP, str_take(&hosts));
	px_regex(l, PX_PROC_MAP, str_take(&ranks));
	px_text(l, PX_ANL_MAP, str_text(&vector));
	str_free(&vector);
}

static uint32_t app_end(const struct wire_pmix_job *m, size_t app)
{
	return app + 1 < m->apps.n ? m->apps.v[app + 1] : m->np;
}

static size_t app_of(const struct wire_pmix_job *m, uint32_t rank)
{
	size_t app = 0;

	while (app + 1 < m->apps.n && app_end(m, app) <= rank)
		app++;
	return app;
}

/* Where a process with CPUS, a list of OS indexes, is in the machine, as libpmix says
 * it; "" if it does not.  Its own hwloc knows its bitmaps. */
static char *job_locality(const char *cpus)
{
	void *(*alloc)(void) = (void *(*)(void))dlsym(px.library, "hwloc_bitmap_alloc");
	int (*scan)(void *, const char *) = (int (*)(void *, const char *))dlsym(
		px.library, "hwloc_bitmap_list_sscanf");
	void (*release)(void *) =
		(void (*)(void *))dlsym(px.library, "hwloc_bitmap_free");
	char hwloc[] = "hwloc", *text = NULL;
	struct px_cpuset set = { hwloc, NULL };

	if (!*cpus || !alloc || !scan || !release)
		return NULL;
	set.bitmap = alloc();
	if (set.bitmap && !scan(set.bitmap, cpus) &&
	    px.server_generate_locality_string(&set, &text) != PX_SUCCESS)
		text = NULL;
	release(set.bitmap);
	return text;
}

static void add_place(struct px_list *one, const struct wire_pmix_job *m, uint32_t rank,
		      size_t local)
{
	const size_t app = app_of(m, rank);

	px_rank(one, PX_KEY_RANK, rank); /* the first: names the process */
	px_u16(one, PX_LOCAL_RANK, local);
	px_u16(one, PX_NODE_RANK, local);
	px_u32(one, PX_NODEID, m->hosts.v[rank]);
	px_text(one, PX_HOSTNAME, m->names.v[m->hosts.v[rank]]);
	px_rank(one, PX_GLOBAL_RANK, rank);
	px_u32(one, PX_APPNUM, (uint32_t)app);
	px_rank(one, PX_APP_RANK, rank - m->apps.v[app]);
}

static void add_rank(struct px_list *l, const struct wire_pmix_job *m, size_t local)
{
	struct px_list one = { 0 };
	char *place = job_locality(m->cpus.v[local]), *folder;

	add_place(&one, m, m->ranks.v[local], local);
	px_u32(&one, PX_REINCARNATION, m->restarts);
	if (*m->cpus.v[local])
		px_text(&one, PX_CPUSET, m->cpus.v[local]);
	if (place)
		px_text(&one, PX_LOCALITY, place);
	/* Open MPI makes it where nobody has, with all above it: also while this host
	 * is cleared after a KILL of the agent.  So ranks that are known to want it
	 * find it; for others it would take 0.1 ms each. */
	folder = xasprintf("%s/job/%u", px.folder, m->ranks.v[local]);
	if (px.expected && !mkdir(folder, 0700))
		px_text(&one, PX_PROCDIR, folder);
	free(folder);
	px_array(l, PX_PROC_INFO, &one);
	free(place);
}

static void add_job(struct px_list *l, const struct wire_pmix_job *m)
{
	char *folder = xasprintf("%s/job", px.folder);

	px_text(l, PX_JOBID, px.nspace);
	px_u32(l, PX_JOB_SIZE, m->np);
	px_u32(l, PX_UNIV_SIZE, m->np);
	px_u32(l, PX_MAX_PROCS, m->np);
	px_u32(l, PX_NUM_NODES, (uint32_t)m->names.n);
	px_u32(l, PX_JOB_NUM_APPS, (uint32_t)m->apps.n);
	px_rank(l, PX_NPROC_OFFSET, 0);
	px_text(l, PX_MAPBY, "slot");
	px_text(l, PX_RANKBY, "slot");
	px_text(l, PX_BINDTO, "none");
	px_flag(l, PX_KEEP_FQDN, true);
	px_flag(l, PX_SPAWNED, false);
	px_flag(l, PX_OVERSUBSCRIBED, m->oversubscribed);
	px_text(l, PX_RM_NAME, "berth");
	px_text(l, PX_TMPDIR, px.folder);
	if (!mkdir(folder, 0700))
		px_text(l, PX_NSDIR, folder);
	px_flag(l, PX_TDIR_RMCLEAN, true);
	free(folder);
}

static int register_job(const struct wire_pmix_job *m)
{
	struct px_list l = { 0 };
	struct layout lay = lay_out(m);
	uint32_t *local = xcalloc(m->names.n, sizeof *local);
	int status;

	add_maps(&l, m, &lay);
	add_job(&l, m);
	px_u32(&l, PX_LOCAL_SIZE, lay.n[m->node]);
	px_u32(&l, PX_NODE_SIZE, lay.n[m->node]);
	px_rank(&l, PX_LOCAL_LEADER, lay.first[m->node]);
	px_text(&l, PX_LOCAL_PEERS, str_text(&lay.peers[m->node]));
	for (uint32_t i = 0; i < m->names.n; i++) {
		struct px_list one = { 0 };

		px_text(&one, PX_HOSTNAME,
			m->names.v[i]); /* the first: names the host */
		px_u32(&one, PX_NODEID, i);
		px_u32(&one, PX_NODE_SIZE, lay.n[i]);
		px_u32(&one, PX_LOCAL_SIZE, lay.n[i]);
		px_rank(&one, PX_LOCAL_LEADER, lay.first[i]);
		px_text(&one, PX_LOCAL_PEERS, str_text(&lay.peers[i]));
		px_array(&l, PX_NODE_INFO, &one);
	}
	for (size_t i = 0; i < m->apps.n; i++) {
		struct px_list one = { 0 };

		px_u32(&one, PX_APPNUM, (uint32_t)i);
		px_u32(&one, PX_APP_SIZE, app_end(m, i) - m->apps.v[i]);
		px_rank(&one, PX_APP_LEADER, m->apps.v[i]);
		px_text(&one, PX_APP_ARGV, m->commands.v[i]);
		px_text(&one, PX_WDIR, m->folders.v[i]);
		px_array(&l, PX_APP_INFO, &one);
	}
	for (size_t i = 0; i < m->ranks.n; i++)
		add_rank(&l, m, i);
	/* once libpmix is told of one rank elsewhere, it derives nothing of others */
	for (uint32_t rank = 0; m->np < PMIX_LARGE_JOB && rank < m->np; rank++) {
		const uint32_t host = m->hosts.v[rank], here = local[host]++;
		struct px_list one = { 0 };

		if (host == m->node)
			continue;
		add_place(&one, m, rank, here);
		px_array(&l, PX_PROC_INFO, &one);
	}
	status = px.server_register_nspace(px.nspace, (int)m->ranks.n, l.v, l.n, NULL,
					   NULL);
	px_list_free(&l);
	for (size_t i = 0; i < m->names.n; i++)
		str_free(&lay.peers[i]);
	free(lay.peers);
	free(lay.n);
	free(lay.first);
	free(local);
	return status == PX_DONE ? PX_SUCCESS : status;
}

/* Numbers and lists fit one another: what is told is looked up by them. */
static bool pmix_job_is_sound(const struct wire_pmix_job *m)
{
	bool sound = m->hosts.n == m->np && m->node < m->names.n && m->ranks.n &&
		     m->cpus.n == m->ranks.n && m->apps.n && !m->apps.v[0] &&
		     m->commands.n == m->apps.n && m->folders.n == m->apps.n;

	for (size_t i = 0; sound && i < m->np; i++)
		sound = m->hosts.v[i] < m->names.n;
	for (size_t i = 0; sound && i < m->ranks.n; i++)
		sound = m->ranks.v[i] < m->np;
	return sound && wire_ascends(&m->apps, m->np);
}

void job_register(const struct wire_pmix_job *m)
{
	struct strv environment = { 0 };
	struct str error = { 0 };
	uint32_t *counts = xcalloc(m->ranks.n, sizeof *counts);
	int status = pmix_job_is_sound(m) ? register_job(m) : PX_BAD_PARAM;

	if (status != PX_SUCCESS)
		str_addf(&error, "PMIx_server_register_nspace: %s",
			 px.Error_string(status));
	else
		px.data_most = EXCHANGE_PMIX_BYTES / m->names.n;
	for (size_t i = 0; !error.len && i < m->ranks.n; i++) {
		struct px_proc proc = { .rank = m->ranks.v[i] };
		char **env = NULL;

		memcpy(proc.nspace, px.nspace, sizeof proc.nspace);
		status = px.server_register_client(&proc, geteuid(), getegid(), NULL,
						   NULL, NULL);
		if (px.server_setup_fork(&proc, &env) != PX_SUCCESS ||
		    (status != PX_SUCCESS && status != PX_DONE))
			str_addf(&error, "PMIx_server_register_client: %s",
				 px.Error_string(status));
		for (; env && env[counts[i]]; counts[i]++)
			strv_take(&environment, env[counts[i]]);
		free(env);
	}
	CHILD_SAY(pmix_ready,
		  &(struct wire_pmix_ready){
			  .environment = { (const char *const *)environment.v,
					   environment.n },
			  .counts = { counts, m->ranks.n },
			  .error = str_text(&error) });
	strv_free(&environment);
	str_free(&error);
	free(counts);
}
