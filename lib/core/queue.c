#include "lib/core/queue.h"

#include <stdlib.h>

bool queue_make_lists(struct engine *e)
{
	if (!e->list)
		e->list = calloc(ENGINE_PENDING_MOST, sizeof(struct berth_request *));
	if (!e->piece)
		e->piece = calloc(ENGINE_PIECES, sizeof *e->piece);
	return e->list && e->piece;
}

struct berth_request *queue_find(struct engine *e, uint64_t key)
{
	struct berth_request *r = e->table[key % ENGINE_TABLE];

	while (r && r->unit.key != key)
		r = r->chain;
	return r;
}

/* ---- the plan's next bucket ---- */

bool queue_bucket_is_here(struct engine *e)
{
	const struct plan *p = &e->plan;

	if (p->next == p->nbuckets)
		return false;
	if (e->have < p->bucket[p->next].from)
		e->have = p->bucket[p->next].from;
	for (; e->have < p->bucket[p->next + 1].from; e->have++) {
		struct berth_request *r;

		if (!plan_is_open(p, e->have))
			continue;
		r = queue_find(e, plan_key(p, e->have));
		if (!r || r->beside ||
		    r->unit.signature != p->list.line[e->have].unit.signature)
			return false;
	}
	return true;
}

size_t queue_take_bucket(struct engine *e)
{
	const struct plan *p = &e->plan;
	size_t n = 0;

	for (size_t i = p->bucket[p->next].from; i < p->bucket[p->next + 1].from; i++)
		if (plan_is_open(p, i))
			e->list[n++] = queue_find(e, plan_key(p, i));
	return n;
}

void queue_look_again(struct engine *e)
{
	e->have = 0;
	e->schedule.beside = 0;
	for (struct berth_request *r = e->first; r; r = r->next) {
		r->beside = !plan_expects(&e->plan, &r->unit);
		e->schedule.beside += r->beside;
	}
}

berth_result queue_begin_cycle(struct engine *e)
{
	berth_result rc = BERTH_OK;

	for (struct berth_request *r = e->schedule.beside ? e->first : NULL; r;
	     r = r->next)
		if (r->beside && plan_comes_again(&e->plan, &r->unit)) {
			rc = plan_wrap(&e->plan, &r->unit);
			queue_look_again(e);
			break;
		}
	return rc;
}

uint64_t queue_wanted_since(const struct engine *e)
{
	uint64_t first = 0;

	for (const struct berth_request *r = e->first; r; r = r->next) {
		uint64_t since = atomic_load(&r->wanted_ns);

		if (since && !r->beside && (!first || since < first))
			first = since;
	}
	return first;
}

/* ---- coming and going ---- */

void queue_enter(struct engine *e, struct berth_request *r)
{
	struct berth_request **slot = &e->table[r->unit.key % ENGINE_TABLE];

	r->chain = *slot;
	*slot = r;
	r->back = e->last;
	*e->last = r;
	e->last = &r->next;
	e->entered++;
	atomic_fetch_add(&e->collectives, 1);
	r->beside = !plan_expects(&e->plan, &r->unit);
	e->schedule.pending++;
	e->schedule.beside += r->beside;
	schedule_submitted(&e->schedule, r->submitted_ns, !r->beside);
	request_become(r, REQUEST_QUEUED);
}

static void queue_leave(struct engine *e, struct berth_request *r)
{
	struct berth_request **at = &e->table[r->unit.key % ENGINE_TABLE];

	while (*at != r)
		at = &(*at)->chain;
	*at = r->chain;
	*r->back = r->next;
	if (r->next)
		r->next->back = r->back;
	else
		e->last = r->back;
	e->schedule.pending--;
	e->schedule.beside -= r->beside;
}

void queue_take_back(struct engine *e, struct berth_request *r)
{
	queue_leave(e, r);
	atomic_fetch_sub(&e->collectives, 1);
}

void queue_complete(struct engine *e, struct berth_request **r, size_t n,
		    berth_result rc, const struct failure *why)
{
	struct request_wakes wakes = { .n = 0 };

	pthread_mutex_lock(&e->queue);
	for (size_t i = 0; i < n; i++)
		queue_leave(e, r[i]);
	pthread_mutex_unlock(&e->queue);
	for (size_t i = 0; i < n; i++)
		request_forget(r[i]);
	for (size_t i = 0; i < n; i++)
		request_end(r[i], rc, why, &wakes);
	request_wake(&wakes);
}

static struct berth_request *queue_first(struct engine *e)
{
	struct berth_request *r;

	pthread_mutex_lock(&e->queue);
	r = e->first;
	pthread_mutex_unlock(&e->queue);
	return r;
}

void queue_complete_all(struct engine *e, berth_result rc, const struct failure *why)
{
	struct failure of_one = *why;

	for (struct berth_request *r; (r = queue_first(e));) {
		snprintf(of_one.tensor, sizeof of_one.tensor, "%s",
			 r->op->name ? r->op->name : "");
		queue_complete(e, &r, 1, rc, &of_one);
	}
	pthread_mutex_lock(&e->queue);
	e->have = 0; /* of the plan's next bucket, which has gone with the others */
	pthread_mutex_unlock(&e->queue);
}

void queue_end_aborted(struct engine *e)
{
	struct failure why;
	berth_result rc;

	comm_abort(e->comm);
	rc = comm_broken(e->comm, &why);
	queue_complete_all(e, rc, &why);
}
