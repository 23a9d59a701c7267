#include "launcher/job/exchange.h"

#include <event2/event.h>

#include "common/loop.h"

enum {
	QUEUED_MOST = 64 << 20, /* bytes of answers that wait to be sent, about */
	MORE_MS = 2
};

struct exchanges {
	struct exchange *first;  /* wait for hosts */
	struct exchange *answer; /* complete, and not all hosts have been answered */
	struct exchange **last_answer;
	size_t *answer_bytes; /* of the largest answer to each host */
	uint64_t serial;      /* of the last one that was complete */
	struct event *more;
};

static void on_more(evutil_socket_t fd, short what, void *ctx);

struct exchanges *exchanges_open(struct job *j)
{
	struct exchanges *x = xcalloc(1, sizeof *x);

	x->more = event_new(j->base, -1, 0, on_more, j);
	x->last_answer = &x->answer;
	x->answer_bytes = xcalloc(j->agents.n, sizeof *x->answer_bytes);
	return x;
}

static void exchange_free(struct exchange *e)
{
	for (size_t i = 0; i < e->ngivers; i++)
		buf_free(&e->giver[i].data);
	buf_free(&e->all);
	free(e->giver);
	free(e->rank);
	free(e);
}

static void free_all(struct exchange *e)
{
	for (struct exchange *next; e; e = next) {
		next = e->following;
		exchange_free(e);
	}
}

void exchanges_free(struct exchanges *x)
{
	if (!x)
		return;
	free_all(x->first);
	free_all(x->answer);
	event_free(x->more);
	free(x->answer_bytes);
	free(x);
}

/* ---- who takes part ---- */

static bool takes_part(const struct exchange *e, uint32_t rank)
{
	size_t low = 0, high = e->nranks;

	if (!e->nranks)
		return true;
	while (low < high) {
		const size_t mid = (low + high) / 2;

		if (e->rank[mid] < rank)
			low = mid + 1;
		else
			high = mid;
	}
	return low < e->nranks && e->rank[low] == rank;
}

static bool is_list(const struct job *j, const wire_u32v *ranks)
{
	for (size_t i = 0; i < ranks->n; i++)
		if (ranks->v[i] >= j->plan.np || (i && ranks->v[i] <= ranks->v[i - 1]))
			return false;
	return true;
}

static bool has_part(const struct job *j, uint32_t host, const wire_u32v *ranks)
{
	for (size_t i = 0; i < ranks->n; i++)
		if (j->plan.rank[ranks->v[i]].host == host)
			return true;
	return !ranks->n && j->plan.local_size[host];
}

static void list_givers(const struct job *j, struct exchange *e)
{
	bool *has = xcalloc(j->agents.n, sizeof *has);

	for (size_t i = 0; i < e->nranks; i++)
		has[j->plan.rank[e->rank[i]].host] = true;
	for (uint32_t i = 0; i < j->agents.n; i++) {
		has[i] |= !e->nranks && j->plan.local_size[i];
		e->ngivers += has[i];
	}
	e->giver = xcalloc(e->ngivers, sizeof *e->giver);
	e->ngivers = 0;
	for (uint32_t i = 0; i < j->agents.n; i++)
		if (has[i])
			e->giver[e->ngivers++].host = i;
	free(has);
}

static int by_host(const void *host, const void *giver)
{
	const uint32_t a = *(const uint32_t *)host,
		       b = ((const struct giver *)giver)->host;

	return (a > b) - (a < b);
}

static struct giver *giver_of(const struct exchange *e, uint32_t host)
{
	return bsearch(&host, e->giver, e->ngivers, sizeof *e->giver, by_host);
}

bool exchange_has(const struct exchange *e, uint32_t host)
{
	const struct giver *g = giver_of(e, host);

	return g && (g->gave || g->data.len);
}

static bool is_it(const struct exchange *e, const struct wire_exchange *m)
{
	return e->use == m->use && e->number == m->number && e->nranks == m->ranks.n &&
	       (!e->nranks ||
		!memcmp(e->rank, m->ranks.v, e->nranks * sizeof *e->rank));
}

static struct exchange *exchange_add(struct job *j, const struct wire_exchange *m)
{
	struct exchange *e = xcalloc(1, sizeof *e);

	e->use = m->use;
	e->number = m->number;
	e->nranks = m->ranks.n;
	e->rank = xcalloc(m->ranks.n, sizeof *e->rank);
	if (m->ranks.n)
		memcpy(e->rank, m->ranks.v, m->ranks.n * sizeof *e->rank);
	list_givers(j, e);
	e->following = j->exchanges->first;
	j->exchanges->first = e;
	return e;
}

static void exchange_unlist(struct job *j, struct exchange *e)
{
	struct exchange **at = &j->exchanges->first;

	while (*at != e)
		at = &(*at)->following;
	*at = e->following;
	e->following = NULL;
}

static void exchange_drop(struct job *j, struct exchange *e)
{
	exchange_unlist(j, e);
	exchange_free(e);
}

/* ---- what comes ---- */

/* In how many exchanges HOST has given something. */
static size_t exchange_pending(const struct job *j, uint32_t host)
{
	size_t n = 0;

	for (const struct exchange *e = j->exchanges->first; e; e = e->following)
		n += exchange_has(e, host);
	return n;
}

const char *exchange_part(struct job *j, struct host *h, const struct wire_exchange *m,
			  size_t most, struct exchange **e, struct giver **giver)
{
	const uint32_t host = job_index(j, h);
	struct giver *g;

	if (m->use >= EXCHANGE_USES || !is_list(j, &m->ranks) ||
	    !has_part(j, host, &m->ranks))
		return "malformed 'exchange' message";
	*e = j->exchanges->first;
	while (*e && !is_it(*e, m))
		*e = (*e)->following;
	if (!*e && exchange_pending(j, host) >= EXCHANGES_MOST)
		return "too many exchanges";
	if (!*e)
		*e = exchange_add(j, m);
	*giver = g = giver_of(*e, host);
	if (g->gave)
		return "'exchange' message out of turn";
	if (m->data.n > most || g->data.len > most - m->data.n)
		return "more bytes than an exchange takes";
	buf_add(&g->data, m->data.p, m->data.n);
	g->gave = m->last;
	(*e)->ngave += g->gave;
	return NULL;
}

void exchange_forget(struct exchange *e, struct giver *g)
{
	e->ngave -= g->gave;
	g->gave = false;
	buf_free(&g->data);
}

void exchange_drop_if_empty(struct job *j, struct exchange *e)
{
	for (size_t i = 0; i < e->ngivers; i++)
		if (e->giver[i].gave || e->giver[i].data.len)
			return;
	exchange_drop(j, e);
}

static struct exchange *of_use(struct exchange *e, uint32_t use)
{
	while (e && e->use != use)
		e = e->following;
	return e;
}

struct exchange *exchange_first(const struct job *j, uint32_t use)
{
	return of_use(j->exchanges->first, use);
}

struct exchange *exchange_after(const struct exchange *e)
{
	return of_use(e->following, e->use);
}

/* ---- what never comes ---- */

/* RANK ended in order, and others wait for it: it has failed. */
static void exchange_blame(struct job *j, uint32_t rank)
{
	struct rank *r = &j->rank[rank];

	if (r->state != RANK_ENDED || r->ending.fate != FATE_OK)
		return;
	r->ending.fate = FATE_EXIT;
	r->ending.code = 1;
	free(r->text);
	r->text = xstrdup("exited with status 0 while others waited for it in MPI");
	j->failed++;
}

static void exchange_fail(struct job *j, struct exchange *e, uint32_t rank)
{
	const struct wire_exchange_failed m = { .epoch = j->epoch,
						.use = e->use,
						.ranks = { e->rank, e->nranks },
						.number = e->number,
						.rank = rank };

	for (size_t i = 0; i < e->ngivers; i++) {
		struct host *h = &j->agents.host[e->giver[i].host];

		if (!e->giver[i].gave || h->state != HOST_UP)
			continue;
		wire_pack_exchange_failed(&h->out, &m);
		agents_flush(h);
	}
	exchange_blame(j, rank);
	exchange_drop(j, e);
}

/* ---- what all gave ---- */

static void send_all(struct job *j, struct host *h, const struct exchange *e)
{
	struct wire_exchange_data m = { .epoch = j->epoch,
					.use = e->use,
					.ranks = { e->rank, e->nranks },
					.number = e->number,
					.serial = e->serial,
					.clock_offset_ns =
						h->local ? 0 : -h->clock_offset_ns };
	size_t *most = &j->exchanges->answer_bytes[job_index(j, h)];
	const size_t before = h->out.len;
	size_t sent = 0, bytes;

	while (!m.last) {
		const size_t left = e->all.len - sent;

		m.last = left <= WIRE_PART_MAX;
		m.data = (wire_bytes){ buf_head(&e->all) + sent,
				       m.last ? left : WIRE_PART_MAX };
		wire_pack_exchange_data(&h->out, &m);
		sent += m.data.n;
	}
	bytes = h->out.len - before;
	if (bytes > *most) {
		h->out_due += bytes - *most;
		*most = bytes;
	}
	agents_flush(h);
}

/* One host after the other: the texts for 1000 hosts of 8 ranks would take some GB in
 * their send queues.  True: all have been answered. */
static bool exchange_answer(struct job *j, struct exchange *e)
{
	size_t queued = 0;

	for (size_t i = 0; i < e->next; i++)
		queued += j->agents.host[e->giver[i].host].out.len;
	for (; e->next < e->ngivers; e->next++) {
		struct host *h = &j->agents.host[e->giver[e->next].host];

		if (queued > QUEUED_MOST)
			return false;
		if (h->state == HOST_UP)
			send_all(j, h, e);
		queued += h->out.len;
	}
	return true;
}

static void answer_more(struct job *j)
{
	struct exchanges *x = j->exchanges;

	for (struct exchange *e; (e = x->answer);) {
		if (!exchange_answer(j, e)) {
			loop_after_ms(x->more, MORE_MS);
			return;
		}
		x->answer = e->following;
		exchange_free(e);
	}
	x->last_answer = &x->answer;
}

static void on_more(evutil_socket_t fd, short what, void *ctx)
{
	(void)fd;
	(void)what;
	answer_more(ctx);
}

/* Of those that take part, one that has ended; or NP. */
static uint32_t ended_of(const struct job *j, const struct exchange *e)
{
	uint32_t rank = 0;

	while (rank < j->plan.np &&
	       (j->rank[rank].state != RANK_ENDED || !takes_part(e, rank)))
		rank++;
	return rank;
}

void exchange_settle(struct job *j, struct exchange *e)
{
	struct exchanges *x = j->exchanges;
	uint32_t ended;

	ended = e->use != EXCHANGE_INIT && j->ended ? ended_of(j, e) : j->plan.np;
	if (ended < j->plan.np)
		exchange_fail(j, e, ended);
	if (ended < j->plan.np || e->ngave < e->ngivers)
		return;
	for (size_t i = 0; i < e->ngivers; i++) {
		struct buf *data = &e->giver[i].data;

		if (data->len)
			buf_add(&e->all, buf_head(data), data->len);
		buf_free(data);
	}
	exchange_unlist(j, e);
	e->serial = ++x->serial;
	*x->last_answer = e;
	x->last_answer = &e->following;
	answer_more(j);
}

/* Bytes that host H may give to an exchange of USE. */
static size_t most_of(const struct job *j, const struct host *h, uint32_t use)
{
	if (use == EXCHANGE_PMI1)
		return j->plan.local_size[job_index(j, h)] *
		       (size_t)EXCHANGE_RANK_BYTES;
	return EXCHANGE_PMIX_BYTES / j->plan.nodes + EXCHANGE_PMIX_HEAD;
}

const char *exchange_take(struct job *j, struct host *h, const struct wire_exchange *m)
{
	struct exchange *e;
	struct giver *g;
	const char *wrong;

	if (!j->exchanges || j->phase < JOB_RUN)
		return "'exchange' message out of turn";
	wrong = exchange_part(j, h, m, most_of(j, h, m->use), &e, &g);
	if (!wrong && g->gave)
		exchange_settle(j, e);
	return wrong;
}

void exchange_rank_ended(struct job *j, uint32_t rank)
{
	struct exchange *next;

	if (!j->exchanges)
		return;
	for (struct exchange *e = j->exchanges->first; e; e = next) {
		next = e->following;
		if (e->use != EXCHANGE_INIT && takes_part(e, rank))
			exchange_fail(j, e, rank);
	}
}
