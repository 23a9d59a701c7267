/* same_host.h: which hosts are one machine, and what is said of them. */
#include <check.h>

#include "launcher/hosts/same_host.h"

/* NAMES and MACHINES, both ended by NULL, to the message; "" if there is none. */
static const struct {
	const char *names[12], *machines[12], *text;
} jobs[] = {
	{ { "a" }, { "1" }, "" },
	{ { "a", "b" }, { "1", "2" }, "" },
	{ { "a", "b" }, { "", "" }, "" }, /* their agents do not know */
	{ { "a", "b" }, { "1", "1" }, "'a' and 'b'" },
	{ { "b", "x", "a" }, { "1", "2", "1" }, "'b' and 'a'" },
	{ { "c", "d", "b", "a", "e" },
	  { "2", "1", "1", "2", "1" },
	  "'c' and 'a'; 'd', 'b' and 'e'" },
	/* a machine of one name is sorted before them */
	{ { "n1", "n2", "10.77.0.1" }, { "2", "1", "2" }, "'n1' and '10.77.0.1'" },
	{ { "a", "b", "c", "d", "e", "f", "g", "h", "i" },
	  { "1", "1", "1", "1", "1", "1", "1", "1", "1" },
	  "'a', 'b', 'c', 'd', 'e', 'f', 'g' and 2 more" },
};

static int check(struct err *e, const char *const *names, const char *const *machines,
		 size_t n)
{
	struct host *hosts = xcalloc(n, sizeof *hosts);
	const struct host **list = xcalloc(n, sizeof *list);
	int rc;

	for (size_t i = 0; i < n; i++) {
		hosts[i].name = xstrdup(names[i]);
		hosts[i].machine = xstrdup(machines[i]);
		list[i] = &hosts[i];
	}
	rc = same_host_check(list, n, e);
	for (size_t i = 0; i < n; i++) {
		free(hosts[i].name);
		free(hosts[i].machine);
	}
	free(hosts);
	free(list);
	return rc;
}

START_TEST(messages)
{
	struct err e = { 0 };
	size_t n = 0;

	while (n < 12 && jobs[_i].names[n])
		n++;
	ck_assert_int_eq(check(&e, jobs[_i].names, jobs[_i].machines, n),
			 *jobs[_i].text ? -1 : 0);
	ck_assert_int_eq(e.id, *jobs[_i].text ? E_SAME_HOST : ERR_NONE);
	if (*jobs[_i].text)
		ck_assert_str_eq(strchr(e.text, ':') + 2, jobs[_i].text);
}
END_TEST

/* 40000 hosts, each machine twice: neither the time nor the message is without bound.
 * (All pairs would take a minute.) */
START_TEST(many)
{
	enum { N = 40000 };
	static const char *names[N], *machines[N];
	uint64_t begun = clock_ms();
	struct err e = { 0 };

	for (size_t i = 0; i < N; i++) {
		names[i] = xasprintf("host%zu", i);
		machines[i] = xasprintf("f5d0a2f0-6f7c-4b5c-8d1a-2f0c4b5c8d1a %zu 2",
					i % (N / 2));
	}
	ck_assert_int_eq(check(&e, names, machines, N), -1);
	ck_assert_uint_lt(clock_ms() - begun, 10000);
	ck_assert_ptr_nonnull(strstr(e.text, "'host7' and 'host20007'; and others"));
	for (size_t i = 0; i < N; i++) {
		free((char *)names[i]);
		free((char *)machines[i]);
	}
}
END_TEST

int main(void)
{
	Suite *s = suite_create("same_host");
	TCase *c = tcase_create("same_host");
	SRunner *r = srunner_create(s);
	int failed;

	tcase_add_loop_test(c, messages, 0, (int)(sizeof jobs / sizeof *jobs));
	tcase_add_test(c, many);
	suite_add_tcase(s, c);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed != 0;
}
