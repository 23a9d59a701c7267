#include "lib/p2p/p2p_internal.h"

#include <poll.h>
#include <stdlib.h>

#include "lib/base/clock.h"
#include "lib/base/descriptor.h"

enum {
	REGION_BYTES = 1 << 30, /* of all rings of a host, unless they are too many */
	RING_MOST_BYTES = 1 << 20,
	RING_LEAST_BYTES = 16 << 10,
	MISSED_NS = 50000, /* first sleep: a ringing rank has no barrier (bell.h) */
	LEAVE_MS = 1000,   /* for the frames that are still to be sent */
	TELL_MS = 200,     /* for those to peers without a connection */
	LEAVE_LOOK_NS = 200000,
	STREAM_YIELD_NS =
		5000,   /* between two yields of a thread that spins on connections */
	IDLE_MS = 1000, /* from one look to the next, where nothing is in flight */
	YIELDS = 20, /* of a rank that has spun, since each takes a look at all peers */
	LOOKS = 16   /* between two reads of the clock */
};

/* ---- the region ---- */

static uint64_t ring_size(unsigned n)
{
	uint64_t size = RING_MOST_BYTES;

	while (size > RING_LEAST_BYTES && size * n * n > REGION_BYTES)
		size /= 2;
	return size;
}

/* BYTES, rounded up to whole pages. */
static size_t p2p_pages(size_t bytes)
{
	return (bytes + 4095) & ~(size_t)4095;
}

static size_t ring_at(unsigned n, unsigned from, unsigned to)
{
	return p2p_pages(n * sizeof(struct bell)) +
	       ((size_t)from * n + to) * p2p_pages(p2p_ring_bytes(ring_size(n)));
}

size_t p2p_bytes(unsigned nlocal)
{
	return ring_at(nlocal, nlocal, 0);
}

/* ---- opening, closing ---- */

static struct p2p_ring_end ring_end(const struct p2p *p, unsigned from, unsigned to)
{
	const unsigned n = p->config.members->nlocal;

	return (struct p2p_ring_end){
		.ring = (void *)((unsigned char *)p->config.region +
				 ring_at(n, from, to)),
		.size = ring_size(n)
	};
}

/* 0, or -1: out of memory. */
static int p2p_meet(struct p2p *p, unsigned place)
{
	const struct p2p_config *c = &p->config;
	struct p2p_peer *q = &p->peer[place];

	q->rank = place;
	q->last_busy = &q->busy;
	q->local =
		members_is_here(c->members, place) ? (int)c->members->local[place] : -1;
	if (place == c->members->me)
		return 0;
	if (q->local >= 0 && c->region) {
		q->bell = (struct bell *)c->region + q->local;
		q->thread = c->threads ? c->threads + q->local : NULL;
		q->out = ring_end(p, c->members->local_me, (unsigned)q->local);
		q->in = ring_end(p, (unsigned)q->local, c->members->local_me);
		return 0;
	}
	q->stream = c->net ? p2p_stream_open(c->net, place) : NULL;
	return q->stream ? 0 : -1;
}

static void p2p_destroy(struct p2p *p)
{
	for (unsigned i = 0; p->peer && i < p->config.members->n; i++) {
		p2p_stream_close(p->peer[i].stream);
		free(p->peer[i].answers.at);
	}
	if (p->bell_fd >= 0)
		descriptor_close(p->bell_fd);
	pthread_mutex_destroy(&p->moving);
	pthread_mutex_destroy(&p->posting);
	free(p->peer);
	free(p->slot);
	free(p->polls);
	free(p);
}

static void connection_came(void *ctx)
{
	struct p2p *p = ctx;

	p2p_wake(p);
	if (p->config.wake)
		p->config.wake(p->config.ctx);
}

struct p2p *p2p_open(const struct p2p_config *config)
{
	struct p2p *p = calloc(1, sizeof *p);

	if (!p)
		return NULL;
	p->config = *config;
	p->bell = config->region
			  ? (struct bell *)config->region + config->members->local_me
			  : &p->own;
	p->bell_fd = -1;
	p->free_slot = P2P_NO_ID;
	pthread_mutex_init(&p->moving, NULL);
	pthread_mutex_init(&p->posting, NULL);
	wait_tune(&p->wait, config->members->nlocal ? config->members->nlocal : 1,
		  config->cores);
	p->peer = calloc(config->members->n, sizeof *p->peer);
	if (!p->peer)
		goto fail;
	if (config->net) {
		p->polls = calloc(1 + 3 * (size_t)config->members->n, sizeof *p->polls);
		p->bell_fd = bell_open(p->bell);
		if (!p->polls || p->bell_fd < 0 || net_open_both(config->net))
			goto fail;
	}
	for (unsigned i = 0; i < config->members->n; i++)
		if (p2p_meet(p, i))
			goto fail;
	if (config->net)
		net_wake(config->net, connection_came, p);
	return p;
fail:
	p2p_destroy(p);
	return NULL;
}

/* ---- progress ---- */

static struct p2p_message *p2p_first(struct p2p_list *l)
{
	struct p2p_message *m = l->first;

	if (m)
		p2p_list_remove(m);
	return m;
}

/* One after the other: if a function of the caller's is slow, another thread goes on
 * with the others. */
static void p2p_release_and(struct p2p *p, uint32_t self, bool asks)
{
	struct p2p_message *done, *ask;
	struct p2p_group *g;
	bool more;

	do {
		done = p2p_first(&p->done);
		g = done ? done->group : NULL;
		if (g) /* it stays until this call has returned */
			atomic_fetch_add(&g->calls, 1);
		ask = done || !asks ? NULL : p2p_first(&p->asks);
		more = p->done.first || (asks && p->asks.first) || ask;
		pthread_mutex_unlock(&p->moving);
		if (done) {
			atomic_fetch_sub(&p->in_flight, 1);
			atomic_fetch_sub(&g->in_flight, 1);
			done->done(done);
			atomic_fetch_sub(&g->calls, 1);
			if (bell_has_sleeper(p->bell, self))
				bell_ring(p->bell, p->bell_fd);
		} else if (ask) {
			ask->out = ask->alloc(ask->alloc_ctx, ask->got);
			ask->has_asked = true;
		}
		if (more)
			pthread_mutex_lock(&p->moving);
		if (ask)
			p2p_go_on(ask);
	} while (more);
}

void p2p_release(struct p2p *p, uint32_t self)
{
	p2p_release_and(p, self, true);
}

/* SURE: even if another thread makes progress, which does not take long. */
static bool p2p_progress_once(struct p2p *p, uint32_t self, bool sure)
{
	bool moved;

	if (pthread_mutex_trylock(&p->moving)) {
		if (!sure)
			return false;
		pthread_mutex_lock(&p->moving);
	}
	moved = p2p_pass(p);
	p2p_release(p, self);
	return moved;
}

bool p2p_progress(struct p2p *p)
{
	return p2p_progress_once(p, 0, false);
}

bool p2p_owes(const struct p2p *p)
{
	return atomic_load(&p->owing);
}

bool p2p_is_connected(struct p2p *p)
{
	bool is = false;

	pthread_mutex_lock(&p->moving);
	for (unsigned i = 0; p->config.net && !is && i < p->config.members->n; i++)
		is = p->peer[i].stream && p2p_stream_is_made(p->peer[i].stream);
	pthread_mutex_unlock(&p->moving);
	return is;
}

static void p2p_wake_sleepers(struct p2p *p)
{
	if (bell_has_sleeper(p->bell, 0))
		bell_ring(p->bell, p->bell_fd);
	if (atomic_load(&p->bell->listens) && p->config.wake)
		p->config.wake(p->config.ctx);
}

void p2p_wake(struct p2p *p)
{
	atomic_thread_fence(memory_order_seq_cst);
	p2p_wake_sleepers(p);
}

/* Say to Q all that is still to be said, and that this rank leaves.  Is all of it on
 * its way?  TELLS: there is time for members that are to hear of the end of a group. */
static bool p2p_say_last(struct p2p *p, struct p2p_peer *q, bool tells)
{
	if (q->rank == p->config.members->me)
		return true;
	if (q->telling && tells)
		p2p_push(p, q);
	if (q->gone || (q->stream && q->stream->speaks < 0))
		return !q->telling || !tells;
	if (!q->said_last) {
		p2p_push_answers(q);
		q->said_last = !q->answers.n && p2p_peer_put_last(q);
	}
	if (q->stream && !p2p_stream_flush(q->stream))
		return true; /* Q has gone itself */
	if (q->stream)
		return q->said_last && p2p_stream_is_sent(q->stream);
	p2p_peer_wake(p, q);
	return !q->answers.n;
}

/* A ring that has room again wakes this thread.  Connections are looked at from time to
 * time. */
static void say_farewell(struct p2p *p)
{
	const uint64_t begun = clock_ns();
	uint64_t ms;
	uint32_t seen;
	bool all;

	atomic_fetch_add(&p->bell->sleepers, 1);
	do {
		ms = (clock_ns() - begun) / 1000000;
		seen = atomic_load(&p->bell->value);
		all = true;
		for (unsigned i = 0; i < p->config.members->n; i++)
			all &= p2p_say_last(p, &p->peer[i], ms < TELL_MS);
		if (!all)
			bell_sleep(p->bell, seen, LEAVE_LOOK_NS);
	} while (!all && ms < LEAVE_MS);
	atomic_fetch_sub(&p->bell->sleepers, 1);
}

void p2p_close(struct p2p *p)
{
	struct net *net;

	if (!p)
		return;
	net = p->config.net;
	if (net)
		net_wake(net, NULL, NULL);
	say_farewell(p);
	atomic_store(&p->bell->left, 1);
	for (unsigned i = 0; i < p->config.members->n; i++) {
		struct p2p_peer *q = &p->peer[i];

		p2p_peer_wake(p, q);
		p2p_lose(p, q); /* what is still to be told is not */
	}
	p2p_free_groups(p);
	p2p_destroy(p);
	net_close(net);
}

/* ---- posting ---- */

static bool is_valid(const struct p2p_group *g, const struct p2p_message *m)
{
	bool has_place = (m->peer >= 0 && (unsigned)m->peer < g->n) ||
			 (m->peer == P2P_ANY && !m->sends);

	return has_place &&
	       (!m->bytes || (m->sends ? m->in != NULL : m->out || m->alloc));
}

static bool has_begun(struct p2p_group *g)
{
	bool has;

	if (atomic_load_explicit(&g->has_begun, memory_order_acquire))
		return true;
	pthread_mutex_lock(&g->p2p->moving);
	has = p2p_group_begin(g);
	pthread_mutex_unlock(&g->p2p->moving);
	return has;
}

berth_result p2p_post(struct p2p_group *g, struct p2p_message *m, size_t n)
{
	uint32_t over = atomic_load_explicit(&g->over, memory_order_relaxed);
	struct p2p *p = g->p2p;
	uint64_t before;
	bool wakes;

	if (over)
		return (berth_result)over;
	for (size_t i = 0; i < n; i++) {
		if (!is_valid(g, &m[i]))
			return BERTH_INVALID;
		m[i].group = g;
	}
	if (!has_begun(g))
		return BERTH_MEMORY;
	if (n > P2P_MESSAGES ||
	    atomic_fetch_add(&g->in_flight, (uint32_t)n) > P2P_MESSAGES - n) {
		if (n <= P2P_MESSAGES)
			atomic_fetch_sub(&g->in_flight, (uint32_t)n);
		return BERTH_MEMORY;
	}
	atomic_fetch_add(&p->in_flight, (uint32_t)n);
	if (pthread_mutex_trylock(&p->moving)) {
		pthread_mutex_lock(&p->posting);
		for (size_t i = 0; i < n; i++)
			p2p_list_add(&p->posted, &m[i]);
		atomic_store(&p->has_posted, true);
		pthread_mutex_unlock(&p->posting);
		p2p_wake(p);
		return BERTH_OK;
	}
	before = p->deadline_ns;
	p2p_start_posted(p);
	p2p_start(m, n);
	/* a sleeping thread has to poll other sockets now, or for less time */
	wakes = p->config.net || p->deadline_ns != before || p->asks.first;
	p2p_release_and(p, 0, false);
	if (wakes)
		p2p_wake_sleepers(p);
	return BERTH_OK;
}

/* ---- waiting ---- */

struct rest {
	unsigned idle;    /* looks in a row that moved nothing */
	uint64_t idle_ns; /* since when */
	uint64_t yielded_ns, spun_ns;
	unsigned yields;
	bool sleeps, polls; /* it is counted among SLEEPERS, or as POLLS */
	uint64_t slice_ns;
};

/* The first sleeping thread polls.  When it has ended that, another one polls. */
static void p2p_count(struct p2p *p, struct rest *r)
{
	if (r->polls)
		return;
	if (!r->sleeps)
		r->slice_ns = MISSED_NS;
	r->polls = p->config.net && !atomic_exchange(&p->is_polled, true);
	if (r->polls)
		atomic_store(&p->bell->polls, 1);
	else if (!r->sleeps)
		atomic_fetch_add(&p->bell->sleepers, 1);
	if (r->polls && r->sleeps)
		atomic_fetch_sub(&p->bell->sleepers, 1);
	r->sleeps = !r->polls;
}

/* A polling thread leaves the poll to another thread. */
static void p2p_uncount(struct p2p *p, struct rest *r)
{
	if (r->sleeps)
		atomic_fetch_sub(&p->bell->sleepers, 1);
	if (r->polls) {
		atomic_store(&p->bell->polls, 0);
		atomic_store(&p->is_polled, false);
		if (bell_has_sleeper(p->bell, 0))
			bell_ring(p->bell, p->bell_fd);
	}
	r->sleeps = r->polls = false;
}

size_t p2p_sockets(struct p2p *p, struct pollfd *polls)
{
	size_t n = 0;

	if (!p->config.net)
		return 0;
	if (!polls)
		return 3 * (size_t)p->config.members->n;
	pthread_mutex_lock(&p->moving);
	n += net_polls(p->config.net, polls + n);
	for (unsigned i = 0; i < p->config.members->n; i++)
		if (p->peer[i].stream)
			n += p2p_stream_polls(p->peer[i].stream, polls + n);
	pthread_mutex_unlock(&p->moving);
	return n;
}

static void sleep_in_poll(struct p2p *p, uint64_t ns)
{
	const struct timespec t = { (time_t)(ns / 1000000000),
				    (long)(ns % 1000000000) };
	nfds_t n = 1 + p2p_sockets(p, p->polls + 1);

	p->polls[0] = (struct pollfd){ p->bell_fd, POLLIN, 0 };
	if (ppoll(p->polls, n, &t, NULL) > 0 && p->polls[0].revents)
		bell_clear(p->bell_fd);
}

static uint64_t p2p_earlier(uint64_t a, uint64_t b)
{
	return !b || (a && a < b) ? a : b;
}

/* How long a thread may sleep. */
static uint64_t p2p_slice_ns(const struct p2p *p)
{
	return p->in_flight || p2p_owes(p) ? wait_look_ns() : IDLE_MS * 1000000ull;
}

/* Sleep once after a last look, now that others see that this rank sleeps.  TRUE: the
 * look has moved something. */
static bool sleep_once(struct p2p *p, struct rest *r, bool (*is_over)(void *ctx),
		       void *ctx, uint64_t until_ns)
{
	uint64_t now = clock_ns(), until, ns = r->slice_ns;
	uint32_t seen = atomic_load(&p->bell->value);

	if (p2p_progress_once(p, 1, true))
		return true;
	if (is_over(ctx))
		return false;
	until = p2p_earlier(until_ns, atomic_load(&p->deadline_ns));
	if (until && until < now + ns)
		ns = until > now + MISSED_NS ? until - now : MISSED_NS;
	r->slice_ns = p2p_slice_ns(p);
	if (r->polls)
		sleep_in_poll(p, ns);
	else
		bell_sleep(p->bell, seen, ns);
	return false;
}

/* A look at connections takes system calls.  If others want the core, it is better left
 * to them (net_message.c). */
static bool may_spin_on_streams(struct p2p *p, struct rest *r)
{
	uint64_t now = clock_ns();
	bool may = true;

	if (!r->idle_ns)
		r->idle_ns = r->yielded_ns = r->spun_ns = now;
	if (!pthread_mutex_trylock(&p->moving)) {
		may = net_may_spin(p->config.net, r->spun_ns, now);
		pthread_mutex_unlock(&p->moving);
	}
	r->spun_ns = now;
	if (!may || now - r->idle_ns >= p->wait.spin_ns)
		return false;
	if (now - r->yielded_ns >= STREAM_YIELD_NS) {
		r->yielded_ns = now;
		sched_yield();
	}
	return true;
}

/* Nothing has moved: spin, then yield, then sleep. */
static bool may_spin(struct p2p *p, struct rest *r)
{
	const struct wait *w = &p->wait;

	if (p->config.net)
		return may_spin_on_streams(p, r);
	if (++r->idle <= w->spins) {
		wait_pause();
		return true;
	}
	if (!r->idle_ns)
		r->idle_ns = clock_ns();
	if (w->spin_ns && (r->idle % LOOKS || clock_ns() - r->idle_ns < w->spin_ns)) {
		wait_pause();
		return true;
	}
	if (!r->yields++)
		r->yielded_ns = clock_ns();
	return r->yields <= (w->oversubscribed ? w->yields : YIELDS) &&
	       wait_yield(r->yielded_ns);
}

/* ---- listening ---- */

bool p2p_listen(struct p2p *p)
{
	atomic_store(&p->bell->listens, 1);
	atomic_thread_fence(memory_order_seq_cst);
	return p2p_progress_once(p, 0, true);
}

void p2p_listen_no_more(struct p2p *p)
{
	atomic_store(&p->bell->listens, 0);
}

/* The news of Q's rings, as a number; 0: there are none.  News that stay, since this
 * rank waits for something else, are told once. */
static uint64_t p2p_news_of(const struct p2p_peer *q)
{
	if (!q->bell || q->gone)
		return 0;
	if (!p2p_ring_is_empty(&q->in))
		return 2 * q->in.cells + 1;
	return q->busy ? 2 * p2p_ring_drained(&q->out) : 0;
}

bool p2p_has_come(struct p2p *p)
{
	bool has;

	pthread_mutex_lock(&p->moving);
	has = atomic_load(&p->has_posted) || p->done.first || p->asks.first;
	for (unsigned i = 0; i < p->config.members->n; i++) {
		struct p2p_peer *q = &p->peer[i];
		const uint64_t news = p2p_news_of(q);

		has |= news && news != q->news;
		q->news = news;
	}
	pthread_mutex_unlock(&p->moving);
	return has;
}

uint64_t p2p_next_look(const struct p2p *p, uint64_t now)
{
	const uint64_t next =
		p2p_earlier(now + p2p_slice_ns(p), atomic_load(&p->deadline_ns));

	return next > now + MISSED_NS ? next : now + MISSED_NS;
}

/* ---- waiting ---- */

void p2p_wait(struct p2p *p, bool (*is_over)(void *ctx), void *ctx, uint64_t until_ns)
{
	struct rest r = { .idle = 0 };

	while (!is_over(ctx)) {
		bool sleeps = r.sleeps || r.polls;
		bool moved = p2p_progress_once(p, sleeps, false);

		if (!moved && !sleeps && may_spin(p, &r))
			continue;
		if (!moved) {
			if (until_ns && clock_ns() >= until_ns)
				break;
			p2p_count(p, &r);
			moved = sleep_once(p, &r, is_over, ctx, until_ns);
		}
		if (moved) {
			p2p_uncount(p, &r);
			r = (struct rest){ .idle = 0 };
		}
	}
	p2p_uncount(p, &r);
}
