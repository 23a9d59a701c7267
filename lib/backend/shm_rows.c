#include "lib/backend/shm_internal.h"

/* Each rank tells all others its row, and its data behind the row if they fit.  There
 * is one agreement for both.  The row is beside the line if it fits there, else in the
 * rank's slot.  The data are beside the row, or in the slot.  All ranks see from the
 * row whether the data are there, and where. */

enum {
	BESIDE_BYTES = INLINE_BYTES + LINE_BYTES - 64,
	/* The most bytes of an alltoall that goes through the window at once.  More is
	 * worth another agreement, with which rank 0 says how to stage. */
	WINDOW_BYTES = 256 << 10,
	NARROW = sizeof(uint16_t),
	WIDE = sizeof(uint64_t)
};

/* Bytes of a row: words of WIDTH bytes each, behind one that says WIDTH.  Rows of small
 * operations are narrow.  Then, between two ranks, row and data are in one line. */
static size_t row_bytes(const struct coll_rows *rows, size_t width)
{
	return (rows->words + 1) * width;
}

static bool is_beside(const struct coll_rows *rows)
{
	return row_bytes(rows, WIDE) <= BESIDE_BYTES;
}

bool shm_rows_fit(const struct shm *s, const struct coll_rows *rows)
{
	return is_beside(rows) || row_bytes(rows, WIDE) <= s->flat_bytes;
}

/* Bytes that rank R gives to others, as its row says.  ALL: all of them, or SIZE_MAX if
 * a slot has less room.  BEFORE: those in front of the part of rank TO.  The part that
 * R gives to itself stays with R. */
struct given {
	size_t all, before;
};

static struct given shm_rows_given(const struct shm *s, const struct coll *c,
				   const uint64_t *row, unsigned r, unsigned to)
{
	const size_t in_slot = is_beside(c->rows) ? 0 : row_bytes(c->rows, WIDE);
	const size_t most = s->flat_bytes - in_slot, size = kern_size(c->type);
	const unsigned n = c->kind == BERTH_ALLTOALL ? s->n : 1;
	uint64_t sum = 0, before = 0;

	for (unsigned k = 0; k < n; k++) {
		if (k == to && n > 1)
			before = sum;
		if (k == r && n > 1)
			continue;
		if (row[k] > most) /* elements, so that their sum does not wrap */
			return (struct given){ SIZE_MAX, 0 };
		sum += row[k];
	}
	sum *= size;
	return (struct given){ sum > most ? SIZE_MAX : sum, before * size };
}

static unsigned char *row_at(const struct shm *s, const struct coll *c, unsigned r)
{
	return is_beside(c->rows) ? s->line[s->seq & 1][r].u.data
				  : shm_flat(s, r, s->seq, FLAT_NEAR_BYTES);
}

static size_t width_of(const struct coll_rows *rows, const uint64_t *row)
{
	uint64_t any = 0;

	for (size_t i = 0; i < rows->words; i++)
		any |= row[i];
	return any >> 16 ? WIDE : NARROW;
}

/* The BYTES of data behind ROW. */
static unsigned char *data_at(const struct shm *s, const struct coll *c, unsigned r,
			      const uint64_t *row, size_t bytes)
{
	const size_t front = row_bytes(c->rows, width_of(c->rows, row));

	if (is_beside(c->rows) && front + bytes > BESIDE_BYTES)
		return shm_flat(s, r, s->seq, bytes);
	return row_at(s, c, r) + front;
}

/* ---- the row and the data of this rank ---- */

static void write_row(const struct coll_rows *rows, unsigned char *at)
{
	const uint64_t wide = WIDE;
	uint16_t *narrow = (uint16_t *)at;

	if (width_of(rows, rows->mine) == WIDE) {
		memcpy(at, &wide, WIDE);
		memcpy(at + WIDE, rows->mine, rows->words * WIDE);
		return;
	}
	*narrow++ = NARROW;
	for (size_t i = 0; i < rows->words; i++)
		narrow[i] = (uint16_t)rows->mine[i];
}

static void read_row(const struct coll_rows *rows, const unsigned char *at,
		     uint64_t *row)
{
	const uint16_t *narrow = (const uint16_t *)at;

	if (*narrow++ != NARROW)
		memcpy(row, at + WIDE, rows->words * WIDE);
	else
		for (size_t i = 0; i < rows->words; i++)
			row[i] = narrow[i];
}

static void stage_data(const struct shm *s, const struct coll *c, struct given g)
{
	const unsigned char *from = c->in;
	unsigned char *to = data_at(s, c, s->me, c->rows->mine, g.all);

	if (c->kind == BERTH_ALLTOALL) {
		shm_copy(to, from, g.before);
		to += g.before;
		from += g.before + c->rows->mine[s->me] * kern_size(c->type);
		g.all -= g.before;
	}
	shm_copy(to, from, g.all);
}

/* ---- the rows and the data of the others ---- */

/* Reads all rows, each once.  Do all of them have their data with them? */
static bool rows_hear(const struct shm *s, const struct coll *c)
{
	const struct coll_rows *rows = c->rows;
	bool all = true;

	for (unsigned r = 0; r < s->n; r++) {
		uint64_t *row = rows->all + r * rows->words;
		struct given g;

		if (r == s->me)
			memcpy(row, rows->mine, rows->words * WIDE);
		else
			read_row(rows, row_at(s, c, r), row);
		g = shm_rows_given(s, c, row, r, s->me);
		s->place[r] = (struct place){ g.before, g.all };
		all &= g.all != SIZE_MAX;
	}
	return all;
}

/* Takes the data of C, which is settled.  Parts lie, and end, where the rows say. */
static berth_result rows_take(struct shm *s, const struct coll *c)
{
	const size_t size = kern_size(c->type);
	const unsigned part = c->kind == BERTH_ALLTOALL ? s->me : 0;
	unsigned char *to = c->out;

	coll_keep_own(c, s->n, s->me);
	for (unsigned r = 0; r < s->n; r++) {
		const uint64_t *row = c->rows->all + r * c->rows->words;
		const struct place *p = &s->place[r];
		uint64_t n = c->out_counts[r];

		if (r != s->me && n != row[part]) { /* C is settled with others */
			s->different[0] = r;
			s->ndifferent = 1;
			shm_break(s, BERTH_PEER_LOST);
			return BERTH_PEER_LOST;
		}
		if (r != s->me)
			shm_copy(to, data_at(s, c, r, row, p->out) + p->in, n * size);
		to += n * size;
	}
	return BERTH_OK;
}

berth_result shm_run_rows(struct shm *s, const struct coll *c, struct coll *settled,
			  bool *moved)
{
	const struct given g = shm_rows_given(s, c, c->rows->mine, s->me, s->me);
	berth_result rc;
	bool all;

	write_row(c->rows, row_at(s, c, s->me));
	if (g.all != SIZE_MAX)
		stage_data(s, c, g);
	shm_say(s, c->signature);
	rc = shm_read_signatures(s, c->signature);
	if (rc)
		return rc;
	all = rows_hear(s, c);
	*settled = *c;
	rc = c->rows->settle(c->rows->ctx, settled);
	*moved = all || (c->kind == BERTH_ALLTOALL &&
			 shm_small_bytes(s, settled) <= WINDOW_BYTES);
	if (rc || !*moved)
		return rc;
	return all ? rows_take(s, settled) : shm_late(s, shm_run_window(s, settled));
}
