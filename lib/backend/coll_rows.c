#include "lib/backend/coll_rows.h"

#include <stdlib.h>
#include <string.h>

/* Data of all ranks that go with the rows, equally many bytes from each.  (Without
 * them, uneven alltoalls of 4 to 128 floats between 2 hosts took 1.4 times as long as
 * even ones.) */
enum { DATA_BYTES = 2 << 10 };

static size_t data_words(const struct coll_rows *rows)
{
	return DATA_BYTES / sizeof *rows->mine / rows->n;
}

/* Elements that rank R gives to others, by its ROW, in front of its part for rank END
 * (N: all of them).  MOST + 1: more than MOST. */
static uint64_t rows_given(const struct coll *c, const uint64_t *row, unsigned r,
			   unsigned end, uint64_t most)
{
	uint64_t sum = 0;

	if (c->kind != BERTH_ALLTOALL)
		return end < c->rows->n ? 0 : row[0] <= most ? row[0] : most + 1;
	for (unsigned k = 0; k < end; k++) {
		if (k == r)
			continue;
		if (row[k] > most - sum)
			return most + 1;
		sum += row[k];
	}
	return sum;
}

/* Writes this rank's data for others to TO, if they are not more than MOST elements. */
static void write_data(const struct coll *c, unsigned char *to, uint64_t most)
{
	const struct coll_rows *rows = c->rows;
	const size_t size = kern_size(c->type);
	const unsigned parts = c->kind == BERTH_ALLTOALL ? rows->n : 1;
	const unsigned char *from = c->in;

	if (rows_given(c, rows->mine, rows->me, rows->n, most) > most)
		return;
	for (unsigned k = 0; k < parts; k++) {
		const size_t bytes = rows->mine[k] * size;

		if (bytes && (parts == 1 || k != rows->me)) {
			memcpy(to, from, bytes);
			to += bytes;
		}
		from += bytes;
	}
}

/* TOLD has rows of STRIDE words each, with their data behind them.  Copies the data to
 * OUT. */
static void read_data(const struct coll *c, const uint64_t *told, size_t stride)
{
	const struct coll_rows *rows = c->rows;
	const size_t size = kern_size(c->type);

	for (unsigned r = 0; r < rows->n; r++) {
		const uint64_t *row = told + r * stride;
		const size_t bytes = coll_got(c, rows->n, r) * size,
			     front = rows_given(c, row, r, rows->me, DATA_BYTES) * size;

		if (r == rows->me || !bytes)
			continue;
		memcpy((unsigned char *)c->out + coll_got_at(c, rows->n, r) * size,
		       (const unsigned char *)(row + rows->words) + front, bytes);
	}
	coll_keep_own(c, rows->n, rows->me);
}

static bool has_all_data(const struct coll *c, uint64_t most)
{
	const struct coll_rows *rows = c->rows;

	for (unsigned r = 0; r < rows->n; r++)
		if (rows_given(c, rows->all + r * rows->words, r, rows->n, most) > most)
			return false;
	return true;
}

berth_result coll_rows_in_steps(const struct backend *b, void *group,
				const struct coll *c, uint64_t deadline_ns)
{
	const struct coll_rows *rows = c->rows;
	const size_t stride = rows->words + data_words(rows);
	const uint64_t most =
		data_words(rows) * sizeof *rows->mine / kern_size(c->type);
	uint64_t *told = calloc(rows->n * stride, sizeof *told);
	const struct coll tell = { .kind = BERTH_ALLREDUCE,
				   .type = BERTH_U64,
				   .op = BERTH_BOR,
				   .count = rows->n * stride,
				   .in = told,
				   .out = told,
				   .signature = c->signature };
	struct coll data = *c;
	berth_result rc;

	if (!told)
		return BERTH_MEMORY;
	memcpy(told + rows->me * stride, rows->mine, rows->words * sizeof *told);
	write_data(c, (unsigned char *)(told + rows->me * stride + rows->words), most);
	rc = b->begin(group, &tell, deadline_ns);
	for (unsigned r = 0; r < rows->n; r++)
		memcpy(rows->all + r * rows->words, told + r * stride,
		       rows->words * sizeof *told);
	if (!rc)
		rc = rows->settle(rows->ctx, &data);
	data.signature++;
	if (!rc && has_all_data(c, most))
		read_data(&data, told, stride);
	else if (!rc)
		rc = b->begin(group, &data, deadline_ns);
	free(told);
	return rc;
}

berth_result coll_run_rows(const struct backend *b, void *group, const struct coll *c,
			   uint64_t deadline_ns)
{
	return b->begin_rows ? b->begin_rows(group, c, deadline_ns)
			     : coll_rows_in_steps(b, group, c, deadline_ns);
}
