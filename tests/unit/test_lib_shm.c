/* lib/shm: the collectives by every way through the memory. */
#include "collectives.h"

#include "lib/shm.h"

static struct group join_with(struct ranks *r, bool heap, bool far)
{
	struct shm_config c = { .n = r->n,
				.me = r->me,
				.region = r->region,
				.cores = 2,
				.heap = heap ? r->heap : NULL,
				.heap_bytes = r->heap_bytes,
				.cache_bytes = 1 << 20,
				.far = far };
	struct group g = { &shm_backend, shm_join(&c), NULL };

	RANKS_ASSERT(r, g.group, "shm_join");
	return g;
}

static void leave(struct group *g)
{
	g->back->leave(g->group);
}

static void all_reductions(struct ranks *r)
{
	struct group g = join_with(r, false, r->n == 3);

	check_reductions(r, &g);
	leave(&g);
}

START_TEST(reductions)
{
	ranks_run((unsigned)_i, shm_bytes((unsigned)_i), 0, all_reductions, 100);
}
END_TEST

/* Arrays in memory that all reach. */
static void in_heap(struct ranks *r)
{
	static const uint64_t counts[] = { 1025, 40000, 300007 };
	struct group g = join_with(r, true, false);
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
	ranks_run((unsigned)_i, shm_bytes((unsigned)_i), (size_t)_i << 22, in_heap, 60);
}
END_TEST

static void all_moves(struct ranks *r)
{
	struct group g = join_with(r, false, false);

	check_moves(r, &g);
	leave(&g);
}

START_TEST(moves)
{
	ranks_run((unsigned)_i, shm_bytes((unsigned)_i), 0, all_moves, 100);
}
END_TEST

/* ---- what goes wrong ---- */

static void differ(struct ranks *r)
{
	struct group g = join_with(r, false, false);

	check_mismatch(r, &g);
	leave(&g);
}

START_TEST(mismatch)
{
	ranks_run(4, shm_bytes(4), 0, differ, 20);
}
END_TEST

static void one_is_late(struct ranks *r)
{
	struct group g = join_with(r, false, false);
	struct timespec now;
	unsigned which[8];
	struct coll c = { .kind = BERTH_BARRIER, .signature = 5 };
	berth_result rc;

	if (r->me == 2)
		_exit(0);
	clock_gettime(CLOCK_MONOTONIC, &now);
	rc = shm_backend.run(g.group, &c,
			     r->me == 0 ? (uint64_t)now.tv_sec * 1000000000 +
						  (uint64_t)now.tv_nsec + 200000000
					: 0);
	RANKS_ASSERT(r, rc == BERTH_TIMEOUT, "%d", rc);
	RANKS_ASSERT(
		r,
		r->me || (shm_backend.others(g.group, which, 8) == 1 && which[0] == 2),
		"who");
	RANKS_ASSERT(r, shm_backend.run(g.group, &c, 0) == BERTH_TIMEOUT,
		     "it is broken for good");
	leave(&g);
}

START_TEST(timeout)
{
	ranks_run(4, shm_bytes(4), 0, one_is_late, 20);
}
END_TEST

static void broken(struct ranks *r)
{
	struct group g = join_with(r, false, false);
	struct coll c = { .kind = BERTH_BARRIER, .signature = 5 };

	if (r->me == 1) {
		usleep(100000); /* the others sleep by now */
		shm_backend.end(g.group, BERTH_PEER_LOST, 1);
		_exit(0);
	}
	RANKS_ASSERT(r, shm_backend.run(g.group, &c, 0) == BERTH_PEER_LOST,
		     "not broken");
	leave(&g);
}

START_TEST(lost)
{
	ranks_run(3, shm_bytes(3), 0, broken, 20);
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
	tcase_add_test(t, mismatch);
	tcase_add_test(t, timeout);
	tcase_add_test(t, lost);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed != 0;
}
