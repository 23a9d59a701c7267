/* dial.h: the login limit. */
#include <check.h>
#include <event2/event.h>
#include <time.h>

#include "common/loop.h"
#include "launcher/transport/dial.h"

enum { NAMES = 65536, QUICK_S = 2 };

static void on_wake(evutil_socket_t fd, short what, void *ctx)
{
	(void)fd;
	(void)what;
	(void)ctx;
}

static bool has_woken(struct event *wake)
{
	const bool woken = evtimer_pending(wake, NULL);

	evtimer_del(wake);
	return woken;
}

START_TEST(no_more_than_the_limit_at_one_address)
{
	struct event_base *base = loop_open();
	struct event *wake = evtimer_new(base, on_wake, NULL);
	struct login_permit p[LOGIN_LIMIT + 3], other;

	for (int i = 0; i < LOGIN_LIMIT + 3; i++)
		ck_assert_int_eq(login_limit_enter(&p[i], "n1 22", wake),
				 i < LOGIN_LIMIT);
	ck_assert(login_limit_enter(&other, "n1 2222", wake));
	login_limit_leave(&p[LOGIN_LIMIT]); /* it no longer waits */
	ck_assert(!has_woken(wake));
	login_limit_leave(&p[0]);
	ck_assert(!p[LOGIN_LIMIT].granted);
	ck_assert(p[LOGIN_LIMIT + 1].granted && has_woken(wake));
	ck_assert(!p[LOGIN_LIMIT + 2].granted);
	login_limit_leave(&p[1]);
	ck_assert(p[LOGIN_LIMIT + 2].granted && has_woken(wake));
	for (int i = 0; i < LOGIN_LIMIT + 3; i++)
		login_limit_leave(&p[i]);
	login_limit_leave(&other);
	for (int i = 0; i < LOGIN_LIMIT; i++)
		ck_assert(login_limit_enter(&p[i], "n1 22", wake));
	ck_assert(!has_woken(wake));
	event_free(wake);
	event_base_free(base);
}
END_TEST

START_TEST(many_addresses_take_no_quadratic_time)
{
	static struct login_permit p[NAMES];
	const clock_t begin = clock();

	for (int turn = 0; turn < 2; turn++)
		for (int i = 0; i < NAMES; i++) {
			char *key = xasprintf("10.%d.%d.%d 22", i >> 16, i >> 8 & 255,
					      i & 255);

			ck_assert(login_limit_enter(&p[i], key, NULL));
			login_limit_leave(&p[i]);
			free(key);
		}
	ck_assert_int_lt((clock() - begin) / CLOCKS_PER_SEC, QUICK_S);
}
END_TEST

START_TEST(a_key_is_the_address_if_there_is_one)
{
	const struct sockaddr_in in4 = { .sin_family = AF_INET,
					 .sin_addr.s_addr = htonl(0x0a000001) };
	struct sockaddr_storage addr = { 0 };
	char *key;

	memcpy(&addr, &in4, sizeof in4);
	key = login_limit_key("n1", &addr, 1, 2222);
	ck_assert_str_eq(key, "10.0.0.1 2222");
	free(key);
	key = login_limit_key("n1", NULL, 0, 22);
	ck_assert_str_eq(key, "n1 22");
	free(key);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("dial");
	TCase *c = tcase_create("dial");
	SRunner *r = srunner_create(s);
	int failed;

	tcase_add_test(c, no_more_than_the_limit_at_one_address);
	tcase_add_test(c, many_addresses_take_no_quadratic_time);
	tcase_add_test(c, a_key_is_the_address_if_there_is_one);
	suite_add_tcase(s, c);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed != 0;
}
