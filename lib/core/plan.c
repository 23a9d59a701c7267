#include "lib/core/plan_internal.h"

#include <stdlib.h>
#include <string.h>

enum { CYCLE_LEAST = 8 /* units of a cycle that is found among other units */ };

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

/* ---- which unit is which ---- */

uint64_t plan_number_key(uint64_t number)
{
	return op_hash(&number, sizeof number, 1);
}

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
