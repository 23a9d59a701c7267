#include "launcher/job/fence.h"

#include <event2/event.h>

enum {
	QUEUED_MOST = 64 << 20, /* bytes of answers that wait to be sent, about */
	MORE_MS = 2,
	/* Between two messages of losses.  A job whose ranks end without having left
	 * would cost one for each rank and host. */
	LOSSES_MS = 20
};

/* It is out of a joining, and its host said so. */
struct loss {
	uint32_t rank, joining, follows;
};

/* Of one host. */
struct teller {
	bool asked;       /* its ranks use the library */
	uint32_t joining; /* of its last fence */
	bool says, said;  /* a part of it came; all of it, and it was not answered */
	struct buf texts;
	uint32_t ended; /* its first rank that has ended, plus 1; 0: none has */
	uint32_t nended;
	uint32_t lost, loser; /* the last joining that one of its ranks was lost to */
};

struct fence {
	struct teller *host;
	size_t nhosts, nsaid;
	bool anybody_gone; /* a rank has ended, or is lost to a joining */
	struct buf texts;  /* of all ranks, while hosts from NEXT on are to be told */
	size_t next;
	struct event *more;
	struct loss *loss; /* that are to be told */
	size_t nlosses;
	struct event *losses; /* pending: some were told just now */
};

static void on_more(evutil_socket_t fd, short what, void *ctx);
static void on_losses(evutil_socket_t fd, short what, void *ctx);

struct fence *fence_open(struct job *j)
{
	struct fence *w = xcalloc(1, sizeof *w);

	w->nhosts = j->agents.n;
	w->more = event_new(j->base, -1, 0, on_more, j);
	w->losses = event_new(j->base, -1, 0, on_losses, j);
	w->host = xcalloc(w->nhosts, sizeof *w->host);
	return w;
}

void fence_free(struct fence *w)
{
	if (!w)
		return;
	for (size_t i = 0; i < w->nhosts; i++)
		buf_free(&w->host[i].texts);
	buf_free(&w->texts);
	event_free(w->more);
	event_free(w->losses);
	free(w->loss);
	free(w->host);
	free(w);
}

static struct teller *teller_of(const struct job *j, const struct host *h)
{
	return &j->fence->host[job_index(j, h)];
}

static bool runs(const struct job *j)
{
	return j->fence && j->phase >= JOB_RUN;
}

/* ---- who is where ---- */

const char *fence_asked(struct job *j, struct host *h)
{
	const char **names;
	struct wire_host_map m = { .epoch = j->epoch };
	uint32_t *hosts;

	if (!runs(j) || teller_of(j, h)->asked)
		return "'host_map_request' message out of turn";
	teller_of(j, h)->asked = true;
	names = xcalloc(j->plan.nodes, sizeof *names);
	hosts = xcalloc(j->plan.np, sizeof *hosts);
	for (size_t i = 0; i < j->agents.n; i++)
		if (j->plan.node[i] != PLAN_UNUSED)
			names[j->plan.node[i]] = j->agents.host[i].name;
	for (uint32_t i = 0; i < j->plan.np; i++)
		hosts[i] = j->plan.node[j->plan.rank[i].host];
	m.hosts = (wire_u32v){ hosts, j->plan.np };
	m.names = (wire_strv){ names, j->plan.nodes };
	wire_pack_host_map(&h->out, &m);
	agents_flush(h);
	free(hosts);
	free(names);
	return NULL;
}

/* ---- losses ---- */

static void tell_lost(struct job *j, size_t host, const struct wire_lost *m)
{
	struct host *h = &j->agents.host[host];

	if (h->state != HOST_UP || !j->fence->host[host].asked ||
	    j->fence->host[host].nended == j->plan.local_size[host])
		return;
	wire_pack_lost(&h->out, m);
	agents_flush(h);
}

static bool are_alike(const struct loss *a, const struct loss *b)
{
	return a->joining == b->joining && a->follows == b->follows;
}

/* Those that are like L to HOST, but for its own, which it knows.  LIST: has room. */
static void tell_losses(struct job *j, size_t host, struct loss l, uint32_t *list)
{
	const struct fence *w = j->fence;
	struct wire_lost m = { j->epoch, { list, 0 }, l.joining, 0, l.follows };

	for (size_t i = 0; i < w->nlosses; i++)
		if (are_alike(&w->loss[i], &l) &&
		    j->plan.rank[w->loss[i].rank].host != host)
			list[m.ranks.n++] = w->loss[i].rank;
	if (m.ranks.n)
		tell_lost(j, host, &m);
}

static void tell_all_losses(struct job *j)
{
	struct fence *w = j->fence;
	uint32_t *list = xcalloc(w->nlosses, sizeof *list);

	while (w->nlosses) {
		const struct loss first = w->loss[0];
		size_t left = 0;

		for (size_t i = 0; i < j->agents.n; i++)
			tell_losses(j, i, first, list);
		for (size_t i = 0; i < w->nlosses; i++)
			if (!are_alike(&w->loss[i], &first))
				w->loss[left++] = w->loss[i];
		w->nlosses = left;
	}
	free(list);
	event_add(w->losses, &(struct timeval){ .tv_usec = LOSSES_MS * 1000 });
}

static void on_losses(evutil_socket_t fd, short what, void *ctx)
{
	struct job *j = ctx;

	(void)fd;
	(void)what;
	if (j->fence->nlosses)
		tell_all_losses(j);
}

static void add_losses(struct job *j, const struct wire_lost *m)
{
	struct fence *w = j->fence;

	w->loss = xreallocarray(w->loss, w->nlosses + m->ranks.n, sizeof *w->loss);
	for (size_t i = 0; i < m->ranks.n; i++)
		w->loss[w->nlosses++] =
			(struct loss){ m->ranks.v[i], m->init_round, m->secondary };
	if (w->nlosses > j->plan.np || !event_pending(w->losses, EV_TIMEOUT, NULL))
		tell_all_losses(j);
}

static void forget_fence(struct fence *w, struct teller *t)
{
	w->nsaid -= t->said;
	t->says = t->said = false;
	buf_free(&t->texts);
}

/* Who waits in these has been told for whom in vain. */
static void drop_fences(struct fence *w, uint32_t up_to)
{
	for (size_t i = 0; i < w->nhosts; i++)
		if (w->host[i].said && w->host[i].joining <= up_to)
			forget_fence(w, &w->host[i]);
}

/* HOST waits for ranks of OTHER that won't come: one was lost to this joining, when
 * HOST had not asked for the world or its fence was on its way; or one has ended that
 * came to none after an earlier one. */
static bool waits_in_vain(const struct fence *w, size_t host, size_t other)
{
	const struct teller *t = &w->host[host], *o = &w->host[other];

	return t->said && other != host &&
	       (o->lost >= t->joining || (o->ended && o->joining < t->joining));
}

static void tell_in_vain(struct job *j, size_t host, size_t other)
{
	struct teller *t = &j->fence->host[host], *o = &j->fence->host[other];
	bool lost = o->lost >= t->joining;
	const uint32_t rank = lost ? o->loser : o->ended - 1;
	const struct wire_lost m = {
		j->epoch, { &rank, 1 }, lost ? o->lost : o->joining + 1, !lost, 0
	};

	tell_lost(j, host, &m);
	forget_fence(j->fence, t);
}

const char *fence_lost(struct job *j, struct host *h, const struct wire_lost *m)
{
	const uint32_t from = job_index(j, h);
	struct teller *t;

	if (!runs(j) || m->ended || !m->init_round || !m->ranks.n ||
	    m->ranks.n > j->plan.local_size[from])
		return "'lost' message out of turn";
	for (size_t i = 0; i < m->ranks.n; i++)
		if (m->ranks.v[i] >= j->plan.np ||
		    j->plan.rank[m->ranks.v[i]].host != from)
			return "message about a rank of another host";
	t = teller_of(j, h);
	if (m->init_round >= t->lost) {
		t->lost = m->init_round;
		t->loser = m->ranks.v[0];
	}
	j->fence->anybody_gone = true;
	add_losses(j, m);
	drop_fences(j->fence, m->init_round);
	return NULL;
}

/* Who left the library before it ended is missed only by those who wait for more. */
void fence_rank_ended(struct job *j, uint32_t rank)
{
	const uint32_t host = j->plan.rank[rank].host;
	struct fence *w = j->fence;

	if (!w)
		return;
	w->host[host].nended++;
	if (w->host[host].ended)
		return; /* the first is named */
	w->anybody_gone = true;
	w->host[host].ended = rank + 1;
	for (size_t i = 0; w->nsaid && i < w->nhosts; i++)
		if (waits_in_vain(w, i, host))
			tell_in_vain(j, i, host);
}

void fence_host_lost(struct job *j, uint32_t host)
{
	struct fence *w = j->fence;
	struct wire_lost m = { j->epoch, { 0 }, 1, 1, 0 };

	if (!w || !j->plan.local_size[host])
		return;
	if (w->host[host].joining)
		m.init_round = w->host[host].joining;
	m.ranks = (wire_u32v){ j->plan.ranks[host], j->plan.local_size[host] };
	for (size_t i = 0; i < j->agents.n; i++)
		if (i != host)
			tell_lost(j, i, &m);
	drop_fences(w, UINT32_MAX);
}

/* ---- fences ---- */

static bool all_said(const struct job *j)
{
	const struct fence *w = j->fence;
	uint32_t joining = 0;

	if (w->nsaid < j->plan.nodes)
		return false;
	for (size_t i = 0; i < w->nhosts; i++) {
		if (!w->host[i].said)
			continue;
		if (joining && w->host[i].joining != joining)
			return false; /* the earlier one is about to be refused */
		joining = w->host[i].joining;
	}
	return true;
}

/* The texts of all ranks in their order into OUT. */
static void sort_texts(const struct job *j, struct buf *out)
{
	const char **text = xcalloc(j->plan.np, sizeof *text);

	for (size_t i = 0; i < j->agents.n; i++) {
		const char *p = (const char *)buf_head(&j->fence->host[i].texts);

		for (uint32_t k = 0; k < j->plan.local_size[i]; k++) {
			text[j->plan.ranks[i][k]] = p;
			p += strlen(p) + 1;
		}
	}
	for (uint32_t i = 0; i < j->plan.np; i++)
		buf_add(out, text[i], strlen(text[i]) + 1);
	free(text);
}

static void send_all(struct job *j, struct host *h, const struct buf *texts)
{
	struct wire_fence_data m = { .epoch = j->epoch,
				     .init_round = teller_of(j, h)->joining,
				     .clock_offset_ns =
					     h->local ? 0 : -h->clock_offset_ns };
	size_t sent = 0;

	while (!m.last) {
		size_t left = texts->len - sent;

		m.last = left <= WIRE_PART_MAX;
		m.texts = (wire_bytes){ buf_head(texts) + sent,
					m.last ? left : WIRE_PART_MAX };
		wire_pack_fence_data(&h->out, &m);
		sent += m.texts.n;
	}
	agents_flush(h);
}

/* Each host in its turn: with all of them at once, what 1000 hosts of 8 ranks are told
 * would be some GB. */
static void tell_more(struct job *j)
{
	struct fence *w = j->fence;
	size_t queued = 0;

	for (size_t i = 0; i < w->next; i++)
		queued += j->agents.host[i].out.len;
	for (; w->next < w->nhosts; w->next++) {
		struct host *h = &j->agents.host[w->next];

		if (!w->host[w->next].said)
			continue;
		if (queued > QUEUED_MOST) {
			event_add(w->more,
				  &(struct timeval){ .tv_usec = MORE_MS * 1000 });
			return;
		}
		if (h->state == HOST_UP)
			send_all(j, h, &w->texts);
		queued += h->out.len;
		forget_fence(w, &w->host[w->next]);
	}
	buf_free(&w->texts);
}

static void on_more(evutil_socket_t fd, short what, void *ctx)
{
	(void)fd;
	(void)what;
	tell_more(ctx);
}

static void answer(struct job *j)
{
	sort_texts(j, &j->fence->texts);
	j->fence->next = 0;
	tell_more(j);
}

static bool texts_are_sound(const struct buf *texts, uint32_t n)
{
	const char *p = (const char *)buf_head(texts);
	uint32_t found = 0;

	for (size_t i = 0; i < texts->len; i++)
		found += !p[i];
	return found == n && !p[texts->len - 1];
}

const char *fence_texts(struct job *j, struct host *h, const struct wire_fence *m)
{
	const uint32_t n = j->plan.np ? j->plan.local_size[job_index(j, h)] : 0;
	struct fence *w = j->fence;
	struct teller *t;

	if (!runs(j) || !n || !teller_of(j, h)->asked || teller_of(j, h)->said)
		return "'fence' message out of turn";
	t = teller_of(j, h);
	if (t->says ? m->init_round != t->joining : m->init_round <= t->joining)
		return "'fence' message of another joining";
	t->joining = m->init_round;
	t->says = true;
	buf_add(&t->texts, m->texts.p, m->texts.n);
	if (t->texts.len > (size_t)n * WIRE_TEXT_MAX)
		return "more texts than ranks";
	if (!m->last)
		return NULL;
	if (!texts_are_sound(&t->texts, n))
		return "other texts than ranks";
	t->said = true;
	w->nsaid++;
	for (size_t i = 0; w->anybody_gone && i < w->nhosts; i++)
		if (waits_in_vain(w, job_index(j, h), i))
			tell_in_vain(j, job_index(j, h), i);
	if (all_said(j))
		answer(j);
	return NULL;
}
