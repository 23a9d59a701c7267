/* lib/shm: the collectives by every way through the memory.
 * limit_s: 400
 * takes_s: 22 */
#include "collectives.h"

#include "lib/backend/shm_internal.h"

static struct group join_by(struct ranks *r, bool heap, enum shm_staging staging,
			    size_t chunk_bytes)
{
	struct shm_config c = { .n = r->n,
				.me = r->me,
				.region = r->region,
				.cores = 2,
				.heap = heap ? r->heap : NULL,
				.heap_bytes = r->heap_bytes,
				.cache_bytes = 1 << 20,
				.chunk_bytes = chunk_bytes,
				.staging = staging };
	struct group g = { &shm_backend, shm_join(&c), NULL };

	RANKS_ASSERT(r, g.group, "shm_join");
	return g;
}

static struct group join_with(struct ranks *r, bool heap, enum shm_staging staging)
{
	return join_by(r, heap, staging, 0);
}

static void leave(struct group *g)
{
	g->back->leave(g->group);
}

static void all_reductions(struct ranks *r)
{
	struct group g = join_with(r, false, r->n % 3);

	check_reductions(r, &g);
	leave(&g);
}

START_TEST(reductions)
{
	ranks_run((unsigned)_i, shm_bytes((unsigned)_i), 0, all_reductions, 100);
}
END_TEST

/* ---- chunks of any size, staged in any way: the same bits ---- */

static void one_of_many(struct ranks *r, struct group *g, unsigned op)
{
	static const uint64_t counts[] = { 8300, 20011, 70001, 262144, 400003 };
	static unsigned char a[400003 * 4 + 64], b[sizeof a];
	struct coll c = { .kind = op % 7 ? BERTH_ALLREDUCE : BERTH_REDUCE,
			  .count = counts[op % 5],
			  .type = op % 3 ? BERTH_F32 : BERTH_BF16,
			  .op = BERTH_SUM,
			  .root = op % r->n };

	check_reduction(r, g, &c, a + op % 4 * 4, op % 2 ? b : a + op % 4 * 4, op);
}

static size_t chunk;

static void by_chunks(struct ranks *r)
{
	struct group g = join_by(r, false, SHM_STAGING_FOUND, chunk);

	for (unsigned op = 1; op <= 10; op++)
		one_of_many(r, &g, op);
	leave(&g);
}

START_TEST(chunks)
{
	static const size_t sizes[] = { 256, 1000, 4160, 65536, 100032, 1 << 20 };

	chunk = sizes[_i];
	ranks_run(2, shm_bytes(2), 0, by_chunks, 100);
	ranks_run(3, shm_bytes(3), 0, by_chunks, 100);
}
END_TEST

/* As cores that move from one cache to another would have it. */
static void switched(struct ranks *r)
{
	struct group g = join_with(r, false, SHM_STAGING_NEAR);
	struct shm *s = g.group;

	for (unsigned op = 1; op <= 40; op++) {
		if (!r->me)
			s->found_past = op / 2 % 2;
		one_of_many(r, &g, op);
		/* small sums follow what they heard last */
		RANKS_ASSERT(r, s->past == op / 2 % 2 || op % 5 < 1, "staging");
	}
	leave(&g);
}

START_TEST(switching)
{
	ranks_run((unsigned)_i, shm_bytes((unsigned)_i), 0, switched, 100);
}
END_TEST

static void tried(struct ranks *r)
{
	struct group g = join_with(r, false, SHM_STAGING_FOUND);
	struct shm *s = g.group;

	s->oversubscribed = false;
	for (unsigned op = 1; op <= 30; op++) {
		s->probed_ns = 0;
		one_of_many(r, &g, op);
		RANKS_ASSERT(r, op % 5 < 2 || r->me || s->probed_ns, "not tried");
	}
	leave(&g);
}

START_TEST(trying)
{
	ranks_run((unsigned)_i, shm_bytes((unsigned)_i), 0, tried, 100);
}
END_TEST

/* ---- in the heap ---- */

/* Arrays in memory that all reach. */
static void in_heap(struct ranks *r)
{
	static const uint64_t counts[] = { 1025, 40000, 300007 };
	struct group g = join_with(r, true, SHM_STAGING_FOUND);
	unsigned char *mine = (unsigned char *)r->heap + r->me * (r->heap_bytes / r->n);
	unsigned op = 1;

	for (int turn = 0; turn < 4; turn++)
		for (size_t i = 0; i < 3; i++) {
			struct coll c = { .kind = BERTH_ALLREDUCE,
					  .count = counts[i],
					  .type = BERTH_F32,
					  .op = BERTH_SUM };

			/* one rank that has not: through the window */
			if (turn == 3 && r->me == r->n - 1)
				check_reduction(r, &g, &c, mine, malloc(counts[i] * 4),
						op);
			else
				check_reduction(r, &g, &c, mine,
						turn % 2 ? mine : mine + (2 << 20), op);
			op++;
		}
	leave(&g);
}

START_TEST(heap)
{
	ranks_run((unsigned)_i, shm_bytes((unsigned)_i), (size_t)_i << 22, in_heap,
		  100);
}
END_TEST

static void all_moves(struct ranks *r)
{
	struct group g = join_with(r, false, SHM_STAGING_FOUND);

	check_moves(r, &g);
	leave(&g);
}

START_TEST(moves)
{
	ranks_run((unsigned)_i, shm_bytes((unsigned)_i), 0, all_moves, 100);
}
END_TEST

static void moves_there(struct ranks *r)
{
	struct group g = join_with(r, true, SHM_STAGING_FOUND);

	r->in_heap = true;
	check_moves(r, &g);
	leave(&g);
}

START_TEST(heap_moves)
{
	ranks_run((unsigned)_i, shm_bytes((unsigned)_i), (size_t)_i << 23, moves_there,
		  100);
}
END_TEST

/* The last rank could not map the heap. */
static void not_for_all(struct ranks *r)
{
	struct group g = join_with(r, r->me < r->n - 1, SHM_STAGING_FOUND);

	r->in_heap = true;
	for (unsigned op = 1; op <= 6; op++)
		check_broadcast(r, &g, 5000 * op, op);
	leave(&g);
}

START_TEST(without_heap)
{
	ranks_run(3, shm_bytes(3), 3 << 20, not_for_all, 100);
}
END_TEST

/* ---- ranks that sleep ---- */

/* At every wait at once.  A wake-up that is missed, as post() may, costs 1 ms. */
static void sleeping(struct ranks *r)
{
	struct group g = join_with(r, false, SHM_STAGING_NEAR);
	struct coll c = { .kind = BERTH_BARRIER };
	struct shm *s = g.group;

	s->wait.spins = s->wait.yields = 0;
	s->wait.spin_ns = 0;
	for (c.signature = 1; c.signature <= 3000; c.signature++)
		RANKS_ASSERT(r, !shm_backend.begin(g.group, &c, 0), "barrier");
	RANKS_ASSERT(r, s->wait.slept > 0, "nobody slept");
	leave(&g);
}

START_TEST(sleepers)
{
	ranks_run((unsigned)_i, shm_bytes((unsigned)_i), 0, sleeping, 100);
}
END_TEST

/* ---- counters that wrap ---- */

/* All ranks are here, by a counter of their own. */
static void meet(struct ranks *r, unsigned time)
{
	_Atomic unsigned *came = r->heap;

	atomic_fetch_add(came, 1);
	while (atomic_load(came) < time * r->n)
		usleep(100);
}

/* As if so many operations had been done that SEQ is the last one's number and so many
 * chunks had gone by that BASE is theirs: of which DONE alone is counted by all. */
static void jump(struct ranks *r, struct shm *s, uint32_t seq, uint32_t base)
{
	s->seq = seq;
	s->base = base;
	post(&s->line[seq & 1][r->me].post, seq);
	post(&s->line[~seq & 1][r->me].post, seq - 1);
	post(&s->done[r->me].post, base);
}

static void long_since(struct ranks *r)
{
	struct group g = join_with(r, false, SHM_STAGING_FOUND);
	unsigned time = 0;

	for (unsigned op = 1; op <= 12; op++) {
		struct shm *s = g.group;

		meet(r, ++time);
		jump(r, s, s->seq + UINT32_MAX / 3,
		     s->base + (op % 3 ? (1u << 31) + op : (3u << 29) + op));
		meet(r, ++time);
		one_of_many(r, &g, op);
		check_gather(r, &g, 40000, op % 2, op);
	}
	leave(&g);
}

START_TEST(wraps)
{
	ranks_run((unsigned)_i, shm_bytes((unsigned)_i), 4096, long_since, 100);
}
END_TEST

/* ---- what goes wrong ---- */

static void differ(struct ranks *r)
{
	struct group g = join_with(r, false, SHM_STAGING_FOUND);

	check_mismatch(r, &g);
	leave(&g);
}

START_TEST(mismatch)
{
	ranks_run(4, shm_bytes(4), 0, differ, 100);
}
END_TEST

/* Until ranks 1 and 3 have said that they are at the first operation. */
static void await_others(const struct shm *s)
{
	for (unsigned r = 1; r < 4; r += 2)
		while (!atomic_load(&s->line[1][r].post.value))
			usleep(100);
}

static void one_is_late(struct ranks *r)
{
	struct group g = join_with(r, false, SHM_STAGING_FOUND);
	struct timespec now;
	unsigned which[8];
	struct coll c = { .kind = BERTH_BARRIER, .signature = 5 };
	berth_result rc;

	if (r->me == 2)
		_exit(0);
	if (r->me == 0)
		await_others(g.group);
	clock_gettime(CLOCK_MONOTONIC, &now);
	rc = shm_backend.begin(g.group, &c,
			       r->me == 0 ? (uint64_t)now.tv_sec * 1000000000 +
						    (uint64_t)now.tv_nsec + 200000000
					  : 0);
	RANKS_ASSERT(r, rc == BERTH_TIMEOUT, "%d", rc);
	RANKS_ASSERT(
		r,
		r->me || (shm_backend.others(g.group, which, 8) == 1 && which[0] == 2),
		"who");
	RANKS_ASSERT(r, shm_backend.begin(g.group, &c, 0) == BERTH_TIMEOUT,
		     "it is broken for good");
	leave(&g);
}

START_TEST(timeout)
{
	ranks_run(4, shm_bytes(4), 0, one_is_late, 100);
}
END_TEST

/* Comes to the operation, and no further. */
static void come_only(struct shm *s, const struct coll *c)
{
	struct line *mine;

	s->seq++;
	mine = shm_own_line(s);
	mine->u.far.in = mine->u.far.out = NOWHERE;
	shm_agree(s, c->signature);
}

/* One rank's time is over in the middle of an operation; the others' never is. */
static void stops_inside(struct ranks *r)
{
	struct group g = join_with(r, false, SHM_STAGING_NEAR);
	static float x[70001];
	struct timespec now;
	struct coll c = { .kind = BERTH_ALLREDUCE,
			  .count = 70001,
			  .type = BERTH_F32,
			  .in = x,
			  .out = x,
			  .signature = 5 };
	berth_result rc;

	clock_gettime(CLOCK_MONOTONIC, &now);
	if (r->me == 2)
		come_only(g.group, &c);
	rc = shm_backend.begin(g.group, &c,
			       r->me == 0 ? (uint64_t)now.tv_sec * 1000000000 +
						    (uint64_t)now.tv_nsec + 200000000
					  : 0);
	RANKS_ASSERT(r, rc == BERTH_TIMEOUT, "%d", rc);
	leave(&g);
}

START_TEST(timeout_inside)
{
	ranks_run(3, shm_bytes(3), 0, stops_inside, 100);
}
END_TEST

static void broken(struct ranks *r)
{
	struct group g = join_with(r, false, SHM_STAGING_FOUND);
	struct coll c = { .kind = BERTH_BARRIER, .signature = 5 };

	if (r->me == 1) {
		usleep(100000); /* the others sleep by now */
		shm_backend.revoke(g.group, BERTH_PEER_LOST, 1);
		_exit(0);
	}
	RANKS_ASSERT(r, shm_backend.begin(g.group, &c, 0) == BERTH_PEER_LOST,
		     "not broken");
	leave(&g);
}

START_TEST(lost)
{
	ranks_run(3, shm_bytes(3), 0, broken, 100);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("shm");
	TCase *t = tcase_create("shm");
	SRunner *r = srunner_create(s);
	int failed;

	suite_add_tcase(s, t);
	tcase_set_timeout(t, 120);
	tcase_add_loop_test(t, reductions, 1, 6);
	tcase_add_loop_test(t, heap, 2, 5);
	tcase_add_loop_test(t, moves, 1, 9);
	tcase_add_loop_test(t, chunks, 0, 6);
	tcase_add_loop_test(t, switching, 2, 4);
	tcase_add_loop_test(t, trying, 2, 4);
	tcase_add_loop_test(t, heap_moves, 2, 5);
	tcase_add_test(t, without_heap);
	tcase_add_loop_test(t, sleepers, 2, 5);
	tcase_add_loop_test(t, wraps, 2, 5);
	tcase_add_test(t, mismatch);
	tcase_add_test(t, timeout);
	tcase_add_test(t, timeout_inside);
	tcase_add_test(t, lost);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed != 0;
}
