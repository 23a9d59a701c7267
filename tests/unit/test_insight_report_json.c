/* launcher/insight/report_json.h: the report for programs; its texts and sizes.
 * takes_s: 0 */
#include "launcher/insight/report_json.h"

#include <time.h>

#include "tests/unit/facts.h"

enum { MIB = 1 << 20 };

static const char *json(void)
{
	facts_out.len = 0;
	report_json(&facts, facts_to_out, NULL);
	return str_text(&facts_out);
}

static void has(const char *what)
{
	ck_assert_msg(strstr(json(), what), "no %s in %s", what, str_text(&facts_out));
}

START_TEST(job_hosts_ranks_and_strips)
{
	facts_make(2, 1, 10);
	facts.cause = "rank 1 failed";
	facts.status = 7;
	facts_rank[1].failed = true;
	has("\"status\": 7, \"cause\": \"rank 1 failed\"");
	has("\"np\": 2");
	has("\"command\": [\"train.py\"]");
	has("\"cpus\": 16, \"gpus\": 4, \"host\": \"n000\", \"lost\": false");
	has("{\"rank\": 1, \"host\": \"n000\", \"local_rank\": 1, \"pid\": 101");
	has("\"failed\": true, \"end_s\": 10.000");
	has("\"verdict\": []");
	/* 11 columns for 11 s; of the first second nothing is known */
	has("\"columns\": 11, \"column_s\": 1.000");
	has("\"strip\": {\"main\": [null,");
	has("\"no_cpu\": [null,0.001,0.001,");
	facts_verdict.looked = false;
	has("\"verdict\": null");
}
END_TEST

START_TEST(collectives_by_size)
{
	const struct wire_large_ops slow = { .kind = "allreduce",
					     .size = 20,
					     .ops = 10,
					     .bytes = 10 << 20,
					     .bus_bytes = 10 << 20,
					     .us = 50000 };
	struct wire_large_ops fast = slow;

	facts_make(2, 1, 10);
	has("\"collectives\": []");
	fast.us = 10000;
	ck_assert_ptr_null(large_add(&facts_record.rank[0].large, &slow));
	ck_assert_ptr_null(large_add(&facts_record.rank[1].large, &fast));
	has("\"collectives\": [\n{\"operation\": \"allreduce\", \"least_bytes\": "
	    "1048576, "
	    "\"times\": 10, \"bytes\": 1048576, \"least_s\": 0.001000000, "
	    "\"mean_s\": 0.003000000, \"rank\": 1, \"bus_bytes_per_s\": 1048576000}]");
}
END_TEST

START_TEST(secrets_are_left_out)
{
	facts_make(1, 1, 3);
	strv_add(&facts_env, "HF_TOKEN=hidden1");
	strv_add(&facts_own, "https_proxy=http://me:hidden2@proxy");
	strv_add(&facts_argv, "--password=hidden3");
	strv_add(&facts_argv, "API_KEY=hidden4");
	strv_add(&facts_env, "PLAIN=seen");
	has("[\"PLAIN\", \"seen\"]");
	has("[\"HF_TOKEN\", \"<redacted, 7 bytes>\"]");
	ck_assert_ptr_null(strstr(json(), "hidden"));
}
END_TEST

START_TEST(hostile_texts_are_cut_and_escaped)
{
	char *text = xcalloc(1, 65537);

	memset(text, '"', 65536);
	facts_make(1, 1, 3);
	strv_add(&facts_argv, text);
	facts.cause = facts_rank[0].why = facts_rank[0].gpu = facts_host[0].name = text;
	facts_host[0].idle = facts_host[0].certificate = text;
	ck_assert_uint_lt(strlen(json()), 40000);
	has("\\\" [cut here]\"");
	free(text);
}
END_TEST

START_TEST(an_hour_of_64_ranks)
{
	clock_t begin; /* CPU time: the machine may have other work */

	facts_make(64, 16, 3600);
	begin = clock();
	ck_assert_uint_lt(strlen(json()), MIB);
	ck_assert_int_lt(clock() - begin, CLOCKS_PER_SEC);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("insight_report_json");
	TCase *t = tcase_create("all");
	SRunner *r;
	int failed;

	tcase_add_checked_fixture(t, NULL, facts_free);
	tcase_add_test(t, job_hosts_ranks_and_strips);
	tcase_add_test(t, collectives_by_size);
	tcase_add_test(t, secrets_are_left_out);
	tcase_add_test(t, hostile_texts_are_cut_and_escaped);
	tcase_add_test(t, an_hour_of_64_ranks);
	suite_add_tcase(s, t);
	r = srunner_create(s);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed != 0;
}
