/* lib/base/members: places, hosts, local numbers. */
#include <check.h>

#include "lib/base/members.h"

/* The hosts of a job of 8. */
static const unsigned host[] = { 7, 7, 3, 3, 3, 9, 7, 9 };

static void check_sound(const struct members *m)
{
	unsigned n = 0;

	for (unsigned h = 0; h < m->nhosts; h++) {
		ck_assert_uint_ge(members_on(m, h), m->lanes);
		for (unsigned i = 0; i < members_on(m, h); i++, n++) {
			unsigned place = members_place(m, h, i);

			ck_assert_uint_eq(m->host[place], h);
			ck_assert_uint_eq(m->local[place], i);
			ck_assert(!i || place > members_place(m, h, i - 1));
		}
		ck_assert(!h || members_place(m, h, 0) > members_place(m, h - 1, 0));
	}
	ck_assert_uint_eq(n, m->n);
	for (unsigned i = 0; i < m->nlocal; i++)
		ck_assert(members_is_here(m, m->local_place[i]));
}

START_TEST(a_set)
{
	const unsigned rank[] = { 5, 3, 0, 2, 6, 1 };
	struct members m;

	ck_assert(!members_make(&m, rank, 6, host, 6));
	check_sound(&m);
	ck_assert_uint_eq(m.nhosts, 3);
	ck_assert_uint_eq(m.me, 4);
	ck_assert_uint_eq(m.here, 2);
	ck_assert_uint_eq(m.nlocal, 3);
	ck_assert_uint_eq(m.local_me, 1);
	ck_assert_uint_eq(m.lanes, 1);
	ck_assert_uint_eq(m.local_place[0], 2);
	ck_assert(!members_is_here(&m, 0));
	members_free(&m);
	members_free(&m);
}
END_TEST

/* This rank is in another set; then no rank of its host is in this one. */
START_TEST(of_others)
{
	const unsigned rank[] = { 2, 4, 5 };
	struct members m;

	ck_assert(!members_make(&m, rank, 3, host, 3));
	check_sound(&m);
	ck_assert_uint_eq(m.me, MEMBERS_NONE);
	ck_assert_uint_eq(m.nlocal, 2);
	members_free(&m);
	ck_assert(!members_make(&m, rank, 3, host, 0));
	check_sound(&m);
	ck_assert_uint_eq(m.here, MEMBERS_NONE);
	ck_assert_uint_eq(m.nlocal, 0);
	ck_assert(!members_is_here(&m, 0));
	members_free(&m);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("members");
	TCase *t = tcase_create("members");
	SRunner *r = srunner_create(s);
	int failed;

	suite_add_tcase(s, t);
	tcase_add_test(t, a_set);
	tcase_add_test(t, of_others);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed != 0;
}
