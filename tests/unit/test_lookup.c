/* resolve.h: names to addresses, and which of them are ours. */
#include <arpa/inet.h>
#include <check.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <unistd.h>

#include "launcher/transport/lookup.h"

#define COUNT(a) ((int)(sizeof(a) / sizeof *(a)))

static uint64_t soon(void)
{
	return clock_ms() + 20000;
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
	struct resolved r;
	char text[RESOLVE_TEXT_BYTES];

	lookup_all(&r, &name, 1, soon());
	ck_assert_int_eq(r.is_local, names[_i].local);
	ck_assert_int_eq(r.naddr > 0, names[_i].first != NULL);
	ck_assert_int_eq(r.why != NULL, names[_i].first == NULL);
	if (names[_i].first) {
		ck_assert(!lookup_text(&r.addr[0], text, sizeof text));
		ck_assert_str_eq(text, names[_i].first);
		ck_assert_int_eq(lookup_is_local(&r.addr[0]), names[_i].local);
	}
	lookup_free(&r, 1);
	ck_assert(!r.addr && !r.naddr);
}
END_TEST

START_TEST(all_names_keep_their_places)
{
	const char *list[COUNT(names)];
	struct resolved r[COUNT(names)];

	for (int i = 0; i < COUNT(names); i++)
		list[i] = names[i].name;
	lookup_all(r, list, COUNT(names), soon());
	for (int i = 0; i < COUNT(names); i++)
		ck_assert_msg(r[i].is_local == names[i].local &&
				      (r[i].naddr > 0) == (names[i].first != NULL),
			      "%s", list[i]);
	lookup_free(r, COUNT(names));
}
END_TEST

/* More names that need the resolver than there are threads. */
START_TEST(many_names)
{
	enum { N = 100 };
	const char *list[N];
	struct resolved r[N];

	for (int i = 0; i < N; i++)
		list[i] = i % 2 ? NOBODY : "10.1.2.3";
	lookup_all(r, list, N, soon());
	for (int i = 0; i < N; i++)
		ck_assert_uint_eq(r[i].naddr, i % 2 ? 0 : 1);
	lookup_free(r, N);
	lookup_all(r, list, 0, soon());
}
END_TEST

START_TEST(a_passed_deadline_leaves_names_without_addresses)
{
	const char *list[] = { NOBODY, "127.0.0.1" };
	struct resolved r[2];

	lookup_all(r, list, 2, clock_ms());
	ck_assert_uint_eq(r[0].naddr, 0);
	ck_assert_ptr_nonnull(r[0].why);
	ck_assert_uint_eq(r[1].naddr, 1);
	lookup_free(r, 2);
	usleep(200000); /* let the thread end, so that a leak of its own shows */
}
END_TEST

/* Every address of every interface is ours, under whatever name. */
START_TEST(interfaces_are_local)
{
	struct ifaddrs *list;
	int n = 0;

	ck_assert(!getifaddrs(&list));
	for (const struct ifaddrs *i = list; i; i = i->ifa_next) {
		struct sockaddr_storage a = { 0 };
		size_t len = sizeof(struct sockaddr_in6);

		if (!i->ifa_addr || (i->ifa_addr->sa_family != AF_INET &&
				     i->ifa_addr->sa_family != AF_INET6))
			continue;
		if (i->ifa_addr->sa_family == AF_INET)
			len = sizeof(struct sockaddr_in);
		memcpy(&a, i->ifa_addr, len);
		ck_assert(lookup_is_local(&a));
		n++;
	}
	freeifaddrs(list);
	ck_assert_int_gt(n, 0);
}
END_TEST

/* The machine's own name is local if, and only if, it resolves to an address of ours.
 */
START_TEST(own_name_by_address)
{
	char name[256];
	const char *list[] = { name };
	struct resolved r;
	bool ours = false;

	ck_assert(!gethostname(name, sizeof name));
	lookup_all(&r, list, 1, soon());
	for (size_t i = 0; i < r.naddr; i++)
		ours = ours || lookup_is_local(&r.addr[i]);
	ck_assert_int_eq(r.is_local, ours);
	lookup_free(&r, 1);
}
END_TEST

START_TEST(local_address_towards)
{
	struct sockaddr_in lo = { .sin_family = AF_INET };
	struct sockaddr_storage peer = { 0 };
	char text[RESOLVE_TEXT_BYTES];

	lo.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	memcpy(&peer, &lo, sizeof lo);
	ck_assert(!lookup_local_towards(&peer, text, sizeof text));
	ck_assert_str_eq(text, "127.0.0.1");
	ck_assert_int_eq(lookup_local_towards(&peer, text, 3), -1);
	peer.ss_family = AF_UNIX;
	ck_assert_int_eq(lookup_local_towards(&peer, text, sizeof text), -1);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("resolve");
	TCase *c = tcase_create("resolve");
	SRunner *r = srunner_create(s);
	int failed;

	tcase_set_timeout(c, 60);
	tcase_add_loop_test(c, one_name, 0, COUNT(names));
	tcase_add_test(c, all_names_keep_their_places);
	tcase_add_test(c, many_names);
	tcase_add_test(c, a_passed_deadline_leaves_names_without_addresses);
	tcase_add_test(c, interfaces_are_local);
	tcase_add_test(c, own_name_by_address);
	tcase_add_test(c, local_address_towards);
	suite_add_tcase(s, c);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed != 0;
}
