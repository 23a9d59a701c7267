#include "launcher/job/job_spec.h"

#include <errno.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/package.h"
#include "launcher/hosts.h"
#include "launcher/job/env_forward.h"
#include "launcher/job/gpu_visible.h"
#include "launcher/job/tf_config.h"
#include "launcher/job/warm.h"
#include "launcher/output/lines.h"
#include "launcher/transport/lookup.h"

extern char **environ;

enum {
	/* Bytes of output in flight from all hosts: runner holds them in memory while a
	 * terminal is slow. */
	CREDIT_ALL = 8 << 20,
	CREDIT_LEAST = 16 << 10,
	CREDIT_MOST = 1 << 20,
	VARIABLE_MAX_BYTES = 64 << 10, /* Linux: 128 KiB with its name */
	LOST_BYTES = 32,               /* of a `lost` of one rank */
	COLUMNS_LEAST = 20             /* that a rank gets of a narrow terminal */
};

/* N bytes that cannot be guessed. */
static void random_bytes(void *bytes, size_t n)
{
	if (getrandom(bytes, n, 0) != (ssize_t)n)
		die("no random numbers", errno);
}

static bool in_managed_job(void)
{
	static const char *const names[] = { "SLURM_JOB_ID", "PBS_JOBID",
					     "LSB_JOBID",    "FLUX_JOB_ID",
					     "FLUX_URI",     "COBALT_JOBID",
					     "PE_HOSTFILE" };

	for (size_t i = 0; i < sizeof names / sizeof *names; i++)
		if (getenv(names[i]))
			return true;
	return false;
}

void job_spec_open(struct job_spec *s)
{
	struct rlimit l = { RLIM_INFINITY, RLIM_INFINITY };
	unsigned char random[16];
	char cwd[4096];

	random_bytes(random, sizeof random);
	str_hex(s->job_id, random, sizeof random);
	s->cwd = xstrdup(getcwd(cwd, sizeof cwd) ? cwd : "/");
	s->python = package_own();
	if (!s->python)
		s->python = xstrdup("");
	s->managed = in_managed_job();
	/* One descriptor and more for each host and rank: use what the system
	 * allows. */
	getrlimit(RLIMIT_NOFILE, &l);
	s->nofile = l.rlim_cur == RLIM_INFINITY ? UINT64_MAX : l.rlim_cur;
	l.rlim_cur = l.rlim_max;
	setrlimit(RLIMIT_NOFILE, &l);
}

void job_spec_free(struct job_spec *s)
{
	free(s->master_addr);
	free(s->visible_why);
	free(s->cwd);
	free(s->python);
	strv_free(&s->gpus);
	for (size_t i = 0; i < s->napps; i++)
		strv_free(&s->app_env[i]);
	free(s->app_env);
}

/* ---- what -x sets ---- */

/* Reads the variables that --export names, --env-file and -x of each app. */
static int read_environments(struct job *j, const struct strv *own)
{
	const struct request *r = j->request;

	for (size_t i = 0; i < r->napp; i++) {
		struct strv *env = &j->spec.app_env[i];

		if (env_forward_asked(env, &r->env, own, &j->err) ||
		    env_forward_export(env, &r->app[i].export, own, &j->err))
			return -1;
	}
	return 0;
}

/* The GPUs that -x names, if it does, are those of --gpus: each rank sees its own of
 * them.  All apps have the same ones. */
static int read_gpus(struct job *j)
{
	struct strv *gpus = &j->spec.gpus;
	const bool given = gpus->n > 0;
	const char *name = "", *first_name = "";
	static const char other[] = "what another program of the job gets";
	char *first = NULL;
	int rc = 0;

	for (size_t i = 0; !rc && i < j->spec.napps; i++) {
		struct strv words = { 0 };
		bool same;
		char *list;

		rc = env_forward_gpus(&list, &name, &j->spec.app_env[i], &j->err);
		if (list)
			request_list_gpus(&words, list);
		same = words.n == gpus->n;
		for (size_t k = 0; same && k < words.n; k++)
			same = !strcmp(words.v[k], gpus->v[k]);
		if (list && gpus->n && !same)
			rc = err_set(&j->err, E_EXPORT_GPUS, name, list,
				     given ? "--gpus" : other);
		else if (!rc && i && !list != !first)
			rc = err_set(&j->err, E_EXPORT_GPUS, list ? name : first_name,
				     list ? list : first, other);
		if (list && !gpus->n)
			*gpus = words;
		else
			strv_free(&words);
		if (i) {
			free(list);
			continue;
		}
		first = list;
		first_name = name;
	}
	free(first);
	return rc;
}

int job_spec_read(struct job *j)
{
	const struct request *r = j->request;
	struct job_spec *s = &j->spec;
	struct strv own = { 0 };
	bool any = false;
	int rc;

	if (s->app_env) /* a later epoch */
		return 0;
	s->app_env = xcalloc(r->napp, sizeof *s->app_env);
	s->napps = r->napp;
	for (size_t i = 0; i < r->gpus.n; i++)
		strv_add(&s->gpus, r->gpus.v[i]);
	for (char **p = environ; *p; p++)
		strv_add(&own, *p);
	for (size_t i = 0; i < j->agents.n; i++)
		any |= j->agents.host[i].state == HOST_UP && j->agents.host[i].gpus;
	rc = read_environments(j, &own);
	if (!rc && any && r->gpu_visible != VISIBLE_INHERIT)
		rc = read_gpus(j);
	strv_free(&own);
	return rc;
}

/* ---- GPUs ---- */

void job_spec_choose_visible(struct job *j)
{
	const struct request *r = j->request;
	struct strv env = { 0 };
	bool any = false, enough = true; /* GPUs: one; one for each rank of each host */

	j->spec.visible = r->gpu_visible;
	if (j->spec.visible != VISIBLE_AUTO) {
		j->spec.visible_why = xstrdup("--gpu-visible");
		return;
	}
	j->spec.visible = VISIBLE_ONE;
	j->spec.visible_why =
		xstrdup("no script that takes its local rank for a device");
	for (size_t i = 0; i < j->agents.n; i++) {
		any |= j->agents.host[i].gpus > 0;
		enough &= !job_needs(j, i) ||
			  j->agents.host[i].gpus >= j->plan.local_size[i];
	}
	if (r->plan == PLAN_OFF && !any)
		return;
	for (char **p = environ; *p; p++)
		strv_add(&env, *p);
	for (size_t i = 0; i < r->napp && j->spec.visible == VISIBLE_ONE; i++) {
		struct visible v = { 0 };

		visible_find(&v, &r->app[i].argv, r->app[i].wdir, &env);
		if (v.mode == VISIBLE_NODE && (r->plan != PLAN_OFF || enough)) {
			j->spec.visible = VISIBLE_NODE;
			free(j->spec.visible_why);
			j->spec.visible_why =
				v.line ? xasprintf("%s:%zu: %s", v.file, v.line, v.word)
				       : xstrdup(v.file);
		}
		visible_free(&v);
	}
	strv_free(&env);
}

/* ---- the job frame ---- */

/* This machine's address on the way to H, into TEXT; false: none, or a loopback one. */
static bool find_address_towards(const struct host *h, char *text, size_t n)
{
	struct sockaddr_storage there;
	bool found = h->target.naddr && !lookup_local_towards(h->target.addr, text, n);

	/* a name that only ssh_config knows: ssh reached the agent at that address */
	if (!found && !lookup_number(h->address, &there))
		found = !lookup_local_towards(&there, text, n);
	return found && strncmp(text, "127.", 4) && strcmp(text, "::1");
}

/* The address at which the other hosts reach HOST.  The caller frees it. */
static char *spec_address(const struct job *j, size_t host)
{
	const struct host *h = &j->agents.host[host];
	char text[LOOKUP_TEXT_BYTES];
	bool found = false;

	if (j->plan.nodes > 1 && (!h->local || h->transport == &transport_srun) &&
	    h->address && *h->address)
		return xstrdup(h->address);
	for (size_t i = 0; j->plan.nodes > 1 && !found && i < j->agents.n; i++)
		if (job_needs(j, i) && !j->agents.host[i].local)
			found = find_address_towards(&j->agents.host[i], text,
						     sizeof text);
	return xstrdup(found ? text : "127.0.0.1");
}

static uint64_t soft_limit(int what)
{
	struct rlimit l = { RLIM_INFINITY, RLIM_INFINITY };

	getrlimit((__rlimit_resource_t)what, &l);
	return l.rlim_cur == RLIM_INFINITY ? UINT64_MAX : l.rlim_cur;
}

static bool has_ptys(const struct job *j)
{
	return j->request->output.pty || isatty(STDOUT_FILENO);
}

/* The size of the user's terminal, if there is one.  Its columns are those behind the
 * label of a line: a program that fills its lines would have each of them wrapped. */
static void put_window(const struct job *j, struct host *h)
{
	const struct request *r = j->request;
	const unsigned label = lines_label_columns(r->output.tag_style,
						   r->output.timestamps, j->plan.np);
	static const int fds[] = { STDOUT_FILENO, STDERR_FILENO, STDIN_FILENO };
	struct winsize size = { 0 };
	struct wire_window m;

	if (!has_ptys(j))
		return;
	for (size_t i = 0; i < sizeof fds / sizeof *fds && !size.ws_col; i++)
		ioctl(fds[i], TIOCGWINSZ, &size);
	m.rows = size.ws_row;
	m.columns = size.ws_col;
	if (m.columns > COLUMNS_LEAST)
		m.columns = m.columns > label + COLUMNS_LEAST ? m.columns - label
							      : COLUMNS_LEAST;
	if (size.ws_col)
		wire_pack_window(&h->out, &m);
}

void job_spec_window(struct job *j)
{
	for (size_t i = 0; i < j->agents.n; i++) {
		if (!job_reaches(j, i))
			continue;
		put_window(j, &j->agents.host[i]);
		agents_flush(&j->agents.host[i]);
	}
}

static int by_text(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Inside a Slurm job, the hosts with ranks as Slurm would list those of a step.  A list
 * that is longer than a variable can be is left out. */
static void list_hosts(const struct job *j, struct str *list)
{
	const char **names;
	size_t n = 0;

	if (!j->spec.managed || !getenv("SLURM_JOB_ID"))
		return;
	names = xcalloc(j->plan.nodes, sizeof *names);
	for (size_t i = 0; i < j->agents.n; i++) {
		const struct host *h = &j->agents.host[i];

		if (job_needs(j, i))
			names[n++] = h->node ? h->node : h->name;
	}
	hosts_fold(list, names, n);
	free(names);
	if (list->len > VARIABLE_MAX_BYTES)
		str_free(list);
}

static uint32_t job_flags(const struct job *j)
{
	const struct request *r = j->request;
	uint32_t flags = 0;

	if (r->plan != PLAN_OFF)
		flags |= JOB_PLAN;
	if (r->plan == PLAN_SVG || r->plan == PLAN_PNG)
		flags |= JOB_DRAW;
	if (has_ptys(j))
		flags |= JOB_PTY;
	if (r->no_gpu_sharing)
		flags |= JOB_NO_GPU_SHARING;
	if (j->spec.managed)
		flags |= JOB_MANAGED;
	if (j->growth.tick)
		flags |= JOB_GROWS;
	if (r->check)
		flags |= JOB_LISTEN;
	if (r->env.forward_listed)
		flags |= JOB_OWN_ENV;
	if (r->horovod == HOROVOD_BERTH)
		flags |= JOB_HOROVOD;
	if (j->spec.tf_config)
		flags |= JOB_TF_CONFIG;
	if (r->insight.nccl_transports)
		flags |= JOB_NCCL_LOG;
	if (r->mpi == MPI_AUTO || r->mpi == MPI_PMI1)
		flags |= JOB_PMI1;
	if (r->mpi == MPI_AUTO || r->mpi == MPI_PMIX)
		flags |= JOB_PMIX;
	if (r->mpi == MPI_PMIX || r->mpi == MPI_PMI1)
		flags |= JOB_MPI;
	return flags;
}

/* The part of the job that is the same for all hosts. */
static struct wire_job common_job(const struct job *j, const struct strv *env,
				  const char *host_list)
{
	const struct request *r = j->request;
	const mode_t mask = umask(0);

	umask(mask);
	return (struct wire_job){
		.epoch = j->epoch,
		.restarts = (uint32_t)r->lives.restarts,
		.job_id = j->spec.job_id,
		.nspace = j->spec.nspace,
		.key = { j->spec.key, sizeof j->spec.key },
		.flags = job_flags(j),
		.np = j->plan.np,
		.nodes = j->plan.nodes,
		.host_list = host_list,
		.master_addr = j->spec.master_addr,
		.master_port = j->spec.master_port,
		.bind_to = r->bind_to,
		.bind_count = r->bind_count,
		.share = r->share,
		.gpu_visible = j->spec.visible,
		.gpu_id = r->gpu_id,
		.stdin_rank = r->stdin_rank,
		.python = j->spec.python,
		.folder = r->berth_folder ? r->berth_folder : "",
		.owner = package_owner(),
		.umask = mask,
		.nofile = j->spec.nofile,
		.core = soft_limit(RLIMIT_CORE),
		.stack = soft_limit(RLIMIT_STACK),
		.memlock = soft_limit(RLIMIT_MEMLOCK),
		.credit_bytes = (uint32_t)j->spec.credit_bytes,
		.host_timeout_ms = (uint32_t)r->reach.host_timeout_ms,
		.monitor_ms = insight_period_ms(&r->insight),
		.env = { (const char *const *)env->v, env->n },
		.timeline_first = r->insight.timeline.first_step,
		.timeline_last =
			r->insight.timeline.file ? r->insight.timeline.last_step : 0,
	};
}

/* The app frames and the job frame of one host. */
static void send_job(struct job *j, struct host *h, const struct buf *apps,
		     const struct wire_job *common)
{
	uint32_t index = job_index(j, h);
	size_t n = j->plan.local_size[index];
	uint32_t *list = xcalloc(3 * n, sizeof *list); /* three, by local rank */
	struct wire_job m = *common;
	const size_t before = h->out.len;

	for (size_t i = 0; i < n; i++) {
		const struct plan_rank *p = &j->plan.rank[j->plan.ranks[index][i]];

		list[i] = p->app;
		list[n + i] = p->cross_rank;
		list[2 * n + i] = p->cross_size;
	}
	m.flags |= h->local ? JOB_LOCAL : 0;
	/* a list of -x is not for a host without GPUs */
	if (j->request->gpus.n || h->gpus)
		m.gpus = (wire_strv){ (const char *const *)j->spec.gpus.v,
				      j->spec.gpus.n };
	m.node = j->plan.node[index];
	m.host = h->name;
	m.own = job_own_name(j, h);
	m.ranks = (wire_u32v){ j->plan.ranks[index], n };
	m.apps = (wire_u32v){ list, n };
	m.cross_ranks = (wire_u32v){ list + n, n };
	m.cross_sizes = (wire_u32v){ list + 2 * n, n };
	put_window(j, h);
	buf_add(&h->out, buf_head(apps), apps->len);
	wire_pack_job(&h->out, &m);
	/* `lost` may come for each rank alone */
	h->out_due = h->out.len - before + j->plan.np * (size_t)LOST_BYTES;
	j->run[index].window = j->spec.credit_bytes;
	free(list);
	agents_flush(h);
}

/* Do the hosts' own names tell them apart? */
static bool own_names_differ(const struct job *j)
{
	const char **names = xcalloc(j->plan.nodes, sizeof *names);
	size_t n = 0;
	bool differ = true;

	for (size_t i = 0; i < j->agents.n; i++)
		if (job_needs(j, i))
			names[n++] = j->agents.host[i].own ? j->agents.host[i].own : "";
	qsort(names, n, sizeof *names, by_text);
	for (size_t i = 0; i < n && differ; i++)
		differ = *names[i] && (!i || strcmp(names[i], names[i - 1]));
	free(names);
	return differ;
}

/* To all hosts with ranks; or to ONE alone. */
static void send_jobs(struct job *j, const struct host *one)
{
	struct strv env = { 0 };
	const struct strv *app_env = j->spec.app_env;
	struct str list = { 0 };
	struct wire_job common;
	struct buf apps = { 0 };

	if (!j->request->env.forward_listed)
		env_forward(&env, environ, j->spec.managed, j->request->env.options,
			    j->request->env.noptions);
	list_hosts(j, &list);
	common = common_job(j, &env, str_text(&list));
	if (one) /* the first ranks have read stdin */
		common.stdin_rank = STDIN_NONE;

	for (size_t i = 0; i < j->request->napp; i++) {
		const struct app *a = &j->request->app[i];
		struct wire_app app = { (uint32_t)i,
					{ (const char *const *)a->argv.v, a->argv.n },
					{ (const char *const *)app_env[i].v,
					  app_env[i].n },
					a->wdir ? a->wdir : j->spec.cwd,
					{ NULL, 0 },
					"" };
		struct strv warm = { 0 };

		if (j->request->lives.warm && warm_command(&warm, &a->argv, a->wdir)) {
			app.warm = (wire_strv){ (const char *const *)warm.v, warm.n };
			app.warm_text = warm_text();
		}
		wire_pack_app(&apps, &app);
		strv_free(&warm);
	}
	for (size_t i = 0; i < j->agents.n; i++)
		if (job_reaches(j, i) && (!one || one == &j->agents.host[i]))
			send_job(j, &j->agents.host[i], &apps, &common);
	strv_free(&env);
	buf_free(&apps);
	str_free(&list);
}

void job_spec_send(struct job *j)
{
	unsigned char random[16];
	char hex[2 * sizeof random + 1];

	j->spec.master_addr = spec_address(j, j->plan.rank[0].host);
	j->spec.master_port = j->agents.host[j->plan.rank[0].host].port;
	j->spec.tf_config = j->request->env.tf_config && !j->request->check &&
			    j->request->plan == PLAN_OFF;
	j->spec.credit_bytes = CREDIT_ALL / j->plan.nodes;
	if (j->spec.credit_bytes < CREDIT_LEAST)
		j->spec.credit_bytes = CREDIT_LEAST;
	if (j->spec.credit_bytes > CREDIT_MOST)
		j->spec.credit_bytes = CREDIT_MOST;
	random_bytes(j->spec.key, sizeof j->spec.key);
	/* A process that knows the name may speak for a rank: it is not the job's id,
	 * which /proc/net/unix shows to all. */
	random_bytes(random, sizeof random);
	str_hex(hex, random, sizeof random);
	snprintf(j->spec.nspace, sizeof j->spec.nspace, "berth-%s", hex);
	j->spec.own_names = own_names_differ(j);
	send_jobs(j, NULL);
}

void job_spec_send_one(struct job *j, const struct host *h)
{
	send_jobs(j, h);
}

/* ---- TF_CONFIG ---- */

/* To HOST, what its ranks are in CLUSTER. */
static void send_tf_config(struct job *j, size_t host, const struct tf_rank *rank,
			   const char *cluster)
{
	const size_t n = j->plan.local_size[host];
	uint32_t *list = xcalloc(2 * n, sizeof *list); /* two, by local rank */

	for (size_t i = 0; i < n; i++) {
		const struct tf_rank *r = &rank[j->plan.ranks[host][i]];

		list[i] = r->role;
		list[n + i] = r->task;
	}
	AGENTS_SEND(&j->agents.host[host], tf_config,
		    &(struct wire_tf_config){ .epoch = j->epoch,
					      .cluster = cluster,
					      .roles = { list, n },
					      .tasks = { list + n, n } });
	free(list);
}

int job_spec_send_tf_config(struct job *j)
{
	char **address;
	struct tf_rank *rank;
	struct str cluster = { 0 };
	int rc;

	if (!j->spec.tf_config)
		return 0;
	address = xcalloc(j->agents.n, sizeof *address);
	rank = xcalloc(j->plan.np, sizeof *rank);
	for (size_t i = 0; i < j->agents.n; i++)
		if (job_reaches(j, i))
			address[i] = spec_address(j, i);
	for (uint32_t i = 0; i < j->plan.np; i++) {
		const struct plan_rank *p = &j->plan.rank[i];

		rank[i] = (struct tf_rank){ .role = j->request->app[p->app].tf_role,
					    .address = address[p->host],
					    .port = j->run[p->host].ports[p->local] };
	}
	rc = tf_config_cluster(&cluster, rank, j->plan.np, &j->err);
	for (size_t i = 0; i < j->agents.n; i++) {
		if (!rc && job_reaches(j, i))
			send_tf_config(j, i, rank, str_text(&cluster));
		free(address[i]);
	}
	free(address);
	free(rank);
	str_free(&cluster);
	return rc;
}
