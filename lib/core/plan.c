#include "lib/core/plan.h"

#include <stdlib.h>
#include <string.h>

enum {
	CYCLE_LEAST = 8, /* units of a cycle that is found among other units */
	MISSED_MOST = 2  /* cycles in a row without a unit, which then leaves */
};

/* More units are done in rounds than in the plan by so many: it is out of use. */
#define BESIDE_MOST(n) (2 * (n) + 16)

void plan_free(struct plan *p)
{
	free(p->list.line);
	free(p->seen.line);
	free(p->last.line);
	free(p->again.line);
	free(p->index);
	free(p->bucket);
	memset(p, 0, sizeof *p);
}

/* ---- which units go together ---- */

uint64_t plan_fuse_key(const struct op *op)
{
	const struct kern_scale *s = &op->coll.scale;
	const uint64_t what[2] = { (uint64_t)op_is_device(op) << 16 |
					   (uint64_t)op->coll.type << 8 |
					   (uint64_t)op->coll.op,
				   s->divide };
	const double scale[2] = { s->has_prescale ? s->prescale : 1,
				  s->has_postscale ? s->postscale : 1 };

	if (op->coll.kind != BERTH_ALLREDUCE || op->adasum)
		return 0;
	if (!s->has_prescale && !s->has_postscale)
		return op_hash(what, sizeof what, 2) | 1;
	return op_hash(scale, sizeof scale, op_hash(what, sizeof what, 1)) | 1;
}

uint32_t plan_fuse(struct plan_fusion *f, const struct plan_unit *unit,
		   uint32_t segment, uint64_t fusion_bytes)
{
	size_t i = 0;

	if (!unit->fuse_key || !fusion_bytes)
		return f->nbuckets++;
	while (i < f->nopen &&
	       (f->open[i].fuse_key != unit->fuse_key || f->open[i].segment != segment))
		i++;
	if (i == PLAN_OPEN_MOST) { /* the oldest makes room */
		i = --f->nopen;
		memmove(&f->open[0], &f->open[1], i * sizeof f->open[0]);
	}
	if (i < f->nopen && f->open[i].bytes + unit->bytes <= fusion_bytes) {
		f->open[i].bytes += unit->bytes;
	} else {
		f->nopen += i == f->nopen;
		f->open[i].fuse_key = unit->fuse_key;
		f->open[i].segment = segment;
		f->open[i].bytes = unit->bytes;
		f->open[i].bucket = f->nbuckets++;
	}
	return f->open[i].bucket;
}

/* ---- lists ---- */

/* The line of UNIT in LIST, or PLAN_NONE. */
static size_t plan_line_of(const struct plan_list *list, const struct plan_unit *unit)
{
	for (size_t i = 0; i < list->n; i++) {
		const struct plan_unit *at = &list->line[i].unit;

		if (at->key == unit->key && at->number == unit->number &&
		    at->signature == unit->signature)
			return i;
	}
	return PLAN_NONE;
}

static bool plan_has(const struct plan_list *list, const struct plan_unit *unit)
{
	return plan_line_of(list, unit) != PLAN_NONE;
}

static berth_result plan_append(struct plan_list *list, const struct plan_line *line)
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

/* ---- which unit is which ---- */

uint64_t plan_number_key(uint64_t number)
{
	return op_hash(&number, sizeof number, 1);
}

/* The id of a unit in p->index.  PLACE: from the beginning of the cycle on; 0: the unit
 * has a name. */
static uint64_t plan_id(uint64_t key, uint64_t place, uint32_t signature)
{
	const uint64_t what[2] = { place ? 0 : key, place };

	return op_hash(what, sizeof what, signature);
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

/* There is no plan any more, and nothing of which to make one. */
static void plan_forget(struct plan *p)
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

/* A cycle ends that did at least half of the plan: what it teaches. */
static berth_result plan_learn(struct plan *p)
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

/* ---- a cycle, step by step ---- */

static size_t find_id(const struct plan *p, uint64_t id)
{
	size_t from = 0, to = p->list.n;

	while (from < to) {
		size_t middle = (from + to) / 2;

		if (p->index[middle].id == id)
			return p->index[middle].line;
		if (p->index[middle].id < id)
			from = middle + 1;
		else
			to = middle;
	}
	return PLAN_NONE;
}

size_t plan_find(const struct plan *p, const struct plan_unit *unit)
{
	if (unit->number && unit->number <= p->base)
		return PLAN_NONE;
	return find_id(p, plan_id(unit->key, unit->number ? unit->number - p->base : 0,
				  unit->signature));
}

/* A unit without a name, submitted when no request was in flight, is the first of a
 * cycle if it looks like the first of this one. */
static bool is_first_again(const struct plan *p, const struct plan_unit *unit)
{
	size_t first;

	if (!unit->first || unit->number <= p->base + 1)
		return false;
	first = find_id(p, plan_id(0, 1, unit->signature));
	return first != PLAN_NONE && p->list.line[first].unit.first &&
	       p->list.line[first].done;
}

bool plan_comes_again(const struct plan *p, const struct plan_unit *unit)
{
	size_t line;

	if (unit->number)
		return is_first_again(p, unit);
	line = plan_find(p, unit);
	return line != PLAN_NONE && p->list.line[line].done;
}

bool plan_expects(const struct plan *p, const struct plan_unit *unit)
{
	size_t line = plan_find(p, unit);

	return line != PLAN_NONE && plan_is_open(p, line) &&
	       !(unit->number && is_first_again(p, unit));
}

/* The open line of this cycle that is UNIT, if its memories do not count. */
static size_t find_alike(const struct plan *p, const struct plan_unit *unit)
{
	for (size_t i = 0; i < p->list.n; i++)
		if (p->list.line[i].unit.alike == unit->alike && plan_is_open(p, i) &&
		    plan_key(p, i) == unit->key)
			return i;
	return PLAN_NONE;
}

bool plan_expects_other(const struct plan *p, const struct plan_unit *unit)
{
	return find_alike(p, unit) != PLAN_NONE && !plan_expects(p, unit);
}

uint64_t plan_key(const struct plan *p, size_t line)
{
	const struct plan_unit *unit = &p->list.line[line].unit;

	return unit->number ? plan_number_key(p->base + unit->number) : unit->key;
}

/* ---- the end of a cycle ---- */

/* A cycle that did less than half of the plan teaches nothing: a name may be used
 * several times in a step. */
static berth_result end_cycle(struct plan *p, uint64_t base)
{
	berth_result rc = BERTH_OK;

	if (2 * p->ndone >= p->list.n) {
		p->beside -= p->ndone && p->ndone < p->beside ? p->ndone : p->beside;
		rc = plan_learn(p);
	}
	p->cycle++;
	p->base = base;
	p->rounds = p->cuts = p->segment = 0;
	p->noted = 0;
	p->next = p->ndone = 0;
	p->open = p->list.n;
	for (size_t i = 0; i < p->list.n; i++) {
		p->list.line[i].done = p->list.line[i].skipped = false;
		p->list.line[i].cuts = 0;
	}
	for (size_t i = 0; i < p->nbuckets; i++)
		p->bucket[i].open = p->bucket[i + 1].from - p->bucket[i].from;
	return rc;
}

/* ---- a cycle, step by step ---- */

static void find_next(struct plan *p)
{
	while (p->next < p->nbuckets && !p->bucket[p->next].open)
		p->next++;
}

static void plan_shut(struct plan *p, size_t line)
{
	p->open--;
	p->bucket[p->list.line[line].bucket].open--;
}

static void mark_done(struct plan *p, size_t at)
{
	struct plan_line *line = &p->list.line[at];

	if (plan_is_open(p, at))
		plan_shut(p, at);
	line->done = true;
	line->cuts = p->cuts;
	p->ndone++;
	if (line->segment > p->segment)
		p->segment = line->segment;
	if (line->unit.number && p->base + line->unit.number > p->most)
		p->most = p->base + line->unit.number;
}

berth_result plan_wrap(struct plan *p, const struct plan_unit *unit)
{
	return end_cycle(p, unit->number ? unit->number - 1 : p->most);
}

berth_result plan_round(struct plan *p, uint64_t cycle, uint64_t base)
{
	berth_result rc = BERTH_OK;

	if (p->cycle < cycle)
		rc = end_cycle(p, base);
	p->base = base;
	p->rounds++;
	return rc;
}

/* Without a name: what a step begins with comes again. */
static bool begins_again(const struct plan *p, const struct plan_unit *unit)
{
	const struct plan_unit *first;

	if (!p->seen.n || !unit->first || !unit->number)
		return false;
	first = &p->seen.line[0].unit;
	return first->number && first->signature == unit->signature &&
	       unit->number > p->base + first->number;
}

static berth_result note_beside(struct plan *p, const struct plan_unit *unit)
{
	struct plan_line line = { .unit = *unit,
				  .segment = p->segment + p->cuts,
				  .round = p->rounds };

	if (unit->number > p->most)
		p->most = unit->number;
	if (unit->number && unit->number <= p->base)
		return BERTH_OK;
	if (unit->number) {
		line.unit.key = 0;
		line.unit.number = unit->number - p->base;
		if (p->list.n) /* the units of the plan come later by one */
			p->base++;
	}
	if (plan_has(&p->seen, &line.unit))
		return BERTH_OK;
	if (p->seen.n == PLAN_UNITS_MOST)
		p->seen.n = p->again.n = 0;
	return plan_append(&p->seen, &line);
}

/* Half of what was noted has come again, which is the beginning of this cycle. */
static berth_result end_first_cycle(struct plan *p)
{
	uint32_t rounds = p->rounds;
	berth_result rc = end_cycle(p, p->most);

	p->rounds = rounds;
	for (size_t i = 0; !rc && i < p->again.n; i++) {
		size_t line = plan_find(p, &p->again.line[i].unit);

		if (line == PLAN_NONE)
			rc = plan_append(&p->seen, &p->again.line[i]);
		else
			mark_done(p, line);
	}
	p->again.n = 0;
	return rc;
}

/* The unit of line AT of those that have come again comes for the third time.  If a
 * cycle lies between, that is what counts: what was noted before it, and is more than
 * twice as much, is of another part of the program. */
static void keep_recent(struct plan *p, size_t at)
{
	struct plan_list recent = p->again;

	if (recent.n - at < CYCLE_LEAST)
		return;
	recent.n -= at;
	memmove(recent.line, recent.line + at, recent.n * sizeof *recent.line);
	p->again = p->seen;
	p->again.n = 0;
	p->seen = recent;
}

static berth_result note_first_cycles(struct plan *p, const struct plan_unit *unit)
{
	struct plan_line line = { .unit = *unit, .round = p->rounds };
	size_t third;
	berth_result rc;

	/* The first cycle begins with a unit that is submitted when no request is in
	 * flight, if there is one: what was noted in front of it is the rest of a
	 * step. */
	if (unit->first && p->seen.n && !p->seen.line[0].unit.first) {
		p->seen.n = p->last.n = p->again.n = 0;
		p->base = p->most;
	}
	if (begins_again(p, unit)) {
		p->again.n = 0;
		rc = plan_wrap(p, unit);
		if (rc || p->list.n)
			return rc ? rc : plan_note(p, unit);
	}
	if (unit->number || !plan_has(&p->seen, unit))
		return note_beside(p, unit);
	third = plan_line_of(&p->again, unit);
	if (third != PLAN_NONE)
		keep_recent(p, third);
	rc = plan_has(&p->again, unit) ? BERTH_OK : plan_append(&p->again, &line);
	if (rc || 2 * p->again.n < p->seen.n || p->noted < p->least)
		return rc;
	return end_first_cycle(p);
}

berth_result plan_note(struct plan *p, const struct plan_unit *unit)
{
	berth_result rc = BERTH_OK;
	size_t line = plan_find(p, unit);

	p->beside++;
	p->noted++;
	if (!p->list.n)
		rc = note_first_cycles(p, unit);
	else if (line == PLAN_NONE)
		rc = note_beside(p, unit);
	else if (!p->list.line[line].done)
		mark_done(p, line);
	find_next(p);
	if (rc || !p->list.n || (p->open && p->beside <= BESIDE_MOST(p->list.n)))
		return rc;
	if (p->open) /* the program does something else by now */
		plan_forget(p);
	return end_cycle(p, p->most);
}

berth_result plan_pass(struct plan *p, const struct plan_unit *unit)
{
	const size_t line = find_alike(p, unit);

	if (unit->number > p->most)
		p->most = unit->number;
	if (!p->list.n)
		return BERTH_OK;
	if (line != PLAN_NONE) {
		plan_shut(p, line);
		p->list.line[line].skipped = true;
	} else if (unit->number > p->base) {
		p->base++;
	}
	find_next(p);
	p->beside++;
	if (p->open && p->beside <= BESIDE_MOST(p->list.n))
		return BERTH_OK;
	if (p->beside > BESIDE_MOST(p->list.n))
		plan_forget(p);
	return end_cycle(p, p->most);
}

berth_result plan_cut(struct plan *p)
{
	if (!p->ndone)
		return BERTH_OK;
	p->cuts++;
	for (size_t i = 0; i < p->list.n; i++)
		if (p->list.line[i].segment < p->segment && plan_is_open(p, i)) {
			plan_shut(p, i);
			p->list.line[i].skipped = true;
		}
	find_next(p);
	return p->open ? BERTH_OK : end_cycle(p, p->most);
}

berth_result plan_advance(struct plan *p)
{
	size_t from = p->bucket[p->next].from, to = p->bucket[p->next + 1].from;

	for (size_t i = from; i < to; i++)
		if (plan_is_open(p, i))
			mark_done(p, i);
	find_next(p);
	return p->open ? BERTH_OK : end_cycle(p, p->most);
}

void plan_restart_numbers(struct plan *p)
{
	p->base = p->most = 0;
}

uint32_t plan_signature(const struct plan *p)
{
	const uint64_t what[4] = { p->cycle, p->base, p->next,
				   p->bucket[p->next].open };

	return (uint32_t)op_hash(what, sizeof what, p->hash) | 1;
}
