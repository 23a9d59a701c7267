#include "lib/core/bounce.h"

#include <pthread.h>
#include <stdlib.h>

#include "lib/backend/devices.h"
#include "lib/base/apart.h"
#include "lib/base/clock.h"

enum {
	ROOM_BYTES = 1 << 16, /* the least room: buffers are used again */
	LOOK_NS = 20000,
	LOOK_NS_MOST = 1000000,
	CALM_NS = 50000000 /* for a copy of what ends early */
};

/* A message that waits for a copy.  It stays here until it has been posted, so that no
 * later one gets in front of it. */
struct bounce_item {
	struct bounce_item *next;
	struct bounce *of;
	const struct device_backend *back;
	void *mark; /* of the end of the copy; NULL: it has come to that */
	berth_result rc;
	uint64_t ends_ns; /* it ends then at the latest; 0: when it is copied */
	bool taken;       /* a thread posts it, or ends it */
	/* whose order counts; a receive's does not */
	bool sends;
	const struct comm *comm;
	int peer;
	uint64_t tag;
};

struct bounces {
	const struct bounce_hooks *hooks;
	pthread_mutex_t lock; /* of the list */
	struct bounce_item *first, **end;
	_Atomic uint32_t n;
	_Atomic uint64_t pause_ns; /* between two looks */
};

struct bounces *bounces_open(const struct bounce_hooks *hooks)
{
	struct bounces *all = calloc(1, sizeof *all);

	if (!all)
		return NULL;
	all->hooks = hooks;
	all->end = &all->first;
	all->pause_ns = LOOK_NS;
	pthread_mutex_init(&all->lock, NULL);
	return all;
}

void bounces_close(struct bounces *all)
{
	if (all)
		pthread_mutex_destroy(&all->lock);
	free(all);
}

/* ---- buffers ---- */

struct bounce_call {
	struct bounce *bounce;
	uint64_t bytes;
	berth_result rc;
};

/* A back end may wait for its device there. */
static void bounce_ask(void *ctx)
{
	struct bounce_call *k = ctx;
	struct bounce *b = k->bounce;

	k->rc = b->back->stage(b->op->device, k->bytes, &b->stage, &b->room, &b->why);
	if (k->rc)
		b->stage = NULL;
}

berth_result bounce_begin(struct bounce *b, uint64_t bytes)
{
	struct bounce_call call = { .bounce = b, .bytes = ROOM_BYTES };

	while (call.bytes < bytes && call.bytes <= UINT64_MAX / 4)
		call.bytes *= 2;
	apart_call(bounce_ask, &call);
	return call.rc;
}

void bounce_end(struct bounce *b)
{
	if (b->ready)
		b->back->forget(b->ready);
	if (b->stage)
		b->back->unstage(b->stage);
	b->ready = b->stage = NULL;
}

static bool bounce_is_before(const struct bounce_item *i, const struct bounce *b)
{
	return i->sends && i->comm == b->comm && i->peer == b->op->peer &&
	       i->tag == b->op->tag;
}

bool bounce_is_needed(struct bounces *all, const struct bounce *b)
{
	bool needed = b->stage;

	if (needed || !atomic_load(&all->n))
		return needed;
	pthread_mutex_lock(&all->lock);
	for (struct bounce_item *i = all->first; i && !needed; i = i->next)
		needed = bounce_is_before(i, b);
	pthread_mutex_unlock(&all->lock);
	return needed;
}

/* ---- copies ---- */

/* B is copied, or only waits where COPY is NULL. */
static berth_result bounce_add(struct bounces *all, struct bounce *b,
			       const struct device_copy *copy)
{
	struct bounce_item *i = calloc(1, sizeof *i);
	berth_result rc = i ? BERTH_OK : BERTH_MEMORY;

	if (i)
		*i = (struct bounce_item){ .of = b,
					   .back = b->back,
					   .sends = b->op->coll.kind == BERTH_SEND,
					   .comm = b->comm,
					   .peer = b->op->peer,
					   .tag = b->op->tag };
	if (i && copy) {
		rc = b->back->copy(b->stage, copy, 1, &b->ready, b->ready != NULL,
				   &i->mark);
		if (b->ready)
			b->back->forget(b->ready);
		b->ready = NULL;
	}
	if (rc) {
		b->why = i ? "the copy between the device and the host failed" : NULL;
		free(i);
		return rc;
	}
	pthread_mutex_lock(&all->lock);
	*all->end = i;
	all->end = &i->next;
	atomic_fetch_add(&all->n, 1);
	atomic_store(&all->pause_ns, LOOK_NS);
	pthread_mutex_unlock(&all->lock);
	return BERTH_OK;
}

berth_result bounce_send(struct bounces *all, struct bounce *b, uint64_t bytes)
{
	const struct device_copy copy = { b->room, b->op->coll.in, bytes };

	return bounce_add(all, b, b->stage ? &copy : NULL);
}

berth_result bounce_give(struct bounces *all, struct bounce *b, void *out,
			 uint64_t bytes)
{
	const struct device_copy copy = { out, b->room, bytes };

	return bounce_add(all, b, &copy);
}

/* ---- what comes of them ---- */

/* Has I come to its end, or is it its turn?  The lock is held. */
static bool bounce_is_due(struct bounces *all, struct bounce_item *i, uint64_t now)
{
	const struct bounce_item *before = all->first;
	berth_result rc;

	if (i->taken)
		return false;
	rc = i->mark ? i->back->passed(i->mark) : BERTH_OK;
	if (rc != BERTH_BUSY && i->mark) {
		i->back->forget(i->mark);
		i->mark = NULL;
		i->rc = i->rc ? i->rc : rc;
	}
	if (!i->rc && (i->mark || i->sends))
		i->rc = all->hooks->look(i->of);
	if (i->rc == BERTH_TIMEOUT && !i->ends_ns)
		i->of->why = "what its stream has was not done in time";
	if (i->rc && !i->ends_ns)
		i->ends_ns = now + CALM_NS;
	if (i->rc || i->mark)
		return i->rc && (!i->mark || now >= i->ends_ns);
	while (i->sends && before != i && !bounce_is_before(before, i->of))
		before = before->next;
	return !i->sends || before == i;
}

static struct bounce_item *bounce_find_due(struct bounces *all)
{
	const uint64_t now = clock_ns();
	struct bounce_item *i;

	pthread_mutex_lock(&all->lock);
	i = all->first;
	while (i && !bounce_is_due(all, i, now))
		i = i->next;
	if (i)
		i->taken = true;
	pthread_mutex_unlock(&all->lock);
	return i;
}

static void bounce_remove(struct bounces *all, struct bounce_item *i)
{
	struct bounce_item **at = &all->first;

	pthread_mutex_lock(&all->lock);
	while (*at != i)
		at = &(*at)->next;
	*at = i->next;
	if (!*at)
		all->end = at;
	atomic_fetch_sub(&all->n, 1);
	pthread_mutex_unlock(&all->lock);
	free(i);
}

bool bounce_look(struct bounces *all)
{
	uint64_t pause_ns = atomic_load(&all->pause_ns);
	struct bounce_item *i;
	bool moved = false;

	if (!atomic_load(&all->n))
		return false;
	while ((i = bounce_find_due(all))) {
		moved = true;
		if (i->mark)
			i->back->forget(i->mark);
		if (i->sends && !i->rc)
			all->hooks->post(i->of);
		else
			all->hooks->over(i->of, i->rc);
		bounce_remove(all, i);
	}
	if (moved)
		pause_ns = LOOK_NS / 2;
	if (pause_ns < LOOK_NS_MOST)
		atomic_store(&all->pause_ns, 2 * pause_ns);
	return moved;
}

uint64_t bounce_next_look(const struct bounces *all, uint64_t now)
{
	return atomic_load(&all->n) ? now + atomic_load(&all->pause_ns) : 0;
}
