/* The host's side of the PMIx server (pmix_child.h): what it is told of the job, and
 * what becomes of its requests.  A collective is an exchange of all hosts whose ranks
 * take part (wire.def); what one rank wants of another goes to that one's host. */
#include <errno.h>
#include <event2/event.h>
#include <sys/socket.h>
#include <unistd.h>

#include "agent/pmi/pmix_internal.h"
#include "common/loop.h"
#include "lib/boot/pmix_abi.h"

enum {
	READ_BYTES = 65536,
	LATE_MS = 20000, /* for the answers to pmix_open and pmix_job */
	SAYS_MOST = 256,
	READS_MOST = 256 /* when a rank has ended: others may go on */
};

struct say {
	size_t local;
	uint32_t stream;
	char *text;
	struct say *next;
};

/* ---- what ranks do ---- */

/* NULL: it is none of this host. */
static struct pmix_rank *pmix_rank_of(struct pmix *p, uint32_t rank, size_t *local)
{
	const wire_u32v *ranks = &p->s->job->ranks;

	for (*local = 0; *local < ranks->n; ++*local)
		if (ranks->v[*local] == rank)
			return &p->rank[*local];
	return NULL;
}

static void on_client(struct pmix *p, const struct wire_pmix_client *m)
{
	size_t local;
	struct pmix_rank *r = pmix_rank_of(p, m->rank, &local);

	if (!r)
		return;
	r->present = m->present;
	r->seen = true;
	r->busy = false;
	exchange_wait_look(&p->wait);
}

static void pmix_on_abort(struct pmix *p, const struct wire_pmix_abort *m)
{
	size_t local;

	/* Open MPI says "N/A" if it has no more to say than the number */
	if (pmix_rank_of(p, m->rank, &local))
		mpi_ends_abort(p->s, local, (int)m->status,
			       strcmp(m->text, "N/A") ? m->text : "");
}

static void pmix_on_log(struct pmix *p, const struct wire_pmix_log *m)
{
	size_t local;
	struct say *one;

	if (!pmix_rank_of(p, m->rank, &local) || p->nsays >= SAYS_MOST ||
	    (m->stream != 1 && m->stream != 2))
		return;
	one = xmalloc(sizeof *one);
	*one = (struct say){ local, m->stream, xstrdup(m->text), NULL };
	*p->last_say = one;
	p->last_say = &one->next;
	p->nsays++;
}

/* ---- names and events: the launcher has the table ---- */

/* RANK is of this host: its message F goes to the launcher. */
static bool pass_up(struct pmix *p, const struct wire_frame *f, uint32_t rank)
{
	size_t local;

	if (!pmix_rank_of(p, rank, &local))
		return false;
	wire_pass(p->s->out, f, p->s->job->epoch);
	return true;
}

/* The launcher would give this host up if it were not. */
static bool is_sound(const struct wire_publish *m)
{
	size_t sum = 0;

	for (size_t i = 0; i < m->sizes.n; i++)
		sum += m->sizes.v[i];
	return m->sizes.n == m->keys.n && sum == m->values.n;
}

void pmix_pass_down(struct pmix *p, const struct wire_frame *f)
{
	if (!pmix_serves(p))
		return;
	wire_pass(&p->out, f, p->s->job->epoch);
	pmix_flush(p);
}

/* Ranks may have asked to be told of the death of another.  Nobody gets
 * PMIX_EVENT_JOB_END: it is for those who spawned the job, for tools and for other
 * jobs, and a server knows none of them (one namespace, no PMIx_Spawn, no tools).  No
 * rank of the job outlives the job. */
static void tell_of_death(struct pmix *p, size_t local)
{
	const struct wire_event m = { .epoch = p->s->job->epoch,
				      .rank = p->s->job->ranks.v[local],
				      .code = (uint32_t)PX_PROC_TERM_WO_SYNC,
				      .range = PX_RANGE_NAMESPACE };

	if (!pmix_serves(p))
		return;
	PMIX_SAY(p, event, &m);
	if (p->s->job->nodes > 1)
		wire_pack_event(p->s->out, &m);
}

/* ---- opening ---- */

static bool on_opened(struct pmix *p, const struct wire_pmix_opened *m)
{
	if (p->version)
		return false;
	if (*m->error) {
		pmix_give_up(p, m->error);
		return true;
	}
	if (p->state == SERVER_PMIX_OPENING) {
		event_del(p->late);
		p->state = SERVER_PMIX_OPEN;
	}
	p->library = xstrdup(m->library);
	p->version = xstrdup(m->version);
	return true;
}

static bool on_ready(struct pmix *p, const struct wire_pmix_ready *m)
{
	const size_t n = p->s->job->ranks.n;
	size_t sum = 0;

	if (p->state != SERVER_PMIX_STARTING || !p->version || m->counts.n != n)
		return false;
	event_del(p->late);
	p->first = xcalloc(n + 1, sizeof *p->first);
	for (size_t i = 0; i < n; i++)
		p->first[i + 1] = sum += m->counts.v[i];
	if (sum != m->environment.n)
		return false;
	for (size_t i = 0; i < sum; i++)
		strv_add(&p->environment, m->environment.v[i]);
	if (*m->error)
		pmix_give_up(p, m->error);
	else
		p->state = SERVER_PMIX_READY;
	return true;
}

static void pmix_on_late(evutil_socket_t fd, short what, void *arg)
{
	(void)fd;
	(void)what;
	pmix_give_up(arg, "no answer in 20 seconds");
}

/* ---- frames ---- */

/* 0, or -1: no server says that. */
static int pmix_take(struct pmix *p, const struct wire_frame *f, struct err *e)
{
	bool sound = true;

	/* before, no rank runs */
	if (!pmix_serves(p) && f->type != WIRE_pmix_opened &&
	    f->type != WIRE_pmix_ready)
		return -1;
	switch (f->type) {
		WIRE_TAKE(pmix_opened, sound = on_opened(p, &m))
		WIRE_TAKE(pmix_ready, sound = on_ready(p, &m))
		WIRE_TAKE(pmix_collect, sound = pmix_collect(p, &m))
		WIRE_TAKE(modex_request, pmix_get(p, f, &m))
		WIRE_TAKE(modex_data, pmix_served(p, &m))
		WIRE_TAKE(pmix_client, on_client(p, &m))
		WIRE_TAKE(pmix_abort, pmix_on_abort(p, &m))
		WIRE_TAKE(pmix_log, pmix_on_log(p, &m))
		WIRE_TAKE(publish, sound = is_sound(&m) && pass_up(p, f, m.rank))
		WIRE_TAKE(lookup, sound = pass_up(p, f, m.rank))
		WIRE_TAKE(unpublish, sound = pass_up(p, f, m.rank))
		/* an event of libpmix itself is of no rank */
		WIRE_TAKE(event, if (p->s->job->nodes > 1) pass_up(p, f, m.rank))
	default:
		return -1;
	}
	return sound ? 0 : -1;
}

static void take_all(struct pmix *p)
{
	struct wire_frame f;
	struct err e = { 0 };
	long n = 0;

	while (p->readable &&
	       (n = wire_next_from(WIRE_PMIX_SERVER, &f, buf_head(&p->in), p->in.len,
				   &e)) > 0) {
		if (pmix_take(p, &f, &e)) {
			n = -1;
			break;
		}
		if (p->readable)
			buf_drop(&p->in, (size_t)n);
	}
	if (n < 0)
		pmix_give_up(p, "it sent an invalid message");
}

/* False: there is nothing more now. */
static bool pmix_read_some(struct pmix *p)
{
	ssize_t n;

	if (!p->readable)
		return false;
	n = recv(p->process.fd, buf_reserve(&p->in, READ_BYTES), READ_BYTES,
		 MSG_DONTWAIT);
	if (n > 0) {
		p->in.len += (size_t)n;
		take_all(p);
	} else if (!n || (errno != EAGAIN && errno != EINTR)) {
		pmix_give_up(p, SERVER_PMIX_GONE);
	}
	return n > 0;
}

static void pmix_on_readable(evutil_socket_t fd, short what, void *arg)
{
	(void)fd;
	(void)what;
	pmix_read_some(arg);
}

static void pmix_on_writable(evutil_socket_t fd, short what, void *arg)
{
	(void)fd;
	(void)what;
	pmix_flush(arg);
}

/* ---- from outside ---- */

struct pmix *pmix_new(struct server *s)
{
	struct pmix *p = xcalloc(1, sizeof *p);

	*p = (struct pmix){ .s = s,
			    .process = { .pidfd = -1, .fd = -1 },
			    .lock = -1,
			    .memory_lock = -1,
			    .rank = xcalloc(s->job->ranks.n, sizeof *p->rank) };
	p->last_say = &p->say;
	p->late = event_new(s->base, -1, 0, pmix_on_late, p);
	pmix_exchanges_begin(p);
	pmix_modex_begin(p);
	return p;
}

void pmix_free(struct pmix *p)
{
	if (!p)
		return;
	/* The files go while it dies: both take 0.5 ms, for which a job's end waits. */
	pmix_process_kill(&p->process);
	pmix_folders_empty(p->folders);
	pmix_hang_up(p);
	pmix_folders_remove(p->folders);
	if (p->lock >= 0)
		close(p->lock);
	if (p->memory_lock >= 0)
		close(p->memory_lock);
	event_free(p->late);
	pmix_exchanges_end(p);
	pmix_modex_end(p);
	while (p->say)
		server_said(p->s);
	free(p->rank);
	free(p->why);
	free(p->library);
	free(p->version);
	strv_free(&p->environment);
	free(p->first);
	free(p);
}

static struct pmix *pmix_of(const struct server *s)
{
	return s ? s->pmix : NULL;
}

void server_pmix_open(struct server *s, const struct server_pmix *with)
{
	struct pmix *p = pmix_of(s);
	struct err e = { 0 };

	if (!p)
		return;
	p->state = SERVER_PMIX_OPENING;
	p->folders = with->folders;
	/* the folders are made while it starts */
	if (!pmix_process_start(&p->process, &e))
		p->lock = pmix_folders_make(p->folders, &p->memory_lock, &e);
	if (p->lock < 0) {
		pmix_give_up(p, e.text);
		return;
	}
	evutil_make_socket_nonblocking(p->process.fd);
	p->readable = event_new(p->s->base, p->process.fd, EV_READ | EV_PERSIST,
				pmix_on_readable, p);
	p->writable =
		event_new(p->s->base, p->process.fd, EV_WRITE, pmix_on_writable, p);
	loop_watch(p->readable);
	loop_after_ms(p->late, LATE_MS);
	PMIX_SAY(p, pmix_open,
		 &(struct wire_pmix_open){ .libraries = with->libraries,
					   .folder = p->folders->files,
					   .memory = p->folders->memory,
					   .nspace = s->job->nspace,
					   .host = s->job->own,
					   .node = s->job->node,
					   .topology = with->topology,
					   .np = s->job->np });
}

void server_pmix_start(struct server *s, const struct server_pmix *with)
{
	const struct wire_job *job = s ? s->job : NULL;
	struct pmix *p = pmix_of(s);
	const char **names;
	uint32_t *hosts;

	if (!p || !s->app)
		return;
	if (p->state != SERVER_PMIX_OPENING && p->state != SERVER_PMIX_OPEN)
		return;
	names = xcalloc(job->nodes, sizeof *names);
	hosts = xcalloc(job->np, sizeof *hosts);
	p->state = SERVER_PMIX_STARTING;
	for (uint32_t i = 0; i < job->nodes; i++)
		names[i] = own_name_of(p->s, i);
	for (uint32_t i = 0; i < job->np; i++)
		hosts[i] = host_of(p->s, i);
	wire_pack_pmix_job(&p->out, &(struct wire_pmix_job){
					    .np = job->np,
					    .node = job->node,
					    .hosts = { hosts, job->np },
					    .names = { names, job->nodes },
					    .ranks = job->ranks,
					    .cpus = with->cpus,
					    .apps = { p->s->app, p->s->napps },
					    .commands = with->commands,
					    .folders = with->wdirs,
					    .oversubscribed = with->oversubscribed,
					    .restarts = job->epoch - 1 });
	free(names);
	free(hosts);
	loop_after_ms(p->late, LATE_MS);
	pmix_flush(p);
}

enum server_pmix_state server_pmix(const struct server *s, const char **why)
{
	const struct pmix *p = pmix_of(s);

	*why = p && p->why ? p->why : "";
	return p ? p->state : SERVER_PMIX_NONE;
}

pid_t server_pmix_pid(const struct server *s)
{
	const struct pmix *p = pmix_of(s);

	return p ? p->process.pid : 0;
}

const char *server_pmix_version(const struct server *s, const char **library)
{
	const struct pmix *p = pmix_of(s);

	*library = p && p->library ? p->library : "";
	return p && p->version ? p->version : "";
}

wire_strv server_pmix_environment(const struct server *s, size_t local)
{
	const struct pmix *p = pmix_of(s);

	if (!pmix_serves(p))
		return (wire_strv){ 0 };
	return (wire_strv){ (const char *const *)p->environment.v + p->first[local],
			    p->first[local + 1] - p->first[local] };
}

const char *pmix_ended(struct pmix *p, size_t local)
{
	struct pmix_rank *r = p ? &p->rank[local] : NULL;

	if (!r)
		return NULL;
	/* PMIx_Finalize may have been its last act */
	for (int i = 0; i < READS_MOST && pmix_read_some(p); i++)
		;
	r->ended = true;
	pmix_modex_ended(p, local);
	if (r->present)
		tell_of_death(p, local);
	exchange_wait_look(&p->wait);
	return r->present ? "exited with status 0 between MPI_Init and MPI_Finalize"
			  : NULL;
}

bool server_pmix_in_use(const struct server *s)
{
	const struct pmix *p = pmix_of(s);

	for (size_t i = 0; p && i < p->s->job->ranks.n; i++)
		if (p->rank[i].present && !p->rank[i].ended)
			return true;
	return false;
}

const char *server_says(const struct server *s, size_t *local, uint32_t *stream)
{
	const struct pmix *p = pmix_of(s);

	if (!p || !p->say)
		return NULL;
	*local = p->say->local;
	*stream = p->say->stream;
	return p->say->text;
}

void server_said(struct server *s)
{
	struct pmix *p = s->pmix;
	struct say *one = p->say;

	p->say = one->next;
	if (!p->say)
		p->last_say = &p->say;
	p->nsays--;
	free(one->text);
	free(one);
}
