#include "lib/core/rest.h"

#include <poll.h>
#include <stdlib.h>

#include "lib/base/descriptor.h"
#include "lib/core/missing.h"

struct rest {
	struct bell *bell;
	int fd;               /* of the bell; -1: the thread sleeps on the futex */
	struct pollfd *polls; /* while it sleeps */
	struct pollfd *looks; /* rest_is_called() */
};

struct rest *rest_make(const struct comm *c)
{
	struct rest *r;

	if (!c->shared || c->members->n == 1)
		return NULL;
	r = calloc(1, sizeof *r);
	if (!r)
		return NULL;
	r->bell = &c->shared->bell[c->members->local_me];
	r->fd = -1;
	if (!c->net)
		return r;
	r->polls = calloc(1 + 2 * (size_t)c->members->n * NET_LANES, sizeof *r->polls);
	r->fd = r->polls ? bell_open(r->bell) : -1;
	r->looks = r->polls ? r->polls + 1 + (size_t)c->members->n * NET_LANES : NULL;
	if (r->fd >= 0)
		return r;
	rest_free(r);
	return NULL;
}

void rest_free(struct rest *r)
{
	if (!r)
		return;
	if (r->fd >= 0)
		descriptor_close(r->fd);
	free(r->polls);
	free(r);
}

bool rest_is_called(const struct engine *e)
{
	const struct comm *c = e->comm;

	for (unsigned i = 0; i < c->members->n; i++)
		if (i != c->members->me && missing_is_ahead(c, i))
			return true;
	return c->net && e->rest &&
	       poll(e->rest->looks, net_sockets(c->net, e->rest->looks), 0) > 0;
}

static void rest_in_poll(struct rest *r, nfds_t n, uint64_t ns)
{
	const struct timespec t = { (time_t)(ns / 1000000000),
				    (long)(ns % 1000000000) };

	if (ppoll(r->polls, n, &t, NULL) > 0 && r->polls[0].revents)
		bell_clear(r->fd);
}

void rest_sleep(struct engine *e, uint32_t heard, uint64_t ns)
{
	struct region_shared *shared = e->comm->shared;
	struct rest *r = e->rest;
	_Atomic uint32_t *sleepers = r->fd >= 0 ? &r->bell->polls : &r->bell->sleepers;
	uint32_t seen = atomic_load(&r->bell->value);
	nfds_t n = 0;
	bool sleeps;

	atomic_store(sleepers, 1);
	atomic_fetch_add(&shared->resting, 1);
	atomic_store(&e->rests, true);
	atomic_thread_fence(memory_order_seq_cst);
	sleeps = atomic_load(&e->bell) == heard && !rest_is_called(e);
	if (sleeps && r->fd >= 0) {
		r->polls[n++] = (struct pollfd){ r->fd, POLLIN, 0 };
		n += net_sockets(e->comm->net, r->polls + n);
	}
	pthread_mutex_unlock(&e->work);
	if (n)
		rest_in_poll(r, n, ns);
	else if (sleeps)
		bell_sleep(r->bell, seen, ns);
	atomic_store(&e->rests, false);
	atomic_fetch_sub(&shared->resting, 1);
	atomic_store(sleepers, 0);
}

void rest_call_others(const struct engine *e)
{
	const struct comm *c = e->comm;

	if (!c->shared)
		return;
	atomic_thread_fence(memory_order_seq_cst);
	if (!atomic_load_explicit(&c->shared->resting, memory_order_relaxed))
		return;
	for (unsigned i = 0; i < c->members->nlocal; i++)
		if (i != c->members->local_me &&
		    bell_has_sleeper(&c->shared->bell[i], 0))
			bell_ring(&c->shared->bell[i], e->rest ? e->rest->fd : -1);
}

void engine_ring(struct engine *e)
{
	atomic_fetch_add(&e->bell, 1);
	if (atomic_load(&e->asleep))
		sleep_wake(&e->bell);
	if (!atomic_load(&e->rests))
		return;
	pthread_mutex_lock(&e->queue);
	if (e->rest)
		bell_ring(e->rest->bell, e->rest->fd);
	pthread_mutex_unlock(&e->queue);
}
