#include "launcher/job/fence.h"

#include <event2/event.h>

#include "common/loop.h"

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
	bool leaves;          /* its ranks are in no later world */
	bool has_left;        /* a world began without them */
	uint32_t round;       /* of its last fence */
	uint32_t first_ended; /* 1 + its first rank that has ended; 0: none has */
	uint32_t nended;
	uint32_t lost_round, lost_rank; /* the last round that it lost a rank in */
};

/* One rank. */
struct standing {
	bool waits;      /* for the next world */
	bool is_elastic; /* it changes its world when that is due; its newcomers, too */
	bool is_newcomer; /* it starts again, and has been in no world */
	bool dies;        /* its process exits now, and `exited` is still to come */
	bool can_follow;  /* DIES: fence_can_replace() when that began */
};

struct fence {
	struct epoch epoch;
	struct exchanges *exchanges;
	const struct fence_events *events;
	void *ctx;
	struct member *host;
	struct standing *rank;
	uint32_t *order, norder; /* the ranks of the last world, as they are numbered */
	uint32_t nwaits, number; /* how many wait; the largest of their last worlds */
	uint32_t newcomers;      /* how many have not ended */
	bool wanted;             /* the hosts were told that newcomers wait */
	bool any_lost;           /* a rank has ended, or is lost to a round */
	uint32_t suspect;        /* the host that lost one last */
	struct loss *loss;       /* that the hosts have not been told */
	size_t nlosses;
	struct event *losses; /* pending: hosts were told some just now */
};

void fence_free(struct fence *f)
{
	if (!f)
		return;
	event_free(f->losses);
	free(f->loss);
	free(f->rank);
	free(f->order);
	free(f->host);
	free(f);
}

bool fence_uses(struct fence *f, const struct host *h)
{
	struct member *member = &f->host[epoch_index(&f->epoch, h)];
	const bool first = !member->uses;

	member->uses = true;
	return first;
}

bool fence_is_used(const struct fence *f)
{
	for (size_t i = 0; f && i < f->epoch.plan->nhosts; i++)
		if (f->host[i].uses)
			return true;
	return false;
}

/* ---- the next world ---- */

/* A rank that may still come. */
static bool is_left(const struct fence *f, uint32_t rank)
{
	const uint32_t host = f->epoch.plan->rank[rank].host;

	return !epoch_has_ended(&f->epoch, rank) && !f->rank[rank].dies &&
	       !f->host[host].leaves && f->epoch.agents->host[host].state == HOST_UP;
}

/* Has a rank ended as it should?  Then the work is about to be over. */
static bool any_is_done(const struct fence *f)
{
	for (uint32_t i = 0; i < f->epoch.plan->np; i++)
		if (epoch_has_ended(&f->epoch, i) &&
		    f->epoch.rank[i].ending.fate == FATE_OK)
			return true;
	return false;
}

/* Do all wait that the next world waits for?  Newcomers are waited for by each other
 * alone: what they import first would hold the others up. */
static bool all_wait(const struct fence *f)
{
	uint32_t survivors = 0, late = 0, late_newcomers = 0;

	if (!f->nwaits) /* as in each job without libberth */
		return false;
	for (uint32_t i = 0; i < f->epoch.plan->np; i++) {
		const struct standing *r = &f->rank[i];

		if (!is_left(f, i))
			continue;
		survivors += !r->is_newcomer;
		late += !r->is_newcomer && !r->waits;
		late_newcomers += r->is_newcomer && !r->waits;
	}
	if (survivors)
		return !late;
	/* where the work is over, newcomers would begin it anew */
	return !late_newcomers && !any_is_done(f);
}

/* The ranks of the next world in its order: those of the last one first, as they were
 * numbered there, since rank 0 has the state that newcomers need. */
static uint32_t order_next(const struct fence *f, uint32_t *next)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < f->norder; i++) {
		const struct standing *r = &f->rank[f->order[i]];

		if (r->waits && !r->is_newcomer && is_left(f, f->order[i]))
			next[n++] = f->order[i];
	}
	for (uint32_t i = 0; i < f->epoch.plan->np; i++)
		if (f->rank[i].waits && f->rank[i].is_newcomer && is_left(f, i))
			next[n++] = i;
	return n;
}

/* If all ranks that are due wait for it, the hosts are told. */
static void begin_world(struct fence *f)
{
	struct wire_world m = { .epoch = f->epoch.number, .number = f->number + 1 };
	uint32_t *next;

	if (!all_wait(f))
		return;
	next = xcalloc(f->epoch.ranks_most, sizeof *next);
	m.ranks = (wire_u32v){ next, order_next(f, next) };
	if (!m.ranks.n) { /* those that wait are lost */
		free(next);
		return;
	}
	for (uint32_t i = 0; i < f->epoch.plan->nhosts; i++) {
		struct host *h = &f->epoch.agents->host[i];

		if (!epoch_reaches(&f->epoch, i))
			continue;
		AGENTS_SEND(h, world, &m);
	}
	for (uint32_t i = 0; i < f->epoch.plan->np; i++)
		f->rank[i].waits = false;
	f->nwaits = 0;
	f->wanted = false;
	free(f->order);
	f->order = next;
	f->norder = (uint32_t)m.ranks.n;
	for (uint32_t i = 0; i < f->norder; i++)
		if (f->rank[next[i]].is_newcomer) {
			f->rank[next[i]].is_newcomer = false;
			f->newcomers--;
			f->events->back(f->ctx, next[i], f->norder);
		}
	for (uint32_t i = 0; i < f->epoch.plan->nhosts; i++)
		if (f->host[i].leaves && !f->host[i].has_left) {
			f->host[i].has_left = true;
			f->events->left(f->ctx, i);
		}
}

/* A newcomer waits, and the others have not been told that one does. */
static void want_world(struct fence *f)
{
	const struct wire_wanted m = { f->epoch.number };

	if (f->wanted)
		return;
	f->wanted = true;
	for (uint32_t i = 0; i < f->epoch.plan->nhosts; i++) {
		struct host *h = &f->epoch.agents->host[i];

		if (!epoch_reaches(&f->epoch, i))
			continue;
		AGENTS_SEND(h, wanted, &m);
	}
}

const char *fence_change(struct fence *f, const struct host *h,
			 const struct wire_change *m)
{
	struct standing *r;

	if (!f || !epoch_has_rank(&f->epoch, h, m->rank) || m->number >= INT32_MAX)
		return "'change' message out of turn";
	r = &f->rank[m->rank];
	r->dies = false;
	f->nwaits += !r->waits;
	r->waits = true;
	if (m->number > f->number)
		f->number = m->number;
	begin_world(f);
	if (r->waits && r->is_newcomer)
		want_world(f);
	return NULL;
}

const char *fence_elastic(struct fence *f, const struct host *h,
			  const struct wire_elastic *m)
{
	if (!f || !epoch_has_rank(&f->epoch, h, m->rank) || m->can > 1)
		return "'elastic' message out of turn";
	f->rank[m->rank].is_elastic = m->can;
	return NULL;
}

static void stop_waiting(struct fence *f, uint32_t rank)
{
	f->nwaits -= f->rank[rank].waits;
	f->rank[rank].waits = false;
}

/* All ranks that have not ended change their world by themselves, but for RANK and the
 * ranks of HOST; there is one, and the work is not about to be over. */
static bool others_are_elastic(const struct fence *f, uint32_t rank, uint32_t host)
{
	bool any = false;

	for (uint32_t i = 0; f && i < f->epoch.plan->np; i++) {
		any |= f->rank[i].is_elastic;
		if (i != rank && f->epoch.plan->rank[i].host != host &&
		    !epoch_has_ended(&f->epoch, i) && !f->rank[i].is_elastic)
			return false;
	}
	return any && !any_is_done(f);
}

bool fence_can_replace(const struct fence *f, uint32_t rank)
{
	if (f && f->rank[rank].dies) /* the others may be done meanwhile */
		return f->rank[rank].can_follow;
	return others_are_elastic(f, rank, UINT32_MAX);
}

bool fence_can_lose(const struct fence *f, uint32_t host)
{
	return others_are_elastic(f, UINT32_MAX, host);
}

bool fence_any_is_elastic(const struct fence *f)
{
	for (uint32_t i = 0; f && i < f->epoch.plan->np; i++)
		if (f->rank[i].is_elastic && !epoch_has_ended(&f->epoch, i))
			return true;
	return false;
}

void fence_rank_again(struct fence *f, uint32_t rank)
{
	stop_waiting(f, rank);
	f->newcomers += !f->rank[rank].is_newcomer;
	f->rank[rank].is_newcomer = true;
	f->rank[rank].dies = false;
	begin_world(f);
}

void fence_host_came(struct fence *f, uint32_t host, const uint32_t *rank, uint32_t n)
{
	f->host[host] = (struct member){ 0 };
	for (uint32_t i = 0; i < n; i++) {
		stop_waiting(f, rank[i]);
		f->newcomers += !f->rank[rank[i]].is_newcomer;
		f->rank[rank[i]] =
			(struct standing){ .is_elastic = true, .is_newcomer = true };
	}
}

void fence_host_leaves(struct fence *f, uint32_t host)
{
	f->host[host].leaves = true;
	want_world(f);
	begin_world(f);
}

bool fence_is_newcomer(const struct fence *f, uint32_t rank)
{
	return f && f->rank[rank].is_newcomer;
}

bool fence_has_newcomer(const struct fence *f)
{
	return f && f->newcomers;
}

/* ---- losses ---- */

static void tell_lost(struct fence *f, size_t host, const struct wire_lost *m)
{
	struct host *h = &f->epoch.agents->host[host];
	const struct member *member = &f->host[host];

	if (h->state != HOST_UP || !member->uses ||
	    member->nended == f->epoch.plan->local_size[host])
		return;
	AGENTS_SEND(h, lost, m);
}

/* Losses that are alike but for their rank go in one message.  A host is not told of
 * its own ranks: it said so. */
static void tell_all_losses(struct fence *f)
{
	uint32_t *list = xcalloc(f->nlosses, sizeof *list);

	while (f->nlosses) {
		const struct loss like = f->loss[0];
		size_t left = 0;

		for (size_t host = 0; host < f->epoch.plan->nhosts; host++) {
			struct wire_lost m = { f->epoch.number,
					       { list, 0 },
					       like.round,
					       0,
					       like.secondary };

			for (size_t i = 0; i < f->nlosses; i++)
				if (f->loss[i].round == like.round &&
				    f->loss[i].secondary == like.secondary &&
				    f->epoch.plan->rank[f->loss[i].rank].host != host)
					list[m.ranks.n++] = f->loss[i].rank;
			if (m.ranks.n)
				tell_lost(f, host, &m);
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
	struct fence *f = ctx;

	(void)fd;
	(void)what;
	if (f->nlosses)
		tell_all_losses(f);
}

/* The hosts in the fences up to ROUND have been told which rank does not come. */
static bool is_up_to(void *round, const struct exchange *e, uint32_t host)
{
	(void)host;
	return e->number <= *(const uint32_t *)round;
}

/* Is HOST, in the fence of E, to wait for a rank of OTHER that will not come?  One was
 * lost to this round when HOST did not use the library yet, or its fence was on its
 * way; or one has ended that came to no round after an earlier one.  HOST is told. */
static bool is_refused(struct fence *f, uint32_t host, const struct exchange *e,
		       uint32_t other)
{
	const uint32_t round = (uint32_t)e->number;
	const struct member *o = &f->host[other];
	const bool lost = o->lost_round >= round;
	const uint32_t rank = lost ? o->lost_rank : o->first_ended - 1;
	const struct wire_lost m = { f->epoch.number,
				     { &rank, 1 },
				     lost ? o->lost_round : o->round + 1,
				     !lost,
				     0 };

	/* the agents of a world of some ranks say themselves which is lost */
	if (other == host ||
	    (!lost && (!o->first_ended || o->round >= round || e->nranks)))
		return false;
	tell_lost(f, host, &m);
	return true;
}

static bool is_refused_by_any(void *fence, const struct exchange *e, uint32_t host)
{
	struct fence *f = fence;

	for (uint32_t i = 0; f->any_lost && i < f->epoch.plan->nhosts; i++)
		if (is_refused(f, host, e, i))
			return true;
	return false;
}

static bool is_refused_by_suspect(void *fence, const struct exchange *e, uint32_t host)
{
	struct fence *f = fence;

	return is_refused(f, host, e, f->suspect);
}

/* The ranks of M, of HOST, are lost to a round, and the other hosts are told. */
static void lose_to_round(struct fence *f, struct member *host,
			  const struct wire_lost *m)
{
	if (m->init_round >= host->lost_round) {
		host->lost_round = m->init_round;
		host->lost_rank = m->ranks.v[0];
	}
	f->any_lost = true;
	f->loss = xreallocarray(f->loss, f->nlosses + m->ranks.n, sizeof *f->loss);
	for (size_t i = 0; i < m->ranks.n; i++)
		f->loss[f->nlosses++] =
			(struct loss){ m->ranks.v[i], m->init_round, m->secondary };
	if (f->nlosses > f->epoch.plan->np ||
	    !event_pending(f->losses, EV_TIMEOUT, NULL))
		tell_all_losses(f);
	exchange_forget(f->exchanges, is_up_to, &(uint32_t){ m->init_round });
}

/* Its agent says that RANK exits. */
static void rank_dies(struct fence *f, uint32_t rank)
{
	struct standing *r = &f->rank[rank];

	if (r->dies || epoch_has_ended(&f->epoch, rank))
		return;
	r->can_follow = fence_can_replace(f, rank);
	r->dies = true;
}

const char *fence_lost(struct fence *f, const struct host *h, const struct wire_lost *m)
{
	struct member *member = f ? &f->host[epoch_index(&f->epoch, h)] : NULL;

	if (!member || !m->ranks.n || (!m->init_round && !m->ended) ||
	    m->ranks.n > f->epoch.plan->local_size[epoch_index(&f->epoch, h)])
		return "'lost' message out of turn";
	for (size_t i = 0; i < m->ranks.n; i++)
		if (!epoch_has_rank(&f->epoch, h, m->ranks.v[i]))
			return "message about a rank of another host";
	for (size_t i = 0; i < m->ranks.n && m->ended; i++)
		rank_dies(f, m->ranks.v[i]);
	if (m->ranks.n == 1 && f->rank[m->ranks.v[0]].waits) /* for the next world */
		stop_waiting(f, m->ranks.v[0]);
	else if (m->init_round)
		lose_to_round(f, member, m);
	if (m->ended)
		begin_world(f);
	return NULL;
}

/* A rank that left the library before it ended is missed only by ranks that wait for
 * another round. */
void fence_rank_ended(struct fence *f, uint32_t rank)
{
	struct member *member;

	if (!f)
		return;
	stop_waiting(f, rank);
	f->newcomers -= f->rank[rank].is_newcomer;
	f->rank[rank].is_newcomer = false;
	f->suspect = f->epoch.plan->rank[rank].host;
	member = &f->host[f->suspect];
	member->nended++;
	begin_world(f);
	if (member->first_ended)
		return; /* messages name the first */
	f->any_lost = true;
	member->first_ended = rank + 1;
	exchange_forget(f->exchanges, is_refused_by_suspect, f);
}

void fence_host_lost(struct fence *f, uint32_t host)
{
	const struct plan *plan = f ? f->epoch.plan : NULL;
	struct wire_lost m = { .init_round = 1, .ended = 1 };

	if (!f || !plan->local_size[host])
		return;
	m.epoch = f->epoch.number;
	if (f->host[host].round)
		m.init_round = f->host[host].round;
	m.ranks = (wire_u32v){ plan->ranks[host], plan->local_size[host] };
	for (size_t i = 0; i < f->epoch.plan->nhosts; i++)
		if (i != host)
			tell_lost(f, i, &m);
	exchange_forget(f->exchanges, is_up_to, &(uint32_t){ UINT32_MAX });
	begin_world(f);
}

/* ---- fences ---- */

/* How many ranks of HOST are in the list, which has all if it is empty. */
static uint32_t count_ranks(const struct plan *plan, uint32_t host,
			    const uint32_t *rank, size_t nranks)
{
	uint32_t n = 0;

	for (size_t i = 0; i < nranks; i++)
		n += plan->rank[rank[i]].host == host;
	return nranks ? n : plan->local_size[host];
}

static const char *fence_takes(void *fence, uint32_t host,
			       const struct wire_exchange *m, bool first, size_t *most)
{
	struct fence *f = fence;
	struct member *member = &f->host[host];

	if ((!member->uses && !m->ranks.n) || m->number > UINT32_MAX)
		return "'exchange' message out of turn";
	if (first && m->number <= member->round)
		return "'exchange' message of another init round";
	member->round = (uint32_t)m->number;
	*most = count_ranks(f->epoch.plan, host, m->ranks.v, m->ranks.n) *
		(size_t)WIRE_TEXT_MAX;
	return NULL;
}

/* A text of each rank. */
static const char *fence_gave(void *fence, uint32_t host, const struct exchange *e,
			      const struct buf *texts)
{
	const struct fence *f = fence;
	const char *p = (const char *)buf_head(texts);
	uint32_t ends = 0;

	for (size_t i = 0; i < texts->len; i++)
		ends += !p[i];
	return ends == count_ranks(f->epoch.plan, host, e->rank, e->nranks) &&
			       !p[texts->len - 1]
		       ? NULL
		       : "other texts than ranks";
}

struct fence *fence_open(const struct epoch *e, struct exchanges *x,
			 const struct fence_events *events, void *ctx)
{
	struct fence *f = xcalloc(1, sizeof *f);

	f->epoch = *e;
	f->exchanges = x;
	f->losses = event_new(e->base, -1, 0, on_losses, f);
	f->host = xcalloc(e->hosts_most, sizeof *f->host);
	f->events = events;
	f->ctx = ctx;
	f->rank = xcalloc(e->ranks_most, sizeof *f->rank);
	f->order = xcalloc(e->ranks_most, sizeof *f->order);
	f->norder = e->plan->np;
	for (uint32_t i = 0; i < f->norder; i++)
		f->order[i] = i;
	exchanges_of_init(x, &(struct exchange_policy){ f, fence_takes, fence_gave,
							is_refused_by_any });
	return f;
}
