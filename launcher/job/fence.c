#include "launcher/job/fence.h"

#include <event2/event.h>

#include "common/loop.h"

enum {
	QUEUED_MOST = 64 << 20, /* bytes of answers that wait to be sent, about */
	MORE_MS = 2,
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
	bool uses;      /* its ranks use the library */
	uint32_t round; /* of its last fence */
	bool partial;   /* a part of its texts came */
	bool in_fence;  /* all of them came, and no answer was sent */
	struct buf texts;
	size_t answer_bytes;  /* of its largest answer */
	uint32_t first_ended; /* 1 + its first rank that has ended; 0: none has */
	uint32_t nended;
	uint32_t lost_round, lost_rank; /* the last round that it lost a rank in */
};

struct fence {
	struct member *host;
	size_t nhosts, nin_fence;
	bool any_lost;    /* a rank has ended, or is lost to a round */
	struct buf texts; /* of all ranks, while hosts from NEXT on wait for them */
	size_t next;
	struct event *more;
	struct loss *loss; /* that the hosts have not been told */
	size_t nlosses;
	struct event *losses; /* pending: hosts were told some just now */
};

static void on_more(evutil_socket_t fd, short what, void *ctx);
static void on_losses(evutil_socket_t fd, short what, void *ctx);

struct fence *fence_open(struct job *j)
{
	struct fence *f = xcalloc(1, sizeof *f);

	f->nhosts = j->agents.n;
	f->more = event_new(j->base, -1, 0, on_more, j);
	f->losses = event_new(j->base, -1, 0, on_losses, j);
	f->host = xcalloc(f->nhosts, sizeof *f->host);
	return f;
}

void fence_free(struct fence *f)
{
	if (!f)
		return;
	for (size_t i = 0; i < f->nhosts; i++)
		buf_free(&f->host[i].texts);
	buf_free(&f->texts);
	event_free(f->more);
	event_free(f->losses);
	free(f->loss);
	free(f->host);
	free(f);
}

/* H's part, if ranks may run; else NULL. */
static struct member *member_of(const struct job *j, const struct host *h)
{
	return j->fence && j->phase >= JOB_RUN ? &j->fence->host[job_index(j, h)]
					       : NULL;
}

const char *fence_host_map_request(struct job *j, struct host *h)
{
	struct member *member = member_of(j, h);
	struct wire_host_map m = { .epoch = j->epoch };
	const char **names;
	uint32_t *hosts;
	size_t before;

	if (!member || member->uses)
		return "'host_map_request' message out of turn";
	member->uses = true;
	names = xcalloc(j->plan.nodes, sizeof *names);
	hosts = xcalloc(j->plan.np, sizeof *hosts);
	for (size_t i = 0; i < j->agents.n; i++)
		if (j->plan.node[i] != PLAN_UNUSED)
			names[j->plan.node[i]] = j->agents.host[i].name;
	for (uint32_t i = 0; i < j->plan.np; i++)
		hosts[i] = j->plan.node[j->plan.rank[i].host];
	m.hosts = (wire_u32v){ hosts, j->plan.np };
	m.names = (wire_strv){ names, j->plan.nodes };
	before = h->out.len;
	wire_pack_host_map(&h->out, &m);
	h->out_due += h->out.len - before;
	agents_flush(h);
	free(hosts);
	free(names);
	return NULL;
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

static void forget_texts(struct fence *f, struct member *member)
{
	f->nin_fence -= member->in_fence;
	member->partial = member->in_fence = false;
	buf_free(&member->texts);
}

/* The hosts in the fences up to ROUND have been told which rank does not come. */
static void drop_fences(struct fence *f, uint32_t round)
{
	for (size_t i = 0; i < f->nhosts; i++)
		if (f->host[i].in_fence && f->host[i].round <= round)
			forget_texts(f, &f->host[i]);
}

/* Refuse HOST's fence if it waits for a rank of OTHER that will not come: one was lost
 * to this round when HOST did not use the library yet, or its fence was on its way; or
 * one has ended that came to no round after an earlier one. */
static void refuse_in_vain(struct job *j, size_t host, size_t other)
{
	struct member *w = &j->fence->host[host], *o = &j->fence->host[other];
	const bool lost = o->lost_round >= w->round;
	const uint32_t rank = lost ? o->lost_rank : o->first_ended - 1;
	const struct wire_lost m = {
		j->epoch, { &rank, 1 }, lost ? o->lost_round : o->round + 1, !lost, 0
	};

	if (!w->in_fence || other == host ||
	    (!lost && (!o->first_ended || o->round >= w->round)))
		return;
	tell_lost(j, host, &m);
	forget_texts(j->fence, w);
}

const char *fence_lost(struct job *j, struct host *h, const struct wire_lost *m)
{
	struct member *member = member_of(j, h);
	struct fence *f = j->fence;

	if (!member || m->ended || !m->init_round || !m->ranks.n ||
	    m->ranks.n > j->plan.local_size[job_index(j, h)])
		return "'lost' message out of turn";
	for (size_t i = 0; i < m->ranks.n; i++)
		if (!job_has_rank(j, h, m->ranks.v[i]))
			return "message about a rank of another host";
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
	drop_fences(f, m->init_round);
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
	if (f->host[host].first_ended)
		return; /* messages name the first */
	f->any_lost = true;
	f->host[host].first_ended = rank + 1;
	for (size_t i = 0; f->nin_fence && i < f->nhosts; i++)
		refuse_in_vain(j, i, host);
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
	drop_fences(f, UINT32_MAX);
}

/* ---- fences ---- */

static bool is_complete(const struct job *j)
{
	const struct fence *f = j->fence;
	uint32_t round = 0;

	if (f->nin_fence < j->plan.nodes)
		return false;
	for (size_t i = 0; i < f->nhosts; i++) {
		if (!f->host[i].in_fence)
			continue;
		if (round && f->host[i].round != round)
			return false; /* the earlier one is about to be refused */
		round = f->host[i].round;
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

static void send_texts(struct job *j, struct host *h, uint32_t round)
{
	const struct buf *texts = &j->fence->texts;
	struct wire_fence_data m = { .epoch = j->epoch,
				     .init_round = round,
				     .clock_offset_ns =
					     h->local ? 0 : -h->clock_offset_ns };
	struct member *member = &j->fence->host[job_index(j, h)];
	const size_t before = h->out.len;
	size_t sent = 0, bytes;

	while (!m.last) {
		size_t left = texts->len - sent;

		m.last = left <= WIRE_PART_MAX;
		m.texts = (wire_bytes){ buf_head(texts) + sent,
					m.last ? left : WIRE_PART_MAX };
		wire_pack_fence_data(&h->out, &m);
		sent += m.texts.n;
	}
	bytes = h->out.len - before;
	if (bytes > member->answer_bytes) {
		h->out_due += bytes - member->answer_bytes;
		member->answer_bytes = bytes;
	}
	agents_flush(h);
}

/* One host after the other: the texts for 1000 hosts of 8 ranks would take some GB in
 * their send queues. */
static void answer_more(struct job *j)
{
	struct fence *f = j->fence;
	size_t queued = 0;

	for (size_t i = 0; i < f->next; i++)
		queued += j->agents.host[i].out.len;
	for (; f->next < f->nhosts; f->next++) {
		struct host *h = &j->agents.host[f->next];
		struct member *member = &f->host[f->next];

		if (!member->in_fence)
			continue;
		if (queued > QUEUED_MOST) {
			loop_after_ms(f->more, MORE_MS);
			return;
		}
		if (h->state == HOST_UP)
			send_texts(j, h, member->round);
		queued += h->out.len;
		forget_texts(f, member);
	}
	buf_free(&f->texts);
}

static void on_more(evutil_socket_t fd, short what, void *ctx)
{
	(void)fd;
	(void)what;
	answer_more(ctx);
}

const char *fence_texts(struct job *j, struct host *h, const struct wire_fence *m)
{
	struct member *member = member_of(j, h);
	const uint32_t n = member ? j->plan.local_size[job_index(j, h)] : 0;
	struct fence *f = j->fence;
	const char *texts;
	uint32_t ends = 0;

	if (!n || !member->uses || member->in_fence)
		return "'fence' message out of turn";
	if (member->partial ? m->init_round != member->round
			    : m->init_round <= member->round)
		return "'fence' message of another init round";
	member->round = m->init_round;
	member->partial = true;
	buf_add(&member->texts, m->texts.p, m->texts.n);
	if (member->texts.len > (size_t)n * WIRE_TEXT_MAX)
		return "more texts than ranks";
	if (!m->last)
		return NULL;
	texts = (const char *)buf_head(&member->texts);
	for (size_t i = 0; i < member->texts.len; i++)
		ends += !texts[i];
	if (ends != n || texts[member->texts.len - 1])
		return "other texts than ranks";
	member->in_fence = true;
	f->nin_fence++;
	for (size_t i = 0; f->any_lost && i < f->nhosts; i++)
		refuse_in_vain(j, job_index(j, h), i);
	if (is_complete(j)) {
		sort_texts(j, &f->texts);
		f->next = 0;
		answer_more(j);
	}
	return NULL;
}
