#include "lib/core/queue.h"

#include <stdlib.h>

#include "lib/backend/devices.h"
#include "lib/core/comm.h"
#include "lib/core/request.h"

bool queue_make_lists(struct berth_set *s)
{
	if (!s->list)
		s->list = calloc(SET_PENDING_MOST, sizeof(struct berth_request *));
	if (!s->piece)
		s->piece = calloc(SET_PIECES, sizeof *s->piece);
	return s->list && s->piece;
}

struct berth_request *queue_find(const struct pending *p, uint64_t key)
{
	struct berth_request *r = p->table[key % SET_TABLE];

	while (r && r->unit.key != key)
		r = r->chain;
	return r;
}

/* ---- the plan's next bucket ---- */

bool queue_bucket_is_here(struct berth_set *s)
{
	const struct plan *p = &s->plan;

	if (p->next == p->nbuckets)
		return false;
	if (s->have < p->bucket[p->next].from)
		s->have = p->bucket[p->next].from;
	for (; s->have < p->bucket[p->next + 1].from; s->have++) {
		struct berth_request *r;

		if (!plan_is_open(p, s->have))
			continue;
		r = queue_find(&s->pending, plan_key(p, s->have));
		if (!r || r->beside ||
		    r->unit.signature != p->list.line[s->have].unit.signature)
			return false;
	}
	return true;
}

size_t queue_take_bucket(struct berth_set *s)
{
	const struct plan *p = &s->plan;
	size_t n = 0;

	for (size_t i = p->bucket[p->next].from; i < p->bucket[p->next + 1].from; i++)
		if (plan_is_open(p, i))
			s->list[n++] = queue_find(&s->pending, plan_key(p, i));
	return n;
}

void queue_look_again(struct berth_set *s)
{
	s->have = 0;
	s->schedule.beside = 0;
	for (struct berth_request *r = s->pending.first; r; r = r->next) {
		r->beside = !plan_expects(&s->plan, &r->unit);
		s->schedule.beside += r->beside;
	}
}

berth_result queue_begin_cycle(struct berth_set *s)
{
	berth_result rc = BERTH_OK;

	for (struct berth_request *r = s->schedule.beside ? s->pending.first : NULL; r;
	     r = r->next)
		if (r->beside && plan_comes_again(&s->plan, &r->unit)) {
			rc = plan_wrap(&s->plan, &r->unit);
			queue_look_again(s);
			break;
		}
	return rc;
}

uint64_t queue_wanted_since(const struct berth_set *s)
{
	uint64_t first = 0;

	for (const struct berth_request *r = s->pending.first; r; r = r->next) {
		uint64_t since = atomic_load(&r->wanted_ns);

		if (since && (!first || since < first) &&
		    (!r->beside ||
		     (device_is_there && plan_expects_other(&s->plan, &r->unit))))
			first = since;
	}
	return first;
}

/* ---- coming and going ---- */

void queue_enter(struct berth_set *s, struct berth_request *r)
{
	struct berth_request **slot = &s->pending.table[r->unit.key % SET_TABLE];

	r->chain = *slot;
	*slot = r;
	r->back = s->pending.last;
	*s->pending.last = r;
	s->pending.last = &r->next;
	s->entered++;
	atomic_fetch_add(&s->collectives, 1);
	r->beside = !plan_expects(&s->plan, &r->unit);
	s->schedule.pending++;
	s->schedule.beside += r->beside;
	schedule_submitted(&s->schedule, r->submitted_ns, !r->beside);
	request_become(r, REQUEST_QUEUED);
}

static void queue_leave(struct berth_set *s, struct berth_request *r)
{
	struct berth_request **at = &s->pending.table[r->unit.key % SET_TABLE];

	while (*at != r)
		at = &(*at)->chain;
	*at = r->chain;
	*r->back = r->next;
	if (r->next)
		r->next->back = r->back;
	else
		s->pending.last = r->back;
	s->schedule.pending--;
	s->schedule.beside -= r->beside;
	s->have = 0; /* R may be in the plan's next bucket, and have gone in a round */
}

void queue_take_back(struct berth_set *s, struct berth_request *r)
{
	queue_leave(s, r);
	atomic_fetch_sub(&s->collectives, 1);
}

void queue_complete(struct berth_set *s, struct berth_request **r, size_t n,
		    berth_result rc, const struct failure *why)
{
	struct request_wakes wakes = { .n = 0 };

	pthread_mutex_lock(&s->queue);
	for (size_t i = 0; i < n; i++)
		queue_leave(s, r[i]);
	pthread_mutex_unlock(&s->queue);
	for (size_t i = 0; i < n; i++)
		request_forget(r[i]);
	/* from now on its name may come again */
	for (size_t i = 0; !rc && i < n; i++)
		if (r[i]->ndevice)
			request_launched(r[i]);
	for (size_t i = 0; i < n; i++)
		request_end(r[i], rc, why, &wakes);
	request_wake(&wakes);
}

static struct berth_request *queue_first(struct berth_set *s)
{
	struct berth_request *r;

	pthread_mutex_lock(&s->queue);
	r = s->pending.first;
	pthread_mutex_unlock(&s->queue);
	return r;
}

void queue_complete_all(struct berth_set *s, berth_result rc, const struct failure *why)
{
	struct failure of_one = *why;

	for (struct berth_request *r; (r = queue_first(s));) {
		snprintf(of_one.tensor, sizeof of_one.tensor, "%s",
			 r->op->name ? r->op->name : "");
		queue_complete(s, &r, 1, rc, &of_one);
	}
}

void queue_end_aborted(struct berth_set *s)
{
	struct failure why;
	berth_result rc;

	comm_abort(&s->comm);
	rc = comm_broken(&s->comm, &why);
	queue_complete_all(s, rc, &why);
}
