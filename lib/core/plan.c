#include "lib/core/plan.h"

#include <stdlib.h>
#include <string.h>

void plan_free(struct plan *p)
{
	free(p->unit);
	free(p->sorted);
	free(p->bucket);
	memset(p, 0, sizeof *p);
}

size_t plan_together(const struct plan_unit *unit, size_t n, uint64_t fusion_bytes)
{
	uint64_t bytes = unit->bytes;
	size_t k = 1;

	if (!unit->fuse_key || !fusion_bytes)
		return 1;
	while (k < n && unit[k].fuse_key == unit->fuse_key &&
	       bytes + unit[k].bytes <= fusion_bytes)
		bytes += unit[k++].bytes;
	return k;
}

static int by_value(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

static bool is_same(const struct plan_unit *a, const struct plan_unit *b)
{
	return a->key == b->key && a->signature == b->signature;
}

/* Key and signature in one. */
static uint64_t both(const struct plan_unit *u)
{
	return op_hash(&u->key, sizeof u->key, u->signature);
}

bool plan_has(const struct plan *p, const struct plan_unit *unit)
{
	uint64_t key = both(unit);

	if (p->holds)
		return bsearch(&key, p->sorted, p->n, sizeof key, by_value);
	for (size_t i = 0; i < p->n; i++)
		if (is_same(&p->unit[i], unit))
			return true;
	return false;
}

static berth_result note(struct plan *p, const struct plan_unit *unit)
{
	if (p->n == p->room) {
		size_t room = p->room ? 2 * p->room : 64;
		struct plan_unit *more = realloc(p->unit, room * sizeof *more);

		if (!more)
			return BERTH_MEMORY;
		p->unit = more;
		p->room = room;
	}
	p->unit[p->n++] = *unit;
	return BERTH_OK;
}

static berth_result freeze(struct plan *p, uint64_t fusion_bytes)
{
	size_t *bucket = realloc(p->bucket, (p->n + 1) * sizeof *bucket);
	uint64_t *sorted = realloc(p->sorted, p->n * sizeof *sorted);

	p->bucket = bucket ? bucket : p->bucket;
	p->sorted = sorted ? sorted : p->sorted;
	if (!bucket || !sorted)
		return BERTH_MEMORY;
	p->nbuckets = 0;
	for (size_t i = 0; i < p->n;
	     i += plan_together(&p->unit[i], p->n - i, fusion_bytes))
		bucket[p->nbuckets++] = i;
	bucket[p->nbuckets] = p->n;
	p->hash = 1;
	for (size_t i = 0; i < p->n; i++)
		p->hash = (uint32_t)op_hash(&p->unit[i].key, 8,
					    (uint64_t)p->hash << 32 |
						    p->unit[i].signature);
	for (size_t i = 0; i < p->n; i++)
		sorted[i] = both(&p->unit[i]);
	qsort(sorted, p->n, sizeof *sorted, by_value);
	p->next = 0;
	p->holds = true;
	return BERTH_OK;
}

bool plan_note(struct plan *p, const struct plan_unit *unit, uint64_t fusion_bytes,
	       berth_result *rc)
{
	*rc = BERTH_OK;
	if (plan_has(p, unit)) { /* the next cycle has begun */
		if (++p->cycles >= (p->needed ? p->needed : 1)) {
			*rc = freeze(p, fusion_bytes);
			return p->holds;
		}
		p->n = 0;
	} else if (p->n >= PLAN_UNITS_MOST) {
		p->n = 0;
		p->cycles = 0;
	}
	*rc = note(p, unit);
	return false;
}

void plan_break(struct plan *p)
{
	p->holds = false;
	p->n = 0;
	p->cycles = 0;
	p->needed = p->needed ? 2 * p->needed : 1;
	if (p->needed > PLAN_CYCLES_MOST)
		p->needed = PLAN_CYCLES_MOST;
}

void plan_advance(struct plan *p)
{
	if (++p->next < p->nbuckets)
		return;
	p->next = 0;
	p->needed = 0; /* it was good for a cycle */
}

uint32_t plan_signature(const struct plan *p)
{
	return (p->hash ^ (uint32_t)p->next * 0x9e3779b9u) | 1;
}
