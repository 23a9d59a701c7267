#include "launcher/job/exchange.h"

#include <event2/event.h>

#include "common/loop.h"

enum {
	QUEUED_MOST = 64 << 20, /* bytes of answers that wait to be sent, about */
	MORE_MS = 2,
	FAILED_MS = 2000,
	/* until ranks that are in MPI_Init are taken to wait for one that has ended */
	ABSENT_MS = 5000
};

/* On one host a rank has ended without MPI_Init, and others may wait for it there. */
struct absence {
	struct exchanges *x;
	struct host *host;
	uint32_t use, rank, waiting;
	bool missed;       /* the rank has been named */
	struct event *due; /* pending while others wait */
	struct absence *next;
};

/* The part of one host. */
struct giver {
	uint32_t host;
	bool gave; /* all of it has come */
	struct buf data;
};

struct exchanges {
	struct epoch epoch;
	struct exchange_policy init; /* of EXCHANGE_INIT */
	void (*missed)(void *ctx, uint32_t rank);
	void *ctx;
	bool any_ended;          /* of the ranks */
	struct exchange *first;  /* wait for hosts, or fail soon */
	struct exchange *answer; /* complete, and not all hosts have been answered */
	struct exchange **last_answer;
	size_t *answer_bytes; /* of the largest answer to each host */
	uint64_t serial;      /* of the last one that was complete */
	struct absence *absence;
	struct event *more, *failed;
};

static void on_more(evutil_socket_t fd, short what, void *ctx);
static void exchange_on_failed(evutil_socket_t fd, short what, void *ctx);

struct exchanges *exchanges_open(const struct epoch *e,
				 void (*missed)(void *ctx, uint32_t rank), void *ctx)
{
	struct exchanges *x = xcalloc(1, sizeof *x);

	x->epoch = *e;
	x->missed = missed;
	x->ctx = ctx;
	x->more = event_new(e->base, -1, 0, on_more, x);
	x->failed = event_new(e->base, -1, 0, exchange_on_failed, x);
	x->last_answer = &x->answer;
	x->answer_bytes = xcalloc(e->hosts_most, sizeof *x->answer_bytes);
	return x;
}

void exchanges_of_init(struct exchanges *x, const struct exchange_policy *policy)
{
	x->init = *policy;
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
	for (struct absence *a; (a = x->absence);) {
		x->absence = a->next;
		event_free(a->due);
		free(a);
	}
	event_free(x->more);
	event_free(x->failed);
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

static void list_givers(const struct epoch *epoch, struct exchange *e)
{
	const struct plan *plan = epoch->plan;
	bool *has = xcalloc(epoch->plan->nhosts, sizeof *has);

	for (size_t i = 0; i < e->nranks; i++)
		has[plan->rank[e->rank[i]].host] = true;
	for (uint32_t i = 0; i < epoch->plan->nhosts; i++) {
		has[i] |= !e->nranks && plan->local_size[i];
		e->ngivers += has[i];
	}
	e->giver = xcalloc(e->ngivers, sizeof *e->giver);
	e->ngivers = 0;
	for (uint32_t i = 0; i < epoch->plan->nhosts; i++)
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

static bool exchange_has(const struct exchange *e, uint32_t host)
{
	const struct giver *g = giver_of(e, host);

	return g && (g->gave || g->data.len);
}

static struct exchange *exchange_add(struct exchanges *x, const struct wire_exchange *m)
{
	struct exchange *e = xcalloc(1, sizeof *e);

	e->use = m->use;
	e->number = m->number;
	e->nranks = m->ranks.n;
	e->rank = xcalloc(m->ranks.n, sizeof *e->rank);
	if (m->ranks.n)
		memcpy(e->rank, m->ranks.v, m->ranks.n * sizeof *e->rank);
	list_givers(&x->epoch, e);
	e->following = x->first;
	x->first = e;
	return e;
}

static void exchange_unlist(struct exchanges *x, struct exchange *e)
{
	struct exchange **at = &x->first;

	while (*at != e)
		at = &(*at)->following;
	*at = e->following;
	e->following = NULL;
}

/* E is over if nobody has given anything. */
static void drop_if_empty(struct exchanges *x, struct exchange *e)
{
	for (size_t i = 0; i < e->ngivers; i++)
		if (e->giver[i].gave || e->giver[i].data.len)
			return;
	exchange_unlist(x, e);
	exchange_free(e);
}

static void forget_part(struct exchange *e, struct giver *g)
{
	e->ngave -= g->gave;
	g->gave = false;
	buf_free(&g->data);
}

void exchange_forget(struct exchanges *x, exchange_refuses *refuses, void *ctx)
{
	struct exchange *next;

	for (struct exchange *e = x->first; e; e = next) {
		next = e->following;
		if (e->use != EXCHANGE_INIT)
			continue;
		for (size_t i = e->ngivers; i-- && e->ngave;)
			if (e->giver[i].gave && refuses(ctx, e, e->giver[i].host))
				forget_part(e, &e->giver[i]);
		drop_if_empty(x, e);
	}
}

/* ---- what never comes ---- */

static void exchange_fail(struct exchanges *x, struct exchange *e)
{
	e->failed = true;
	if (!event_pending(x->failed, EV_TIMEOUT, NULL))
		loop_after_ms(x->failed, FAILED_MS);
}

static void tell_failed(const struct exchanges *x, const struct exchange *e)
{
	const struct wire_exchange_failed m = { .epoch = x->epoch.number,
						.use = e->use,
						.ranks = { e->rank, e->nranks },
						.number = e->number };

	for (size_t i = 0; i < e->ngivers; i++) {
		struct host *h = &x->epoch.agents->host[e->giver[i].host];

		if (!e->giver[i].gave || h->state != HOST_UP)
			continue;
		AGENTS_SEND(h, exchange_failed, &m);
	}
}

static void exchange_on_failed(evutil_socket_t fd, short what, void *ctx)
{
	struct exchanges *x = ctx;
	struct exchange *next;

	(void)fd;
	(void)what;
	for (struct exchange *e = x->first; e; e = next) {
		next = e->following;
		if (!e->failed)
			continue;
		tell_failed(x, e);
		exchange_unlist(x, e);
		exchange_free(e);
	}
}

/* A rank that takes part has ended. */
static bool lacks_rank(struct exchanges *x, const struct exchange *e)
{
	uint32_t rank = 0;

	if (e->use == EXCHANGE_INIT || !x->any_ended)
		return false;
	while (rank < x->epoch.plan->np &&
	       !(epoch_has_ended(&x->epoch, rank) && takes_part(e, rank)))
		rank++;
	if (rank == x->epoch.plan->np)
		return false;
	x->missed(x->ctx, rank);
	return true;
}

void exchange_rank_ended(struct exchanges *x, uint32_t rank)
{
	if (!x)
		return;
	x->any_ended = true;
	for (struct exchange *e = x->first; e; e = e->following)
		if (e->use != EXCHANGE_INIT && takes_part(e, rank)) {
			exchange_fail(x, e);
			x->missed(x->ctx, rank);
		}
}

/* They still wait: the rank is named, and then they are told. */
static void on_absence(evutil_socket_t fd, short what, void *ctx)
{
	struct absence *a = ctx;
	struct exchanges *x = a->x;

	(void)fd;
	(void)what;
	if (!epoch_has_ended(&x->epoch, a->rank)) {
		loop_after_ms(a->due, ABSENT_MS);
	} else if (!a->missed) {
		a->missed = true;
		x->missed(x->ctx, a->rank);
		loop_after_ms(a->due, FAILED_MS);
	} else if (a->host->state == HOST_UP) {
		AGENTS_SEND(a->host, exchange_failed,
			    &(struct wire_exchange_failed){ .epoch = x->epoch.number,
							    .use = a->use });
	}
}

const char *exchange_absent(struct exchanges *x, struct host *h,
			    const struct wire_absent *m)
{
	struct absence *a;

	if (!x || !epoch_has_rank(&x->epoch, h, m->rank) ||
	    (m->use != EXCHANGE_PMI1 && m->use != EXCHANGE_PMIX_FENCE))
		return "'absent' message out of turn";
	a = x->absence;
	while (a && (a->host != h || a->use != m->use))
		a = a->next;
	if (!a) {
		a = xcalloc(1, sizeof *a);
		*a = (struct absence){
			.x = x, .host = h, .use = m->use, .next = x->absence
		};
		a->due = event_new(x->epoch.base, -1, 0, on_absence, a);
		x->absence = a;
	}
	a->rank = m->rank;
	if (!m->waiting)
		event_del(a->due);
	else if (m->waiting > a->waiting)
		loop_after_ms(a->due, a->missed ? FAILED_MS : ABSENT_MS);
	a->waiting = m->waiting;
	return NULL;
}

/* ---- what all gave ---- */

static void send_all(struct exchanges *x, struct host *h, const struct exchange *e)
{
	struct wire_exchange_data m = { .epoch = x->epoch.number,
					.use = e->use,
					.ranks = { e->rank, e->nranks },
					.number = e->number,
					.serial = e->serial,
					.clock_offset_ns =
						h->local ? 0 : -h->clock_offset_ns };
	size_t *most = &x->answer_bytes[epoch_index(&x->epoch, h)];
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
static bool exchange_answer(struct exchanges *x, struct exchange *e)
{
	struct host *host = x->epoch.agents->host;
	size_t queued = 0;

	for (size_t i = 0; i < e->next; i++)
		queued += host[e->giver[i].host].out.len;
	for (; e->next < e->ngivers; e->next++) {
		struct host *h = &host[e->giver[e->next].host];

		if (queued > QUEUED_MOST)
			return false;
		if (h->state == HOST_UP)
			send_all(x, h, e);
		queued += h->out.len;
	}
	return true;
}

static void answer_more(struct exchanges *x)
{
	for (struct exchange *e; (e = x->answer);) {
		if (!exchange_answer(x, e)) {
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

/* If all hosts have given, they get what all gave. */
static void exchange_settle(struct exchanges *x, struct exchange *e)
{
	if (lacks_rank(x, e))
		exchange_fail(x, e);
	if (e->failed || e->ngave < e->ngivers)
		return;
	for (size_t i = 0; i < e->ngivers; i++) {
		struct buf *data = &e->giver[i].data;

		if (data->len)
			buf_add(&e->all, buf_head(data), data->len);
		buf_free(data);
	}
	exchange_unlist(x, e);
	e->serial = ++x->serial;
	*x->last_answer = e;
	x->last_answer = &e->following;
	answer_more(x);
}

/* ---- what comes ---- */

/* May HOST give M?  What is wrong, or NULL, and *MOST bytes in all. */
static const char *exchange_judge(const struct exchanges *x, uint32_t host,
				  const struct wire_exchange *m, bool first,
				  size_t *most)
{
	const struct plan *plan = x->epoch.plan;
	const bool init = m->use == EXCHANGE_INIT;
	size_t given = 0; /* to how many it has given */

	for (const struct exchange *e = x->first; first && e; e = e->following)
		given += (!init || e->use == EXCHANGE_INIT) && exchange_has(e, host);
	if (given >= (init ? 1 : EXCHANGES_MOST))
		return "too many exchanges";
	if (init)
		return x->init.takes(x->init.ctx, host, m, first, most);
	*most = m->use == EXCHANGE_PMI1
			? plan->local_size[host] * (size_t)EXCHANGE_RANK_BYTES
			: EXCHANGE_PMIX_BYTES / plan->nodes + EXCHANGE_PMIX_HEAD;
	return NULL;
}

/* HOST has given all to E. */
static const char *exchange_gave(struct exchanges *x, uint32_t host, struct exchange *e,
				 struct giver *g)
{
	const struct exchange_policy *init = &x->init;
	const char *wrong = NULL;

	if (e->use == EXCHANGE_INIT) {
		wrong = init->gave(init->ctx, host, e, &g->data);
		if (!wrong && init->refuses(init->ctx, e, host)) {
			forget_part(e, g);
			drop_if_empty(x, e);
			return NULL;
		}
	}
	if (!wrong)
		exchange_settle(x, e);
	return wrong;
}

const char *exchange_take(struct exchanges *x, struct host *h,
			  const struct wire_exchange *m)
{
	const bool init = m->use == EXCHANGE_INIT;
	const struct plan *plan;
	bool sound, has_part;
	struct exchange *e;
	struct giver *g;
	const char *wrong;
	uint32_t host;
	size_t most;

	if (!x)
		return "'exchange' message out of turn";
	plan = x->epoch.plan;
	host = epoch_index(&x->epoch, h);
	has_part = !m->ranks.n && plan->local_size[host];
	sound = m->use < EXCHANGE_USES && wire_ascends(&m->ranks, plan->np);
	for (size_t i = 0; sound && i < m->ranks.n; i++)
		has_part |= plan->rank[m->ranks.v[i]].host == host;
	if (!sound || !has_part ||
	    m->last > (init ? EXCHANGE_WHOLE : EXCHANGE_LACKS_RANK) ||
	    (!m->last && !m->data.n))
		return "malformed 'exchange' message";
	e = x->first;
	while (e &&
	       (e->use != m->use || e->number != m->number || e->nranks != m->ranks.n ||
		(e->nranks &&
		 memcmp(e->rank, m->ranks.v, e->nranks * sizeof *e->rank) != 0)))
		e = e->following;
	wrong = exchange_judge(x, host, m, !e || !exchange_has(e, host), &most);
	if (wrong)
		return wrong;
	if (!e)
		e = exchange_add(x, m);
	g = giver_of(e, host);
	if (g->gave)
		return "'exchange' message out of turn";
	if (m->data.n > most || g->data.len > most - m->data.n)
		return "more bytes than an exchange takes";
	buf_add(&g->data, m->data.p, m->data.n);
	if (!m->last)
		return NULL;
	g->gave = true;
	e->ngave++;
	if (m->last == EXCHANGE_LACKS_RANK)
		exchange_fail(x, e);
	return exchange_gave(x, host, e, g);
}
