/* lib/tune: which algorithm an allreduce over connections takes. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/backend/tune.h"

static struct tune_work f32(unsigned ranks, uint64_t bytes)
{
	return (struct tune_work){ ranks, bytes / 4, 4, 4, 4 };
}

static enum tune_algorithm algorithm(double latency_us, double us_per_byte,
				     unsigned ranks, uint64_t bytes)
{
	struct tune_numbers n = { .latency_us = latency_us,
				  .us_per_byte = us_per_byte };
	struct tune_work w = f32(ranks, bytes);

	return tune_choose(&n, &w).algorithm;
}

START_TEST(sizes)
{
	/* two ranks send all they have once, in one message or in two; in two they
	 * reduce half of it: worth another message from 2 * 22000 L on */
	ck_assert_int_eq(algorithm(3, 2e-4, 2, 131000), TUNE_DOUBLE);
	ck_assert_int_eq(algorithm(3, 2e-4, 2, 133000), TUNE_HALVE);
	/* 4 ranks: 2 L + 2 n against 4 L + 1.5 n: even at about 4 L / b */
	ck_assert_int_eq(algorithm(5, 1e-3, 4, 15000), TUNE_DOUBLE);
	ck_assert_int_eq(algorithm(5, 1e-3, 4, 21000), TUNE_HALVE);
	/* the slower a message, the larger what it carries, and many steps cost more
	 * than many messages at a time */
	ck_assert_int_eq(algorithm(2000, 1e-3, 4, 81000), TUNE_DOUBLE);
	ck_assert_int_eq(algorithm(2000, 1e-3, 16, 100 << 20), TUNE_DIRECT);
	/* 5 ranks: who has no partner sends all twice, parts are sent once */
	ck_assert_int_eq(algorithm(20, 1e-3, 5, 8), TUNE_DOUBLE);
	ck_assert_int_eq(algorithm(20, 1e-3, 5, 100 << 20), TUNE_DIRECT);
}
END_TEST

/* Ranks that share cores: each message costs. */
START_TEST(shared_cores)
{
	struct tune_numbers n = { .latency_us = 110, .us_per_byte = 1.4e-3 };
	struct tune_work w = f32(16, 512 << 10);

	ck_assert_int_eq(tune_choose(&n, &w).algorithm, TUNE_DIRECT);
	n.message_us = 110;
	ck_assert_int_eq(tune_choose(&n, &w).algorithm, TUNE_HALVE);
}
END_TEST

/* Partial sums of bf16 are twice as wide as what is sent directly. */
START_TEST(narrow)
{
	const struct tune_numbers n = { .latency_us = 20, .us_per_byte = 1e-3 };
	struct tune_work w = { 4, 16 << 20, 2, 4, 2 };

	ck_assert_int_eq(tune_choose(&n, &w).algorithm, TUNE_DIRECT);
	ck_assert(tune_cost_us(&n, TUNE_HALVE, &w) >
		  1.1 * tune_cost_us(&n, TUNE_DIRECT, &w));
	w.count = 512;
	ck_assert_int_eq(tune_choose(&n, &w).algorithm, TUNE_DOUBLE);
}
END_TEST

START_TEST(least)
{
	struct tune_numbers n = { .latency_us = 33, .us_per_byte = 2e-4 };

	for (unsigned ranks = 2; ranks < 70; ranks++)
		for (uint64_t bytes = 8; bytes < 1ull << 36; bytes *= 2) {
			const struct tune_work w = f32(ranks, bytes),
					       more = f32(ranks, 2 * bytes);
			enum tune_algorithm best = tune_choose(&n, &w).algorithm;

			for (enum tune_algorithm a = 0; a < TUNE_ALGORITHMS; a++)
				ck_assert(tune_cost_us(&n, best, &w) <=
					  tune_cost_us(&n, a, &w));
			for (enum tune_algorithm a = 0; a < TUNE_ALGORITHMS; a++)
				ck_assert(tune_cost_us(&n, a, &w) <
					  tune_cost_us(&n, a, &more));
		}
}
END_TEST

START_TEST(several_lanes)
{
	struct tune_numbers n = { .latency_us = 33, .us_per_byte = 2e-4 };
	const struct tune_work large = f32(4, 1 << 30), small = f32(4, 1 << 20);

	ck_assert_uint_eq(tune_choose(&n, &large).lanes, 1);
	n.lanes_us_per_byte = 1.9e-4; /* not worth it */
	ck_assert_uint_eq(tune_choose(&n, &large).lanes, 1);
	n.lanes_us_per_byte = 1e-4;
	ck_assert_uint_eq(tune_choose(&n, &large).lanes, TUNE_LANES);
	ck_assert_uint_eq(tune_choose(&n, &small).lanes, 1);
}
END_TEST

START_TEST(chosen_by_the_user)
{
	static const char *const bad[] = { "",
					   "ring",
					   "double:",
					   "double:x",
					   "halve:1K,",
					   "direct,double",
					   "double:2K,halve:1K",
					   "double:1,halve:2,double:3,halve:4,direct",
					   "doubled",
					   "halve:99999999999G" };
	struct tune_numbers n = { .latency_us = 20, .us_per_byte = 1e-3 };
	const struct tune_work small = f32(4, 1024), more = f32(4, 2048),
			       large = f32(4, 1 << 30);

	ck_assert(tune_read(&n.choices, "direct:1k,double:1M"));
	ck_assert_int_eq(tune_choose(&n, &small).algorithm, TUNE_DIRECT);
	ck_assert_int_eq(tune_choose(&n, &more).algorithm, TUNE_DOUBLE);
	ck_assert_int_eq(tune_choose(&n, &large).algorithm, TUNE_HALVE);
	ck_assert(tune_read(&n.choices, "halve:8,double"));
	ck_assert_int_eq(tune_choose(&n, &large).algorithm, TUNE_DOUBLE);
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
		ck_assert_msg(!tune_read(&n.choices, bad[i]), "%s", bad[i]);
}
END_TEST

START_TEST(table)
{
	char *text = malloc(8192), small[40];
	size_t n = tune_table(text, 8192, &tune_guess, 4);

	ck_assert_uint_eq(n, strlen(text));
	ck_assert_ptr_nonnull(strstr(text, "4 ranks over connections: a message takes "
					   "25.0 us, a MiB 1049 us\n"));
	ck_assert_ptr_nonnull(strstr(text, " double 1\n"));
	ck_assert_ptr_nonnull(strstr(text, " halve 1\n"));
	ck_assert_uint_eq(tune_table(small, sizeof small, &tune_guess, 4), n);
	ck_assert_uint_eq(strlen(small), sizeof small - 1);
	free(text);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("tune");
	TCase *t = tcase_create("tune");
	SRunner *r = srunner_create(s);
	int failed;

	suite_add_tcase(s, t);
	tcase_add_test(t, sizes);
	tcase_add_test(t, shared_cores);
	tcase_add_test(t, narrow);
	tcase_add_test(t, least);
	tcase_add_test(t, several_lanes);
	tcase_add_test(t, chosen_by_the_user);
	tcase_add_test(t, table);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed != 0;
}
