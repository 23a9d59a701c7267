#include "lib/core/bounce.h"

#include <pthread.h>
#include <stdlib.h>

#include "lib/backend/devices.h"
#include "lib/base/apart.h"
#include "lib/base/clock.h"
#include "lib/core/messages.h"

enum {
	ROOM_BYTES = 1 << 16, /* the least room: buffers are used again */
	LOOK_NS = 20000,
	LOOK_NS_MOST = 1000000,
	CALM_NS = 50000000 /* for a copy of what ends early */
};

/* A message that waits for a copy.  It stays until the message has been posted, so that
 * no later one gets in front of it. */
struct bounce_item {
	struct bounce_item *next;
	struct message *message;
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
	struct bounces *b = calloc(1, sizeof *b);

	if (!b)
		return NULL;
	b->hooks = hooks;
	b->end = &b->first;
	b->pause_ns = LOOK_NS;
	pthread_mutex_init(&b->lock, NULL);
	return b;
}

void bounces_close(struct bounces *b)
{
	if (b)
		pthread_mutex_destroy(&b->lock);
	free(b);
}

/* ---- buffers ---- */

/* It may wait for the device. */
struct bounce_call {
	struct message *message;
	uint64_t bytes;
	berth_result rc;
};

static void bounce_ask(void *ctx)
{
	struct bounce_call *k = ctx;
	struct bounce *b = &k->message->bounce;

	k->rc = b->back->stage(k->message->op->device, k->bytes, &b->stage, &b->room,
			       &b->why);
	if (k->rc)
		b->stage = NULL;
}

berth_result bounce_begin(struct message *m, uint64_t bytes)
{
	struct bounce_call call = { .message = m, .bytes = ROOM_BYTES };

	while (call.bytes < bytes && call.bytes <= UINT64_MAX / 4)
		call.bytes *= 2;
	m->bounce.back = device_of(m->op->memory);
	apart_call(bounce_ask, &call);
	return call.rc;
}

void bounce_end(struct message *m)
{
	struct bounce *b = &m->bounce;

	if (b->ready)
		b->back->forget(b->ready);
	if (b->stage)
		b->back->unstage(b->stage);
	b->ready = b->stage = NULL;
}

static berth_result bounce_copy(struct message *m, const struct device_copy *copy,
				void **mark)
{
	struct bounce *b = &m->bounce;
	const berth_result rc = b->back->copy(b->stage, copy, 1, &b->ready,
					      b->ready != NULL, mark);

	if (b->ready)
		b->back->forget(b->ready);
	b->ready = NULL;
	b->why = rc ? "the copy between the device and the host failed" : NULL;
	return rc;
}

/* ---- the list ---- */

static bool bounce_is_before(const struct bounce_item *item, const struct message *m)
{
	return item->sends && item->comm == m->comm && item->peer == m->op->peer &&
	       item->tag == m->op->tag;
}

bool bounce_is_needed(struct bounces *b, const struct message *m)
{
	bool needed = m->bounce.stage;

	if (needed || !atomic_load(&b->n))
		return needed;
	pthread_mutex_lock(&b->lock);
	for (struct bounce_item *i = b->first; i && !needed; i = i->next)
		needed = bounce_is_before(i, m);
	pthread_mutex_unlock(&b->lock);
	return needed;
}

static struct bounce_item *bounce_make_item(struct message *m)
{
	struct bounce_item *i = calloc(1, sizeof *i);

	if (!i)
		return NULL;
	i->message = m;
	i->back = m->bounce.back;
	i->sends = m->p2p.sends;
	i->comm = m->comm;
	i->peer = m->op->peer;
	i->tag = m->op->tag;
	return i;
}

static void bounce_add(struct bounces *b, struct bounce_item *i)
{
	pthread_mutex_lock(&b->lock);
	*b->end = i;
	b->end = &i->next;
	atomic_fetch_add(&b->n, 1);
	atomic_store(&b->pause_ns, LOOK_NS);
	pthread_mutex_unlock(&b->lock);
}

static void bounce_remove(struct bounces *b, struct bounce_item *i)
{
	struct bounce_item **at = &b->first;

	pthread_mutex_lock(&b->lock);
	while (*at != i)
		at = &(*at)->next;
	*at = i->next;
	if (!*at)
		b->end = at;
	atomic_fetch_sub(&b->n, 1);
	pthread_mutex_unlock(&b->lock);
	free(i);
}

/* ---- what enters it ---- */

berth_result bounce_send(struct bounces *b, struct message *m, uint64_t bytes)
{
	const struct device_copy copy = { m->bounce.room, m->op->coll.in, bytes };
	struct bounce_item *i = bounce_make_item(m);
	berth_result rc = i ? BERTH_OK : BERTH_MEMORY;

	if (!rc && m->bounce.stage)
		rc = bounce_copy(m, &copy, &i->mark);
	if (rc)
		free(i);
	else
		bounce_add(b, i);
	return rc;
}

berth_result bounce_give(struct bounces *b, struct message *m, void *out,
			 uint64_t bytes)
{
	const struct device_copy copy = { out, m->bounce.room, bytes };
	struct bounce_item *i = bounce_make_item(m);
	berth_result rc = i ? BERTH_OK : BERTH_MEMORY;

	if (!rc)
		rc = bounce_copy(m, &copy, &i->mark);
	if (rc)
		free(i);
	else
		bounce_add(b, i);
	return rc;
}

/* ---- what comes of it ---- */

/* Has I come to its end, or is it its turn?  The lock is held. */
static bool bounce_is_due(struct bounces *b, struct bounce_item *i, uint64_t now)
{
	const struct bounce_item *before = b->first;
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
		i->rc = b->hooks->look(i->message);
	if (i->rc == BERTH_TIMEOUT && !i->ends_ns)
		i->message->bounce.why = "what its stream has was not done in time";
	if (i->rc && !i->ends_ns)
		i->ends_ns = now + CALM_NS;
	if (i->rc || i->mark)
		return i->rc && (!i->mark || now >= i->ends_ns);
	while (i->sends && before != i && !bounce_is_before(before, i->message))
		before = before->next;
	return !i->sends || before == i;
}

static struct bounce_item *bounce_find_due(struct bounces *b)
{
	const uint64_t now = clock_ns();
	struct bounce_item *i;

	pthread_mutex_lock(&b->lock);
	i = b->first;
	while (i && !bounce_is_due(b, i, now))
		i = i->next;
	if (i)
		i->taken = true;
	pthread_mutex_unlock(&b->lock);
	return i;
}

bool bounce_look(struct bounces *b)
{
	struct bounce_item *i;
	uint64_t pause_ns = atomic_load(&b->pause_ns);
	bool moved = false;

	if (!atomic_load(&b->n))
		return false;
	while ((i = bounce_find_due(b))) {
		moved = true;
		if (i->mark)
			i->back->forget(i->mark);
		if (i->sends && !i->rc)
			b->hooks->post(i->message);
		else
			b->hooks->over(i->message, i->rc);
		bounce_remove(b, i);
	}
	if (moved)
		pause_ns = LOOK_NS / 2;
	if (pause_ns < LOOK_NS_MOST)
		atomic_store(&b->pause_ns, 2 * pause_ns);
	return moved;
}

uint64_t bounce_next_look(const struct bounces *b, uint64_t now)
{
	return atomic_load(&b->n) ? now + atomic_load(&b->pause_ns) : 0;
}
