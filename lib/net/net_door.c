#include "lib/net/net_door.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "lib/base/fiber.h"
#include "lib/base/thread.h"

enum {
	BACKLOG_LEAST = 64, /* of a job of few ranks, which may all come at a time */
	BACKLOG_MOST = 1024,
	NO_ROOM_MS = 50, /* until the next try */
	TEND_MS = 1000
};

/* ---- nets ---- */

static struct net *door_find(const struct net_door *d, uint64_t id)
{
	struct net *n = d->nets;

	while (n && n->config.id != id)
		n = n->next;
	return n;
}

void net_door_add(struct net_door *d, struct net *n)
{
	pthread_mutex_lock(&d->lock);
	n->next = d->nets;
	d->nets = n;
	pthread_mutex_unlock(&d->lock);
}

static void door_drop(struct net_door *d, size_t i, bool keep_fd)
{
	if (!keep_fd)
		descriptor_close(d->coming[i].fd);
	d->coming[i] = d->coming[--d->ncoming];
}

void net_door_remove(struct net_door *d, struct net *n, const struct head *last)
{
	struct net **at = &d->nets;
	struct net_channel channel;

	pthread_mutex_lock(&d->lock);
	while (*at && *at != n)
		at = &(*at)->next;
	if (*at)
		*at = n->next;
	for (size_t i = d->ncoming; i-- > 0;) {
		const struct net_coming *c = &d->coming[i];

		if (!c->answered || c->hello.net != n->config.id)
			continue;
		/* a peer that has our answer takes the connection as made */
		if (last && !c->answer.verdict &&
		    !net_channel_open(&channel, c->fd, d->key, &c->hello, &c->answer,
				      false)) {
			net_tell(&channel, *last);
			net_channel_free(&channel);
		}
		door_drop(d, i, false);
	}
	pthread_mutex_unlock(&d->lock);
}

void net_wake(struct net *n, void (*wake)(void *ctx), void *ctx)
{
	pthread_mutex_lock(&n->door->lock);
	n->wake = wake;
	n->wake_ctx = ctx;
	pthread_mutex_unlock(&n->door->lock);
}

static bool door_deliver(struct net *n, const struct net_coming *c)
{
	struct net_coming *own = malloc(sizeof *own);

	if (!own)
		return false;
	*own = *c;
	own->next = n->arrived;
	n->arrived = own;
	n->narrived++;
	atomic_fetch_add(&n->came, 1);
	fiber_wake(&n->came);
	if (n->wake)
		n->wake(n->wake_ctx);
	return true;
}

bool net_has_come(const struct net *n)
{
	return atomic_load(&n->came) != n->taken;
}

struct net_coming *net_door_take(struct net *n)
{
	struct net_coming *c;

	if (!net_has_come(n))
		return NULL;
	pthread_mutex_lock(&n->door->lock);
	c = n->arrived;
	if (c) {
		n->arrived = c->next;
		n->narrived--;
	} else {
		n->taken = atomic_load(&n->came);
	}
	pthread_mutex_unlock(&n->door->lock);
	return c;
}

/* ---- connections that come ---- */

/* Read up to WANT bytes in all.  1: they are there; 0: not yet; -1: the connection has
 * ended, or it is to be ALONE and more has come. */
static int door_fill(struct net_coming *c, void *to, size_t want, bool alone)
{
	ssize_t n = recv(c->fd, (char *)to + c->got, want - c->got, MSG_DONTWAIT);
	char more;

	if (n > 0)
		c->got += (size_t)n;
	else if (n == 0 || (errno != EAGAIN && errno != EINTR))
		return -1;
	if (c->got == want && alone &&
	    recv(c->fd, &more, 1, MSG_PEEK | MSG_DONTWAIT) > 0)
		return -1;
	return c->got == want;
}

/* The net judges further when it takes the connection. */
static bool is_expected(const struct net *n, const struct net_hello *h)
{
	return h->to == n->config.rank && h->from != h->to &&
	       h->from < n->config.size &&
	       (h->lane < NET_LANES || h->lane == NET_ASKS) &&
	       n->narrived < (size_t)n->config.size * NET_LANES;
}

/* The peer goes on with the connection, if only to fail together with this rank. */
static bool door_is_current(const struct net_answer *a)
{
	return !a->verdict || a->verdict == NET_OTHER_SECURE;
}

/* FALSE: the door has answered this hello, or a later one of its rank and lane.  An
 * earlier connection of that rank and lane gives up its place.  A hello of another
 * epoch has a number of another process. */
static bool door_is_new(struct net_door *d, struct net *n, const struct net_coming *c)
{
	const struct net_hello *h = &c->hello;
	uint64_t *heard;

	if (!door_is_current(&c->answer) || h->lane == NET_ASKS)
		return true;
	heard = &n->heard[(size_t)h->from * NET_LANES + h->lane];
	if (h->number <= *heard)
		return false;
	*heard = h->number;
	for (size_t i = 0; i < d->ncoming; i++) {
		struct net_coming *o = &d->coming[i];

		if (o->answered && door_is_current(&o->answer) &&
		    o->hello.net == h->net && o->hello.from == h->from &&
		    o->hello.lane == h->lane)
			o->until_ns = 0; /* it goes at the next look */
	}
	return true;
}

static int door_answer(struct net_door *d, struct net_coming *c)
{
	struct net_hello own;
	struct net *n;

	/* an address may lead to another rank of the job than intended */
	if (!net_hello_is_good(&c->hello, d->key) || c->hello.at != d->rank)
		return -1;
	n = door_find(d, c->hello.net);
	if (n && !is_expected(n, &c->hello))
		return -1;
	if (n && c->hello.lane == NET_ASKS) { /* the peer may wait for a word there */
		atomic_store(&n->tend_soon, true);
		atomic_store(&d->tend_soon, true);
	}
	c->answer.verdict = NET_LEFT;
	if (n) {
		own = net_own_hello(n, c->hello.from, c->hello.lane);
		c->answer.verdict = net_judge(n, &c->hello);
		c->answer.secure = net_common(&own, &c->hello);
	}
	if (n && !door_is_new(d, n, c))
		return -1;
	net_answer_make(&c->answer, d->key, &c->hello);
	/* an empty socket takes 72 bytes */
	if (send(c->fd, &c->answer, sizeof c->answer, MSG_DONTWAIT | MSG_NOSIGNAL) !=
	    sizeof c->answer)
		return -1;
	c->answered = true;
	c->got = 0;
	return n && c->hello.lane != NET_ASKS ? 0 : -1;
}

/* -1: C is to be dropped; 1: C belongs to a net now; 0: neither. */
static int door_advance(struct net_door *d, struct net_coming *c)
{
	struct net *n;
	int rc;

	if (!c->answered) {
		rc = door_fill(c, &c->hello, sizeof c->hello, true);
		if (rc <= 0 || door_answer(d, c))
			return rc <= 0 ? rc : -1;
	}
	rc = door_fill(c, &c->seal, sizeof c->seal, false);
	if (rc <= 0)
		return rc;
	n = door_find(d, c->hello.net);
	if (!net_seal_is_good(&c->seal, d->key, &c->hello, &c->answer) || !n ||
	    !is_expected(n, &c->hello))
		return -1;
	/* a rank of another epoch may come, but must not keep ours out */
	if (!door_is_current(&c->answer))
		return -1;
	return door_deliver(n, c) ? 1 : -1;
}

static void door_attend(struct net_door *d, size_t i, uint64_t now)
{
	int rc = door_advance(d, &d->coming[i]);

	if (rc == 0 && now > d->coming[i].until_ns)
		rc = -1;
	if (rc)
		door_drop(d, i, rc > 0);
}

/* 0: C stays.  Of the others, the highest goes first. */
static int door_turn_to_go(const struct net_coming *c)
{
	return !c->answered ? 1 : door_is_current(&c->answer) ? 0 : 2;
}

/* Drop a connection that was refused: its peer has the answer.  Else drop the one that
 * has been silent for longest.  A connection that was not refused stays, since its peer
 * takes it as made (else one of 50 sets that connected at a time lost a rank). */
static bool door_make_room(struct net_door *d)
{
	const struct net_coming *first = NULL;

	for (struct net_coming *c = d->coming; c < d->coming + d->ncoming; c++)
		if (door_turn_to_go(c) &&
		    (!first || door_turn_to_go(c) > door_turn_to_go(first) ||
		     (door_turn_to_go(c) == door_turn_to_go(first) &&
		      c->until_ns < first->until_ns)))
			first = c;
	if (first)
		door_drop(d, (size_t)(first - d->coming), false);
	return first;
}

static void accept_all(struct net_door *d, int listener)
{
	struct pollfd p = { listener, POLLIN, 0 };
	const uint64_t now = clock_ns();
	int fd;

	for (int i = 0; i < NET_COMING_MOST; i++) {
		/* no connection goes before a further one has come: its hello may be
		 * on its way */
		if (d->ncoming == NET_COMING_MOST) {
			if (poll(&p, 1, 0) <= 0)
				break;
			d->lacks_room = !door_make_room(d);
			if (d->lacks_room)
				break;
		}
		fd = descriptor_accept(listener, SOCK_NONBLOCK);
		if (fd >= 0) {
			d->coming[d->ncoming++] = (struct net_coming){
				.fd = net_set_up(fd),
				.until_ns = now + HANDSHAKE_MS * 1000000ull
			};
			door_attend(d, d->ncoming - 1, now);
			continue;
		}
		if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS ||
		    errno == ENOMEM)
			d->lacks_room = !door_make_room(d); /* and a descriptor */
		if (errno != EINTR && errno != ECONNABORTED)
			break;
	}
}

void net_door_serve(struct net_door *d)
{
	const uint64_t now = clock_ns();

	pthread_mutex_lock(&d->lock);
	for (size_t i = d->ncoming; i-- > 0;)
		door_attend(d, i, now);
	for (int i = 0; i < d->listeners; i++)
		accept_all(d, d->listener[i]);
	pthread_mutex_unlock(&d->lock);
}

/* ---- connections of a net ---- */

/* A peer with another BERTH_NET_SECURE ends both ranks.  The door drops all other peers
 * that are not like this rank. */
static bool door_take(struct net *n, const struct net_coming *c)
{
	const struct net_hello *h = &c->hello;
	/* does the peer begin this connection, and is its place free? */
	const bool begins = n->begun ? h->lane == (h->from > n->config.rank)
				     : h->from < n->config.rank;

	if (!begins || net_fd(n, h->from, h->lane) >= 0)
		return false;
	if (c->answer.verdict) {
		net_note_verdict(n, c->hello.from, c->fd, c->answer.verdict);
		return false;
	}
	return !net_open_link(n, c->hello.from, c->hello.lane, c->fd, &c->hello,
			      &c->answer);
}

bool net_serve(struct net *n)
{
	struct net_coming *c;
	bool came = false;

	while ((c = net_door_take(n))) {
		if (door_take(n, c))
			came = true;
		else
			descriptor_close(c->fd);
		free(c);
	}
	return came;
}

/* ---- nets that are tended ---- */

void net_tend(struct net *n, void (*tend)(void *ctx), void *ctx)
{
	struct net_door *d = n->door;
	struct net **at = &d->tended;

	pthread_mutex_lock(&d->tending);
	while (*at && *at != n)
		at = &(*at)->next_tended;
	if (*at)
		*at = n->next_tended;
	n->tend = tend;
	n->tend_ctx = ctx;
	if (tend) {
		n->next_tended = d->tended;
		d->tended = n;
	}
	pthread_mutex_unlock(&d->tending);
}

void net_door_tend(struct net_door *d)
{
	uint64_t now = clock_ns();
	bool all = now - d->tended_ns >= TEND_MS * 1000000ull;

	if (!atomic_exchange(&d->tend_soon, false) && !all)
		return;
	if (all)
		d->tended_ns = now;
	pthread_mutex_lock(&d->tending);
	for (struct net *n = d->tended; n; n = n->next_tended)
		if (atomic_exchange(&n->tend_soon, false) || all)
			n->tend(n->tend_ctx);
	pthread_mutex_unlock(&d->tending);
}

/* ---- the thread ---- */

/* Put the sockets for which the thread waits into P, and the time into *MS. */
static nfds_t door_list_polls(const struct net_door *d, struct pollfd *p, int *ms)
{
	const int most = d->lacks_room ? NO_ROOM_MS : TEND_MS;
	uint64_t now = clock_ns(), until = UINT64_MAX;
	nfds_t n = 0;

	/* a connection that cannot be accepted would end the wait at once */
	for (int i = 0; i < d->listeners && !d->lacks_room; i++)
		p[n++] = (struct pollfd){ d->listener[i], POLLIN, 0 };
	for (size_t i = 0; i < d->ncoming; i++) {
		p[n++] = (struct pollfd){ d->coming[i].fd, POLLIN, 0 };
		if (d->coming[i].until_ns < until)
			until = d->coming[i].until_ns;
	}
	*ms = most;
	if (until != UINT64_MAX)
		*ms = until > now ? (int)((until - now) / 1000000) + 1 : 0;
	if (*ms > most)
		*ms = most;
	return n;
}

static void *door_serve(void *arg)
{
	struct net_door *d = arg;

	while (!atomic_load(&d->closes)) {
		struct pollfd p[NET_WHERE_MAX + NET_COMING_MOST];
		struct timespec t;
		nfds_t n;
		int ms;

		net_door_serve(d);
		net_door_tend(d);
		pthread_mutex_lock(&d->lock);
		n = door_list_polls(d, p, &ms);
		d->lacks_room = false;
		pthread_mutex_unlock(&d->lock);
		t = (struct timespec){ ms / 1000, ms % 1000 * 1000000L };
		if (!atomic_load(&d->closes))
			ppoll(p, n, &t, NULL);
	}
	return NULL;
}

/* ---- opening and closing ---- */

struct net_door *net_door_open(const struct net_door_config *config, char *why,
			       size_t why_bytes)
{
	struct net_door *d = calloc(1, sizeof *d);
	int backlog = (int)(config->size < BACKLOG_MOST ? config->size : BACKLOG_MOST);

	snprintf(why, why_bytes, "out of memory");
	if (!d)
		return NULL;
	pthread_mutex_init(&d->lock, NULL);
	pthread_mutex_init(&d->tending, NULL);
	d->rank = config->rank;
	d->size = config->size;
	memcpy(d->key, config->key, sizeof d->key);
	d->peer = calloc(config->size, sizeof *d->peer);
	if (!d->peer)
		goto fail;
	snprintf(why, why_bytes, "libsodium can't be used");
	if (net_key_init())
		goto fail;
	d->listeners = net_listen(config->range, config->interfaces,
				  backlog < BACKLOG_LEAST ? BACKLOG_LEAST : backlog,
				  d->listener, d->address, why, why_bytes);
	if (d->listeners < 0)
		goto fail;
	for (int i = 0; i < d->listeners; i++)
		net_disable_pacing(d->pacing_control, d->listener[i]);
	snprintf(why, why_bytes, "no thread can be started");
	d->started = thread_start(&d->thread, "berth-door", door_serve, d);
	if (d->started)
		return d;
fail:
	net_door_close(d);
	return NULL;
}

void net_door_close(struct net_door *d)
{
	if (!d)
		return;
	atomic_store(&d->closes, true);
	for (int i = 0; i < d->listeners; i++)
		shutdown(d->listener[i], SHUT_RDWR); /* this wakes the thread */
	if (d->started)
		pthread_join(d->thread, NULL);
	for (int i = 0; i < d->listeners; i++)
		descriptor_close(d->listener[i]);
	while (d->ncoming)
		door_drop(d, d->ncoming - 1, false);
	pthread_mutex_destroy(&d->lock);
	pthread_mutex_destroy(&d->tending);
	explicit_bzero(d->key, sizeof d->key);
	free(d->peer);
	free(d);
}

const char *net_door_address(const struct net_door *d)
{
	return d->address;
}

berth_result net_door_peer(struct net_door *d, unsigned rank, const char *address)
{
	if (rank >= d->size || net_where(&d->peer[rank], address))
		return BERTH_INVALID;
	return BERTH_OK;
}
