/* launcher/insight/live.h: a record to a line and to a table. */
#include <check.h>

#include "common/str.h"
#include "launcher/insight/live.h"

enum { RANKS = 3, ROW = 100 };

static struct record r;
static struct ranked ranked[RANKS];
static struct look look = { .record = &r, .rank = ranked };
static struct verdict verdict;
static struct live now = { .up = 2, .np = RANKS, .verdict = &verdict };
static struct str out;

static void setup(void)
{
	record_open(&r, RANKS, 1, 1000);
	out = (struct str){ 0 };
	verdict = (struct verdict){ 0 };
	for (uint32_t i = 0; i < RANKS; i++)
		ranked[i].host = "n1";
}

static void teardown(void)
{
	record_free(&r);
	str_free(&out);
}

static void sample(uint32_t rank, float cpu, float steps)
{
	struct strip *s = &r.rank[rank].strip;

	s->v = xcalloc(1, sizeof *s->v);
	s->n = s->samples = 1;
	s->v[0] = (struct point){ .span_s = 1,
				  .main = cpu / 2,
				  .cpu = cpu,
				  .blocked = 0.25f,
				  .resident_gib = 1.5f,
				  .read_mb = 12.25f,
				  .steps = steps,
				  .ops = 2 * steps,
				  .gpu = -1 };
	r.rank[rank].state = 'R';
	r.rank[rank].sums.steps = (double)(40 * steps);
}

static void check_line(const char *expected)
{
	out.len = 0;
	live_line(&out, &look, &now);
	ck_assert_str_eq(str_text(&out), expected);
}

START_TEST(line)
{
	check_line("2/3 up");
	sample(0, 1, 30.4f);
	sample(1, 0.5f, 30);
	check_line("2/3 up, step 1216, 30 steps/s, cpu 75 %");
	r.rank[0].sums.steps = r.rank[1].sums.steps = 0;
	check_line("2/3 up, 61 operations/s, cpu 75 %");
	verdict.n = 2;
	verdict.v[0].rule = "SLOW RANK";
	rank_set_add(&verdict.v[0].ranks, 1);
	verdict.v[1].rule = "INPUT";
	check_line("2/3 up, 61 operations/s, cpu 75 %, SLOW RANK 1, INPUT");
	rank_set_free(&verdict.v[0].ranks);
}
END_TEST

START_TEST(table)
{
	sample(1, 1, 5);
	r.rank[1].moved = xstrdup("0");
	live_table(&out, &look, &now, ROW, 24);
	ck_assert_str_eq(str_text(&out),
			 "2/3 up, step 200, 5.0 steps/s, cpu 100 %\n"
			 "  rank wait% main%  cpu% gpu% nocpu%     step    GiB   state"
			 " read MB/s loaders%                 host\n"
			 "     0     -     -     -    -      -        0   0.00       -"
			 "       0.0        -                   n1\n"
			 "     1    25    50   100    -      0      200   1.50 R moved"
			 "      12.2        0                   n1\n"
			 "     2     -     -     -    -      -        0   0.00       -"
			 "       0.0        -                   n1");
}
END_TEST

/* No row is wider than the terminal; columns go, one after the other. */
START_TEST(any_width)
{
	sample(1, 1, 5);
	for (size_t width = 1; width < 200; width++) {
		size_t row = 0;

		out.len = 0;
		live_table(&out, &look, &now, width, 24);
		for (const char *s = str_text(&out); *s; s++) {
			row = *s == '\n' ? 0 : row + 1;
			ck_assert_uint_le(row, width);
		}
	}
}
END_TEST

/* Where not all have room, those that findings name do. */
START_TEST(few_rows)
{
	verdict.n = 1;
	rank_set_add(&verdict.v[0].ranks, 2);
	verdict.v[0].rule = "SLOW RANK";
	live_table(&out, &look, &now, 12, 4);
	ck_assert_str_eq(str_text(&out), "2/3 up, SLOW\n"
					 "  rank wait%\n"
					 "     2     -\n"
					 "       and 2 more");
	rank_set_free(&verdict.v[0].ranks);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("insight_live");
	TCase *t = tcase_create("live");
	SRunner *runner;
	int failed;

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, line);
	tcase_add_test(t, table);
	tcase_add_test(t, any_width);
	tcase_add_test(t, few_rows);
	suite_add_tcase(s, t);
	runner = srunner_create(s);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
