/* lib/core/plan_fuse: which units go together. */
#include <check.h>
#include <stdlib.h>

#include "lib/core/plan.h"

enum { FUSE = 1000 };

static struct plan_unit unit(uint64_t bytes, uint64_t fuse_key)
{
	return (struct plan_unit){ .bytes = bytes, .fuse_key = fuse_key };
}

static void check_buckets(const struct plan_unit *u, size_t n, uint64_t fusion_bytes,
			  const char *want)
{
	struct plan_fusion f = { .nopen = 0 };

	for (size_t i = 0; i < n; i++)
		ck_assert_uint_eq(plan_fuse(&f, &u[i], 0, fusion_bytes),
				  (unsigned)(want[i] - '0'));
}

START_TEST(fusion_looks_ahead)
{
	struct plan_unit u[6] = { unit(400, 1), unit(300, 2), unit(400, 1),
				  unit(300, 2), unit(400, 1), unit(10, 0) };
	struct plan_unit v[3] = { unit(10, 0), unit(10, 0), unit(5000, 1) };

	check_buckets(u, 6, FUSE, "010123"); /* 1200 are too many for one */
	check_buckets(u, 6, 1200, "010102");
	check_buckets(u, 6, 0, "012345");
	check_buckets(v, 3, FUSE, "012"); /* never with others; alone, however large */
}
END_TEST

START_TEST(fusion_is_within_a_segment)
{
	struct plan_fusion f = { .nopen = 0 };
	struct plan_unit u = unit(100, 1);

	ck_assert_uint_eq(plan_fuse(&f, &u, 0, FUSE), 0);
	ck_assert_uint_eq(plan_fuse(&f, &u, 1, FUSE), 1);
	ck_assert_uint_eq(plan_fuse(&f, &u, 1, FUSE), 1);
	ck_assert_uint_eq(plan_fuse(&f, &u, 0, FUSE), 0);
}
END_TEST

/* There may be as many keys as scales. */
START_TEST(fusion_with_many_keys)
{
	struct plan_fusion f = { .nopen = 0 };
	struct plan_unit u;

	for (unsigned turn = 0; turn < 3; turn++)
		for (unsigned key = 1; key <= PLAN_OPEN_MOST; key++) {
			u = unit(1, key);
			ck_assert_uint_eq(plan_fuse(&f, &u, 0, FUSE), key - 1);
		}
	u = unit(1, 99); /* the oldest makes room */
	ck_assert_uint_eq(plan_fuse(&f, &u, 0, FUSE), PLAN_OPEN_MOST);
	u = unit(1, 1);
	ck_assert_uint_eq(plan_fuse(&f, &u, 0, FUSE), PLAN_OPEN_MOST + 1);
	ck_assert_uint_eq(f.nopen, PLAN_OPEN_MOST);
}
END_TEST

START_TEST(fuse_key_is_of_all_that_matters)
{
	struct op op = { .coll = { .kind = BERTH_ALLREDUCE, .type = BERTH_F32 } };
	struct op other[6] = { op, op, op, op, op, op };

	other[0].coll.type = BERTH_BF16;
	other[1].coll.op = BERTH_MAX;
	other[2].coll.scale.has_prescale = true;
	other[3].coll.scale.has_postscale = true;
	other[4].coll.scale.divide = 2;
	ck_assert_uint_ne(plan_fuse_key(&op), 0);
	ck_assert_uint_eq(plan_fuse_key(&op), plan_fuse_key(&other[5]));
	for (int i = 0; i < 5; i++)
		ck_assert_uint_ne(plan_fuse_key(&op), plan_fuse_key(&other[i]));
	other[5].adasum = true;
	ck_assert_uint_eq(plan_fuse_key(&other[5]), 0);
	op.coll.kind = BERTH_ALLGATHER;
	ck_assert_uint_eq(plan_fuse_key(&op), 0);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("plan_fuse");
	TCase *t = tcase_create("plan_fuse");
	SRunner *r = srunner_create(s);
	int failed;

	suite_add_tcase(s, t);
	tcase_add_test(t, fusion_looks_ahead);
	tcase_add_test(t, fusion_is_within_a_segment);
	tcase_add_test(t, fusion_with_many_keys);
	tcase_add_test(t, fuse_key_is_of_all_that_matters);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed != 0;
}
