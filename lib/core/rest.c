#include "lib/core/rest.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "lib/core/missing.h"

struct rest {
	bool rests;
	size_t n;             /* of POLLS, while it rests */
	struct pollfd *polls; /* NULL: all ranks are on this host */
	struct pollfd *looks; /* rest_is_called() */
};

size_t rest_most(const struct comm *c)
{
	return c->net ? (size_t)c->members->n * NET_LANES : 0;
}

struct rest *rest_make(const struct comm *c)
{
	const size_t most = rest_most(c);
	struct rest *r;

	if (!c->shared || c->members->n == 1 || (c->net && c->bells.fd < 0))
		return NULL;
	r = calloc(1, sizeof *r);
	if (!r || !most)
		return r;
	r->polls = calloc(2 * most, sizeof *r->polls);
	r->looks = r->polls ? r->polls + most : NULL;
	if (r->polls)
		return r;
	free(r);
	return NULL;
}

void rest_free(struct rest *r)
{
	if (!r)
		return;
	free(r->polls);
	free(r);
}

static bool rest_some_are_ahead(const struct comm *c)
{
	for (unsigned i = 0; i < c->members->n; i++)
		if (i != c->members->me && missing_is_ahead(c, i))
			return true;
	return false;
}

bool rest_is_called_here(const struct berth_set *s)
{
	return s->rest && s->rest->rests && rest_some_are_ahead(&s->comm);
}

bool rest_is_called(const struct berth_set *s)
{
	const struct comm *c = &s->comm;

	if (rest_some_are_ahead(c))
		return true;
	return c->net && s->rest &&
	       poll(s->rest->looks, net_sockets(c->net, s->rest->looks), 0) > 0;
}

void rest_begin(struct berth_set *s)
{
	struct rest *r = s->rest;

	r->rests = true;
	r->n = r->polls ? net_sockets(s->comm.net, r->polls) : 0;
	atomic_fetch_add(&s->comm.shared->resting, 1);
}

void rest_end(struct berth_set *s)
{
	if (!s->rest || !s->rest->rests)
		return;
	s->rest->rests = false;
	s->rest->n = 0;
	atomic_fetch_sub(&s->comm.shared->resting, 1);
}

size_t rest_sockets(const struct rest *r, struct pollfd *p)
{
	if (r->n)
		memcpy(p, r->polls, r->n * sizeof *p);
	return r->n;
}

void rest_call_others(const struct berth_set *s)
{
	const struct comm *c = &s->comm;

	if (!c->shared)
		return;
	atomic_thread_fence(memory_order_seq_cst);
	if (atomic_load_explicit(&c->shared->resting, memory_order_relaxed))
		bells_ring(&c->bells);
}
