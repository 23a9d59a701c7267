/* What is done together, and when a cycle of operations becomes a plan. */
#include <check.h>
#include <stdlib.h>

#include "lib/core/plan.h"

enum { FUSE = 1000 };

static struct plan_unit unit(unsigned number, uint64_t bytes, uint64_t fuse_key)
{
	return (struct plan_unit){ .key = 1000 + number,
				   .signature = number,
				   .bytes = bytes,
				   .fuse_key = fuse_key };
}

/* Note N units 0 .. N-1; which of them closed the cycle, or -1. */
static int note_all(struct plan *p, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		struct plan_unit u = unit(i, 400, 1);
		berth_result rc;

		if (plan_note(p, &u, FUSE, &rc))
			return (int)i;
		ck_assert_int_eq(rc, BERTH_OK);
	}
	return -1;
}

START_TEST(together_by_kin_and_size)
{
	struct plan_unit u[6] = { unit(0, 400, 1), unit(1, 400, 1), unit(2, 400, 1),
				  unit(3, 10, 2),  unit(4, 10, 0),  unit(5, 10, 0) };

	ck_assert_uint_eq(plan_together(u, 6, FUSE), 2); /* 1200 are too many */
	ck_assert_uint_eq(plan_together(u, 6, 1200), 3); /* another type follows */
	ck_assert_uint_eq(plan_together(u, 1, FUSE), 1);
	ck_assert_uint_eq(plan_together(u + 3, 3, FUSE), 1);
	ck_assert_uint_eq(plan_together(u + 4, 2, FUSE), 1); /* never with others */
	u[0].bytes = 5000;
	ck_assert_uint_eq(plan_together(u, 6, FUSE), 1); /* alone, however large */
}
END_TEST

START_TEST(a_repeated_cycle_is_a_plan)
{
	struct plan p = { 0 };
	struct plan_unit u;
	uint32_t first;

	ck_assert_int_eq(note_all(&p, 5), -1);
	ck_assert(!p.holds);
	ck_assert_int_eq(note_all(&p, 5), 0);
	ck_assert(p.holds);
	ck_assert_uint_eq(p.n, 5);
	ck_assert_uint_eq(p.nbuckets, 3); /* 2, 2, 1 */
	ck_assert_uint_eq(p.bucket[1], 2);
	ck_assert_uint_eq(p.bucket[3], 5);
	for (unsigned i = 0; i < 5; i++) {
		u = unit(i, 400, 1);
		ck_assert(plan_has(&p, &u));
	}
	u = unit(5, 400, 1);
	ck_assert(!plan_has(&p, &u));
	u = unit(1, 400, 1);
	u.signature++; /* of that name, but another shape */
	ck_assert(!plan_has(&p, &u));
	first = plan_signature(&p);
	plan_advance(&p);
	ck_assert_uint_ne(plan_signature(&p), first);
	plan_advance(&p);
	plan_advance(&p);
	ck_assert_uint_eq(plan_signature(&p), first);
	plan_free(&p);
}
END_TEST

START_TEST(the_cycle_begins_anywhere)
{
	struct plan p = { 0 };
	struct plan_unit u;
	berth_result rc;

	note_all(&p, 5);
	u = unit(3, 400, 1); /* another order this time */
	ck_assert(plan_note(&p, &u, FUSE, &rc));
	plan_free(&p);
}
END_TEST

START_TEST(a_plan_that_breaks_is_learned_longer)
{
	struct plan p = { 0 };
	unsigned cycles = 1;

	for (int turn = 0; turn < 8; turn++) {
		unsigned n = 0;

		while (note_all(&p, 3) < 0)
			n++;
		ck_assert_uint_eq(n, cycles);
		ck_assert(p.holds);
		plan_break(&p);
		ck_assert(!p.holds && !p.n);
		cycles = turn ? cycles * 2 : 1;
		cycles = cycles > PLAN_CYCLES_MOST ? PLAN_CYCLES_MOST : cycles;
	}
	while (note_all(&p, 3) < 0)
		;
	for (int i = 0; i < 3; i++)
		plan_advance(&p); /* a whole cycle: it is good */
	plan_break(&p);
	ck_assert_uint_eq(p.needed, 1);
	plan_free(&p);
}
END_TEST

START_TEST(other_units_make_another_hash)
{
	struct plan p = { 0 }, q = { 0 };

	note_all(&p, 4);
	note_all(&p, 4);
	note_all(&q, 5);
	note_all(&q, 5);
	ck_assert_uint_ne(plan_signature(&p), plan_signature(&q));
	plan_free(&p);
	plan_free(&q);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("plan");
	TCase *t = tcase_create("plan");
	SRunner *r = srunner_create(s);
	int failed;

	tcase_add_test(t, together_by_kin_and_size);
	tcase_add_test(t, a_repeated_cycle_is_a_plan);
	tcase_add_test(t, the_cycle_begins_anywhere);
	tcase_add_test(t, a_plan_that_breaks_is_learned_longer);
	tcase_add_test(t, other_units_make_another_hash);
	suite_add_tcase(s, t);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed != 0;
}
