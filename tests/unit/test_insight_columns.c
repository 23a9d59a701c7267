/* launcher/insight/columns.h: strips to columns of one time axis.
 * takes_s: 0 */
#include <check.h>
#include <math.h>

#include "common/str.h"
#include "launcher/insight/columns.h"

static struct point v[STRIP_MOST];
static struct strip strip = { .v = v, .most = STRIP_MOST };
static struct point out[COLUMNS_MOST];

/* N points of SPAN_S, of which each computes more than the one before. */
static void fill(uint32_t n, float span_s)
{
	strip.n = n;
	strip.pending = 0;
	for (uint32_t i = 0; i < n; i++)
		v[i] = (struct point){ .span_s = span_s, .main = (float)i / 100 };
}

static bool is(double a, double b)
{
	return fabs(a - b) < 1e-4;
}

START_TEST(how_many)
{
	const struct record r = { .period_ms = 1000 };
	struct columns c = columns_of(&r, 3600, 120);

	ck_assert_uint_eq(c.n, 120);
	ck_assert(is(c.width_s, 30));
	c = columns_of(&r, 12.05, 120); /* none narrower than a sample */
	ck_assert_uint_eq(c.n, 12);
	ck_assert(is(c.width_s, 1));
	c = columns_of(&r, 0, 120);
	ck_assert_uint_eq(c.n, 1);
}
END_TEST

START_TEST(points_in_columns_of_the_same_width)
{
	const struct columns c = { 10, 1 };

	fill(5, 1);
	columns_rank(out, &c, &strip, 8); /* it began after 3 s */
	ck_assert(out[2].span_s == 0 && out[8].span_s == 0);
	for (int i = 0; i < 5; i++)
		ck_assert(is((double)out[3 + i].main, i / 100.0) &&
			  is((double)out[3 + i].span_s, 1));
}
END_TEST

START_TEST(points_that_lie_in_two_columns_count_in_both)
{
	const struct columns c = { 10, 1 };

	fill(4, 1);
	columns_rank(out, &c, &strip, 4.5);
	ck_assert(is((double)out[0].span_s, 0.5) && is((double)out[0].main, 0));
	ck_assert(is((double)out[1].main, 0.005) && is((double)out[3].main, 0.025));
	ck_assert(is((double)out[4].main, 0.03));
}
END_TEST

START_TEST(many_points_in_a_column_are_their_mean)
{
	const struct columns c = { 2, 50 };

	fill(100, 1);
	columns_rank(out, &c, &strip, 100);
	ck_assert(is((double)out[0].main, 0.245) && is((double)out[1].main, 0.745));
}
END_TEST

/* Clocks and spans that cannot be write into no other memory. */
START_TEST(impossible_times)
{
	static const double ends[] = {
		-1e18, -5, 0, 3, 1e18, NAN, INFINITY, -INFINITY
	};
	static const float spans[] = { 0, 1, 1e30f, -1 };
	const struct columns c = { 10, 1 };
	struct point guarded[12];

	for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
		for (size_t k = 0; k < sizeof spans / sizeof *spans; k++) {
			memset(guarded, 0x55, sizeof guarded);
			fill(4, spans[k]);
			columns_rank(guarded + 1, &c, &strip, ends[i]);
			ck_assert_int_eq(memcmp(&guarded[0], "\x55\x55\x55\x55", 4), 0);
			ck_assert_int_eq(memcmp(&guarded[11], "\x55\x55\x55\x55", 4),
					 0);
		}
}
END_TEST

START_TEST(mean_of_ranks_counts_those_that_are_known)
{
	const struct columns c = { 10, 1 };
	struct point sum[10] = { { 0 } };

	fill(10, 1);
	columns_rank(out, &c, &strip, 10);
	columns_add(sum, out, &c);
	fill(2, 1);
	columns_rank(out, &c, &strip, 2);
	columns_add(sum, out, &c);
	columns_mean(sum, &c);
	ck_assert(is((double)sum[1].main, 0.01) && is((double)sum[9].main, 0.09));
}
END_TEST

/* A rank that had no process for 4 s, after the first half of its samples. */
START_TEST(gaps_are_left_out)
{
	const struct columns c = { .n = 10, .width_s = 1 };

	fill(6, 1);
	strip.gap[0] = (struct gap){ .at_s = 3, .s = 4 };
	strip.gaps = 1;
	columns_rank(out, &c, &strip, 10);
	strip.gaps = 0;
	for (int i = 0; i < 10; i++)
		ck_assert_int_eq(out[i].span_s > 0, i < 3 || i >= 7);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("insight_columns");
	TCase *t = tcase_create("all");
	SRunner *r;
	int failed;

	tcase_add_test(t, gaps_are_left_out);
	tcase_add_test(t, how_many);
	tcase_add_test(t, points_in_columns_of_the_same_width);
	tcase_add_test(t, points_that_lie_in_two_columns_count_in_both);
	tcase_add_test(t, many_points_in_a_column_are_their_mean);
	tcase_add_test(t, impossible_times);
	tcase_add_test(t, mean_of_ranks_counts_those_that_are_known);
	suite_add_tcase(s, t);
	r = srunner_create(s);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed != 0;
}
