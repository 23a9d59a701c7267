#include "lib/core/engine_round.h"

#include <stdlib.h>
#include <string.h>

/* ---- what this rank has ---- */

/* By priority, equals in their order: few moves where most have the same. */
static void sort_by_priority(struct berth_request **list, size_t n)
{
	for (size_t i = 1; i < n; i++) {
		struct berth_request *r = list[i];
		size_t k = i;

		for (; k && list[k - 1]->priority < r->priority; k--)
			list[k] = list[k - 1];
		list[k] = r;
	}
}

/* What is pending, in the order in which this rank would do it. */
static struct head snapshot(struct engine *e)
{
	struct head h = { .fusion_bytes = e->comm->world->params.fusion_bytes,
			  .cycle = e->plan.cycle,
			  .base = e->plan.base };
	uint64_t waits;

	pthread_mutex_lock(&e->queue);
	waits = engine_wanted_since(e);
	h.joined = e->schedule.joined;
	h.waits = waits && clock_ns() >= waits + SCHEDULE_HOLD_NS;
	h.beside = e->schedule.beside;
	h.direct = e->direct != NULL;
	h.bucket = engine_bucket_is_here(e);
	schedule_event(&e->schedule, SCHEDULE_TOLD);
	for (struct berth_request *r = e->first; r && h.pending < ENGINE_PENDING_MOST;
	     r = r->next) {
		r->found = false;
		e->list[h.pending++] = r;
	}
	pthread_mutex_unlock(&e->queue);
	sort_by_priority(e->list, h.pending);
	return h;
}

static uint64_t first_deadline(const struct engine *e, size_t n)
{
	uint64_t at = 0;

	for (size_t i = 0; i < n; i++)
		if (e->list[i]->deadline_ns && (!at || e->list[i]->deadline_ns < at))
			at = e->list[i]->deadline_ns;
	return at;
}

/* ---- what others have ---- */

static int by_key(const void *a, const void *b)
{
	const struct entry *x = a, *y = b;

	return (x->key > y->key) - (x->key < y->key);
}

/* Of one unit: who has it, and is it the same? */
struct common {
	bool all, same;
	bool joined; /* somebody who has joined does not have it, and gives nothing */
	unsigned lacking[64]; /* places */
	size_t nlacking;
};

/* Lists of all ranks but LEADER are sorted. */
static struct common look_up(const struct engine *e, uint64_t most, unsigned leader,
			     const struct entry *unit)
{
	struct common found = { .all = true, .same = true };

	for (unsigned r = 0; r < e->comm->n; r++) {
		struct head *h = engine_list_of(e, most, r);
		const struct entry *there;

		if (r == leader)
			continue;
		there = bsearch(unit, engine_entries(h), h->n, sizeof *there, by_key);
		if (!there && h->joined) {
			found.joined = true;
		} else if (!there) {
			found.all = false;
			if (found.nlacking < 64)
				found.lacking[found.nlacking++] = r;
		} else if (there->signature != unit->signature) {
			found.same = false;
		}
	}
	return found;
}

/* The first rank that has not joined, or else that joined with something submitted
 * before; N: there is nothing to do until all have left again. */
static unsigned find_leader(const struct engine *e, uint64_t most)
{
	unsigned n = e->comm->n, pending = n;

	for (unsigned r = n; r-- > 0;)
		if (engine_list_of(e, most, r)->n)
			pending = r;
	for (unsigned r = 0; r < n; r++)
		if (!engine_list_of(e, most, r)->joined)
			return r;
	return pending;
}

static void sort_lists(const struct engine *e, uint64_t most, unsigned leader)
{
	for (unsigned r = 0; r < e->comm->n; r++) {
		struct head *h = engine_list_of(e, most, r);

		if (r != leader)
			qsort(engine_entries(h), h->n, sizeof(struct entry), by_key);
	}
}

/* ---- what is done ---- */

/* What comes of a round. */
struct found {
	bool waits;     /* a rank, for what the plan holds back */
	bool all;       /* units of the plan are done as well */
	size_t n;       /* requests to be done, at the beginning of e->list */
	bool did;       /* something else */
	uint64_t cycle; /* of the plan, at the beginning */
	size_t ndone;
};

static struct berth_request *ours(struct engine *e, const struct entry *unit)
{
	struct berth_request *r;

	pthread_mutex_lock(&e->queue);
	r = engine_find(e, unit->key);
	pthread_mutex_unlock(&e->queue);
	return r;
}

/* All ranks have R, which is FIRST in LEADER: it is done, unless the plan does. */
static berth_result take(struct engine *e, struct berth_request *r, unsigned leader,
			 bool first, struct found *found)
{
	struct plan_unit unit;
	berth_result rc = BERTH_OK;
	bool later;

	if (!r) /* it is done: LEADER has it twice */
		return comm_refuse(e->comm, leader);
	unit = r->unit;
	unit.first = first;
	pthread_mutex_lock(&e->queue);
	if (plan_comes_again(&e->plan, &unit))
		rc = plan_wrap(&e->plan, &unit);
	later = !found->all && plan_expects(&e->plan, &unit);
	if (!rc && !later)
		rc = plan_note(&e->plan, &unit);
	pthread_mutex_unlock(&e->queue);
	r->found = !rc && !later;
	if (r->found)
		e->list[found->n++] = r;
	return rc;
}

/* Ranks that lack it have told us something else meanwhile. */
static berth_result lacks(struct engine *e, struct berth_request *r,
			  const struct common *found)
{
	struct comm *c = e->comm;

	c->op = r->op;
	comm_stalled(c, r->submitted_ns, &e->reported_ns, found->lacking,
		     found->nlacking);
	if (!comm_is_over(c, r->submitted_ns, r->deadline_ns))
		return BERTH_OK;
	memcpy(c->late, found->lacking, sizeof c->late);
	c->nlate = found->nlacking;
	comm_end(c, BERTH_TIMEOUT);
	return BERTH_TIMEOUT;
}

/* Which of LEADER's units, of which it has each once, all ranks have, and in the same
 * way. */
static berth_result compare(struct engine *e, uint64_t most, unsigned leader,
			    struct found *found)
{
	struct head *list = engine_list_of(e, most, leader);
	berth_result rc = BERTH_OK;

	for (uint64_t i = 0; !rc && i < list->n; i++) {
		const struct entry *unit = &engine_entries(list)[i];
		struct common common = look_up(e, most, leader, unit);
		struct berth_request *r = ours(e, unit);

		if (r && r->found) {
			rc = comm_refuse(e->comm, leader);
		} else if (!common.all) {
			if (r)
				rc = lacks(e, r, &common);
		} else if (!common.same) {
			rc = engine_tell_difference(e, r);
		} else if (common.joined) {
			found->did = true;
			rc = engine_do_with_joined(e, r);
		} else {
			rc = take(e, r, leader, unit->first, found);
		}
	}
	return rc;
}

static int by_bucket(const void *a, const void *b)
{
	const struct berth_request *x = *(struct berth_request *const *)a,
				   *y = *(struct berth_request *const *)b;

	if (x->bucket != y->bucket)
		return x->bucket < y->bucket ? -1 : 1;
	return (x->at > y->at) - (x->at < y->at);
}

static berth_result do_found(struct engine *e, size_t n)
{
	struct plan_fusion f = { .nopen = 0 };
	berth_result rc = BERTH_OK;

	for (size_t i = 0; i < n; i++) {
		struct berth_request *r = e->list[i];

		r->at = (uint32_t)i;
		r->bucket = plan_fuse(&f, &r->unit, 0, e->fuse_bytes);
	}
	if (n)
		qsort(e->list, n, sizeof(struct berth_request *), by_bucket);
	for (size_t i = 0, k; !rc && i < n; i += k) {
		uint32_t bucket = e->list[i]->bucket,
			 signature = e->list[i]->unit.signature;

		for (k = 1; i + k < n && e->list[i + k]->bucket == bucket;)
			k++;
		rc = engine_do(e, &e->list[i], k, signature ^ (uint32_t)(k << 8));
	}
	return rc;
}

/* ---- the round ---- */

static berth_result tell_in_turn(struct engine *e, const struct head *own,
				 uint64_t deadline_ns, struct told *told)
{
	uint64_t begun_ns = timeline_runs ? clock_ns() : 0;
	berth_result rc;

	engine_begin_turn(e, own->pending);
	rc = engine_tell(e, own, told, deadline_ns);
	for (size_t i = 0; begun_ns && i < own->pending; i++)
		timeline_event(e->list[i]->op->name ? e->list[i]->op->name : "",
			       "NEGOTIATE", begun_ns, clock_ns());
	if (rc)
		return rc;
	trace_count(&e->count.negotiations, 1);
	engine_end_turn(e, BERTH_OK);
	return BERTH_OK;
}

/* A round was for nothing: what stood for it is pending still, unless it failed. */
static void wait_on(struct engine *e, uint64_t key)
{
	pthread_mutex_lock(&e->queue);
	if (engine_find(e, key))
		trace_queued(e->comm->record);
	pthread_mutex_unlock(&e->queue);
}

/* All ranks are in the same cycle from here on. */
static berth_result begin_round(struct engine *e, const struct told *told,
				struct found *found)
{
	uint64_t was = e->plan.cycle;
	berth_result rc;

	pthread_mutex_lock(&e->queue);
	rc = plan_round(&e->plan, told->cycle, told->base);
	pthread_mutex_unlock(&e->queue);
	*found = (struct found){ .waits = told->waits,
				 .all = told->waits || told->joined,
				 .did = was != e->plan.cycle,
				 .cycle = e->plan.cycle,
				 .ndone = e->plan.ndone };
	return rc;
}

static berth_result end_round(struct engine *e, struct found *found)
{
	struct plan *p = &e->plan;
	berth_result rc = BERTH_OK;

	pthread_mutex_lock(&e->queue);
	found->did |= p->cycle != found->cycle;
	if (found->waits && p->cycle == found->cycle && p->ndone > found->ndone)
		rc = plan_cut(p);
	engine_look_again(e);
	pthread_mutex_unlock(&e->queue);
	return rc;
}

/* IDLE: what was told brought nothing.  WAITS: to a rank that waits.  DEADLINE_NS: the
 * first of it, or 0. */
static void rest(struct engine *e, bool idle, bool waits, uint64_t deadline_ns)
{
	pthread_mutex_lock(&e->queue);
	if (idle)
		schedule_idle(&e->schedule, clock_ns(), waits, e->rest, deadline_ns);
	else
		schedule_event(&e->schedule, SCHEDULE_DONE);
	pthread_mutex_unlock(&e->queue);
}

enum engine_step engine_round(struct engine *e)
{
	struct head own = snapshot(e);
	struct berth_request *direct = e->direct;
	struct told told;
	struct found found;
	unsigned leader;
	uint64_t key = own.pending ? e->list[0]->unit.key : 0;
	uint64_t deadline_ns = first_deadline(e, own.pending);
	berth_result rc;

	e->called = false;
	e->direct = NULL;
	rc = tell_in_turn(e, &own, deadline_ns, &told);
	if (rc)
		return engine_round_failed(e, rc);
	if (told.direct && direct)
		return engine_all_have_blocked(e, direct);
	leader = find_leader(e, told.most);
	if (leader == e->comm->n)
		return engine_all_have_joined(e);
	sort_lists(e, told.most, leader);
	rc = begin_round(e, &told, &found);
	if (!rc)
		rc = compare(e, told.most, leader, &found);
	if (!rc)
		rc = do_found(e, found.n);
	if (!rc)
		rc = end_round(e, &found);
	if (rc)
		return engine_round_failed(e, rc);
	/* what all have of the plan needs no round */
	rest(e, !found.n && !found.did && !told.bucket, told.waits, deadline_ns);
	if (e->schedule.idle && own.pending)
		wait_on(e, key);
	return ENGINE_DID;
}
