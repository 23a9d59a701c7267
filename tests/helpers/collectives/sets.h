/* sets.h - sets of ranks: added, split, and removed while operations are in flight. */
#ifndef BERTH_TESTS_SETS_H
#define BERTH_TESTS_SETS_H

#include "tests/helpers/verify.h"
#include "tests/helpers/calls.h"

/* What the last rank alone has submitted ends with its set, and what is made next is
 * not harmed. */
static void removed_in_flight(void)
{
	float x = 1, y;
	struct berth_desc d = BERTH_DESC(.name = "alone", .in = &x, .out = &y,
					 .count = 1, .type = BERTH_F32);
	berth_request *r, *alone = NULL;
	berth_result rc;

	for (int i = 0; i < 20; i++) {
		FINE(berth_set_split(NULL, 0, 0, &d.set));
		d.name = "all";
		FINE(call_submit(BERTH_ALLREDUCE, &d, 1, &r));
		FINE(berth_wait(r, -1));
		d.name = "alone";
		if (rank == size - 1)
			FINE(call_submit(BERTH_ALLREDUCE, &d, 1, &alone));
		FINE(berth_set_remove(d.set));
		rc = alone ? berth_wait(alone, -1) : BERTH_ABORTED;
		CHECK(rc == BERTH_ABORTED || size == 1, "removed meanwhile: %d", rc);
	}
}

/* One rank's thread waits for what the others never submit.  What was the set's memory
 * is not written any more when it is somebody else's. */
static void remove_waiting(void)
{
	enum { BYTES = 16 << 20 };
	float x = 1;
	struct berth_desc d =
		BERTH_DESC(.in = &x, .out = &x, .count = 1, .type = BERTH_F32);
	berth_request *r = NULL;
	unsigned char *p;
	berth_result rc;

	if (size == 1)
		return;
	FINE(berth_set_split(NULL, 0, 0, &d.set));
	if (rank == size - 1) {
		FINE(call_submit(BERTH_ALLREDUCE, &d, 1, &r));
		/* the others may have left by then */
		rc = berth_wait(r, 100);
		CHECK(rc == BERTH_BUSY || rc == BERTH_ABORTED, "nobody came: %d", rc);
		r = rc == BERTH_BUSY ? r : NULL;
	}
	FINE(berth_set_remove(d.set));
	p = berth_alloc(BYTES, BERTH_HOST, 0);
	CHECK(p, "berth_alloc");
	if (r)
		CHECK(berth_wait(r, -1) == BERTH_ABORTED, "removed meanwhile");
	FINE(call_barrier(NULL));
	CHECK(!*p && !memcmp(p, p + 1, BYTES - 1), "memory was written");
	berth_free(p);
}

static void sets(void)
{
	berth_set *even, *pair, *mine;
	int members[256], n = 0, sum = 0;

	for (int r = 0; r < size; r += 2) {
		members[n++] = r;
		sum += r;
	}
	FINE(berth_set_add(members, (size_t)n, &even));
	CHECK(berth_set_size(even) == n, "size of a set");
	CHECK(berth_set_rank(even) == (rank % 2 ? -1 : rank / 2), "rank in a set");
	if (rank % 2 == 0) {
		float *big = berth_alloc(400000, BERTH_HOST, 0), *same = malloc(400000);

		CHECK(sum_in(even, rank) == sum, "sum of a set");
		for (int i = 0; i < 100000; i++)
			big[i] = same[i] = (float)(rank + i % 7);
		FINE(call_allreduce(
			&(struct berth_desc)BERTH_DESC(.set = even, .in = big,
						       .out = big, .count = 100000,
						       .type = BERTH_F32)));
		FINE(call_allreduce(
			&(struct berth_desc)BERTH_DESC(.set = even, .in = same,
						       .out = same, .count = 100000,
						       .type = BERTH_F32)));
		for (int i = 0; i < 100000; i++)
			CHECK(big[i] == (float)(sum + n * (i % 7)) && same[i] == big[i],
			      "large sum of a set");
		berth_free(big);
		free(same);
	} else {
		CHECK(call_barrier(even) == BERTH_INVALID, "not a member");
	}
	CHECK(sum_in(NULL, 1) == size, "all, between");
	FINE(berth_set_split(NULL, rank % 3 == 2 ? -1 : rank % 3, -rank, &mine));
	CHECK(!mine == (rank % 3 == 2), "color -1 is in no set");
	if (mine) {
		for (int i = 1; i < berth_set_size(mine); i++)
			CHECK(berth_set_member(mine, i) < berth_set_member(mine, i - 1),
			      "ordered by key");
		CHECK(sum_in(mine, 1) == berth_set_size(mine), "split");
		FINE(berth_set_split(mine, berth_set_rank(mine) / 2, 0, &pair));
		CHECK(sum_in(pair, 1) == berth_set_size(pair), "split of a split");
		FINE(berth_set_remove(pair));
		FINE(berth_set_remove(mine));
	}
	FINE(berth_set_remove(even));
	remove_waiting();
	for (int i = 0; i < 50; i++) {
		FINE(berth_set_split(NULL, 0, i % 2 ? rank : -rank, &mine));
		CHECK(sum_in(mine, 1) == size, "again");
		FINE(berth_set_remove(mine));
	}
	removed_in_flight();
}

#endif
