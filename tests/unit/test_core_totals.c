/* lib/core/totals.h: operations to bytes, steps and waiting. */
#include <check.h>
#include <pthread.h>

#include "lib/core/totals.h"

static struct boot_rank me;

static void setup(void)
{
	memset(&me, 0, sizeof me);
	atomic_store(&totals_asleep_ns, 0);
}

static void operation(unsigned kind, uint64_t bytes, const char *name)
{
	atomic_fetch_add(&me.number, 1);
	totals_add(&me, kind, bytes, name);
}

/* Each step reduces three gradients, and now and then something small. */
START_TEST(steps)
{
	operation(BERTH_BROADCAST, 1 << 20, "weights");
	for (int i = 0; i < 100; i++) {
		operation(BERTH_ALLREDUCE, 4000, "a");
		operation(BERTH_ALLREDUCE, 9000, "b");
		operation(BERTH_ALLREDUCE, 9000, "c"); /* the same size */
		operation(BERTH_ALLREDUCE, 4, NULL);
	}
	ck_assert_uint_eq(atomic_load(&me.steps), 99);
	ck_assert_uint_eq(atomic_load(&me.bytes), (1 << 20) + 100 * 22004);
}
END_TEST

/* A large operation that never comes again is forgotten. */
START_TEST(one_large_operation)
{
	operation(BERTH_ALLREDUCE, 1 << 30, "once");
	for (int i = 0; i < TOTALS_LOST + 100; i++)
		operation(BERTH_ALLREDUCE, 64, NULL);
	ck_assert_uint_ge(atomic_load(&me.steps), 98);
	ck_assert_uint_le(atomic_load(&me.steps), 100);
}
END_TEST

START_TEST(huge_operations)
{
	operation(BERTH_REDUCESCATTER, UINT64_MAX, NULL);
	operation(BERTH_REDUCESCATTER, UINT64_MAX, NULL);
	ck_assert_uint_eq(atomic_load(&me.steps), 1);
}
END_TEST

/* Waiting counts from the end of the first operation on, by the next one. */
START_TEST(waiting)
{
	totals_blocked(1000);
	operation(BERTH_ALLREDUCE, 4, NULL);
	ck_assert_uint_gt(atomic_load(&me.first_ns), 0);
	ck_assert_uint_eq(atomic_load(&me.blocked_ns), 0);
	totals_blocked(20);
	totals_blocked(3);
	ck_assert_uint_eq(atomic_load(&me.blocked_ns), 0);
	operation(BERTH_BARRIER, 0, NULL);
	ck_assert_uint_eq(atomic_load(&me.blocked_ns), 23);
	operation(BERTH_BARRIER, 0, NULL);
	ck_assert_uint_eq(atomic_load(&me.blocked_ns), 23);
}
END_TEST

static void *other_thread(void *unused)
{
	totals_blocked(1000);
	for (int i = 0; i < 10000; i++)
		operation(BERTH_ALLREDUCE, 8, NULL);
	return unused;
}

/* Only the main thread's waiting counts; each thread's bytes do. */
START_TEST(threads)
{
	pthread_t t[4];

	operation(BERTH_ALLREDUCE, 8, NULL);
	for (int i = 0; i < 4; i++)
		ck_assert(!pthread_create(&t[i], NULL, other_thread, NULL));
	for (int i = 0; i < 4; i++)
		pthread_join(t[i], NULL);
	ck_assert_uint_eq(atomic_load(&me.bytes), 8 + 4 * 80000);
	ck_assert_uint_eq(atomic_load(&me.blocked_ns), 0);
}
END_TEST

/* 3 ranks: a ring carries 2 / 3 of an array twice. */
START_TEST(large_operations)
{
	const struct boot_large *of = me.large[BERTH_ALLREDUCE - 1];

	totals_large(&me, BERTH_ALLREDUCE, 3 << 16, 3, 500);
	totals_large(&me, BERTH_ALLREDUCE, 3 << 16, 3, 700);
	ck_assert_uint_eq(atomic_load(&of[1].ops), 2);
	ck_assert_uint_eq(atomic_load(&of[1].bytes), 6 << 16);
	ck_assert_uint_eq(atomic_load(&of[1].bus_bytes), 8 << 16);
	ck_assert_uint_eq(atomic_load(&of[1].ns), 1200);
	of = me.large[BERTH_ALLGATHER - 1];
	totals_large(&me, BERTH_ALLGATHER, 1 << 16, 4, 100);
	ck_assert_uint_eq(atomic_load(&of[2].bytes), 4 << 16);
	ck_assert_uint_eq(atomic_load(&of[2].bus_bytes), 3 << 16);
	of = me.large[BERTH_BROADCAST - 1];
	totals_large(&me, BERTH_BROADCAST, UINT64_C(1) << 40, 4, 100);
	ck_assert_uint_eq(atomic_load(&of[BOOT_LARGE_SIZES - 1].bus_bytes),
			  UINT64_C(1) << 40);
	totals_large(&me, BERTH_BARRIER, 1 << 16, 4, 100); /* has no row */
	totals_large(&me, 0, 1 << 16, 4, 100);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("core_totals");
	TCase *t = tcase_create("totals");
	SRunner *runner;
	int failed;

	tcase_add_checked_fixture(t, setup, NULL);
	tcase_add_test(t, steps);
	tcase_add_test(t, one_large_operation);
	tcase_add_test(t, huge_operations);
	tcase_add_test(t, waiting);
	tcase_add_test(t, threads);
	tcase_add_test(t, large_operations);
	suite_add_tcase(s, t);
	runner = srunner_create(s);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
