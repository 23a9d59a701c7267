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

struct fence *fence_open(struct session *s)
{
	struct fence *w = xcalloc(1, sizeof *w);

	w->nhosts = s->agents.n;
	w->more = event_new(s->base, -1, 0, on_more, s);
	w->losses = event_new(s->base, -1, 0, on_losses, s);
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

static struct teller *teller_of(const struct session *s, const struct host *h)
{
	return &s->world->host[session_index(s, h)];
}

static bool runs(const struct session *s)
{
	return s->world && s->phase != PHASE_START;
}

/* ---- who is where ---- */

const char *fence_asked(struct session *s, struct host *h)
{
	const char **names;
	struct wire_host_map m = { .epoch = s->epoch };
	uint32_t *hosts;

	if (!runs(s) || teller_of(s, h)->asked)
		return "'host_map_request' message out of turn";
	teller_of(s, h)->asked = true;
	names = xcalloc(s->plan.nodes, sizeof *names);
	hosts = xcalloc(s->plan.np, sizeof *hosts);
	for (size_t i = 0; i < s->agents.n; i++)
		if (s->plan.node[i] != PLAN_UNUSED)
			names[s->plan.node[i]] = s->agents.host[i].name;
	for (uint32_t i = 0; i < s->plan.np; i++)
		hosts[i] = s->plan.node[s->plan.rank[i].host];
	m.hosts = (wire_u32v){ hosts, s->plan.np };
	m.names = (wire_strv){ names, s->plan.nodes };
	wire_pack_host_map(&h->out, &m);
	agents_flush(h);
	free(hosts);
	free(names);
	return NULL;
}

/* ---- losses ---- */

static void tell_lost(struct session *s, size_t host, const struct wire_lost *m)
{
	struct host *h = &s->agents.host[host];

	if (h->state != HOST_UP || !s->world->host[host].asked ||
	    s->world->host[host].nended == s->plan.local_size[host])
		return;
	wire_pack_lost(&h->out, m);
	agents_flush(h);
}

static bool are_alike(const struct loss *a, const struct loss *b)
{
	return a->joining == b->joining && a->follows == b->follows;
}

/* Those that are like L to HOST, but for its own, which it knows.  LIST: has room. */
static void tell_losses(struct session *s, size_t host, struct loss l, uint32_t *list)
{
	const struct fence *w = s->world;
	struct wire_lost m = { s->epoch, { list, 0 }, l.joining, 0, l.follows };

	for (size_t i = 0; i < w->nlosses; i++)
		if (are_alike(&w->loss[i], &l) &&
		    s->plan.rank[w->loss[i].rank].host != host)
			list[m.ranks.n++] = w->loss[i].rank;
	if (m.ranks.n)
		tell_lost(s, host, &m);
}

static void tell_all_losses(struct session *s)
{
	struct fence *w = s->world;
	uint32_t *list = xcalloc(w->nlosses, sizeof *list);

	while (w->nlosses) {
		const struct loss first = w->loss[0];
		size_t left = 0;

		for (size_t i = 0; i < s->agents.n; i++)
			tell_losses(s, i, first, list);
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
	struct session *s = ctx;

	(void)fd;
	(void)what;
	if (s->world->nlosses)
		tell_all_losses(s);
}

static void add_losses(struct session *s, const struct wire_lost *m)
{
	struct fence *w = s->world;

	w->loss = xreallocarray(w->loss, w->nlosses + m->ranks.n, sizeof *w->loss);
	for (size_t i = 0; i < m->ranks.n; i++)
		w->loss[w->nlosses++] =
			(struct loss){ m->ranks.v[i], m->init_round, m->secondary };
	if (w->nlosses > s->plan.np || !event_pending(w->losses, EV_TIMEOUT, NULL))
		tell_all_losses(s);
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

static void tell_in_vain(struct session *s, size_t host, size_t other)
{
	struct teller *t = &s->world->host[host], *o = &s->world->host[other];
	bool lost = o->lost >= t->joining;
	const uint32_t rank = lost ? o->loser : o->ended - 1;
	const struct wire_lost m = {
		s->epoch, { &rank, 1 }, lost ? o->lost : o->joining + 1, !lost, 0
	};

	tell_lost(s, host, &m);
	forget_fence(s->world, t);
}

const char *fence_lost(struct session *s, struct host *h, const struct wire_lost *m)
{
	const uint32_t from = session_index(s, h);
	struct teller *t;

	if (!runs(s) || m->ended || !m->init_round || !m->ranks.n ||
	    m->ranks.n > s->plan.local_size[from])
		return "'lost' message out of turn";
	for (size_t i = 0; i < m->ranks.n; i++)
		if (m->ranks.v[i] >= s->plan.np ||
		    s->plan.rank[m->ranks.v[i]].host != from)
			return "message about a rank of another host";
	t = teller_of(s, h);
	if (m->init_round >= t->lost) {
		t->lost = m->init_round;
		t->loser = m->ranks.v[0];
	}
	s->world->anybody_gone = true;
	add_losses(s, m);
	drop_fences(s->world, m->init_round);
	return NULL;
}

/* Who left the library before it ended is missed only by those who wait for more. */
void fence_rank_ended(struct session *s, uint32_t rank)
{
	const uint32_t host = s->plan.rank[rank].host;
	struct fence *w = s->world;

	if (!w)
		return;
	w->host[host].nended++;
	if (w->host[host].ended)
		return; /* the first is named */
	w->anybody_gone = true;
	w->host[host].ended = rank + 1;
	for (size_t i = 0; w->nsaid && i < w->nhosts; i++)
		if (waits_in_vain(w, i, host))
			tell_in_vain(s, i, host);
}

void fence_host_lost(struct session *s, uint32_t host)
{
	struct fence *w = s->world;
	struct wire_lost m = { s->epoch, { 0 }, 1, 1, 0 };

	if (!w || !s->plan.local_size[host])
		return;
	if (w->host[host].joining)
		m.init_round = w->host[host].joining;
	m.ranks = (wire_u32v){ s->plan.ranks[host], s->plan.local_size[host] };
	for (size_t i = 0; i < s->agents.n; i++)
		if (i != host)
			tell_lost(s, i, &m);
	drop_fences(w, UINT32_MAX);
}

/* ---- fences ---- */

static bool all_said(const struct session *s)
{
	const struct fence *w = s->world;
	uint32_t joining = 0;

	if (w->nsaid < s->plan.nodes)
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
static void sort_texts(const struct session *s, struct buf *out)
{
	const char **text = xcalloc(s->plan.np, sizeof *text);

	for (size_t i = 0; i < s->agents.n; i++) {
		const char *p = (const char *)buf_head(&s->world->host[i].texts);

		for (uint32_t k = 0; k < s->plan.local_size[i]; k++) {
			text[s->plan.ranks[i][k]] = p;
			p += strlen(p) + 1;
		}
	}
	for (uint32_t i = 0; i < s->plan.np; i++)
		buf_add(out, text[i], strlen(text[i]) + 1);
	free(text);
}

static void send_all(struct session *s, struct host *h, const struct buf *texts)
{
	struct wire_fence_data m = { .epoch = s->epoch,
				     .init_round = teller_of(s, h)->joining,
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
static void tell_more(struct session *s)
{
	struct fence *w = s->world;
	size_t queued = 0;

	for (size_t i = 0; i < w->next; i++)
		queued += s->agents.host[i].out.len;
	for (; w->next < w->nhosts; w->next++) {
		struct host *h = &s->agents.host[w->next];

		if (!w->host[w->next].said)
			continue;
		if (queued > QUEUED_MOST) {
			event_add(w->more,
				  &(struct timeval){ .tv_usec = MORE_MS * 1000 });
			return;
		}
		if (h->state == HOST_UP)
			send_all(s, h, &w->texts);
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

static void answer(struct session *s)
{
	sort_texts(s, &s->world->texts);
	s->world->next = 0;
	tell_more(s);
}

static bool texts_are_sound(const struct buf *texts, uint32_t n)
{
	const char *p = (const char *)buf_head(texts);
	uint32_t found = 0;

	for (size_t i = 0; i < texts->len; i++)
		found += !p[i];
	return found == n && !p[texts->len - 1];
}

const char *fence_texts(struct session *s, struct host *h, const struct wire_fence *m)
{
	const uint32_t n = s->plan.np ? s->plan.local_size[session_index(s, h)] : 0;
	struct fence *w = s->world;
	struct teller *t;

	if (!runs(s) || !n || !teller_of(s, h)->asked || teller_of(s, h)->said)
		return "'fence' message out of turn";
	t = teller_of(s, h);
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
		if (waits_in_vain(w, session_index(s, h), i))
			tell_in_vain(s, session_index(s, h), i);
	if (all_said(s))
		answer(s);
	return NULL;
}
