/* hier_reduce.c - reductions on several hosts, by lanes (hier.h). */
#include <stdlib.h>
#include <string.h>

#include "lib/backend/hier_internal.h"
#include "lib/base/kern.h"

/* Makes T->room at least BYTES large. */
static berth_result need_room(struct hier *t, size_t bytes)
{
	if (bytes <= t->room_bytes)
		return BERTH_OK;
	free(t->room);
	t->room = aligned_alloc(64, (bytes + 63) / 64 * 64);
	t->room_bytes = t->room ? bytes : 0;
	return t->room ? BERTH_OK : BERTH_MEMORY;
}

static unsigned char *reduce_at(const struct coll *c, uint64_t element)
{
	return (unsigned char *)c->out + element * kern_size(c->type);
}

/* Sets T->counts to the elements of each lane's part of C, the same on every host. */
static void cut_by_lanes(struct hier *t, const struct coll *c)
{
	for (unsigned i = 0; i < t->m->nlocal; i++)
		t->counts[i] = i >= t->m->lanes ? 0
						: c->count / t->m->lanes +
							  (i < c->count % t->m->lanes);
}

/* Makes the host's partial sums of this rank's part at WHERE.  T->counts are the parts
 * of C->in. */
static berth_result reduce_scatter(struct hier *t, const struct coll *c, void *where,
				   uint64_t deadline_ns)
{
	struct coll local = *c;

	local.kind = BERTH_REDUCESCATTER;
	local.out = where;
	local.out_form = KERN_PARTIAL;
	local.in_counts = t->counts;
	local.signature = HIER_PHASE;
	return hier_in_memory(t, &local, deadline_ns);
}

/* All lanes reduce their parts over the hosts at once.  Then the parts are put together
 * in memory. */
berth_result hier_allreduce(struct hier *t, const struct coll *c, uint64_t deadline_ns)
{
	const size_t bytes = kern_size(kern_accumulator(c->type));
	struct coll across = *c, gather = *c;
	void *where;
	uint64_t from = 0, n;
	berth_result rc = BERTH_OK;

	cut_by_lanes(t, c);
	n = t->counts[t->m->local_me];
	for (unsigned i = 0; i < t->m->local_me; i++)
		from += t->counts[i];
	where = reduce_at(c, from); /* if partial sums are as wide as elements */
	if (bytes != kern_size(c->type)) {
		rc = need_room(t, n * bytes);
		where = t->room;
	}
	if (!rc)
		rc = reduce_scatter(t, c, where, deadline_ns);
	if (!rc && t->lane) {
		across.in = where;
		across.in_form = KERN_PARTIAL;
		across.out = reduce_at(c, from);
		across.count = n;
		rc = t->across->data(t->lane, &across, deadline_ns);
	}
	if (rc)
		return rc;
	gather.kind = BERTH_ALLGATHER;
	gather.in = reduce_at(c, from);
	gather.count = n;
	gather.out_counts = t->counts;
	gather.signature = HIER_PHASE + 1;
	return hier_in_memory(t, &gather, deadline_ns);
}

/* On the root's host, gives the lanes' parts of the result to the root. */
static berth_result reduce_collect(struct hier *t, const struct coll *c,
				   const void *part, uint64_t deadline_ns)
{
	uint64_t give[t->m->nlocal], got[t->m->nlocal];
	struct coll local = *c;
	bool is_root = c->root == t->m->me;

	for (unsigned i = 0; i < t->m->nlocal; i++) {
		give[i] =
			t->m->local_place[i] == c->root ? t->counts[t->m->local_me] : 0;
		got[i] = is_root ? t->counts[i] : 0;
	}
	local.kind = BERTH_ALLTOALL;
	local.in = part;
	local.count = t->counts[t->m->local_me];
	local.in_counts = give;
	local.out_counts = got;
	local.largest = t->counts[0];
	local.signature = HIER_PHASE + 1;
	return hier_in_memory(t, &local, deadline_ns);
}

berth_result hier_reduce(struct hier *t, const struct coll *c, uint64_t deadline_ns)
{
	const size_t bytes = kern_size(kern_accumulator(c->type));
	struct coll across = *c;
	unsigned home = t->m->host[c->root];
	unsigned char *part;
	uint64_t n;
	berth_result rc;

	cut_by_lanes(t, c);
	n = t->counts[t->m->local_me];
	/* partial sums, and behind them the part of the result */
	rc = need_room(t, n * (bytes + kern_size(c->type)));
	part = t->room ? t->room + n * bytes : NULL;
	if (!rc)
		rc = reduce_scatter(t, c, t->room, deadline_ns);
	if (!rc && t->lane) {
		across.in = t->room;
		across.in_form = KERN_PARTIAL;
		across.out = part;
		across.count = n;
		across.root = home;
		rc = t->across->data(t->lane, &across, deadline_ns);
	}
	return rc || t->m->here != home ? rc : reduce_collect(t, c, part, deadline_ns);
}

/* Puts the parts of the ranks of each lane side by side at TO.  T->counts becomes the
 * elements of each lane. */
static void sort_by_lanes(struct hier *t, const struct coll *c, unsigned char *to)
{
	const size_t size = kern_size(c->type);

	for (unsigned i = 0; i < t->m->lanes; i++) {
		t->counts[i] = 0;
		for (unsigned h = 0; h < t->m->nhosts; h++) {
			unsigned place = members_place(t->m, h, i);
			uint64_t n = coll_part(c, t->m->n, place);

			if (n)
				memcpy(to,
				       (const unsigned char *)c->in +
					       coll_part_at(c, t->m->n, place) * size,
				       n * size);
			to += n * size;
			t->counts[i] += n;
		}
	}
}

/* For hosts with equally many ranks.  Each lane reduces the parts of its own ranks. */
static berth_result reducescatter_by_lanes(struct hier *t, const struct coll *c,
					   uint64_t deadline_ns)
{
	const size_t bytes = kern_size(kern_accumulator(c->type));
	uint64_t counts[t->m->nhosts], own = 0;
	struct coll sorted = *c, across = *c;
	size_t in_bytes = (c->count * kern_size(c->type) + 63) / 64 * 64;
	berth_result rc;

	for (unsigned h = 0; h < t->m->nhosts; h++) {
		counts[h] =
			coll_part(c, t->m->n, members_place(t->m, h, t->m->local_me));
		own += counts[h];
	}
	rc = need_room(t, in_bytes + own * bytes);
	if (rc)
		return rc;
	sort_by_lanes(t, c, t->room);
	sorted.in = t->room;
	rc = reduce_scatter(t, &sorted, t->room + in_bytes, deadline_ns);
	if (rc)
		return rc;
	across.in = t->room + in_bytes;
	across.in_form = KERN_PARTIAL;
	across.in_counts = counts;
	across.count = own;
	return t->across->data(t->lane, &across, deadline_ns);
}

/* For other hosts.  Every rank gets the whole result, and keeps its own part. */
static berth_result reducescatter_of_all(struct hier *t, const struct coll *c,
					 uint64_t deadline_ns)
{
	const size_t size = kern_size(c->type);
	struct coll whole = *c;
	unsigned char *all = malloc(c->count * size + 1);
	berth_result rc;

	if (!all)
		return BERTH_MEMORY;
	whole.kind = BERTH_ALLREDUCE;
	whole.in_counts = NULL;
	whole.out = all;
	rc = hier_allreduce(t, &whole, deadline_ns);
	if (!rc && coll_part(c, t->m->n, t->m->me))
		memcpy(c->out, all + coll_part_at(c, t->m->n, t->m->me) * size,
		       coll_part(c, t->m->n, t->m->me) * size);
	free(all);
	return rc;
}

berth_result hier_reducescatter(struct hier *t, const struct coll *c,
				uint64_t deadline_ns)
{
	bool alike = true;

	for (unsigned h = 0; h < t->m->nhosts; h++)
		alike &= members_on(t->m, h) == t->m->lanes;
	return alike ? reducescatter_by_lanes(t, c, deadline_ns)
		     : reducescatter_of_all(t, c, deadline_ns);
}
