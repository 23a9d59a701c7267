#include "launcher/insight/large_rows.h"

#include <stdlib.h>
#include <string.h>

static struct large_row *large_row_of(struct large_row *row, size_t *n,
				      const struct large_sum *sum)
{
	for (size_t i = 0; i < *n; i++)
		if (row[i].size == sum->size && !strcmp(row[i].kind, sum->kind))
			return &row[i];
	if (*n == LARGE_MOST)
		return NULL;
	row[*n] = (struct large_row){ .kind = sum->kind, .size = sum->size };
	return &row[(*n)++];
}

/* ALL_OPS: the operations of all ranks so far.  mean_s and bytes are sums, too, until
 * the last rank is in. */
static void large_row_add(struct large_row *row, uint32_t rank,
			  const struct large_sum *sum, double *all_ops)
{
	const double mean_s = sum->s / sum->ops;

	if (!*all_ops || mean_s < row->least_s) {
		row->fastest = rank;
		row->least_s = mean_s;
		row->bandwidth = sum->s > 0 ? sum->bus_bytes / sum->s : 0;
	}
	if (sum->ops > row->ops)
		row->ops = sum->ops;
	row->mean_s += sum->s;
	row->bytes += sum->bytes;
	*all_ops += sum->ops;
}

static int by_kind_and_size(const void *a, const void *b)
{
	const struct large_row *x = a, *y = b;
	const int kinds = strcmp(x->kind, y->kind);

	return kinds ? kinds : (x->size > y->size) - (x->size < y->size);
}

size_t large_rows(const struct record *r, struct large_row row[LARGE_MOST])
{
	double all_ops[LARGE_MOST] = { 0 };
	size_t n = 0;

	for (uint32_t i = 0; i < r->nranks; i++)
		for (size_t k = 0; k < r->rank[i].large.n; k++) {
			const struct large_sum *sum = &r->rank[i].large.v[k];
			struct large_row *its = large_row_of(row, &n, sum);

			if (its && sum->ops > 0)
				large_row_add(its, i, sum, &all_ops[its - row]);
		}
	for (size_t i = 0; i < n; i++) {
		row[i].mean_s /= all_ops[i] > 0 ? all_ops[i] : 1;
		row[i].bytes /= all_ops[i] > 0 ? all_ops[i] : 1;
	}
	qsort(row, n, sizeof *row, by_kind_and_size);
	return n;
}
