/* launcher/insight/record.h: counters to sums and strips.
 * takes_s: 0 */
#include <check.h>

#include "launcher/insight/record.h"

enum { SECOND = 1000000000 };

static struct record r;

static void setup(void)
{
	record_open(&r, 2, 1, 1000);
}

static void teardown(void)
{
	record_free(&r);
}

/* Rank 1 after S seconds, of which its main thread has computed MAIN. */
static void use_at(double s, double main, uint32_t pid)
{
	const struct wire_rank_use m = { .rank = 1,
					 .pid = pid,
					 .clock_ns = (uint64_t)((100 + s) * SECOND),
					 .main_us = (uint64_t)(main * 1e6),
					 .cpu_us = (uint64_t)(2 * main * 1e6),
					 .resident_bytes = UINT64_C(1) << 30,
					 .read_bytes = (uint64_t)(s * 4e6),
					 .state = "R",
					 .cpus = "0-1" };

	record_use(&r, &m, "0-1", (int64_t)m.clock_ns);
}

static void ops_at(double s, uint32_t round, uint64_t ops, double blocked)
{
	const struct wire_rank_ops m = { .rank = 1,
					 .init_round = round,
					 .clock_ns = (uint64_t)((100 + s) * SECOND),
					 .first_ns = 100 * UINT64_C(1000000000),
					 .last_ns = (uint64_t)((100 + s) * SECOND),
					 .ops = ops,
					 .bytes = ops * 1000,
					 .steps = ops / 2,
					 .blocked_us = (uint64_t)(blocked * 1e6) };

	record_ops(&r, &m);
}

START_TEST(rates_of_one_second)
{
	const struct point *p;

	ck_assert_ptr_null(record_now(&r, 1));
	ops_at(1, 1, 100, 0.1);
	use_at(1, 0.5, 7);
	ck_assert_ptr_null(record_now(&r, 1)); /* nothing to compare it with */
	ops_at(3, 1, 300, 0.5);
	use_at(3, 2, 7);
	p = record_now(&r, 1);
	ck_assert_ptr_nonnull(p);
	ck_assert_float_eq_tol(p->span_s, 2, 1e-6f);
	ck_assert_float_eq_tol(p->main, 0.75f, 1e-5f);
	ck_assert_float_eq_tol(p->cpu, 1.5f, 1e-5f);
	ck_assert_float_eq_tol(p->blocked, 0.2f, 1e-5f);
	ck_assert_float_eq_tol(p->ops, 100, 1e-3f);
	ck_assert_float_eq_tol(p->steps, 50, 1e-3f);
	ck_assert_float_eq_tol(p->read_mb, 4, 1e-4f);
	ck_assert_float_eq_tol(p->resident_gib, 1, 1e-6f);
	ck_assert_double_eq_tol(r.rank[1].sums.use_s, 2, 1e-6);
	ck_assert_double_eq_tol(r.rank[1].sums.ops_s, 3, 1e-6);
	ck_assert_double_eq_tol(r.rank[1].sums.blocked_s, 0.5, 1e-6);
	ck_assert_ptr_null(record_now(&r, 0));
}
END_TEST

/* Another process, and another world, begin at 0. */
START_TEST(lives_and_worlds_add_up)
{
	use_at(1, 1, 7);
	use_at(2, 2, 7);
	use_at(3, 0, 8);
	use_at(4, 1, 8);
	ck_assert_double_eq_tol(r.rank[1].sums.use_s, 2, 1e-6);
	ck_assert_double_eq_tol(r.rank[1].sums.main_s, 2, 1e-6);
	ck_assert_uint_eq(r.rank[1].strip.gaps, 1);
	ck_assert_double_eq_tol(r.rank[1].strip.gap[0].at_s, 1, 1e-6);
	ck_assert_double_eq_tol(r.rank[1].strip.gap[0].s, 1, 1e-6);
	ops_at(2, 1, 100, 1);
	ops_at(3, 2, 40, 0.5);
	ck_assert_double_eq_tol(r.rank[1].sums.ops, 140, 1e-6);
	ck_assert_double_eq_tol(r.rank[1].sums.blocked_s, 1.5, 1e-6);
}
END_TEST

/* A strip keeps its room, its time, and its means. */
START_TEST(strips_are_bounded)
{
	enum { SAMPLES = 5000 };
	const struct strip *s = &r.rank[1].strip;
	double all_s = 0, main_s = 0;

	for (int i = 0; i <= SAMPLES; i++) {
		use_at(i, i * 0.25, 7);
		ck_assert_uint_le(s->n, s->most);
	}
	for (uint32_t i = 0; i < s->n; i++) {
		all_s += (double)s->v[i].span_s;
		main_s += (double)(s->v[i].main * s->v[i].span_s);
	}
	ck_assert_uint_eq(s->most, STRIP_MOST);
	ck_assert_uint_gt(s->n, STRIP_MOST / 4);
	ck_assert_double_eq_tol(all_s + s->pending, SAMPLES, s->samples);
	ck_assert_double_eq_tol(main_s / all_s, 0.25, 1e-4);
}
END_TEST

START_TEST(ranks_may_come)
{
	use_at(1, 1, 7);
	record_grow(&r, 100000, 3);
	ck_assert_uint_eq(r.rank[1].pid, 7);
	ck_assert_uint_eq(r.rank[99999].strip.most, STRIP_LEAST);
	record_grow(&r, 5, 1);
	ck_assert_uint_eq(r.nranks, 100000);
}
END_TEST

START_TEST(moved_ranks)
{
	struct wire_rank_use m = {
		.rank = 0, .pid = 1, .clock_ns = 1, .state = "S", .cpus = "0"
	};

	record_use(&r, &m, NULL, (int64_t)m.clock_ns); /* bound to nothing */
	ck_assert_ptr_null(r.rank[0].moved);
	record_use(&r, &m, "0-3", (int64_t)m.clock_ns);
	ck_assert_str_eq(r.rank[0].moved, "0");
	m.cpus = "1";
	record_use(&r, &m, "0-3", (int64_t)m.clock_ns);
	ck_assert_str_eq(r.rank[0].moved, "1");
	ck_assert_uint_eq(r.rank[0].points, 2);
	m.cpus = "0-3";
	record_use(&r, &m, "0-3", (int64_t)m.clock_ns);
	ck_assert_ptr_null(r.rank[0].moved);
}
END_TEST

START_TEST(hosts)
{
	struct wire_host_use m = { .clock_ns = 5, .memory_us = 7, .dropped = 2 };

	record_host(&r, 0, &m);
	m.clock_ns = 9;
	record_host(&r, 0, &m);
	ck_assert_uint_eq(r.host[0].first.clock_ns, 5);
	ck_assert_uint_eq(r.host[0].last.clock_ns, 9);
	ck_assert_uint_eq(r.host[0].dropped, 4);
	ck_assert_uint_eq(r.host[0].samples, 2);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("insight_record");
	TCase *t = tcase_create("record");
	SRunner *runner;
	int failed;

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, rates_of_one_second);
	tcase_add_test(t, lives_and_worlds_add_up);
	tcase_add_test(t, strips_are_bounded);
	tcase_add_test(t, ranks_may_come);
	tcase_add_test(t, moved_ranks);
	tcase_add_test(t, hosts);
	suite_add_tcase(s, t);
	runner = srunner_create(s);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
