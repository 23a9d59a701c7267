#include "launcher/job/fence.h"

#include <event2/event.h>

#include "common/loop.h"
#include "launcher/job/exchange.h"
#include "launcher/job/host_map.h"

enum {
	/* Between two messages of losses.  A job whose ranks end without having left
	 * would cost one for each rank and host. */
	LOSSES_MS = 20
};

/* A rank that is out of an init round, as its agent said. */
struct loss {
	uint32_t rank, round, secondary;
};

/* One host. */
struct member {
	bool uses;            /* its ranks use the library */
	uint32_t round;       /* of its last fence */
	uint32_t first_ended; /* 1 + its first rank that has ended; 0: none has */
	uint32_t nended;
	uint32_t lost_round, lost_rank; /* the last round that it lost a rank in */
};

struct fence {
	struct member *host;
	bool *waits;             /* of each rank: for the next world */
	uint32_t nwaits, number; /* how many; the largest of their last worlds */
	bool any_lost;           /* a rank has ended, or is lost to a round */
	struct loss *loss;       /* that the hosts have not been told */
	size_t nlosses;
	struct event *losses; /* pending: hosts were told some just now */
};

static void on_losses(evutil_socket_t fd, short what, void *ctx);

struct fence *fence_open(struct job *j)
{
	struct fence *f = xcalloc(1, sizeof *f);

	f->losses = event_new(j->base, -1, 0, on_losses, j);
	f->host = xcalloc(j->agents.n, sizeof *f->host);
	f->waits = xcalloc(j->plan.np, sizeof *f->waits);
	return f;
}

void fence_free(struct fence *f)
{
	if (!f)
		return;
	event_free(f->losses);
	free(f->loss);
	free(f->waits);
	free(f->host);
	free(f);
}

/* H's part, if ranks may run; else NULL. */
static struct member *member_of(const struct job *j, const struct host *h)
{
	return j->fence && j->phase >= JOB_RUN ? &j->fence->host[job_index(j, h)]
					       : NULL;
}

void fence_host_map_send(struct job *j, struct host *h)
{
	struct member *member = &j->fence->host[job_index(j, h)];

	if (member->uses)
		return;
	member->uses = true;
	host_map_send(j, h);
}

const char *fence_host_map_request(struct job *j, struct host *h)
{
	if (!member_of(j, h))
		return "'host_map_request' message out of turn";
	fence_host_map_send(j, h); /* it may be on its way already */
	return NULL;
}

/* ---- the next world ---- */

/* A rank that may still come. */
static bool is_left(const struct job *j, uint32_t rank)
{
	return j->rank[rank].state != RANK_ENDED &&
	       j->agents.host[j->plan.rank[rank].host].state == HOST_UP;
}

/* If all ranks that are left wait for it, the hosts are told. */
static void begin_world(struct job *j)
{
	struct fence *f = j->fence;
	struct wire_world m = { .epoch = j->epoch, .number = f->number + 1 };
	uint32_t *ranks;

	if (!f->nwaits)
		return;
	for (uint32_t i = 0; i < j->plan.np; i++)
		if (!f->waits[i] && is_left(j, i))
			return;
	ranks = xcalloc(j->plan.np, sizeof *ranks);
	for (uint32_t i = 0; i < j->plan.np; i++)
		if (f->waits[i] && is_left(j, i))
			ranks[m.ranks.n++] = i;
	m.ranks.v = ranks;
	for (uint32_t i = 0; i < j->agents.n; i++) {
		struct host *h = &j->agents.host[i];

		if (h->state != HOST_UP || !j->plan.local_size[i])
			continue;
		wire_pack_world(&h->out, &m);
		agents_flush(h);
	}
	memset(f->waits, 0, j->plan.np * sizeof *f->waits);
	f->nwaits = 0;
	free(ranks);
}

const char *fence_change(struct job *j, struct host *h, const struct wire_change *m)
{
	struct fence *f = j->fence;

	if (!member_of(j, h) || !job_has_rank(j, h, m->rank) || m->number >= INT32_MAX)
		return "'change' message out of turn";
	f->nwaits += !f->waits[m->rank];
	f->waits[m->rank] = true;
	if (m->number > f->number)
		f->number = m->number;
	begin_world(j);
	return NULL;
}

/* A rank that waits for a world does so no more. */
static bool forget_waiting(struct job *j, const wire_u32v *ranks)
{
	struct fence *f = j->fence;
	const bool waited = ranks->n == 1 && f->waits[ranks->v[0]];

	if (waited) {
		f->waits[ranks->v[0]] = false;
		f->nwaits--;
	}
	return waited;
}

/* ---- losses ---- */

static void tell_lost(struct job *j, size_t host, const struct wire_lost *m)
{
	struct host *h = &j->agents.host[host];
	const struct member *member = &j->fence->host[host];

	if (h->state != HOST_UP || !member->uses ||
	    member->nended == j->plan.local_size[host])
		return;
	wire_pack_lost(&h->out, m);
	agents_flush(h);
}

/* Losses that are alike but for their rank go in one message.  A host is not told of
 * its own ranks: it said so. */
static void tell_all_losses(struct job *j)
{
	struct fence *f = j->fence;
	uint32_t *list = xcalloc(f->nlosses, sizeof *list);

	while (f->nlosses) {
		const struct loss like = f->loss[0];
		size_t left = 0;

		for (size_t host = 0; host < j->agents.n; host++) {
			struct wire_lost m = {
				j->epoch, { list, 0 }, like.round, 0, like.secondary
			};

			for (size_t i = 0; i < f->nlosses; i++)
				if (f->loss[i].round == like.round &&
				    f->loss[i].secondary == like.secondary &&
				    j->plan.rank[f->loss[i].rank].host != host)
					list[m.ranks.n++] = f->loss[i].rank;
			if (m.ranks.n)
				tell_lost(j, host, &m);
		}
		for (size_t i = 0; i < f->nlosses; i++)
			if (f->loss[i].round != like.round ||
			    f->loss[i].secondary != like.secondary)
				f->loss[left++] = f->loss[i];
		f->nlosses = left;
	}
	free(list);
	loop_after_ms(f->losses, LOSSES_MS);
}

static void on_losses(evutil_socket_t fd, short what, void *ctx)
{
	struct job *j = ctx;

	(void)fd;
	(void)what;
	if (j->fence->nlosses)
		tell_all_losses(j);
}

/* The hosts in the fences up to ROUND have been told which rank does not come. */
static void drop_fences(struct job *j, uint32_t round)
{
	struct exchange *e = exchange_first(j, EXCHANGE_INIT), *next;

	for (; e; e = next) {
		next = exchange_after(e);
		for (size_t i = 0; e->number <= round && i < e->ngivers; i++)
			if (e->giver[i].gave)
				exchange_forget(e, &e->giver[i]);
		exchange_drop_if_empty(j, e);
	}
}

/* Is HOST, in the fence of ROUND, to wait for a rank of OTHER that will not come?  One
 * was lost to this round when HOST did not use the library yet, or its fence was on its
 * way; or one has ended that came to no round after an earlier one.  HOST is told. */
static bool is_refused(struct job *j, uint32_t host, const struct exchange *e,
		       uint32_t other)
{
	const uint32_t round = (uint32_t)e->number;
	const struct member *o = &j->fence->host[other];
	const bool lost = o->lost_round >= round;
	const uint32_t rank = lost ? o->lost_rank : o->first_ended - 1;
	const struct wire_lost m = {
		j->epoch, { &rank, 1 }, lost ? o->lost_round : o->round + 1, !lost, 0
	};

	/* the agents of a world of some ranks say themselves which is lost */
	if (other == host ||
	    (!lost && (!o->first_ended || o->round >= round || e->nranks)))
		return false;
	tell_lost(j, host, &m);
	return true;
}

/* Of all that wait in fences, those that wait for OTHER in vain. */
static void refuse_in_vain(struct job *j, uint32_t other)
{
	struct exchange *e = exchange_first(j, EXCHANGE_INIT), *next;

	for (; e; e = next) {
		next = exchange_after(e);
		for (size_t i = e->ngivers; i-- && e->ngave;) {
			struct giver *g = &e->giver[i];

			if (g->gave && is_refused(j, g->host, e, other))
				exchange_forget(e, g);
		}
		exchange_drop_if_empty(j, e);
	}
}

const char *fence_lost(struct job *j, struct host *h, const struct wire_lost *m)
{
	struct member *member = member_of(j, h);
	struct fence *f = j->fence;

	if (!member || m->ended || !m->ranks.n ||
	    m->ranks.n > j->plan.local_size[job_index(j, h)])
		return "'lost' message out of turn";
	for (size_t i = 0; i < m->ranks.n; i++)
		if (!job_has_rank(j, h, m->ranks.v[i]))
			return "message about a rank of another host";
	if (forget_waiting(j, &m->ranks))
		return NULL;
	if (!m->init_round)
		return "'lost' message out of turn";
	if (m->init_round >= member->lost_round) {
		member->lost_round = m->init_round;
		member->lost_rank = m->ranks.v[0];
	}
	f->any_lost = true;
	f->loss = xreallocarray(f->loss, f->nlosses + m->ranks.n, sizeof *f->loss);
	for (size_t i = 0; i < m->ranks.n; i++)
		f->loss[f->nlosses++] =
			(struct loss){ m->ranks.v[i], m->init_round, m->secondary };
	if (f->nlosses > j->plan.np || !event_pending(f->losses, EV_TIMEOUT, NULL))
		tell_all_losses(j);
	drop_fences(j, m->init_round);
	return NULL;
}

/* A rank that left the library before it ended is missed only by ranks that wait for
 * another round. */
void fence_rank_ended(struct job *j, uint32_t rank)
{
	const uint32_t host = j->plan.rank[rank].host;
	struct fence *f = j->fence;

	if (!f)
		return;
	f->host[host].nended++;
	begin_world(j);
	if (f->host[host].first_ended)
		return; /* messages name the first */
	f->any_lost = true;
	f->host[host].first_ended = rank + 1;
	refuse_in_vain(j, host);
}

void fence_host_lost(struct job *j, uint32_t host)
{
	struct fence *f = j->fence;
	struct wire_lost m = { j->epoch, { 0 }, 1, 1, 0 };

	if (!f || !j->plan.local_size[host])
		return;
	if (f->host[host].round)
		m.init_round = f->host[host].round;
	m.ranks = (wire_u32v){ j->plan.ranks[host], j->plan.local_size[host] };
	for (size_t i = 0; i < j->agents.n; i++)
		if (i != host)
			tell_lost(j, i, &m);
	drop_fences(j, UINT32_MAX);
	begin_world(j);
}

/* ---- fences ---- */

/* Of HOST's ranks, those in the list, or all if it is empty. */
static uint32_t count_ranks(const struct job *j, uint32_t host, const wire_u32v *ranks)
{
	uint32_t n = 0;

	for (size_t i = 0; i < ranks->n; i++)
		n += ranks->v[i] < j->plan.np && j->plan.rank[ranks->v[i]].host == host;
	return ranks->n ? n : j->plan.local_size[host];
}

/* A text of each of N ranks. */
static bool are_texts(uint32_t n, const struct buf *texts)
{
	const char *p = (const char *)buf_head(texts);
	uint32_t ends = 0;

	for (size_t i = 0; i < texts->len; i++)
		ends += !p[i];
	return ends == n && !p[texts->len - 1];
}

/* Of a host no more is kept than the texts of one round. */
static bool is_in_another(const struct job *j, uint32_t host, uint64_t round)
{
	struct exchange *e = exchange_first(j, EXCHANGE_INIT);

	while (e && (e->number == round || !exchange_has(e, host)))
		e = exchange_after(e);
	return e;
}

const char *fence_texts(struct job *j, struct host *h, const struct wire_exchange *m)
{
	struct member *member = member_of(j, h);
	const uint32_t host = job_index(j, h);
	const uint32_t n = member ? count_ranks(j, host, &m->ranks) : 0;
	const size_t most = (size_t)n * WIRE_TEXT_MAX;
	struct exchange *e;
	struct giver *g;
	const char *wrong;

	if (!member || (!member->uses && !m->ranks.n) || m->number > UINT32_MAX ||
	    is_in_another(j, host, m->number))
		return "'exchange' message out of turn";
	wrong = exchange_part(j, h, m, most, &e, &g);
	if (wrong)
		return wrong;
	if (g->data.len == m->data.n && m->number <= member->round)
		return "'exchange' message of another init round";
	member->round = (uint32_t)m->number;
	if (!g->gave)
		return NULL;
	if (!are_texts(n, &g->data))
		return "other texts than ranks";
	for (uint32_t i = 0; j->fence->any_lost && i < j->agents.n; i++)
		if (is_refused(j, host, e, i)) {
			exchange_forget(e, g);
			exchange_drop_if_empty(j, e);
			return NULL;
		}
	exchange_settle(j, e);
	return NULL;
}
