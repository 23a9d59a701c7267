#include "launcher/insight/live.h"

#include <stdlib.h>

#include "common/str.h"

/* ---- the line ---- */

void live_line(struct str *out, const struct look *l, const struct live *now)
{
	double steps = 0, rate = 0, ops = 0, cpu = 0, n = 0, gpu = 0, gpus = 0;

	for (uint32_t i = 0; i < l->record->nranks; i++) {
		const struct sums *s = &l->record->rank[i].sums;
		const struct point *p = record_now(l->record, i);

		steps = s->steps > steps ? s->steps : steps;
		if (!p)
			continue;
		rate = (double)p->steps > rate ? (double)p->steps : rate;
		ops = (double)p->ops > ops ? (double)p->ops : ops;
		cpu += (double)p->cpu;
		gpu += p->gpu >= 0 ? (double)p->gpu : 0;
		gpus += p->gpu >= 0;
		n++;
	}
	str_addf(out, "%u/%u up", now->up, now->np);
	if (steps > 0)
		str_addf(out, ", step %.0f, %.*f steps/s", steps, rate < 10, rate);
	else if (ops > 0)
		str_addf(out, ", %.0f operations/s", ops);
	if (n > 0)
		str_addf(out, ", cpu %.0f %%", 100 * cpu / n);
	if (gpus > 0)
		str_addf(out, ", gpu %.0f %%", 100 * gpu / gpus);
	for (size_t i = 0; i < now->verdict->n; i++) {
		const struct finding *f = &now->verdict->v[i];

		str_addf(out, ", %s", f->rule);
		if (!rank_set_count(&f->ranks))
			continue;
		str_add(out, " ");
		rank_set_print(out, &f->ranks);
	}
}

/* ---- the table ---- */

enum { CELL = 24, NAME_MOST = 20 };

/* A column, from the most telling one on. */
struct column {
	const char *head;
	int width; /* 0: as wide as what is in it */
	void (*cell)(char *to, const struct look *l, uint32_t rank);
};

static void cell_rank(char *to, const struct look *l, uint32_t rank)
{
	(void)l;
	snprintf(to, CELL, "%u", rank);
}

static void cell_host(char *to, const struct look *l, uint32_t rank)
{
	snprintf(to, CELL, "%.*s", NAME_MOST, l->rank[rank].host);
}

static void cell_steps(char *to, const struct look *l, uint32_t rank)
{
	snprintf(to, CELL, "%.0f", l->record->rank[rank].sums.steps);
}

static void cell_memory(char *to, const struct look *l, uint32_t rank)
{
	const struct point *p = record_now(l->record, rank);

	snprintf(to, CELL, "%.2f", p ? (double)p->resident_gib : 0);
}

/* A part of the time, in percent. */
#define CELL_PART(field)                                                               \
	static void cell_##field(char *to, const struct look *l, uint32_t rank)        \
	{                                                                              \
		const struct point *p = record_now(l->record, rank);                   \
                                                                                       \
		snprintf(to, CELL, p && p->field >= 0 ? "%.0f" : "-",                  \
			 p ? 100 * (double)p->field : 0);                              \
	}
CELL_PART(main)
CELL_PART(cpu)
CELL_PART(delay)
CELL_PART(blocked)
CELL_PART(children)
CELL_PART(gpu)
#undef CELL_PART

static void cell_read(char *to, const struct look *l, uint32_t rank)
{
	const struct point *p = record_now(l->record, rank);

	snprintf(to, CELL, "%.1f", p ? (double)p->read_mb : 0);
}

static void cell_state(char *to, const struct look *l, uint32_t rank)
{
	const struct rank_record *r = &l->record->rank[rank];

	snprintf(to, CELL, "%c%s", r->state ? r->state : '-', r->moved ? " moved" : "");
}

static const struct column columns[] = {
	{ "rank", 6, cell_rank },         { "wait%", 6, cell_blocked },
	{ "main%", 6, cell_main },        { "cpu%", 6, cell_cpu },
	{ "gpu%", 5, cell_gpu },          { "nocpu%", 7, cell_delay },
	{ "step", 9, cell_steps },        { "GiB", 7, cell_memory },
	{ "state", 8, cell_state },       { "read MB/s", 10, cell_read },
	{ "loaders%", 9, cell_children }, { "host", NAME_MOST + 1, cell_host },
};
enum { COLUMNS = sizeof columns / sizeof *columns };

void live_table(struct str *out, const struct look *l, const struct live *now,
		size_t width, size_t rows)
{
	const size_t before = out->len;
	const size_t all = l->record->nranks, room = rows > 3 ? rows - 2 : 1;
	const size_t most = all <= room ? all : room - 1;
	size_t shown = 0, n = 0, left = width;
	struct rank_set first = { 0 };
	char cell[CELL];

	while (n < COLUMNS && (size_t)columns[n].width <= left)
		left -= (size_t)columns[n++].width;
	live_line(out, l, now);
	if (out->len - before > width)
		out->len = before + width;
	str_add(out, "\n");
	for (size_t i = 0; i < n; i++)
		str_addf(out, "%*s", columns[i].width, columns[i].head);
	/* those that findings name first, if there is no room for all */
	for (size_t i = 0; all > room && i < now->verdict->n; i++)
		for (uint32_t r = 0; rank_set_first(&now->verdict->v[i].ranks, r, &r);
		     r++)
			rank_set_add(&first, r);
	for (int named = 1; named >= 0; named--)
		for (uint32_t rank = 0; rank < all && shown < most; rank++)
			if (rank_set_has(&first, rank) == named) {
				str_add(out, "\n");
				for (size_t i = 0; i < n; i++) {
					columns[i].cell(cell, l, rank);
					str_addf(out, "%*s", columns[i].width, cell);
				}
				shown++;
			}
	rank_set_free(&first);
	if (shown < all)
		str_addf(out, "\n%6s and %zu more", "", all - shown);
}
