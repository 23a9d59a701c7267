/* lib/core/plan: what enters and leaves the plan, and where its cycles end. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "lib/core/plan.h"

enum { FUSE = 1000 };

static struct plan plan_of(uint64_t fusion_bytes)
{
	return (struct plan){ .fusion_bytes = fusion_bytes };
}

static struct plan_unit unit(unsigned number, uint64_t bytes, uint64_t fuse_key)
{
	return (struct plan_unit){ .key = 1000 + number,
				   .signature = number,
				   .alike = number & 0xffff,
				   .bytes = bytes,
				   .fuse_key = fuse_key };
}

static struct plan_unit named(unsigned number)
{
	return unit(number, 100, 1);
}

static struct plan_unit unnamed(uint64_t number, uint32_t signature, bool first)
{
	return (struct plan_unit){ .key = plan_number_key(number),
				   .number = number,
				   .signature = signature,
				   .alike = signature & 0xffff,
				   .bytes = 100,
				   .fuse_key = 1,
				   .first = first };
}

/* As round.c does it: a unit of the plan is done if a rank WAITS. */
static bool meet(struct plan *p, struct plan_unit u, bool waits)
{
	if (plan_comes_again(p, &u))
		ck_assert_int_eq(plan_wrap(p, &u), BERTH_OK);
	if (!waits && plan_expects(p, &u))
		return false;
	ck_assert_int_eq(plan_note(p, &u), BERTH_OK);
	return true;
}

static void begin(struct plan *p)
{
	ck_assert_int_eq(plan_round(p, p->cycle, p->base), BERTH_OK);
}

/* One round with named units FROM to TO - 1. */
static void round_of(struct plan *p, unsigned from, unsigned to, bool waits)
{
	begin(p);
	for (unsigned i = from; i < to; i++)
		meet(p, named(i), waits);
}

/* Two cycles and a half make a plan. */
static struct plan learned(unsigned n)
{
	struct plan p = plan_of(FUSE);

	for (int cycle = 0; cycle < 3; cycle++)
		round_of(&p, 0, n, true);
	ck_assert_uint_eq(p.list.n, n);
	ck_assert_uint_eq(p.open, n);
	return p;
}

static void follow(struct plan *p)
{
	uint64_t cycle = p->cycle;

	while (p->cycle == cycle)
		ck_assert_int_eq(plan_advance(p), BERTH_OK);
}

/* ---- the plan ---- */

START_TEST(two_cycles_are_a_plan)
{
	struct plan p = plan_of(FUSE);
	struct plan_unit u;
	uint32_t first;

	round_of(&p, 0, 12, false);
	round_of(&p, 0, 12, false);
	ck_assert_uint_eq(p.list.n, 0);
	round_of(&p, 0, 6, false); /* half of the third one, which are done */
	ck_assert_uint_eq(p.list.n, 12);
	ck_assert_uint_eq(p.ndone, 6);
	ck_assert_uint_eq(p.nbuckets, 2); /* 10 and 2 */
	ck_assert_uint_eq(p.bucket[1].from, 10);
	ck_assert_uint_eq(p.bucket[0].open, 4);
	u = named(7);
	ck_assert(plan_expects(&p, &u));
	u.signature++; /* of that name, but another shape */
	ck_assert(!plan_expects(&p, &u));
	u = named(12);
	ck_assert(!plan_expects(&p, &u));
	u = named(3);
	ck_assert(!plan_expects(&p, &u) && plan_comes_again(&p, &u));
	follow(&p);
	first = plan_signature(&p);
	ck_assert_int_eq(plan_advance(&p), BERTH_OK);
	ck_assert_uint_ne(plan_signature(&p), first);
	ck_assert_int_eq(plan_advance(&p), BERTH_OK);
	ck_assert_uint_eq(p.next, 0);
	ck_assert_uint_ne(plan_signature(&p), first); /* of another cycle */
	plan_free(&p);
}
END_TEST

/* What a step has several times does not end its cycle; nor does what only the first
 * step has keep it from ending. */
START_TEST(a_cycle_ends_when_half_of_it_comes_again)
{
	struct plan p = plan_of(FUSE);

	round_of(&p, 100, 110, false);
	for (int step = 0; step < 6; step++) {
		round_of(&p, 0, 10, true);
		for (int i = 0; i < 3; i++)
			round_of(&p, 10, 11, true);
	}
	ck_assert_uint_eq(p.list.n, 11);
	plan_free(&p);
}
END_TEST

/* Nor does a long part of the program in which nothing comes again. */
START_TEST(a_cycle_is_found_behind_what_never_repeats)
{
	struct plan p = plan_of(FUSE);

	round_of(&p, 100, 2100, false);
	for (int step = 0; step < 6; step++)
		round_of(&p, 0, 20, true);
	ck_assert_uint_eq(p.list.n, 20);
	plan_free(&p);
}
END_TEST

START_TEST(a_stranger_is_beside_the_plan)
{
	struct plan p = learned(5);

	for (unsigned i = 0; i < 1000; i++) { /* a new one in each cycle */
		begin(&p);
		ck_assert(meet(&p, named(100 + i), false));
		ck_assert_uint_eq(p.bucket[p.next].open, 5);
		follow(&p);
		ck_assert_uint_eq(p.list.n, 5);
	}
	plan_free(&p);
}
END_TEST

START_TEST(what_two_cycles_had_enters)
{
	struct plan p = learned(5);
	struct plan_unit u = named(50);

	for (int cycle = 0; cycle < 2; cycle++) {
		ck_assert(!plan_expects(&p, &u));
		begin(&p);
		meet(&p, u, false);
		follow(&p);
	}
	ck_assert(plan_expects(&p, &u));
	ck_assert_uint_eq(p.list.n, 6);
	plan_free(&p);
}
END_TEST

/* A rank waits for the rest of the bucket; the next cycle begins with unit 0. */
static void cycle_without(struct plan *p, unsigned n, unsigned missing)
{
	begin(p);
	for (unsigned i = 0; i < n; i++)
		if (i != missing)
			meet(p, named(i), true);
	ck_assert_int_eq(plan_cut(p), BERTH_OK);
}

START_TEST(what_two_cycles_lacked_leaves)
{
	struct plan p = learned(5);
	struct plan_unit u = named(0), lost = named(3);

	cycle_without(&p, 5, 3);
	ck_assert_uint_eq(p.open, 1);
	ck_assert(plan_expects(&p, &lost));
	ck_assert(plan_comes_again(&p, &u));
	plan_wrap(&p, &u);
	ck_assert_uint_eq(p.open, 5);
	follow(&p); /* once does not matter */
	for (int cycle = 0; cycle < 2; cycle++) {
		ck_assert(plan_expects(&p, &lost));
		cycle_without(&p, 5, 3);
		plan_wrap(&p, &u);
	}
	ck_assert(!plan_expects(&p, &lost));
	ck_assert_uint_eq(p.list.n, 4);
	ck_assert_uint_eq(p.nbuckets, 1);
	plan_free(&p);
}
END_TEST

/* Ranks give it arrays of different memories.  So the plan, which has it in one memory,
 * does not wait for it. */
START_TEST(a_unit_of_other_memories_is_passed)
{
	struct plan p = learned(3);
	struct plan_unit u = named(1);

	for (int cycle = 0; cycle < 2; cycle++) {
		u = named(1);
		ck_assert(plan_expects(&p, &u) && !plan_expects_other(&p, &u));
		u.signature += 100;
		ck_assert(!plan_expects(&p, &u) && plan_expects_other(&p, &u));
		u.alike++; /* that is another operation of its name */
		ck_assert(!plan_expects_other(&p, &u));
		u.alike--;
		begin(&p);
		ck_assert_int_eq(plan_pass(&p, &u), BERTH_OK);
		ck_assert(!plan_expects_other(&p, &u));
		ck_assert_uint_eq(p.open, 2);
		follow(&p);
	}
	u = named(1);
	ck_assert(!plan_expects(&p, &u));
	ck_assert_uint_eq(p.list.n, 2);
	plan_free(&p);
}
END_TEST

START_TEST(a_plan_is_forgotten_of_which_all_is_passed)
{
	struct plan p = learned(1);
	struct plan_unit u = named(0);

	u.signature += 100;
	for (int cycle = 0; cycle < 20; cycle++) {
		begin(&p);
		ck_assert_int_eq(plan_pass(&p, &u), BERTH_OK);
	}
	ck_assert_uint_eq(p.list.n, 0);
	plan_free(&p);
}
END_TEST

START_TEST(a_plan_out_of_use_is_forgotten)
{
	struct plan p = learned(5);

	for (unsigned i = 0; i < 200 && p.list.n; i++) {
		begin(&p);
		meet(&p, named(50 + i % 2), false); /* which are in no cycle's end */
	}
	ck_assert_uint_eq(p.list.n, 0);
	for (unsigned i = 0; i < 40; i++)
		round_of(&p, 50, 52, true);
	ck_assert_uint_eq(p.list.n, 2);
	plan_free(&p);
}
END_TEST

/* As a loss that is summed three times in each step. */
START_TEST(a_name_comes_several_times)
{
	struct plan p = learned(6);
	unsigned rounds = 0;

	for (int step = 0; step < 20; step++)
		for (unsigned i = 0; i < 8; i++) {
			struct plan_unit u = named(i < 5 ? i : 5);

			if (plan_comes_again(&p, &u))
				plan_wrap(&p, &u);
			if (i < 4 && plan_expects(&p, &u))
				continue; /* until all of the bucket are there */
			begin(&p);
			for (unsigned k = 0; k <= i && i < 5; k++)
				meet(&p, named(k), true);
			if (i >= 5)
				meet(&p, u, true);
			rounds++;
		}
	ck_assert_uint_ge(p.list.n, 5); /* no unit has left */
	ck_assert_uint_le(rounds, 100);
	plan_free(&p);
}
END_TEST

/* ---- where buckets end, and their order ---- */

START_TEST(waits_in_the_same_places_end_buckets)
{
	struct plan p = learned(3);

	ck_assert_uint_eq(p.nbuckets, 1);
	for (int cycle = 0; cycle < 2; cycle++)
		for (unsigned i = 0; i < 3; i++) { /* wait for each, then the next */
			begin(&p);
			meet(&p, named(i), true);
			if (i < 2)
				plan_cut(&p);
		}
	ck_assert_uint_eq(p.nbuckets, 3);
	follow(&p);
	ck_assert_uint_eq(p.nbuckets, 3);
	/* what a segment lacks is skipped when a later one is done */
	begin(&p);
	meet(&p, named(1), true);
	ck_assert_int_eq(plan_cut(&p), BERTH_OK);
	ck_assert_uint_eq(p.next, 2);
	ck_assert_uint_eq(p.open, 1);
	plan_free(&p);
}
END_TEST

START_TEST(waits_in_other_places_do_not)
{
	struct plan p = learned(5);

	for (unsigned cycle = 0; cycle < 10; cycle++) {
		begin(&p);
		for (unsigned i = 0; i < 1 + cycle % 3; i++)
			meet(&p, named(i), true);
		plan_cut(&p);
		follow(&p);
	}
	ck_assert_uint_eq(p.nbuckets, 1);
	plan_free(&p);
}
END_TEST

/* A bucket does not wait for a unit that comes after all others. */
START_TEST(buckets_come_when_they_are_complete)
{
	struct plan p = plan_of(FUSE);
	struct plan_unit u[5] = { unit(0, 400, 2), unit(1, 400, 1), unit(2, 400, 1),
				  unit(3, 400, 1), unit(4, 400, 2) };

	for (unsigned cycle = 0; cycle < 4; cycle++)
		for (unsigned i = 0; i < 5; i++) {
			begin(&p); /* each in a round of its own */
			meet(&p, u[i], false);
		}
	ck_assert_uint_eq(p.list.n, 5);
	ck_assert_uint_eq(p.nbuckets, 3); /* 1 2, 3, 0 4 */
	ck_assert_uint_eq(p.list.line[0].unit.key, 1001);
	ck_assert_uint_eq(p.list.line[2].unit.key, 1003);
	ck_assert_uint_eq(p.list.line[3].unit.key, 1000);
	ck_assert_uint_eq(p.list.line[4].unit.key, 1004);
	plan_free(&p);
}
END_TEST

/* What came in one round was ready together: the first one's order, by priority. */
START_TEST(buckets_of_one_round_keep_its_order)
{
	struct plan p = plan_of(FUSE);
	struct plan_unit u[4] = { unit(0, 400, 2), unit(1, 400, 1), unit(2, 400, 1),
				  unit(3, 400, 2) };

	for (unsigned cycle = 0; cycle < 4; cycle++) {
		begin(&p);
		for (unsigned i = 0; i < 4; i++)
			meet(&p, u[i], false);
	}
	ck_assert_uint_eq(p.nbuckets, 2); /* 0 3, 1 2 */
	ck_assert_uint_eq(p.list.line[0].unit.key, 1000);
	ck_assert_uint_eq(p.list.line[1].unit.key, 1003);
	ck_assert_uint_eq(p.list.line[2].unit.key, 1001);
	plan_free(&p);
}
END_TEST

/* ---- units without a name ---- */

/* A step of N of one shape, but for EXTRA more; each in a round; how many rounds. */
static unsigned step_of(struct plan *p, uint64_t *number, unsigned n, int extra)
{
	unsigned rounds = 0;
	struct plan_unit first = unnamed(*number + 1, 7, true);

	if (plan_comes_again(p, &first))
		plan_wrap(p, &first);
	if (p->list.n == n && p->open == n && p->base == *number && !extra) {
		follow(p);
		*number += n;
		return 0;
	}
	begin(p);
	for (unsigned i = 0; i < n + (unsigned)extra; i++)
		meet(p, unnamed(++*number, 7, i == 0), true);
	plan_cut(p);
	rounds++;
	return rounds;
}

START_TEST(places_instead_of_names)
{
	struct plan p = plan_of(10000);
	uint64_t number = 0;
	unsigned rounds = 0;

	for (int step = 0; step < 100; step++)
		rounds += step_of(&p, &number, 8, 0);
	ck_assert_uint_eq(p.list.n, 8);
	ck_assert_uint_eq(p.nbuckets, 1);
	ck_assert_uint_le(rounds, 3);
	rounds = 0;
	for (int step = 0; step < 100; step++) /* one less, one more */
		rounds += step_of(&p, &number, 8,
				  step % 10 == 3   ? -1
				  : step % 10 == 7 ? 1
						   : 0);
	ck_assert_uint_eq(p.list.n, 8);
	ck_assert_uint_le(rounds, 40);
	plan_free(&p);
}
END_TEST

START_TEST(numbers_count_from_the_cycle)
{
	struct plan p = plan_of(FUSE);
	struct plan_unit u;
	uint64_t number = 0;

	for (int cycle = 0; cycle < 4; cycle++) { /* named ones are in front */
		begin(&p);
		for (unsigned i = 0; i < 4; i++)
			meet(&p, named(i), true);
		meet(&p, unnamed(++number, 1, false), true);
		meet(&p, unnamed(++number, 2, false), true);
	}
	ck_assert_uint_eq(p.list.n, 6);
	ck_assert_uint_eq(p.base, number);
	u = unnamed(number + 1, 1, false);
	ck_assert(plan_expects(&p, &u));
	u = unnamed(number + 1, 2, false);
	ck_assert(!plan_expects(&p, &u));
	u = unnamed(number + 2, 2, false);
	ck_assert(plan_expects(&p, &u));
	ck_assert_uint_eq(plan_key(&p, 4), plan_number_key(number + 1));
	meet(&p, unnamed(number + 1, 9, false), false); /* one more, of another shape */
	ck_assert_uint_eq(plan_key(&p, 4), plan_number_key(number + 2));
	plan_free(&p);
}
END_TEST

/* ---- the same from the same ---- */

static uint64_t seed;

static unsigned noise(unsigned below)
{
	seed = seed * 6364136223846793005u + 1442695040888963407u;
	return (unsigned)(seed >> 33) % below;
}

static void check_same(const struct plan *p, const struct plan *q)
{
	ck_assert_uint_eq(p->list.n, q->list.n);
	ck_assert_uint_eq(p->nbuckets, q->nbuckets);
	ck_assert_uint_eq(p->cycle, q->cycle);
	ck_assert_uint_eq(p->open, q->open);
	if (p->next < p->nbuckets)
		ck_assert_uint_eq(plan_signature(p), plan_signature(q));
}

static void check_sane(const struct plan *p)
{
	size_t open = 0, ndone = 0;

	ck_assert(p->next < p->nbuckets || !p->list.n);
	for (size_t b = 0; b < p->nbuckets; b++) {
		size_t left = 0;
		uint64_t bytes = 0;

		for (size_t i = p->bucket[b].from; i < p->bucket[b + 1].from; i++) {
			const struct plan_line *line = &p->list.line[i];

			left += plan_is_open(p, i);
			ndone += line->done;
			bytes += line->unit.bytes;
			ck_assert_uint_eq(
				line->unit.fuse_key,
				p->list.line[p->bucket[b].from].unit.fuse_key);
			ck_assert_uint_eq(plan_find(p, &line->unit) != PLAN_NONE, 1);
		}
		ck_assert_uint_eq(left, p->bucket[b].open);
		ck_assert(left || b != p->next);
		ck_assert(bytes <= FUSE ||
			  p->bucket[b + 1].from == p->bucket[b].from + 1);
		open += left;
	}
	ck_assert_uint_eq(open, p->open);
	ck_assert_uint_eq(ndone, p->ndone);
}

/* Ranks of which some notice by themselves that a cycle has ended, and others are told
 * in the next round. */
START_TEST(ranks_agree)
{
	struct plan rank[3] = { plan_of(FUSE), plan_of(FUSE), plan_of(FUSE) };

	seed = (uint64_t)_i;
	for (int turn = 0; turn < 600; turn++) {
		unsigned n = 1 + noise(12), from = noise(8);
		bool waits = noise(3) == 0;

		if (rank->next < rank->nbuckets && noise(2)) {
			for (int r = 0; r < 3; r++)
				plan_advance(&rank[r]);
		} else {
			struct plan_unit u =
				unit(from, 100 + 50 * (from % 4), 1 + from % 2);
			bool early = plan_comes_again(rank, &u);

			if (early)
				plan_wrap(rank, &u);
			for (int r = 0; r < 3; r++)
				plan_round(&rank[r], rank->cycle, rank->base);
			for (unsigned i = from; i < from + n; i++)
				for (int r = 0; r < 3; r++)
					meet(&rank[r],
					     unit(i, 100 + 50 * (i % 4), 1 + i % 2),
					     waits);
			for (int r = 0; r < 3 && waits; r++)
				plan_cut(&rank[r]);
		}
		check_same(&rank[0], &rank[1]);
		check_same(&rank[0], &rank[2]);
		check_sane(&rank[0]);
	}
	for (int r = 0; r < 3; r++)
		plan_free(&rank[r]);
}
END_TEST

START_TEST(other_units_make_another_hash)
{
	struct plan p = learned(4), q = learned(5);

	ck_assert_uint_eq(p.cycle, q.cycle);
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

	tcase_add_test(t, two_cycles_are_a_plan);
	tcase_add_test(t, a_cycle_ends_when_half_of_it_comes_again);
	tcase_add_test(t, a_cycle_is_found_behind_what_never_repeats);
	tcase_add_test(t, a_stranger_is_beside_the_plan);
	tcase_add_test(t, what_two_cycles_had_enters);
	tcase_add_test(t, what_two_cycles_lacked_leaves);
	tcase_add_test(t, a_unit_of_other_memories_is_passed);
	tcase_add_test(t, a_plan_is_forgotten_of_which_all_is_passed);
	tcase_add_test(t, a_plan_out_of_use_is_forgotten);
	tcase_add_test(t, a_name_comes_several_times);
	tcase_add_test(t, waits_in_the_same_places_end_buckets);
	tcase_add_test(t, waits_in_other_places_do_not);
	tcase_add_test(t, buckets_come_when_they_are_complete);
	tcase_add_test(t, buckets_of_one_round_keep_its_order);
	tcase_add_test(t, places_instead_of_names);
	tcase_add_test(t, numbers_count_from_the_cycle);
	tcase_add_loop_test(t, ranks_agree, 0, 20);
	tcase_add_test(t, other_units_make_another_hash);
	suite_add_tcase(s, t);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed != 0;
}
