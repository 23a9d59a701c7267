#include "launcher/output/event_log.h"

#include <stdlib.h>
#include <string.h>

enum {
	ROWS_MOST = EVENT_ROWS_FIRST + EVENT_ROWS_LAST,
	JOIN_BACK = 8,    /* rows in which an event is looked for that it equals */
	TEXT_BYTES = 2048 /* of an event that are kept */
};

static size_t row_index(const struct event_log *l, size_t i)
{
	if (i < EVENT_ROWS_FIRST || l->n < ROWS_MOST)
		return i;
	return EVENT_ROWS_FIRST + (i - EVENT_ROWS_FIRST + l->next) % EVENT_ROWS_LAST;
}

const struct event_row *event_log_row(const struct event_log *l, size_t i)
{
	return &l->v[row_index(l, i)];
}

static void row_free(struct event_row *row)
{
	free(row->name);
	free(row->text);
	rank_set_free(&row->ranks);
	strv_free(&row->hosts);
	*row = (struct event_row){ 0 };
}

void event_log_free(struct event_log *l)
{
	for (size_t i = 0; i < l->n; i++)
		row_free(&l->v[i]);
	row_free(&l->row);
	free(l->v);
	str_free(&l->text);
	*l = (struct event_log){ 0 };
}

void event_log_begin(struct event_log *l, const char *name, double t)
{
	row_free(&l->row);
	l->row = (struct event_row){
		.begin = t, .end = t, .name = xstrdup(name), .count = 1
	};
}

void event_log_number(struct event_log *l, const char *key, long long value)
{
	if (!strcmp(key, "rank"))
		rank_set_add(&l->row.ranks, (uint32_t)value);
	else if (strcmp(key, "pid") != 0)
		str_addf(&l->text, "%s%s %lld", l->text.len ? ", " : "", key, value);
}

void event_log_text(struct event_log *l, const char *key, const char *value)
{
	if (value && !strcmp(key, "host"))
		strv_add(&l->row.hosts, value);
	else if (value && (!strcmp(key, "text") || !strcmp(key, "signal")))
		str_addf(&l->text, "%s%.*s", l->text.len ? ", " : "", TEXT_BYTES,
			 value);
}

/* The event NEW becomes a part of ROW. */
static void row_join(struct event_row *row, const struct event_row *new)
{
	bool has = !new->hosts.n || row->hosts.n >= EVENT_HOSTS_MOST;
	uint32_t rank = 0;

	if (rank_set_first(&new->ranks, 0, &rank))
		rank_set_add(&row->ranks, rank);
	for (size_t i = row->hosts.n; i && !has; i--)
		has = !strcmp(row->hosts.v[i - 1], new->hosts.v[0]);
	if (!has)
		strv_add(&row->hosts, new->hosts.v[0]);
	row->end = new->end;
	row->count++;
}

/* The row that ROW can be a part of, or NULL: it tells the same of another rank. */
static struct event_row *row_like(struct event_log *l, const struct event_row *row)
{
	uint32_t rank = 0;

	for (size_t back = 1; back <= JOIN_BACK && back <= l->n; back++) {
		struct event_row *old = &l->v[row_index(l, l->n - back)];

		if (strcmp(old->name, row->name) != 0)
			return NULL;
		if (strcmp(old->text, row->text) != 0)
			continue;
		if (rank_set_first(&row->ranks, 0, &rank) &&
		    rank_set_has(&old->ranks, rank))
			return NULL;
		return old;
	}
	return NULL;
}

void event_log_end(struct event_log *l)
{
	struct event_row row = l->row, *old;

	l->row = (struct event_row){ 0 };
	row.text = str_take(&l->text);
	old = row_like(l, &row);
	if (old) {
		row_join(old, &row);
		row_free(&row);
		return;
	}
	if (!l->v)
		l->v = xcalloc(ROWS_MOST, sizeof *l->v);
	if (l->n < ROWS_MOST) {
		l->v[l->n++] = row;
		return;
	}
	row_free(&l->v[EVENT_ROWS_FIRST + l->next]);
	l->v[EVENT_ROWS_FIRST + l->next] = row;
	l->next = (l->next + 1) % EVENT_ROWS_LAST;
	l->left_out++;
}
