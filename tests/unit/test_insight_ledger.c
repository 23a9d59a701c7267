/* launcher/insight/ledger.h: rows of earlier runs.
 * takes_s: 0 */
#include <check.h>

#include "common/str.h"
#include "launcher/insight/ledger.h"

static struct ledger l;

static void check_written(const char *expected)
{
	struct str s = { 0 };

	ledger_write(&s, &l);
	ck_assert_str_eq(str_text(&s), expected);
	str_free(&s);
}

START_TEST(rows_are_read_and_written)
{
	ledger_read(&l, "");
	ck_assert_uint_eq(l.n, 0);
	ledger_read(&l, "00000000000000ab 4 12.5\n"
			"no row\n\n00000000000000ab 0 3\n00000000000000ab 4 nan\n"
			"00000000000000ab 4 -1\n00000000000000ab 4 1 more\n"
			"ffffffffffffffff 16 1e-05\n00000000000000ab 8 3");
	check_written("00000000000000ab 4 12.5\nffffffffffffffff 16 1e-05\n");
}
END_TEST

START_TEST(one_row_for_a_command_and_its_ranks)
{
	ledger_read(&l, "0000000000000001 4 12.5\n0000000000000001 8 11\n");
	ledger_add(&l, &(struct ledger_row){ 1, 4, 13 });
	check_written("0000000000000001 8 11\n0000000000000001 4 13\n");
	ck_assert_uint_eq(ledger_fewest(&l, 1, 16).np, 4);
	ck_assert_double_eq(ledger_fewest(&l, 1, 16).steps, 13);
	ck_assert_uint_eq(ledger_fewest(&l, 1, 4).np, 0);
	ck_assert_uint_eq(ledger_fewest(&l, 2, 16).np, 0);
}
END_TEST

START_TEST(it_is_bounded)
{
	struct str s = { 0 };

	ledger_read(&l, "");
	for (uint32_t i = 1; i <= 3 * LEDGER_MOST; i++)
		ledger_add(&l, &(struct ledger_row){ UINT64_MAX - i, UINT32_MAX,
						     1.23456e-300 });
	ck_assert_uint_eq(l.n, LEDGER_MOST);
	ck_assert_uint_eq(l.row[LEDGER_MOST - 1].command, UINT64_MAX - 3 * LEDGER_MOST);
	ledger_write(&s, &l);
	ck_assert_uint_le(s.len, LEDGER_BYTES);
	str_free(&s);
}
END_TEST

/* Words count as words; a secret does not count. */
START_TEST(hashes)
{
	char a[] = "ab", b[] = "c", x[] = "a", y[] = "bc", p[] = "--password",
	     s1[] = "one", s2[] = "two";
	char *ab_c[] = { a, b }, *a_bc[] = { x, y }, *one[] = { p, s1 },
	     *two[] = { p, s2 };
	const struct strv v[] = { { .v = ab_c, .n = 2 },
				  { .v = a_bc, .n = 2 },
				  { .v = one, .n = 2 },
				  { .v = two, .n = 2 } };

	ck_assert_uint_ne(ledger_hash(0, &v[0]), ledger_hash(0, &v[1]));
	ck_assert_uint_eq(ledger_hash(0, &v[2]), ledger_hash(0, &v[3]));
	ck_assert_uint_ne(ledger_hash(ledger_hash(0, &v[0]), &v[1]),
			  ledger_hash(0, &v[1]));
}
END_TEST

START_TEST(steps_a_second)
{
	struct rank_record rank[2] = { { .sums = { .ops_s = 12, .steps = 240 } },
				       { .sums = { .ops_s = 20, .steps = 10 } } };
	struct record r = { .rank = rank, .nranks = 2 };

	ck_assert_double_eq(ledger_steps(&r, 10), 20);
	ck_assert_double_eq(ledger_steps(&r, 13), 0);
	r.nranks = 0;
	ck_assert_double_eq(ledger_steps(&r, 0), 0);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("insight_ledger");
	TCase *t = tcase_create("ledger");
	SRunner *runner;
	int failed;

	tcase_add_test(t, rows_are_read_and_written);
	tcase_add_test(t, one_row_for_a_command_and_its_ranks);
	tcase_add_test(t, it_is_bounded);
	tcase_add_test(t, hashes);
	tcase_add_test(t, steps_a_second);
	suite_add_tcase(s, t);
	runner = srunner_create(s);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
