#include <stdlib.h>

#include "lib/core/plan_internal.h"

enum { MISSED_MOST = 2 /* cycles in a row without a unit, which then leaves */ };

/* ---- lists ---- */

size_t plan_line_of(const struct plan_list *list, const struct plan_unit *unit)
{
	for (size_t i = 0; i < list->n; i++) {
		const struct plan_unit *at = &list->line[i].unit;

		if (at->key == unit->key && at->number == unit->number &&
		    at->signature == unit->signature)
			return i;
	}
	return PLAN_NONE;
}

berth_result plan_append(struct plan_list *list, const struct plan_line *line)
{
	if (list->n == list->room) {
		size_t room = list->room ? 2 * list->room : 64;
		struct plan_line *more = realloc(list->line, room * sizeof *more);

		if (!more)
			return BERTH_MEMORY;
		list->line = more;
		list->room = room;
	}
	list->line[list->n++] = *line;
	return BERTH_OK;
}

/* ---- the plan is made anew ---- */

static int by_number(uint64_t a, uint64_t b)
{
	return (a > b) - (a < b);
}

static int as_noted(const void *a, const void *b)
{
	const struct plan_line *x = a, *y = b;
	int order = by_number(x->segment, y->segment);

	order = order ? order : by_number(x->round, y->round);
	return order ? order : by_number(x->at, y->at);
}

static int as_ready(const void *a, const void *b)
{
	const struct plan_line *x = a, *y = b;
	int order = by_number(x->segment, y->segment);

	order = order ? order : by_number(x->ready, y->ready);
	order = order ? order : by_number(x->bucket, y->bucket);
	return order ? order : by_number(x->at, y->at);
}

static int by_id(const void *a, const void *b)
{
	const struct plan_index *x = a, *y = b;

	return by_number(x->id, y->id);
}

static void learn_sort(struct plan_list *list, int (*order)(const void *, const void *))
{
	for (size_t i = 0; i < list->n; i++)
		list->line[i].at = (uint32_t)i;
	if (list->n)
		qsort(list->line, list->n, sizeof *list->line, order);
}

static berth_result room_for_plan(struct plan *p)
{
	size_t n = p->list.n + 1;
	struct plan_bucket *bucket = realloc(p->bucket, n * sizeof *bucket);
	struct plan_index *index;

	if (!bucket)
		return BERTH_MEMORY;
	p->bucket = bucket;
	index = realloc(p->index, n * sizeof *index);
	if (!index)
		return BERTH_MEMORY;
	p->index = index;
	return BERTH_OK;
}

/* Notes the bucket of each line, and when that bucket is complete. */
static void fill_buckets(struct plan *p)
{
	struct plan_list *list = &p->list;
	struct plan_fusion f = { .nopen = 0 };

	for (size_t i = 0; i < list->n; i++) {
		struct plan_line *line = &list->line[i];

		line->bucket =
			plan_fuse(&f, &line->unit, line->segment, p->fusion_bytes);
		p->bucket[line->bucket].open = line->round; /* for a moment */
	}
	for (size_t i = 0; i < list->n; i++)
		list->line[i].ready = (uint32_t)p->bucket[list->line[i].bucket].open;
}

static berth_result learn_form(struct plan *p)
{
	struct plan_list *list = &p->list;
	uint32_t last = 0;

	if (room_for_plan(p))
		return BERTH_MEMORY;
	learn_sort(list, as_noted);
	fill_buckets(p);
	learn_sort(list, as_ready);
	p->nbuckets = 0;
	p->hash = 1;
	for (size_t i = 0; i < list->n; i++) {
		const struct plan_unit *unit = &list->line[i].unit;
		uint32_t bucket = list->line[i].bucket;

		if (!i || bucket != last)
			p->bucket[p->nbuckets++].from = i;
		last = bucket;
		list->line[i].bucket = (uint32_t)p->nbuckets - 1;
		p->index[i] = (struct plan_index){
			plan_id(unit->key, unit->number, unit->signature), i
		};
		p->hash = (uint32_t)op_hash(&p->index[i].id, 8, p->hash);
	}
	p->bucket[p->nbuckets].from = list->n;
	qsort(p->index, list->n, sizeof *p->index, by_id);
	return BERTH_OK;
}

/* ---- what a cycle teaches ---- */

void plan_forget(struct plan *p)
{
	p->least = p->list.n + 16;
	p->list.n = p->seen.n = p->last.n = p->again.n = 0;
	p->nbuckets = 0;
	p->beside = 0;
}

/* Two cycles in a row have waited in the same places: buckets end there. */
static bool learn_cuts(struct plan *p)
{
	bool cut = false, same = true;

	for (size_t i = 0; i < p->list.n; i++) {
		struct plan_line *line = &p->list.line[i];

		cut |= line->cuts > 0;
		same &= line->cuts == line->before;
		line->before = line->cuts;
	}
	for (size_t i = 0; cut && same && i < p->list.n; i++) {
		p->list.line[i].segment += p->list.line[i].cuts;
		p->list.line[i].before = 0;
	}
	return cut && same;
}

/* Units without a name, whose numbers depend on each other. */
static size_t count_numbers(const struct plan_list *list)
{
	size_t numbers = 0;

	for (size_t i = 0; i < list->n; i++)
		numbers += list->line[i].unit.number > 0;
	return numbers;
}

static void drop_missed(struct plan_list *list)
{
	size_t n = 0;

	for (size_t i = 0; i < list->n; i++) {
		struct plan_line *line = &list->line[i];

		line->missed = line->done ? 0 : line->missed + 1;
		if (line->missed < MISSED_MOST)
			list->line[n++] = *line;
	}
	list->n = n;
}

/* Takes the units that were beside the plan in this cycle and in the last one. */
static berth_result take_repeated(struct plan *p)
{
	struct plan_list list = p->seen;
	berth_result rc = BERTH_OK;

	for (size_t i = 0; !rc && i < list.n; i++)
		if (p->list.n < PLAN_UNITS_MOST &&
		    plan_has(&p->last, &list.line[i].unit))
			rc = plan_append(&p->list, &list.line[i]);
	p->seen = p->last;
	p->seen.n = 0;
	p->last = list;
	return rc;
}

berth_result plan_learn(struct plan *p)
{
	size_t n = p->list.n, before, after, left;
	bool complete = p->ndone == n, cut;
	berth_result rc;

	/* There is nothing to learn: two cycles were like the plan.  (64 units: 1 us
	 * less) */
	if (p->even && p->ndone >= n && !p->cuts && !p->seen.n) {
		p->last.n = 0;
		return BERTH_OK;
	}
	before = count_numbers(&p->list);
	cut = complete && learn_cuts(p);
	drop_missed(&p->list);
	left = p->list.n;
	rc = take_repeated(p);
	after = count_numbers(&p->list);
	p->even = complete && !p->cuts;
	if (before && after && before != after) {
		plan_forget(p);
		return rc;
	}
	cut |= left < n || p->list.n > left;
	return !rc && cut ? learn_form(p) : rc;
}
