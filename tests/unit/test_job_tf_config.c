/* launcher/job/tf_config.h: ranks and their roles to the cluster of TF_CONFIG.
 * takes_s: 0 */
#include <check.h>

#include "common/err.h"
#include "launcher/job/tf_config.h"

enum { MOST = 12000 };

static struct tf_rank rank[MOST];
static struct str out;
static struct err e;

static void teardown(void)
{
	str_free(&out);
}

/* Rank I of N has the role of letter I: w, c, p, e, and - for none. */
static int cluster(const char *roles)
{
	static const char letters[] = "?-wcpe";
	uint32_t n = (uint32_t)strlen(roles);

	str_free(&out);
	e = (struct err){ 0 };
	for (uint32_t i = 0; i < n; i++) {
		size_t role = (size_t)(strchr(letters, roles[i]) - letters);

		rank[i] = (struct tf_rank){ .role = (enum tf_role)role,
					    .address = i % 2 ? "fd00::1" : "10.0.0.1",
					    .port = 20000 + i,
					    .task = 99 };
	}
	return tf_config_cluster(&out, rank, n, &e);
}

START_TEST(workers_of_several_hosts)
{
	ck_assert_int_eq(cluster("www"), 0);
	ck_assert_str_eq(str_text(&out),
			 "{\"worker\":[\"10.0.0.1:20000\",\"[fd00::1]:20001\","
			 "\"10.0.0.1:20002\"]}");
	for (uint32_t i = 0; i < 3; i++)
		ck_assert_uint_eq(rank[i].task, i);
}
END_TEST

START_TEST(each_role_counts_its_own)
{
	ck_assert_int_eq(cluster("pwcew-p"), 0);
	ck_assert_str_eq(str_text(&out),
			 "{\"chief\":[\"10.0.0.1:20002\"],"
			 "\"worker\":[\"[fd00::1]:20001\",\"10.0.0.1:20004\"],"
			 "\"ps\":[\"10.0.0.1:20000\",\"10.0.0.1:20006\"]}");
	ck_assert_uint_eq(rank[2].task, 0);
	ck_assert_uint_eq(rank[3].task, 0); /* the evaluator, outside of the cluster */
	ck_assert_uint_eq(rank[4].task, 1);
	ck_assert_uint_eq(rank[6].task, 1);
}
END_TEST

START_TEST(one_chief_and_one_evaluator)
{
	ck_assert_int_eq(cluster("wcc"), -1);
	ck_assert_int_eq(e.id, E_TF_ROLES);
	ck_assert_str_eq(e.text, "--tf-config: 2 ranks have the role chief");
	ck_assert_int_eq(cluster("weee"), -1);
	ck_assert_str_eq(e.text, "--tf-config: 3 ranks have the role evaluator");
	ck_assert_str_eq(str_text(&out), "");
}
END_TEST

START_TEST(longer_than_a_variable)
{
	char *roles = xcalloc(MOST + 1, 1);

	memset(roles, 'w', MOST);
	ck_assert_int_eq(cluster(roles), -1);
	ck_assert_int_eq(e.id, E_TF_LONG);
	roles[6000] = '\0';
	ck_assert_int_eq(cluster(roles), 0);
	ck_assert_uint_lt(out.len, 131072 - 128);
	free(roles);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("tf_config");
	TCase *t = tcase_create("tf_config");
	SRunner *r = srunner_create(s);
	int failed;

	tcase_add_checked_fixture(t, NULL, teardown);
	tcase_add_test(t, workers_of_several_hosts);
	tcase_add_test(t, each_role_counts_its_own);
	tcase_add_test(t, one_chief_and_one_evaluator);
	tcase_add_test(t, longer_than_a_variable);
	suite_add_tcase(s, t);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed != 0;
}
