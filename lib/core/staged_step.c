#include "lib/core/staged_step.h"

#include <stdlib.h>

size_t staged_step_bytes = STAGED_BYTES;

/* Is each element of the result made of those at its own place? */
static bool step_is_plain(berth_kind kind)
{
	return kind == BERTH_ALLREDUCE || kind == BERTH_REDUCE ||
	       kind == BERTH_BROADCAST || kind == BERTH_BARRIER;
}

static bool step_has_parts(berth_kind kind)
{
	return kind == BERTH_REDUCESCATTER || kind == BERTH_SCATTER ||
	       kind == BERTH_ALLTOALL;
}

static bool step_has_gots(berth_kind kind)
{
	return kind == BERTH_ALLGATHER || kind == BERTH_GATHER ||
	       kind == BERTH_ALLTOALL;
}

/* Elements of each block in a step. */
static uint64_t step_most(const struct coll *c, unsigned n)
{
	const uint64_t all = staged_step_bytes / kern_size(c->type);

	return step_is_plain(c->kind) ? all : all / n ? all / n : 1;
}

uint64_t staged_steps(const struct coll *c, unsigned n)
{
	const uint64_t largest = c->kind == BERTH_BARRIER ? 0 : coll_largest(c, n);
	const uint64_t most = step_most(c, n);

	return largest ? (largest + most - 1) / most : 1;
}

void staged_add(struct staged_copies *c, const void *from, const void *to, size_t bytes)
{
	const size_t most = c->most ? 2 * c->most : 64;
	struct device_copy *more;

	if (!bytes)
		return;
	if (c->n == c->most) {
		more = realloc(c->copy, most * sizeof *more);
		if (!more) {
			c->failed = true;
			return;
		}
		c->copy = more;
		c->most = most;
	}
	c->copy[c->n++] = (struct device_copy){ (void *)(uintptr_t)to, from, bytes };
}

/* Elements in step K of a block of COUNT; MOST at most. */
static uint64_t step_part(uint64_t count, uint64_t k, uint64_t most)
{
	const uint64_t at = k * most;

	return at >= count ? 0 : count - at < most ? count - at : most;
}

static unsigned char *step_at(const void *p, uint64_t elements, const struct coll *c)
{
	return (unsigned char *)(uintptr_t)p + elements * kern_size(c->type);
}

/* Arrays that are one for the ranks: those of their pieces that are in step K. */
static void step_add_pieces(struct staged_step *s, const struct coll *c, uint64_t from,
			    unsigned char *room)
{
	const size_t size = kern_size(c->type);
	const uint64_t to = from + s->coll.count;

	for (size_t i = 0; i < c->npieces; i++) {
		const struct coll_piece *p = &c->piece[i];
		const uint64_t end = i + 1 < c->npieces ? p[1].at : c->count;
		const uint64_t a = p->at > from ? p->at : from;
		const uint64_t b = end < to ? end : to;
		unsigned char *here = room + (a - from) * size;

		if (a >= b)
			continue;
		staged_add(s->in, step_at(p->in, a - p->at, c), here, (b - a) * size);
		staged_add(s->out, here, step_at(p->out, a - p->at, c), (b - a) * size);
	}
}

/* N blocks, of COUNT[i] elements in this step and of OF(c, n, i) in all: between their
 * places in ARRAY and ROOM, where they lie side by side. */
static void step_add_blocks(struct staged_copies *copies, const struct coll *c,
			    const uint64_t *count, uint64_t from, const void *array,
			    unsigned char *room, unsigned n,
			    uint64_t (*of)(const struct coll *, unsigned, unsigned),
			    bool in)
{
	const size_t size = kern_size(c->type);
	uint64_t at = 0;

	for (unsigned i = 0; i < n; i++) {
		unsigned char *there = step_at(array, at + from, c);

		staged_add(copies, in ? there : room, in ? room : there,
			   count[i] * size);
		room += count[i] * size;
		at += of(c, n, i);
	}
}

/* The counts of the step's operation. */
static void step_count(struct staged_step *s, const struct coll *c, uint64_t k,
		       unsigned n, unsigned me, uint64_t *parts, uint64_t *gots)
{
	const bool own_apart = c->kind == BERTH_ALLTOALL && c->in_counts;
	const uint64_t most = step_most(c, n);
	uint64_t sum = 0;

	for (unsigned i = 0; i < n; i++) {
		parts[i] = gots[i] = 0;
		if (own_apart && i == me)
			continue;
		if (step_has_parts(c->kind))
			sum += parts[i] = step_part(coll_part(c, n, i), k, most);
		if (step_has_gots(c->kind))
			gots[i] = step_part(coll_got(c, n, i), k, most);
	}
	s->coll.count = step_has_parts(c->kind) && c->kind != BERTH_SCATTER
				? sum
				: step_part(c->count, k, most);
	s->coll.in_counts =
		c->in_counts || c->kind == BERTH_REDUCESCATTER ? parts : NULL;
	s->coll.out_counts = c->out_counts ? gots : NULL;
	s->coll.largest = step_part(c->largest, k, most);
}

/* The rank's result comes from ROOM. */
static void step_add_out(struct staged_step *s, const struct coll *c, uint64_t k,
			 unsigned n, unsigned me, unsigned char *room,
			 const uint64_t *gots)
{
	const uint64_t most = step_most(c, n), from = k * most;
	const bool rooted = c->kind == BERTH_REDUCE || c->kind == BERTH_GATHER;
	uint64_t count = s->coll.count;

	if ((rooted && c->root != me) ||
	    (c->kind == BERTH_BROADCAST && c->root == me && c->in == c->out))
		return;
	if (c->kind == BERTH_REDUCESCATTER)
		count = step_part(coll_part(c, n, me), k, most);
	if (step_has_gots(c->kind))
		step_add_blocks(s->out, c, gots, from, c->out, room, n, coll_got,
				false);
	else
		staged_add(s->out, room, step_at(c->out, from, c),
			   count * kern_size(c->type));
}

void staged_make_step(struct staged_step *step, const struct coll *c, uint64_t k,
		      unsigned n, unsigned me, unsigned char *room, uint64_t *counts)
{
	const uint64_t from = k * step_most(c, n);
	const bool rooted = c->kind == BERTH_BROADCAST || c->kind == BERTH_SCATTER;
	uint64_t *parts = counts, *gots = counts + n;

	step->in->n = step->out->n = 0;
	step->from = from;
	step->coll = *c;
	step->coll.in = room;
	step->coll.out = step_is_plain(c->kind) ? room : room + STAGED_BYTES;
	step->coll.piece = NULL;
	step->coll.npieces = 0;
	step->coll.has_none = false;
	if (c->kind == BERTH_BARRIER)
		return;
	step_count(step, c, k, n, me, parts, gots);
	if (c->has_none)
		return;
	if (c->npieces) {
		step_add_pieces(step, c, from, room);
		return;
	}
	if (!rooted || c->root == me) {
		if (step_has_parts(c->kind))
			step_add_blocks(step->in, c, parts, from, c->in, room, n,
					coll_part, true);
		else
			staged_add(step->in, step_at(c->in, from, c), room,
				   step->coll.count * kern_size(c->type));
	}
	step_add_out(step, c, k, n, me, step->coll.out, gots);
	if (!k && c->kind == BERTH_ALLTOALL && c->in_counts)
		staged_add(step->out, step_at(c->in, coll_part_at(c, n, me), c),
			   step_at(c->out, coll_got_at(c, n, me), c),
			   coll_part(c, n, me) * kern_size(c->type));
}
