/* lookup.h: names to addresses, and which of them are this machine's. */
#include <arpa/inet.h>
#include <check.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <poll.h>
#include <unistd.h>

#include "launcher/transport/lookup.h"

#define COUNT(a) ((int)(sizeof(a) / sizeof *(a)))

static uint64_t soon(void)
{
	return clock_ms() + 20000;
}

static void drop(struct lookup_answer *r, int n)
{
	for (int i = 0; i < n; i++)
		free(r[i].addr);
}

/* No name: a label of 64 bytes (RFC 1035 allows 63), so that no name server is asked.
 */
#define NOBODY "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"

static const struct {
	const char *name;
	bool local;
	const char *first; /* its first address; NULL: none */
} names[] = {
	{ "127.0.0.1", true, "127.0.0.1" },
	{ "127.3.2.1", true, "127.3.2.1" },
	{ "::1", true, "::1" },
	{ "localhost", true, "127.0.0.1" },
	{ "LocalHost", true, "127.0.0.1" },
	{ "0.0.0.0", true, "0.0.0.0" },
	{ "::", true, "::" },
	{ "::ffff:127.0.0.1", true, "::ffff:127.0.0.1" },
	{ "192.0.2.1", false, "192.0.2.1" }, /* RFC 5737: documentation */
	{ "2001:db8::1", false, "2001:db8::1" },
	{ "::ffff:192.0.2.1", false, "::ffff:192.0.2.1" },
	{ "fe80::1%lo", false, "fe80::1%lo" },
	{ NOBODY, false, NULL },
};

START_TEST(one_name)
{
	const char *name = names[_i].name;
	struct lookup_answer r;
	char text[LOOKUP_TEXT_BYTES];

	lookup_all(&r, &name, 1, soon());
	ck_assert_int_eq(r.is_local, names[_i].local);
	ck_assert_int_eq(r.naddr > 0, names[_i].first != NULL);
	ck_assert_int_eq(r.why != NULL, names[_i].first == NULL);
	if (names[_i].first) {
		ck_assert(!lookup_text(&r.addr[0], text, sizeof text));
		ck_assert_str_eq(text, names[_i].first);
	}
	free(r.addr);
}
END_TEST

START_TEST(all_names_keep_their_places)
{
	const char *list[COUNT(names)];
	struct lookup_answer r[COUNT(names)];

	for (int i = 0; i < COUNT(names); i++)
		list[i] = names[i].name;
	lookup_all(r, list, COUNT(names), soon());
	for (int i = 0; i < COUNT(names); i++)
		ck_assert_msg(r[i].is_local == names[i].local &&
				      (r[i].naddr > 0) == (names[i].first != NULL),
			      "%s", list[i]);
	drop(r, COUNT(names));
}
END_TEST

/* More names that need the resolver than there are threads. */
START_TEST(many_names)
{
	enum { N = 100 };
	const char *list[N];
	struct lookup_answer r[N];

	for (int i = 0; i < N; i++)
		list[i] = i % 2 ? NOBODY : "10.1.2.3";
	lookup_all(r, list, N, soon());
	for (int i = 0; i < N; i++)
		ck_assert_uint_eq(r[i].naddr, i % 2 ? 0 : 1);
	drop(r, N);
	lookup_all(r, list, 0, soon());
}
END_TEST

START_TEST(a_passed_deadline_leaves_names_without_addresses)
{
	const char *list[] = { NOBODY, "127.0.0.1" };
	struct lookup_answer r[2];

	lookup_all(r, list, 2, clock_ms());
	ck_assert_uint_eq(r[0].naddr, 0);
	ck_assert_ptr_nonnull(r[0].why);
	ck_assert_uint_eq(r[1].naddr, 1);
	drop(r, 2);
	usleep(200000); /* let the thread end, so that a leak of its own shows */
}
END_TEST

/* Every address of every interface is this machine's. */
START_TEST(interfaces_are_local)
{
	struct ifaddrs *list;
	char text[LOOKUP_TEXT_BYTES];
	const char *name = text;
	int n = 0;

	ck_assert(!getifaddrs(&list));
	for (const struct ifaddrs *i = list; i; i = i->ifa_next) {
		struct sockaddr_storage a = { 0 };
		struct lookup_answer r;
		size_t len = sizeof(struct sockaddr_in6);

		if (!i->ifa_addr || (i->ifa_addr->sa_family != AF_INET &&
				     i->ifa_addr->sa_family != AF_INET6))
			continue;
		if (i->ifa_addr->sa_family == AF_INET)
			len = sizeof(struct sockaddr_in);
		memcpy(&a, i->ifa_addr, len);
		ck_assert(!lookup_text(&a, text, sizeof text));
		lookup_all(&r, &name, 1, soon());
		ck_assert_msg(r.is_local, "%s", text);
		free(r.addr);
		n++;
	}
	freeifaddrs(list);
	ck_assert_int_gt(n, 0);
}
END_TEST

/* The answers come in the names' order when the descriptor is readable. */
START_TEST(answers_on_a_descriptor)
{
	const char *list[] = { NOBODY, "10.1.2.3", NOBODY };
	struct lookup *l = lookup_start(list, 3, AF_UNSPEC);
	struct pollfd p = { .fd = lookup_fd(l), .events = POLLIN };
	const struct lookup_answer *r;

	ck_assert_int_eq(poll(&p, 1, 20000), 1);
	r = lookup_answers(l);
	ck_assert_uint_eq(r[1].naddr, 1);
	ck_assert(!r[0].naddr && r[0].why && !r[2].naddr && r[2].why);
	lookup_end(l);
	l = lookup_start(list + 1, 1, AF_UNSPEC); /* needs no thread: at once */
	p.fd = lookup_fd(l);
	ck_assert_int_eq(poll(&p, 1, 0), 1);
	lookup_end(l);
}
END_TEST

/* Names that no thread has taken are not asked for any more; others are forgotten. */
START_TEST(ends_before_its_answer)
{
	enum { N = 200 };
	const char *list[N];
	struct lookup_answer r[1];

	for (int i = 0; i < N; i++)
		list[i] = NOBODY;
	for (int i = 0; i < 20; i++)
		lookup_end(lookup_start(list, N, AF_UNSPEC));
	lookup_end(NULL);
	lookup_all(r, list, 1, soon());
	ck_assert(r[0].why && !strstr(r[0].why, "in time"));
	usleep(200000); /* the threads end, so that a leak of theirs shows */
}
END_TEST

START_TEST(names_that_may_come)
{
	static const char kubernetes[] = "KUBERNETES_SERVICE_HOST",
			  again[] = "ssh: Could not resolve hostname x: Temporary "
				    "failure in name resolution";

	unsetenv(kubernetes);
	ck_assert(lookup_may_come(gai_strerror(EAI_AGAIN)));
	ck_assert(lookup_may_come(again));
	ck_assert(!lookup_may_come(gai_strerror(EAI_NONAME)));
	setenv(kubernetes, "10.0.0.1", 1);
	ck_assert(lookup_may_come(gai_strerror(EAI_NONAME)));
	unsetenv(kubernetes);
}
END_TEST

START_TEST(local_address_towards)
{
	struct sockaddr_in lo = { .sin_family = AF_INET };
	struct sockaddr_storage peer = { 0 };
	char text[LOOKUP_TEXT_BYTES];

	lo.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	memcpy(&peer, &lo, sizeof lo);
	ck_assert(!lookup_local_towards(&peer, text, sizeof text));
	ck_assert_str_eq(text, "127.0.0.1");
	ck_assert_int_eq(lookup_local_towards(&peer, text, 3), -1);
	peer.ss_family = AF_UNIX;
	ck_assert_int_eq(lookup_local_towards(&peer, text, sizeof text), -1);
}
END_TEST

START_TEST(numbers_alone_are_numbers)
{
	static const char *const good[] = { "10.0.0.1", "fe80::1%lo", "2001:db8::1" },
				 *const bad[] = { "", "localhost", NOBODY, "10.0.0.1x",
						  "fe80::1%nosuch0" };
	struct sockaddr_storage a;
	char text[LOOKUP_TEXT_BYTES];

	for (int i = 0; i < COUNT(good); i++) {
		ck_assert(!lookup_number(good[i], &a));
		ck_assert(!lookup_text(&a, text, sizeof text));
		ck_assert_str_eq(text, good[i]);
	}
	for (int i = 0; i < COUNT(bad); i++)
		ck_assert_int_eq(lookup_number(bad[i], &a), -1);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("lookup");
	TCase *c = tcase_create("lookup");
	SRunner *r = srunner_create(s);
	int failed;

	tcase_set_timeout(c, 60);
	tcase_add_loop_test(c, one_name, 0, COUNT(names));
	tcase_add_test(c, all_names_keep_their_places);
	tcase_add_test(c, many_names);
	tcase_add_test(c, a_passed_deadline_leaves_names_without_addresses);
	tcase_add_test(c, interfaces_are_local);
	tcase_add_test(c, answers_on_a_descriptor);
	tcase_add_test(c, ends_before_its_answer);
	tcase_add_test(c, names_that_may_come);
	tcase_add_test(c, local_address_towards);
	tcase_add_test(c, numbers_alone_are_numbers);
	suite_add_tcase(s, c);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed != 0;
}
