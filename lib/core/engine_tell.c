#include "lib/core/engine_tell.h"

#include <stdlib.h>
#include <string.h>

enum {
	NEGOTIATE = 0x4e45474f, /* signatures of what only this file calls for */
	LISTS = 0x4c495354,
	SHORT = 8 /* entries in what is told first */
};

static berth_result room_for_lists(struct engine *e, uint64_t most)
{
	size_t bytes = engine_list_bytes(most) * e->comm->n;

	if (bytes > e->lists_bytes) {
		free(e->lists);
		e->lists_bytes = 0;
		e->lists = malloc(bytes);
		if (!e->lists)
			return BERTH_MEMORY;
		e->lists_bytes = bytes;
	}
	return BERTH_OK;
}

/* Heads of lists with room for MOST entries each. */
static berth_result check(const struct engine *e, uint64_t most)
{
	for (unsigned i = 0; i < e->comm->n; i++)
		if (!engine_head_is_sound(engine_list_of(e, most, i), most))
			return comm_refuse(e->comm, i);
	return BERTH_OK;
}

/* All ranks' lists, with room for MOST entries each.  ALL: of what is pending; else of
 * what is beside the plan. */
static berth_result gather(struct engine *e, struct head own, uint64_t most, bool all,
			   uint64_t deadline_ns)
{
	struct comm *c = e->comm;
	struct coll lists = { .kind = BERTH_ALLGATHER,
			      .type = BERTH_U64,
			      .count = engine_list_bytes(most) / 8,
			      .signature = all ? LISTS : NEGOTIATE };
	struct head *h;
	berth_result rc;

	if (room_for_lists(e, most))
		return BERTH_MEMORY;
	h = engine_list_of(e, most, c->me);
	memset(h, 0, engine_list_bytes(most));
	for (size_t i = 0; i < own.pending && own.n < most; i++) {
		const struct berth_request *r = e->list[i];

		if (all || r->beside)
			engine_entries(h)[own.n++] =
				(struct entry){ r->unit.key, r->unit.signature,
						r->unit.first };
	}
	*h = own;
	lists.in = h;
	lists.out = e->lists;
	rc = c->n > 1 ? comm_step(c, &lists, deadline_ns) : BERTH_OK;
	return rc ? rc : check(e, most);
}

/* True: what ranks have told is not all that matters. */
static bool sum_up(const struct engine *e, struct told *told)
{
	uint64_t pending = 0, beside = 0;
	const struct head *first = engine_list_of(e, told->most, 0);

	*told = (struct told){ .most = told->most,
			       .fusion_bytes = first->fusion_bytes,
			       .direct = true,
			       .bucket = true };
	for (unsigned i = 0; i < e->comm->n; i++) {
		const struct head *h = engine_list_of(e, told->most, i);

		if (h->cycle > told->cycle ||
		    (h->cycle == told->cycle && h->base > told->base)) {
			told->cycle = h->cycle;
			told->base = h->base;
		}
		if (h->fusion_bytes < told->fusion_bytes)
			told->fusion_bytes = h->fusion_bytes;
		told->joined |= h->joined;
		told->waits |= h->waits;
		told->direct &= h->direct != 0;
		told->bucket &=
			h->bucket && h->cycle == first->cycle && h->base == first->base;
		pending = h->pending > pending ? h->pending : pending;
		beside = h->beside > beside ? h->beside : beside;
	}
	if (told->direct || (!told->joined && !told->waits && beside <= SHORT))
		return false;
	told->most = pending;
	return true;
}

/* Few units beside the plan take one step; all that is pending takes another. */
berth_result engine_tell(struct engine *e, const struct head *own, struct told *told,
			 uint64_t deadline_ns)
{
	berth_result rc;

	*told = (struct told){ .most = SHORT };
	rc = gather(e, *own, SHORT, false, deadline_ns);
	if (!rc && sum_up(e, told))
		rc = gather(e, *own, told->most, true, deadline_ns);
	if (!rc)
		e->fuse_bytes = e->plan.fusion_bytes = told->fusion_bytes;
	return rc;
}
