/* The host's side of the PMIx server (pmix_child.h): what it is told of the job, and
 * what becomes of its requests.  A collective is an exchange of all hosts whose ranks
 * take part (wire.def); what one rank wants of another goes to that one's host.
 *
 * The record of one host in an exchange: u32 withheld, u32 length, bytes.  If one host
 * withheld its data, being too long, no server gets any: each asks for what its ranks
 * want, rank by rank. */
#include <errno.h>
#include <event2/event.h>
#include <search.h>
#include <sys/socket.h>
#include <unistd.h>

#include "agent/pmi/pmix_process.h"
#include "agent/pmi/server_internal.h"
#include "common/loop.h"
#include "lib/boot/pmix_abi.h"

enum {
	READ_BYTES = 65536,
	LATE_MS = 20000, /* for the answers to pmix_open and pmix_job */
	/* until those are told that wait for a rank that has ended: before, the job has
	 * ended them, and they do not speak of it */
	HANG_UP_MS = 2000,
	/* until ranks that are in MPI_Init are taken to wait for one that has ended */
	ABSENT_MS = 5000,
	COUNTS_MOST = 65536, /* lists of ranks that had an exchange */
	/* some are left for libberth, and for ranks that do not come */
	COLLECTS_MOST = EXCHANGES_MOST - EXCHANGES_MOST / 8,
	SERVES_MOST = 65536,
	SAYS_MOST = 256,
	OUT_MOST = 128 << 20, /* that the server does not read */
	READS_MOST = 256      /* when a rank has ended: others may go on */
};

struct pmix_rank {
	bool present; /* between PMIx_Init and PMIx_Finalize */
	bool seen;    /* it has called PMIx_Init */
	bool busy;    /* it has taken part in a collective that ended */
	bool ended, aborts, aborted, stuck;
	int abort_code;
	char *abort_text;
};

/* How many exchanges these ranks have had. */
struct count {
	enum exchange_use use;
	uint64_t name, n;
	size_t nranks;
	uint32_t rank[];
};

/* An exchange that has not ended. */
struct collect {
	uint32_t id; /* the server's */
	const struct count *of;
	uint64_t number;
	struct buf all;
	bool failed;
	struct collect *next;
};

/* A rank here is asked about. */
struct serve {
	uint32_t id;   /* ours, at the server */
	uint32_t host; /* who asks, */
	uint32_t theirs;
	size_t local;
	struct serve *next;
};

struct say {
	size_t local;
	uint32_t stream;
	char *text;
	struct say *next;
};

struct pmix {
	struct server *s;
	enum server_pmix_state state;
	char *why; /* FAILED, LOST */
	char *library, *version;
	struct pmix_process process;
	struct pmix_folders *folders;
	int lock, memory_lock;
	struct event *readable, *writable, *late, *failing, *absent;
	struct buf in, out;
	struct pmix_rank *rank;
	struct strv environment; /* of all local ranks */
	size_t *first;           /* first[local]; one more at the end */
	void *counts;            /* tree of struct count */
	size_t ncounts;
	struct collect *collect;
	size_t ncollects;
	struct serve *serve;
	size_t nserves;
	uint32_t serve_id;
	struct say *say, **last_say;
	size_t nsays;
	uint32_t aborts; /* ranks that nobody has asked for */
	bool gave_for_absent, none_comes;
};

/* ---- the server's process ---- */

static void hang_up(struct pmix *p)
{
	if (p->readable)
		event_free(p->readable);
	if (p->writable)
		event_free(p->writable);
	p->readable = p->writable = NULL;
	event_del(p->late);
	pmix_process_end(&p->process);
	buf_free(&p->in);
	buf_free(&p->out);
}

/* The server is of no use any more. */
static void give_up(struct pmix *p, const char *why)
{
	if (p->state == SERVER_PMIX_FAILED || p->state == SERVER_PMIX_LOST)
		return;
	p->state =
		p->state == SERVER_PMIX_READY ? SERVER_PMIX_LOST : SERVER_PMIX_FAILED;
	free(p->why);
	p->why = xstrdup(why);
	hang_up(p);
}

static void flush(struct pmix *p)
{
	if (p->out.len > OUT_MOST)
		give_up(p, "it does not read");
	while (p->out.len && p->process.fd >= 0) {
		ssize_t n = send(p->process.fd, buf_head(&p->out), p->out.len,
				 MSG_NOSIGNAL);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN) {
			loop_watch(p->writable);
			return;
		}
		if (n < 0) /* it is dead, which shows when it is read */
			n = (ssize_t)p->out.len;
		buf_drop(&p->out, (size_t)n);
	}
}

static bool serves(const struct pmix *p)
{
	return p && p->state == SERVER_PMIX_READY;
}

/* ---- exchanges ---- */

static int compare_counts(const void *a, const void *b)
{
	const struct count *x = a, *y = b;

	if (x->use != y->use)
		return x->use < y->use ? -1 : 1;
	if (x->name != y->name)
		return x->name < y->name ? -1 : 1;
	if (x->nranks != y->nranks)
		return x->nranks < y->nranks ? -1 : 1;
	return memcmp(x->rank, y->rank, x->nranks * sizeof *x->rank);
}

/* NULL: there are too many. */
static struct count *count_of(struct pmix *p, enum exchange_use use, uint64_t name,
			      const wire_u32v *ranks)
{
	struct count *c = xmalloc(sizeof *c + ranks->n * sizeof *c->rank), **found;

	*c = (struct count){ .use = use, .name = name, .nranks = ranks->n };
	if (ranks->n)
		memcpy(c->rank, ranks->v, ranks->n * sizeof *c->rank);
	found = tfind(c, &p->counts, compare_counts);
	if (found || p->ncounts >= COUNTS_MOST) {
		free(c);
		return found ? *found : NULL;
	}
	if (!tsearch(c, &p->counts, compare_counts))
		die("out of memory", 0);
	p->ncounts++;
	return c;
}

/* Are all ranks that take part on this host? */
static bool is_local(const struct server *s, const struct count *c)
{
	if (!c->nranks)
		return s->job->nodes == 1;
	for (size_t i = 0; i < c->nranks; i++)
		if (host_of(s, c->rank[i]) != s->job->node)
			return false;
	return true;
}

static bool takes_part(const struct count *c, uint32_t rank)
{
	for (size_t i = 0; i < c->nranks; i++)
		if (c->rank[i] == rank)
			return true;
	return !c->nranks;
}

static void give(struct pmix *p, const struct count *c, uint64_t number, bool withheld,
		 wire_bytes data)
{
	struct buf record = { 0 };
	struct wire_exchange w = { .epoch = p->s->job->epoch,
				   .use = c->use,
				   .ranks = { c->rank, c->nranks },
				   .number = number };

	buf_u32(&record, withheld);
	buf_u32(&record, (uint32_t)data.n);
	if (data.n)
		buf_add(&record, data.p, data.n);
	while (!w.last) {
		w.last = record.len <= WIRE_PART_MAX;
		w.data.n = w.last ? record.len : WIRE_PART_MAX;
		w.data.p = buf_head(&record);
		wire_pack_exchange(p->s->out, &w);
		buf_drop(&record, w.data.n);
	}
	buf_free(&record);
}

/* The server's request ID ends. */
static void answer(struct pmix *p, uint32_t id, bool failed, uint64_t serial,
		   wire_bytes data)
{
	wire_pack_pmix_collected(
		&p->out, &(struct wire_pmix_collected){ id, failed, serial, data });
	flush(p);
}

static void mark_busy(struct pmix *p, const struct count *c)
{
	for (size_t i = 0; i < p->s->job->ranks.n; i++)
		p->rank[i].busy |= takes_part(c, p->s->job->ranks.v[i]);
}

static void fail_later(struct pmix *p)
{
	if (!event_pending(p->failing, EV_TIMEOUT, NULL))
		loop_after_ms(p->failing, HANG_UP_MS);
}

/* One of its ranks never comes: others are told, later. */
static void fail(struct pmix *p, struct collect *one)
{
	one->failed = true;
	fail_later(p);
}

/* A rank has ended before MPI_Init: those in it never come out. */
static void fail_absent(struct pmix *p)
{
	p->none_comes = true;
	fail_later(p);
}

/* False: it is no request that a server makes. */
static bool on_collect(struct pmix *p, const struct wire_pmix_collect *m)
{
	const wire_bytes none = { 0 };
	bool has_part = !m->ranks.n;
	struct count *c;
	struct collect *one;

	if (m->use < EXCHANGE_PMIX_FENCE || m->use >= EXCHANGE_USES ||
	    m->withheld > COLLECT_LACKS_RANK ||
	    m->data.n > EXCHANGE_PMIX_BYTES / p->s->job->nodes)
		return false;
	for (size_t i = 0; i < m->ranks.n; i++) {
		if (m->ranks.v[i] >= p->s->job->np ||
		    (i && m->ranks.v[i] <= m->ranks.v[i - 1]))
			return false;
		has_part |= host_of(p->s, m->ranks.v[i]) == p->s->job->node;
	}
	if (!has_part)
		return false;
	c = count_of(p, (enum exchange_use)m->use, m->name, &m->ranks);
	if (c && m->withheld != COLLECT_LACKS_RANK && is_local(p->s, c) &&
	    c->use != EXCHANGE_PMIX_GROUP) {
		mark_busy(p, c);
		answer(p, m->id, false, 0, m->withheld ? none : m->data);
		return true;
	}
	if (!c || p->ncollects >= COLLECTS_MOST) {
		answer(p, m->id, true, 0, none);
		return true;
	}
	one = xcalloc(1, sizeof *one);
	*one = (struct collect){
		.id = m->id, .of = c, .number = m->name + c->n++, .next = p->collect
	};
	p->collect = one;
	p->ncollects++;
	if (m->withheld == COLLECT_LACKS_RANK)
		fail(p, one);
	else
		give(p, c, one->number, m->withheld, m->data);
	return true;
}

static void collect_free(struct pmix *p, struct collect *one)
{
	struct collect **at = &p->collect;

	while (*at != one)
		at = &(*at)->next;
	*at = one->next;
	p->ncollects--;
	buf_free(&one->all);
	free(one);
}

static struct collect *collect_of(const struct pmix *p, uint32_t use,
				  const wire_u32v *ranks, uint64_t number)
{
	struct collect *one = p->collect;

	while (one && (one->of->use != use || one->number != number ||
		       one->of->nranks != ranks->n ||
		       (ranks->n &&
			memcmp(one->of->rank, ranks->v, ranks->n * sizeof *ranks->v))))
		one = one->next;
	return one;
}

/* The records in ALL become what they carry.  False: they are no records. */
static bool open_records(struct buf *all)
{
	struct view v = { buf_head(all), all->len, false };
	struct buf data = { 0 };
	bool withheld = false;

	while (v.left && !v.failed) {
		const bool w = view_u32(&v);
		const uint32_t n = view_u32(&v);
		const void *bytes = view_bytes(&v, n);

		withheld |= w;
		if (bytes && n)
			buf_add(&data, bytes, n);
	}
	buf_free(all);
	if (withheld || v.failed)
		buf_free(&data);
	*all = data;
	return !v.failed;
}

int pmix_data(struct pmix *p, const struct wire_exchange_data *m, struct err *e)
{
	const size_t most =
		EXCHANGE_PMIX_BYTES + (size_t)EXCHANGE_PMIX_HEAD * p->s->job->nodes;
	struct collect *one;

	if (!serves(p))
		return 0;
	one = collect_of(p, m->use, &m->ranks, m->number);
	if (!one || m->data.n > most - one->all.len)
		return err_set(e, E_WIRE, "malformed 'exchange_data' message");
	buf_add(&one->all, m->data.p, m->data.n);
	if (!m->last)
		return 0;
	if (!open_records(&one->all))
		return err_set(e, E_WIRE, "malformed 'exchange_data' message");
	mark_busy(p, one->of);
	answer(p, one->id, false, m->serial,
	       (wire_bytes){ buf_head(&one->all), one->all.len });
	collect_free(p, one);
	return 0;
}

static bool is_in_init(const struct pmix_rank *r)
{
	return r->present && !r->busy && !r->ended;
}

static void on_failing(evutil_socket_t fd, short what, void *arg)
{
	struct pmix *p = arg;
	struct collect *next;

	(void)fd;
	(void)what;
	for (struct collect *one = p->collect; one; one = next) {
		next = one->next;
		if (!one->failed)
			continue;
		answer(p, one->id, true, 0, (wire_bytes){ 0 });
		collect_free(p, one);
	}
	for (size_t i = 0; p->none_comes && i < p->s->job->ranks.n; i++)
		p->rank[i].stuck |= is_in_init(&p->rank[i]);
}

void pmix_exchange_failed(struct pmix *p, const struct wire_exchange_failed *m)
{
	struct collect *one =
		serves(p) ? collect_of(p, m->use, &m->ranks, m->number) : NULL;

	if (one)
		fail(p, one);
	else if (serves(p) && p->gave_for_absent)
		fail_absent(p);
}

/* ---- ranks that do not come ---- */

/* A rank has ended without MPI_Init, and others are in it: they wait for it, and
 * libpmix does not tell.  The launcher names it, if it is asked to end a fence of all
 * ranks. */
static void on_absent(evutil_socket_t fd, short what, void *arg)
{
	const wire_u32v all = { NULL, 0 };
	struct pmix *p = arg;
	struct count *c;
	bool absent = false, waits = false;

	(void)fd;
	(void)what;
	for (size_t i = 0; i < p->s->job->ranks.n; i++) {
		absent |= p->rank[i].ended && !p->rank[i].seen;
		waits |= is_in_init(&p->rank[i]);
	}
	c = absent && waits && serves(p) ? count_of(p, EXCHANGE_PMIX_FENCE, 0, &all)
					 : NULL;
	if (!c)
		return;
	p->gave_for_absent = true;
	give(p, c, c->n++, false, (wire_bytes){ 0 });
}

static void look_for_absent(struct pmix *p)
{
	if (!event_pending(p->absent, EV_TIMEOUT, NULL))
		loop_after_ms(p->absent, ABSENT_MS);
}

/* ---- direct modex ---- */

static void on_get(struct pmix *p, const struct wire_pmix_get *m)
{
	if (m->rank < p->s->job->np && host_of(p->s, m->rank) != p->s->job->node) {
		wire_pack_modex_request(
			p->s->out, &(struct wire_modex_request){ p->s->job->epoch,
								 m->rank, 0, m->id });
		return;
	}
	wire_pack_pmix_got(&p->out,
			   &(struct wire_pmix_got){ .id = m->id, .failed = 1 });
	flush(p);
}

void pmix_modex_data(struct pmix *p, const struct wire_modex_data *m)
{
	if (!serves(p))
		return;
	wire_pack_pmix_got(&p->out,
			   &(struct wire_pmix_got){ m->id, m->failed, m->data });
	flush(p);
}

static void answer_modex(struct pmix *p, uint32_t host, uint32_t id, bool failed,
			 wire_bytes data)
{
	wire_pack_modex_data(
		p->s->out,
		&(struct wire_modex_data){ p->s->job->epoch, host, id, failed, data });
}

void pmix_modex_request(struct pmix *p, const struct wire_modex_request *m)
{
	const struct wire_job *job = p ? p->s->job : NULL;
	struct serve *one;
	size_t local = 0;

	while (p && local < job->ranks.n && job->ranks.v[local] != m->rank)
		local++;
	if (!serves(p) || local == job->ranks.n || p->nserves >= SERVES_MOST ||
	    (p->rank[local].ended && !p->rank[local].seen)) {
		if (p)
			answer_modex(p, m->host, m->id, true, (wire_bytes){ 0 });
		return;
	}
	one = xmalloc(sizeof *one);
	*one = (struct serve){ ++p->serve_id, m->host, m->id, local, p->serve };
	p->serve = one;
	p->nserves++;
	wire_pack_pmix_serve(&p->out, &(struct wire_pmix_serve){ one->id, m->rank });
	flush(p);
}

static void on_served(struct pmix *p, const struct wire_pmix_served *m)
{
	struct serve **at = &p->serve, *one;

	while (*at && (*at)->id != m->id)
		at = &(*at)->next;
	one = *at;
	if (!one)
		return;
	answer_modex(p, one->host, one->theirs, m->failed, m->data);
	*at = one->next;
	p->nserves--;
	free(one);
}

/* What this rank has not put by now, it never will. */
static void end_serves(struct pmix *p, size_t local)
{
	struct serve **at = &p->serve;

	while (*at) {
		struct serve *one = *at;

		if (one->local != local) {
			at = &one->next;
			continue;
		}
		answer_modex(p, one->host, one->theirs, true, (wire_bytes){ 0 });
		*at = one->next;
		p->nserves--;
		free(one);
	}
}

/* ---- what ranks do ---- */

/* NULL: it is none of this host. */
static struct pmix_rank *rank_of(struct pmix *p, uint32_t rank, size_t *local)
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
	struct pmix_rank *r = rank_of(p, m->rank, &local);

	if (!r)
		return;
	r->present = m->present;
	r->seen = true;
	r->busy = false;
	for (size_t i = 0; m->present && i < p->s->job->ranks.n; i++)
		if (p->rank[i].ended && !p->rank[i].seen)
			look_for_absent(p);
}

static void on_abort(struct pmix *p, const struct wire_pmix_abort *m)
{
	size_t local;
	struct pmix_rank *r = rank_of(p, m->rank, &local);

	if (!r || r->aborted)
		return;
	r->aborts = r->aborted = true;
	r->abort_code = (int)m->status;
	/* Open MPI says "N/A" if it has no more to say than the number */
	r->abort_text = str_plain(xstrdup(strcmp(m->text, "N/A") ? m->text : ""));
	p->aborts++;
}

static void on_log(struct pmix *p, const struct wire_pmix_log *m)
{
	size_t local;
	struct say *one;

	if (!rank_of(p, m->rank, &local) || p->nsays >= SAYS_MOST ||
	    (m->stream != 1 && m->stream != 2))
		return;
	one = xmalloc(sizeof *one);
	*one = (struct say){ local, m->stream, xstrdup(m->text), NULL };
	*p->last_say = one;
	p->last_say = &one->next;
	p->nsays++;
}

/* ---- names and events: the launcher has the table ---- */

/* These are false if no server asks so: the launcher would give this host up. */
static bool on_publish(struct pmix *p, const struct wire_pmix_publish *m)
{
	size_t local, sum = 0;

	for (size_t i = 0; i < m->sizes.n; i++)
		sum += m->sizes.v[i];
	if (!rank_of(p, m->rank, &local) || m->sizes.n != m->keys.n ||
	    sum != m->values.n)
		return false;
	wire_pack_publish(p->s->out, &(struct wire_publish){ p->s->job->epoch, m->rank,
							     m->id, m->once, m->keys,
							     m->sizes, m->values });
	return true;
}

static bool on_lookup(struct pmix *p, const struct wire_pmix_lookup *m)
{
	size_t local;

	if (!rank_of(p, m->rank, &local))
		return false;
	wire_pack_lookup(p->s->out,
			 &(struct wire_lookup){ p->s->job->epoch, m->rank, m->id,
						m->wait, m->timeout_s, m->keys });
	return true;
}

static bool on_unpublish(struct pmix *p, const struct wire_pmix_unpublish *m)
{
	size_t local;

	if (!rank_of(p, m->rank, &local))
		return false;
	wire_pack_unpublish(
		p->s->out,
		&(struct wire_unpublish){ p->s->job->epoch, m->rank, m->id, m->keys });
	return true;
}

void pmix_found(struct pmix *p, const struct wire_found *m)
{
	if (!serves(p))
		return;
	wire_pack_pmix_found(&p->out, &(struct wire_pmix_found){ m->id, m->status,
								 m->keys, m->owners,
								 m->sizes, m->values });
	flush(p);
}

/* One of libpmix itself is of no rank. */
static void on_event(struct pmix *p, const struct wire_pmix_event *m)
{
	size_t local;

	if (p->s->job->nodes > 1 && rank_of(p, m->rank, &local))
		wire_pack_event(p->s->out,
				&(struct wire_event){ p->s->job->epoch, m->rank,
						      m->code, m->range, m->info });
}

void pmix_event(struct pmix *p, const struct wire_event *m)
{
	if (!serves(p))
		return;
	wire_pack_pmix_notify(&p->out, &(struct wire_pmix_notify){ m->rank, m->code,
								   m->range, m->info });
	flush(p);
}

/* Others may have asked to be told. */
static void tell_of_death(struct pmix *p, size_t local)
{
	const struct wire_event m = { .epoch = p->s->job->epoch,
				      .rank = p->s->job->ranks.v[local],
				      .code = (uint32_t)PX_PROC_TERM_WO_SYNC,
				      .range = PX_RANGE_NAMESPACE };

	if (!serves(p))
		return;
	pmix_event(p, &m);
	if (p->s->job->nodes > 1)
		wire_pack_event(p->s->out, &m);
}

/* ---- opening ---- */

static bool on_opened(struct pmix *p, const struct wire_pmix_opened *m)
{
	if (p->state != SERVER_PMIX_OPENING)
		return false;
	event_del(p->late);
	if (*m->error) {
		give_up(p, m->error);
		return true;
	}
	p->state = SERVER_PMIX_OPEN;
	p->library = xstrdup(m->library);
	p->version = xstrdup(m->version);
	return true;
}

static bool on_ready(struct pmix *p, const struct wire_pmix_ready *m)
{
	const size_t n = p->s->job->ranks.n;
	size_t sum = 0;

	if (p->state != SERVER_PMIX_STARTING || m->counts.n != n)
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
		give_up(p, m->error);
	else
		p->state = SERVER_PMIX_READY;
	return true;
}

static void on_late(evutil_socket_t fd, short what, void *arg)
{
	(void)fd;
	(void)what;
	give_up(arg, "no answer in 20 seconds");
}

/* ---- frames ---- */

/* 0, or -1: no server says that. */
static int take(struct pmix *p, const struct wire_frame *f, struct err *e)
{
	bool sound = true;

	/* before, no rank runs */
	if (!serves(p) && f->type != WIRE_pmix_opened && f->type != WIRE_pmix_ready)
		return -1;
	switch (f->type) {
		WIRE_TAKE(pmix_opened, sound = on_opened(p, &m))
		WIRE_TAKE(pmix_ready, sound = on_ready(p, &m))
		WIRE_TAKE(pmix_collect, sound = on_collect(p, &m))
		WIRE_TAKE(pmix_get, on_get(p, &m))
		WIRE_TAKE(pmix_served, on_served(p, &m))
		WIRE_TAKE(pmix_client, on_client(p, &m))
		WIRE_TAKE(pmix_abort, on_abort(p, &m))
		WIRE_TAKE(pmix_log, on_log(p, &m))
		WIRE_TAKE(pmix_publish, sound = on_publish(p, &m))
		WIRE_TAKE(pmix_lookup, sound = on_lookup(p, &m))
		WIRE_TAKE(pmix_unpublish, sound = on_unpublish(p, &m))
		WIRE_TAKE(pmix_event, on_event(p, &m))
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
		if (take(p, &f, &e)) {
			n = -1;
			break;
		}
		if (p->readable)
			buf_drop(&p->in, (size_t)n);
	}
	if (n < 0)
		give_up(p, "it says what no server says");
}

/* False: there is nothing more now. */
static bool read_some(struct pmix *p)
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
		give_up(p, "its process has ended");
	}
	return n > 0;
}

static void on_readable(evutil_socket_t fd, short what, void *arg)
{
	(void)fd;
	(void)what;
	read_some(arg);
}

static void on_writable(evutil_socket_t fd, short what, void *arg)
{
	(void)fd;
	(void)what;
	flush(arg);
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
	p->late = event_new(s->base, -1, 0, on_late, p);
	p->failing = event_new(s->base, -1, 0, on_failing, p);
	p->absent = event_new(s->base, -1, 0, on_absent, p);
	return p;
}

void pmix_free(struct pmix *p)
{
	if (!p)
		return;
	hang_up(p);
	pmix_folders_remove(p->folders);
	if (p->lock >= 0)
		close(p->lock);
	if (p->memory_lock >= 0)
		close(p->memory_lock);
	event_free(p->late);
	event_free(p->failing);
	event_free(p->absent);
	while (p->collect)
		collect_free(p, p->collect);
	tdestroy(p->counts, free);
	for (struct serve *next; p->serve; p->serve = next) {
		next = p->serve->next;
		free(p->serve);
	}
	while (p->say)
		pmix_said(p);
	for (size_t i = 0; i < p->s->job->ranks.n; i++)
		free(p->rank[i].abort_text);
	free(p->rank);
	free(p->why);
	free(p->library);
	free(p->version);
	strv_free(&p->environment);
	free(p->first);
	free(p);
}

void pmix_open(struct pmix *p, const struct server_pmix *with)
{
	const struct wire_job *job = p->s->job;
	struct err e = { 0 };

	p->state = SERVER_PMIX_OPENING;
	p->folders = with->folders;
	p->lock = pmix_folders_make(p->folders, &p->memory_lock, &e);
	if (p->lock < 0 || pmix_process_start(&p->process, &e)) {
		give_up(p, e.text);
		return;
	}
	evutil_make_socket_nonblocking(p->process.fd);
	p->readable = event_new(p->s->base, p->process.fd, EV_READ | EV_PERSIST,
				on_readable, p);
	p->writable = event_new(p->s->base, p->process.fd, EV_WRITE, on_writable, p);
	loop_watch(p->readable);
	loop_after_ms(p->late, LATE_MS);
	wire_pack_pmix_open(&p->out,
			    &(struct wire_pmix_open){ .libraries = with->libraries,
						      .folder = p->folders->files,
						      .memory = p->folders->memory,
						      .nspace = job->nspace,
						      .host = job->own,
						      .node = job->node,
						      .topology = with->topology,
						      .np = job->np });
	flush(p);
}

void pmix_start(struct pmix *p, const struct server_pmix *with)
{
	const struct wire_job *job = p->s->job;
	const char **names = xcalloc(job->nodes, sizeof *names);
	uint32_t *hosts = xcalloc(job->np, sizeof *hosts);

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
	flush(p);
}

enum server_pmix_state pmix_state(const struct pmix *p, const char **why)
{
	*why = p && p->why ? p->why : "";
	return p ? p->state : SERVER_PMIX_NONE;
}

const char *pmix_version(const struct pmix *p, const char **library)
{
	*library = p && p->library ? p->library : "";
	return p && p->version ? p->version : "";
}

wire_strv pmix_environment(const struct pmix *p, size_t local)
{
	if (!serves(p))
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
	for (int i = 0; i < READS_MOST && read_some(p); i++)
		;
	r->ended = true;
	end_serves(p, local);
	if (r->present)
		tell_of_death(p, local);
	if (!r->seen)
		look_for_absent(p);
	return r->present ? "exited with status 0 between MPI_Init and MPI_Finalize"
			  : NULL;
}

bool pmix_any_present(const struct pmix *p)
{
	for (size_t i = 0; p && i < p->s->job->ranks.n; i++)
		if (p->rank[i].present && !p->rank[i].ended)
			return true;
	return false;
}

bool pmix_stuck(struct pmix *p, size_t *local)
{
	for (size_t i = 0; p && p->none_comes && i < p->s->job->ranks.n; i++) {
		if (!p->rank[i].stuck)
			continue;
		p->rank[i].stuck = false;
		*local = i;
		return true;
	}
	return false;
}

bool pmix_aborts(struct pmix *p, size_t *local)
{
	for (size_t i = 0; p && p->aborts && i < p->s->job->ranks.n; i++) {
		if (!p->rank[i].aborts)
			continue;
		p->rank[i].aborts = false;
		p->aborts--;
		*local = i;
		return true;
	}
	return false;
}

bool pmix_aborted(const struct pmix *p, size_t local, int *code, const char **text)
{
	if (!p || !p->rank[local].aborted)
		return false;
	*code = p->rank[local].abort_code;
	*text = p->rank[local].abort_text;
	return true;
}

const char *pmix_says(const struct pmix *p, size_t *local, uint32_t *stream)
{
	if (!p || !p->say)
		return NULL;
	*local = p->say->local;
	*stream = p->say->stream;
	return p->say->text;
}

void pmix_said(struct pmix *p)
{
	struct say *one = p->say;

	p->say = one->next;
	if (!p->say)
		p->last_say = &p->say;
	p->nsays--;
	free(one->text);
	free(one);
}
