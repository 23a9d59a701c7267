/* agent/name_check.h: names that have addresses here, and names that have none. */
#include <check.h>
#include <event2/event.h>
#include <sys/wait.h>

#include "agent/name_check.h"
#include "common/loop.h"
#include "common/str.h"

enum { LONG_MS = 20000 };

static struct event_base *base;
static int calls;
static bool good;
static char *text;

static void on_done(void *ctx, bool well, const char *words)
{
	ck_assert_ptr_eq(ctx, &calls);
	calls++;
	good = well;
	text = xstrdup(words);
	event_base_loopbreak(base);
}

static void look_up(const char *const *names, size_t n, uint32_t timeout_ms)
{
	struct name_check *c;

	base = loop_open();
	calls = 0;
	c = name_check_start(base, names, n, timeout_ms, on_done, &calls);
	ck_assert_ptr_nonnull(c);
	event_base_dispatch(base);
	ck_assert_int_eq(calls, 1);
	name_check_free(c);
	event_base_free(base);
}

START_TEST(all_are_known)
{
	static const char *const names[] = { "localhost", "127.0.0.1" };

	look_up(names, 2, LONG_MS);
	ck_assert(good);
	ck_assert_str_eq(text, "2 names of other hosts");
	free(text);
	ck_assert_int_gt(wait(NULL), 0); /* the child ends */
	look_up(names, 1, LONG_MS);
	ck_assert_str_eq(text, "1 name of other hosts");
	free(text);
}
END_TEST

/* No resolver knows a name with a blank, and none is asked for long. */
START_TEST(some_are_not)
{
	static const char *const names[] = { "a b", "localhost", "c d", "e f",
					     "g h", "i j",       "k l", "m n",
					     "o p", "q r",       "s t" };

	look_up(names, 3, LONG_MS);
	ck_assert(!good);
	ck_assert_msg(!strncmp(text, "no address for a b, c d: ", 25), "%s", text);
	ck_assert_ptr_null(strstr(text, "localhost"));
	free(text);
	look_up(names, 11, LONG_MS);
	ck_assert_msg(!strncmp(text,
			       "no address for a b, c d, e f, g h, i j, k l, m n, "
			       "o p and 2 more: ",
			       66),
		      "%s", text);
	free(text);
}
END_TEST

/* A name that has no answer yet is named. */
START_TEST(no_time)
{
	static const char *const names[] = { "localhost", "n1" };

	look_up(names, 2, 0);
	ck_assert(!good || !strcmp(text, "2 names of other hosts"));
	ck_assert_msg(good || strstr(text, "no answer in time for ") ||
			      strstr(text, "no address for n1: "),
		      "%s", text);
	free(text);
	name_check_free(NULL);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("name_check");
	TCase *c = tcase_create("name_check");
	SRunner *r = srunner_create(s);
	int failed;

	tcase_add_test(c, all_are_known);
	tcase_add_test(c, some_are_not);
	tcase_add_test(c, no_time);
	suite_add_tcase(s, c);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed != 0;
}
