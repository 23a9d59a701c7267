#include "lib/core/engine_internal.h"

bool engine_bucket_is_here(struct engine *e)
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
		r = engine_find(e, plan_key(p, e->have));
		if (!r || r->beside ||
		    r->unit.signature != p->list.line[e->have].unit.signature)
			return false;
	}
	return true;
}

size_t engine_take_bucket(struct engine *e)
{
	const struct plan *p = &e->plan;
	size_t n = 0;

	for (size_t i = p->bucket[p->next].from; i < p->bucket[p->next + 1].from; i++)
		if (plan_is_open(p, i))
			e->list[n++] = engine_find(e, plan_key(p, i));
	return n;
}

void engine_look_again(struct engine *e)
{
	e->have = 0;
	e->schedule.beside = 0;
	for (struct berth_request *r = e->first; r; r = r->next) {
		r->beside = !plan_expects(&e->plan, &r->unit);
		e->schedule.beside += r->beside;
	}
}

berth_result engine_begin_cycle(struct engine *e)
{
	berth_result rc = BERTH_OK;

	for (struct berth_request *r = e->schedule.beside ? e->first : NULL; r;
	     r = r->next)
		if (r->beside && plan_comes_again(&e->plan, &r->unit)) {
			rc = plan_wrap(&e->plan, &r->unit);
			engine_look_again(e);
			break;
		}
	return rc;
}

uint64_t engine_wanted_since(const struct engine *e)
{
	uint64_t first = 0;

	for (const struct berth_request *r = e->first; r; r = r->next) {
		uint64_t since = atomic_load(&r->wanted_ns);

		if (since && !r->beside && (!first || since < first))
			first = since;
	}
	return first;
}
