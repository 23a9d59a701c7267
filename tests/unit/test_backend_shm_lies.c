/* lib/backend/shm: what other ranks say cannot be.
 * limit_s: 120 */
#pragma GCC diagnostic ignored "-Wunused-function" /* of what tests share */
#include "ranks.h"

#include "lib/backend/coll_rows.h"
#include "lib/backend/shm_internal.h"

/* ---- places in the heap ---- */

/* ---- what other ranks say cannot be ---- */

enum { LIARS = 3, LIES = 100000, HEAP_BYTES = 1 << 16, OWN_BYTES = 512 };

static uint64_t draw(void)
{
	static uint64_t x = 88172645463325252u; /* xorshift64 */

	x ^= x << 13;
	x ^= x >> 7;
	return x ^= x << 17;
}

/* One that is right, wrong by little, or anything; not in this rank's own part, which
 * is the first. */
static uint64_t an_offset(uint64_t bytes)
{
	const uint64_t offsets[] = { NOWHERE, HEAP_BYTES - bytes + draw() % 3 * 4,
				     draw(), NOWHERE - draw() % 512,
				     draw() % HEAP_BYTES };
	uint64_t at = draw() % (HEAP_BYTES - bytes + 1) / 4 * 4, which = draw() % 8;

	if (which < 5)
		at = offsets[which];
	return at < OWN_BYTES ? at + OWN_BYTES : at;
}

static bool is_sound(uint64_t at, uint64_t bytes)
{
	return at == NOWHERE ||
	       (at <= HEAP_BYTES && bytes <= HEAP_BYTES - at && at % 4 == 0);
}

/* The others have come to the next operation and are through with it.  False: one of
 * them says of its arrays in the heap what cannot be. */
static bool others_lie(struct shm *s, const struct coll *c, uint64_t bytes)
{
	bool sound = true;

	for (unsigned r = 0; r < LIARS; r++) {
		struct line *line = &s->line[~s->seq & 1][r];
		uint64_t given = c->kind == BERTH_SCATTER ? LIARS * bytes : bytes;
		uint64_t in = an_offset(given), out = an_offset(bytes);
		bool reads = coll_gives(c, r),
		     writes = c->kind == BERTH_ALLREDUCE ||
			      (c->kind == BERTH_REDUCE && r == c->root);

		if (r == s->me)
			continue;
		line->u.far.in = in;
		line->u.far.out = out;
		line->u.far.past = (uint32_t)draw();
		line->u.far.probe = (uint32_t)draw();
		atomic_store(&line->post.value,
			     (uint64_t)c->signature << 32 | (s->seq + 1));
		atomic_store(&s->staged[r].post.value, s->base + 1000);
		atomic_store(&s->reduced[r].post.value, s->base + 1000);
		atomic_store(&s->done[r].post.value, s->base + 1000);
		sound &= is_sound(in, reads ? given : 0) &&
			 (!writes || is_sound(out, bytes));
	}
	return sound;
}

/* The heap lies between two pages that cannot be touched. */
static struct shm *join_liars(void)
{
	unsigned char *pages = ranks_share(HEAP_BYTES + 2 * 4096);
	struct shm_config c = { .n = LIARS,
				.me = 1,
				.region = ranks_share(shm_bytes(LIARS)),
				.cores = 1,
				.heap = pages + 4096,
				.heap_bytes = HEAP_BYTES,
				.staging = SHM_STAGING_NEAR };
	struct shm *s = shm_join(&c);

	ck_assert_ptr_nonnull(s);
	ck_assert_int_eq(mprotect(pages, 4096, PROT_NONE), 0);
	ck_assert_int_eq(mprotect(pages + 4096 + HEAP_BYTES, 4096, PROT_NONE), 0);
	s->flat_bytes = 0; /* small ones go the way of large ones */
	return s;
}

static void hear_lies(struct shm *s, unsigned turn)
{
	static const enum berth_kind kinds[] = { BERTH_ALLREDUCE,     BERTH_REDUCE,
						 BERTH_REDUCESCATTER, BERTH_ALLGATHER,
						 BERTH_BROADCAST,     BERTH_GATHER,
						 BERTH_SCATTER };
	static float out[3 * 64];
	struct coll c = { .kind = kinds[turn % 7],
			  .type = BERTH_F32,
			  .op = BERTH_SUM,
			  .count = 13 + draw() % 50,
			  .root = (unsigned)(draw() % LIARS),
			  .signature = turn };
	uint64_t bytes = c.count * 4;
	bool sound = others_lie(s, &c, bytes);
	berth_result rc;

	c.in = (char *)s->config.heap + draw() % 64 * 4;
	c.out = out;
	if (c.kind == BERTH_ALLREDUCE || c.kind == BERTH_REDUCE)
		c.out = (void *)(uintptr_t)c.in;
	rc = shm_backend.begin(s, &c, 0);
	if (sound)
		ck_assert_msg(rc == BERTH_OK, "turn %u: %d", turn, rc);
	else
		ck_assert_msg(rc == BERTH_OK || rc == BERTH_PEER_LOST, "turn %u: %d",
			      turn, rc);
	atomic_store(&s->region->broken, 0);
}

START_TEST(lies_of_places)
{
	struct shm *s = join_liars();

	for (unsigned turn = 0; turn < LIES; turn++)
		hear_lies(s, turn);
	shm_backend.leave(s);
}
END_TEST

/* What one says at the end of the heap, byte by byte. */
START_TEST(lies_at_the_end)
{
	struct shm *s = join_liars();
	struct coll c = { .kind = BERTH_BROADCAST, .type = BERTH_U8, .count = 64 };
	unsigned char out[64];

	c.in = c.out = out;
	for (uint64_t at = HEAP_BYTES - 80; at < HEAP_BYTES + 80; at++) {
		others_lie(s, &c, 64);
		s->line[~s->seq & 1][0].u.far.in = at;
		s->line[~s->seq & 1][2].u.far.in = 0;
		ck_assert_int_eq(shm_backend.begin(s, &c, 0),
				 at <= HEAP_BYTES - 64 ? BERTH_OK : BERTH_PEER_LOST);
		atomic_store(&s->region->broken, 0);
	}
	shm_backend.leave(s);
}
END_TEST

/* ---- rows that cannot be ---- */

enum { ROW_WORDS = 20, LIARS_FLAT_BYTES = FLAT_BYTES * 2 / LIARS / 64 * 64 };

static uint64_t believed[LIARS];

/* What the others say is not compared with anything. */
static berth_result believe(void *ctx, struct coll *c)
{
	(void)ctx;
	c->in_counts = c->kind == BERTH_ALLTOALL ? c->rows->mine : NULL;
	c->out_counts = believed;
	c->largest = LIARS_FLAT_BYTES;
	return BERTH_OK;
}

/* The others have come to this operation and the next.  SMALL: their data are, and one
 * may tell less or more than this rank believes, which *SOUND says. */
static void others_tell(struct shm *s, const struct coll *c, bool small, bool *sound)
{
	const unsigned part = c->kind == BERTH_ALLTOALL ? s->me : 0;

	others_lie(s, c, 4);
	*sound = true;
	for (unsigned r = 0; r < LIARS; r++) {
		const uint64_t words[] = { draw() % 8, LIARS_FLAT_BYTES / 4 - 3,
					   draw() % LIARS_FLAT_BYTES, draw(),
					   draw() | 1ull << 63 };
		struct line *line = &s->line[~s->seq & 1][r];
		uint64_t row[1 + ROW_WORDS] = { 8 }; /* their width */

		if (r == s->me)
			continue;
		for (unsigned i = 1; i <= ROW_WORDS; i++)
			row[i] = words[small         ? 0
				       : draw() % 16 ? draw() % 3
						     : draw() % 5];
		if (small)
			believed[r] = draw() % 8 ? row[1 + part] : draw() % 8;
		*sound &= believed[r] == row[1 + part];
		if (c->rows->words == ROW_WORDS)
			memcpy(shm_flat(s, r, s->seq + 1, FLAT_NEAR_BYTES), row,
			       sizeof row);
		else
			memcpy(line->u.data, row, 8 + c->rows->words * 8);
		line = &s->line[s->seq & 1][r];
		atomic_store(&line->post.value,
			     (uint64_t)(c->signature + 1) << 32 | (s->seq + 2));
	}
}

static void hear_rows(struct shm *s, unsigned turn)
{
	static float in[LIARS * 8], out[LIARS * 64];
	uint64_t mine[ROW_WORDS] = { 0 }, all[LIARS * ROW_WORDS];
	struct coll_rows rows = { LIARS, s->me,   mine, turn % 2 ? 4 : ROW_WORDS,
				  all,   believe, NULL };
	struct coll c = { .kind = turn % 4 > 1 ? BERTH_ALLTOALL : BERTH_ALLGATHER,
			  .type = BERTH_F32,
			  .in = in,
			  .out = out,
			  .rows = &rows,
			  .signature = turn };
	berth_result rc;
	bool small = draw() % 2, sound;

	for (unsigned k = 0; k < LIARS; k++) {
		mine[k] = draw() % 8;
		believed[k] = k == s->me ? mine[k] : draw() % 64;
		c.count += mine[k];
	}
	if (c.kind == BERTH_ALLGATHER)
		believed[s->me] = mine[0] = c.count = c.count / LIARS;
	others_tell(s, &c, small, &sound);
	rc = coll_run_rows(&shm_backend, s, &c, 0);
	ck_assert_msg(rc == BERTH_OK || rc == BERTH_PEER_LOST, "turn %u: %d", turn, rc);
	ck_assert_msg(!small || !rc == sound, "turn %u: %d", turn, rc);
	atomic_store(&s->region->broken, 0);
}

START_TEST(lies_of_rows)
{
	struct shm *s = join_liars();

	s->flat_bytes = LIARS_FLAT_BYTES;
	for (unsigned turn = 0; turn < LIES; turn++)
		hear_rows(s, turn);
	shm_backend.leave(s);
}
END_TEST

START_TEST(words_that_break)
{
	struct shm *s = join_liars();
	struct coll c = { .kind = BERTH_BARRIER };

	for (uint32_t word = 1; word < 100; word++) {
		atomic_store(&s->region->broken, word);
		ck_assert_int_eq(shm_backend.begin(s, &c, 0),
				 word > BERTH_PEER_LOST && word <= BERTH_SYSTEM
					 ? (int)word
					 : BERTH_PEER_LOST);
	}
	shm_backend.leave(s);
}
END_TEST

/* Texts that do not end. */
START_TEST(endless_texts)
{
	struct shm *s = join_liars();
	const struct coll c = { .signature = 0x45585031 };
	const char *said[LIARS];

	others_lie(s, &c, 0);
	s->flat_bytes = LIARS_FLAT_BYTES;
	memset(s->flat, 'x', LIARS * FLAT_SLOTS * s->flat_bytes);
	ck_assert_int_eq(shm_backend.explain(s, "mine", said), BERTH_OK);
	ck_assert_str_eq(said[1], "mine");
	ck_assert_uint_eq(strlen(said[0]), BACKEND_TEXT_BYTES - 1);
	ck_assert_uint_eq(strlen(said[2]), BACKEND_TEXT_BYTES - 1);
	shm_backend.leave(s);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("shm_lies");
	TCase *t = tcase_create("shm_lies");
	SRunner *r = srunner_create(s);
	int failed;

	suite_add_tcase(s, t);
	tcase_set_timeout(t, 120);
	tcase_add_test(t, lies_of_places);
	tcase_add_test(t, lies_at_the_end);
	tcase_add_test(t, lies_of_rows);
	tcase_add_test(t, words_that_break);
	tcase_add_test(t, endless_texts);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed != 0;
}
