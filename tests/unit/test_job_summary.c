/* launcher/job/summary.h: what hosts used to text and to JSON. */
#include <check.h>

#include "launcher/job/summary.h"

enum { SECOND = 1000000000, MIB = 1 << 20 };

static struct usage u[3];
static const char *const hosts[] = { "n1", "spare", "longer2" };
static struct account account;
static struct summary s;
static const struct verdict none;
static struct str out;

static void setup(void)
{
	memset(u, 0, sizeof u);
	out = (struct str){ 0 };
	s = (struct summary){ .job = "ab12",
			      .begin_ns = 5 * (uint64_t)SECOND,
			      .end_ns = 17 * (uint64_t)SECOND,
			      .host = hosts,
			      .usage = u,
			      .verdict = &none,
			      .losses = &account.losses,
			      .n = 3 };
}

static void teardown(void)
{
	str_free(&out);
	account_free(&account);
	account = (struct account){ 0 };
}

static uint64_t at(double seconds)
{
	return 5 * (uint64_t)SECOND + (uint64_t)(seconds * SECOND);
}

static void two_hosts(void)
{
	u[0].ranks = 2;
	usage_rank(&u[0], at(9), 1500000, 30 * MIB);
	usage_rank(&u[0], at(3), 500000, 20 * MIB);
	u[2].ranks = 1;
	usage_rank(&u[2], at(4), 100, MIB);
	usage_epoch(&u[2], 2500000, 512 * (uint64_t)MIB);
}

START_TEST(ranks_add_up)
{
	two_hosts();
	ck_assert(!u[0].cpu_cgroup && !u[0].peak_cgroup);
	ck_assert(u[2].cpu_cgroup && u[2].peak_cgroup);
	ck_assert_uint_eq(u[0].cpu_us + u[0].ranks_us, 2000000);
	ck_assert_uint_eq(u[0].peak_bytes, 30 * MIB);
	ck_assert_uint_eq(u[0].first_end_ns, at(3));
	ck_assert_uint_eq(u[0].last_end_ns, at(9));
	ck_assert_uint_eq(u[2].cpu_us + u[2].ranks_us, 2500000);
	ck_assert_uint_eq(u[2].peak_bytes, 512 * (uint64_t)MIB);
}
END_TEST

/* CPU time adds up, the peak is that of the largest epoch. */
START_TEST(epochs_add_up)
{
	for (int cgroup = 0; cgroup < 2; cgroup++) {
		struct usage v = { .ranks = 1 };

		usage_rank(&v, at(1), 1000000, 8 * MIB);
		usage_epoch(&v, cgroup ? 1100000 : 0, cgroup ? 9 * MIB : 0);
		usage_rank(&v, at(2), 2000000, 4 * MIB);
		usage_epoch(&v, cgroup ? 2100000 : 0, cgroup ? 5 * MIB : 0);
		ck_assert_uint_eq(v.cpu_us + v.ranks_us, cgroup ? 3200000 : 3000000);
		ck_assert_uint_eq(v.peak_bytes, (cgroup ? 9 : 8) * MIB);
		ck_assert_uint_eq(v.first_end_ns, at(1));
		ck_assert_uint_eq(v.last_end_ns, at(2));
	}
}
END_TEST

/* A cgroup without the memory controller. */
START_TEST(a_cgroup_that_counts_no_memory)
{
	struct usage v = { .ranks = 1 };

	usage_rank(&v, at(1), 1000000, 8 * MIB);
	usage_epoch(&v, 1100000, 0);
	ck_assert(v.cpu_cgroup && !v.peak_cgroup);
	ck_assert_uint_eq(v.cpu_us + v.ranks_us, 1100000);
	ck_assert_uint_eq(v.peak_bytes, 8 * MIB);
}
END_TEST

START_TEST(text)
{
	two_hosts();
	s.status = 3;
	s.restarts = 1;
	s.cause = "rank 1 failed";
	s.logs = "/log";
	summary_text(&out, &s);
	ck_assert_str_eq(
		str_text(&out),
		"summary: status 3 after 12.0 s, 1 restart\n"
		"  cause: rank 1 failed\n"
		"  logs: /log\n"
		"  host     ranks     CPU time by         peak memory by   "
		"first end    last end\n"
		"  n1           2       2.00 s wait4      30.0 MiB wait4       "
		"3.0 s       9.0 s\n"
		"  longer2      1       2.50 s cgroup   512.0 MiB cgroup       "
		"4.0 s       4.0 s");
}
END_TEST

START_TEST(text_of_nothing)
{
	s.end_ns = s.begin_ns;
	summary_text(&out, &s);
	ck_assert_str_eq(str_text(&out), "summary: status 0 after 0.0 s, 0 restarts");
}
END_TEST

START_TEST(text_of_a_host_that_said_nothing)
{
	u[0].ranks = 4;
	summary_text(&out, &s);
	ck_assert(strstr(str_text(&out),
			 "\n  n1        4       0.00 s wait4 "
			 "                  -           -           -"));
}
END_TEST

START_TEST(json)
{
	two_hosts();
	u[0].peak_bytes = 0;
	u[2].first_end_ns = u[2].last_end_ns = 0;
	s.status = 241;
	s.cause = "a \"host\"\n";
	summary_json(&out, &s);
	ck_assert_str_eq(
		str_text(&out),
		"{\"job\": \"ab12\", \"status\": 241, \"cause\": \"a "
		"\\\"host\\\"\\u000a\", "
		"\"wall_s\": 12.000000, \"restarts\": 0, \"losses\": [], "
		"\"losses_left_out\": 0, \"logs\": null, \"hosts\": ["
		"{\"ranks\": 2, \"host\": \"n1\", \"cpu_s\": 2.000000, \"cpu_by\": "
		"\"wait4\", "
		"\"peak_bytes\": null, \"peak_by\": \"wait4\", \"first_end_s\": "
		"3.000000, "
		"\"last_end_s\": 9.000000}, "
		"{\"ranks\": 1, \"host\": \"longer2\", \"cpu_s\": 2.500000, "
		"\"cpu_by\": \"cgroup\", "
		"\"peak_bytes\": 536870912, \"peak_by\": \"cgroup\", \"first_end_s\": "
		"null, "
		"\"last_end_s\": null}], \"verdict\": []}");
}
END_TEST

/* The first ten and the last ten are kept. */
START_TEST(losses)
{
	char line[32];

	ck_assert_ptr_null(account_last_loss(&account));
	for (int i = 0; i < 33; i++) {
		snprintf(line, sizeof line, "rank %d \"fell\"", i);
		account_loss(&account, at(i * 0.25), line);
	}
	ck_assert_str_eq(account_last_loss(&account), "rank 32 \"fell\"");
	summary_text(&out, &s);
	ck_assert(strstr(str_text(&out), ", 0 restarts\n"
					 "  lost after 0.0 s: rank 0 \"fell\"\n"));
	ck_assert(strstr(str_text(&out), "  lost after 2.2 s: rank 9 \"fell\"\n"
					 "  ... and 13 more\n"
					 "  lost after 5.8 s: rank 23 \"fell\"\n"));
	ck_assert(strstr(str_text(&out), "  lost after 8.0 s: rank 32 \"fell\""));
	out.len = 0;
	summary_json(&out, &s);
	ck_assert(strstr(str_text(&out),
			 "\"losses\": [{\"at_s\": 0.000000, \"cause\": "
			 "\"rank 0 \\\"fell\\\"\"}, {\"at_s\": 0.250000"));
	ck_assert(strstr(str_text(&out), "\"}], \"losses_left_out\": 13, \"logs\""));
}
END_TEST

/* By the clock of its host a rank may end after the job. */
START_TEST(nothing_ends_after_the_job)
{
	two_hosts();
	u[0].last_end_ns = at(12.01);
	summary_json(&out, &s);
	ck_assert_ptr_nonnull(strstr(str_text(&out), "\"wall_s\": 12.000000"));
	ck_assert_ptr_nonnull(strstr(str_text(&out), "\"last_end_s\": 12.000000"));
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("job summary");
	TCase *t = tcase_create("summary");
	SRunner *r;
	int failed;

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, ranks_add_up);
	tcase_add_test(t, epochs_add_up);
	tcase_add_test(t, a_cgroup_that_counts_no_memory);
	tcase_add_test(t, text);
	tcase_add_test(t, text_of_nothing);
	tcase_add_test(t, text_of_a_host_that_said_nothing);
	tcase_add_test(t, json);
	tcase_add_test(t, losses);
	tcase_add_test(t, nothing_ends_after_the_job);
	suite_add_tcase(suite, t);
	r = srunner_create(suite);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed != 0;
}
