/* launcher/insight/large.h, large_rows.h: counters of large operations to rows.
 * takes_s: 0 */
#include <check.h>

#include "launcher/insight/large_rows.h"

static struct record r;

static void setup(void)
{
	record_open(&r, 3, 1, 0);
}

static void teardown(void)
{
	record_free(&r);
}

static const char *tell(uint32_t rank, const char *kind, uint32_t size, uint64_t ops,
			uint64_t us)
{
	const struct wire_large_ops m = { .rank = rank,
					  .init_round = 1,
					  .kind = kind,
					  .size = size,
					  .ops = ops,
					  .bytes = ops * 100,
					  .bus_bytes = ops * 150,
					  .us = us };

	return large_add(&r.rank[rank].large, &m);
}

START_TEST(rows_in_order)
{
	struct large_row row[LARGE_MOST];

	ck_assert_uint_eq(large_rows(&r, row), 0);
	ck_assert_ptr_null(tell(0, "broadcast", 16, 1, 10));
	ck_assert_ptr_null(tell(0, "allreduce", 20, 10, 1000));
	ck_assert_ptr_null(tell(2, "allreduce", 17, 1, 1));
	ck_assert_ptr_null(tell(1, "allreduce", 20, 10, 200));
	ck_assert_ptr_null(tell(2, "allreduce", 20, 20, 1800));
	ck_assert_uint_eq(large_rows(&r, row), 3);
	ck_assert_str_eq(row[0].kind, "allreduce");
	ck_assert_uint_eq(row[0].size, 17);
	ck_assert_str_eq(row[2].kind, "broadcast");
	ck_assert_uint_eq(row[1].size, 20);
	ck_assert_uint_eq(row[1].fastest, 1);
	ck_assert_double_eq_tol(row[1].ops, 20, 1e-9);
	ck_assert_double_eq_tol(row[1].bytes, 100, 1e-9);
	ck_assert_double_eq_tol(row[1].least_s, 20e-6, 1e-12);
	ck_assert_double_eq_tol(row[1].mean_s, 75e-6, 1e-12);
	ck_assert_double_eq_tol(row[1].bandwidth, 1500 / 200e-6, 1);
}
END_TEST

/* In another world the counters begin at 0. */
START_TEST(worlds_add_up)
{
	struct wire_large_ops m = { .init_round = 1,
				    .kind = "reduce",
				    .size = 16,
				    .ops = 5,
				    .bytes = 10,
				    .us = 7000000 };

	large_add(&r.rank[0].large, &m);
	m.ops = 6;
	large_add(&r.rank[0].large, &m);
	m.init_round = 2;
	large_add(&r.rank[0].large, &m);
	ck_assert_uint_eq(r.rank[0].large.n, 1);
	ck_assert_double_eq_tol(r.rank[0].large.v[0].ops, 12, 1e-9);
	ck_assert_double_eq_tol(r.rank[0].large.v[0].s, 14, 1e-9);
	m.us = 0; /* less than before: of no rank that is honest */
	large_add(&r.rank[0].large, &m);
	ck_assert_double_eq_tol(r.rank[0].large.v[0].ops, 18, 1e-9);
}
END_TEST

START_TEST(malformed)
{
	char kind[8] = "a";

	ck_assert_ptr_nonnull(tell(0, "", 16, 1, 1));
	ck_assert_ptr_nonnull(tell(0, "<b>", 16, 1, 1));
	ck_assert_ptr_nonnull(tell(0, "abcdefghijklmnop", 16, 1, 1));
	ck_assert_ptr_nonnull(tell(0, "reduce", 64, 1, 1));
	ck_assert_ptr_null(tell(0, "reduce", 63, 1, 1));
	for (int i = 1; i < LARGE_MOST; i++) {
		kind[0] = (char)('a' + i / 64);
		ck_assert_ptr_null(tell(0, kind, (uint32_t)i % 64, 0, 0));
	}
	ck_assert_ptr_nonnull(tell(0, "z", 1, 1, 1));
}
END_TEST

int main(void)
{
	Suite *s = suite_create("insight_large");
	TCase *t = tcase_create("large");
	SRunner *runner;
	int failed;

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, rows_in_order);
	tcase_add_test(t, worlds_add_up);
	tcase_add_test(t, malformed);
	suite_add_tcase(s, t);
	runner = srunner_create(s);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
