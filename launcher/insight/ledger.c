#include "launcher/insight/ledger.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "common/str.h"
#include "launcher/insight/format.h"

uint64_t ledger_hash(uint64_t hash, const struct strv *argv)
{
	/* FNV-1a; a NUL ends each word */
	const uint64_t begin = UINT64_C(14695981039346656037);

	hash = hash ? hash : begin;
	for (size_t i = 0; i < argv->n; i++) {
		struct str word = { 0 };
		const char *s;

		format_word(&word, argv, i);
		s = str_text(&word);
		do
			hash = (hash ^ (unsigned char)*s) * UINT64_C(1099511628211);
		while (*s++);
		str_free(&word);
	}
	return hash;
}

double ledger_steps(const struct record *r, double least_s)
{
	const struct sums *most = NULL;

	for (uint32_t i = 0; i < r->nranks; i++)
		if (!most || r->rank[i].sums.steps > most->steps)
			most = &r->rank[i].sums;
	return most && most->ops_s >= least_s && most->ops_s > 0
		       ? most->steps / most->ops_s
		       : 0;
}

void ledger_read(struct ledger *l, const char *text)
{
	l->n = 0;
	while (*text && l->n < LEDGER_MOST) {
		struct ledger_row *row = &l->row[l->n];
		int end = 0;

		if (sscanf(text, "%16" SCNx64 " %9" SCNu32 " %30lf%n", &row->command,
			   &row->np, &row->steps, &end) == 3 &&
		    text[end] == '\n' && row->np && isfinite(row->steps) &&
		    row->steps > 0)
			l->n++;
		text += strcspn(text, "\n");
		text += *text == '\n';
	}
}

void ledger_write(struct str *out, const struct ledger *l)
{
	for (size_t i = 0; i < l->n; i++)
		str_addf(out, "%016" PRIx64 " %" PRIu32 " %.6g\n", l->row[i].command,
			 l->row[i].np, l->row[i].steps);
}

void ledger_add(struct ledger *l, const struct ledger_row *row)
{
	size_t n = 0;

	for (size_t i = 0; i < l->n; i++)
		if (l->row[i].command != row->command || l->row[i].np != row->np)
			l->row[n++] = l->row[i];
	l->n = n;
	if (n == LEDGER_MOST) {
		memmove(l->row, l->row + 1, (n - 1) * sizeof *l->row);
		l->n--;
	}
	l->row[l->n++] = *row;
}

struct ledger_row ledger_fewest(const struct ledger *l, uint64_t command, uint32_t np)
{
	struct ledger_row found = { .np = 0 };

	for (size_t i = 0; i < l->n; i++) {
		const struct ledger_row *row = &l->row[i];

		if (row->command == command && row->np < np &&
		    (!found.np || row->np < found.np))
			found = *row;
	}
	return found;
}
