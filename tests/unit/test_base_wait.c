/* lib/base/wait: for how long a rank that waits sleeps.  A time is the least of some
 * tries, since this machine may be held up in any of them. */
#include <check.h>

#include "lib/base/clock.h"
#include "lib/base/wait.h"

enum { TRIES = 20 };

struct look {
	struct post post;
	uint64_t at[3]; /* when it has looked around */
	unsigned looks;
};

static struct wait sleeper(void (*idle)(void *ctx), void *ctx)
{
	return (struct wait){ .idle = idle, .ctx = ctx };
}

static void note_and_post(void *ctx)
{
	struct look *l = ctx;

	l->at[l->looks++] = clock_ns();
	if (l->looks == 2)
		post(&l->post, 1);
}

/* A post that has missed a sleeper is seen when that looks again. */
START_TEST(missed_post)
{
	uint64_t least = UINT64_MAX;

	for (int i = 0; i < TRIES; i++) {
		struct look l = { .looks = 0 };
		struct wait w = sleeper(note_and_post, &l);

		ck_assert(!wait_for(&w, &l.post, 1));
		ck_assert_uint_eq(l.looks, 2);
		if (l.at[1] - l.at[0] < least)
			least = l.at[1] - l.at[0];
	}
	ck_assert_msg(least < 700000, "%.3f ms", (double)least / 1e6);
}
END_TEST

START_TEST(deadline)
{
	uint64_t least = UINT64_MAX;

	for (int i = 0; i < TRIES; i++) {
		struct look l = { .looks = 0 };
		struct wait w = sleeper(NULL, NULL);
		const uint64_t until = clock_ns() + 5000000;
		uint64_t late;

		w.deadline_ns = until;
		ck_assert_int_eq(wait_for(&w, &l.post, 1), BERTH_TIMEOUT);
		late = clock_ns() - until;
		ck_assert(clock_ns() >= until);
		least = late < least ? late : least;
	}
	ck_assert_msg(least < 10000000, "%.3f ms late", (double)least / 1e6);
}
END_TEST

/* Another rank gives up.  If it is done with more operations than this one, it has done
 * its part, and the wait goes on. */
START_TEST(broken)
{
	static const struct {
		uint32_t theirs, own;
		berth_result rc;
	} cases[] = { { 7, 7, BERTH_PEER_LOST },
		      { 6, 7, BERTH_PEER_LOST },
		      { 8, 7, BERTH_TIMEOUT },
		      { 0, UINT32_MAX, BERTH_TIMEOUT },
		      { UINT32_MAX, 0, BERTH_PEER_LOST } };
	const _Atomic uint64_t word =
		(uint64_t)cases[_i].theirs << 32 | BERTH_PEER_LOST;
	const _Atomic uint32_t own = cases[_i].own;
	struct wait w = sleeper(NULL, NULL);
	struct look l = { .looks = 0 };

	w.broken = &word;
	w.done = &own;
	w.deadline_ns = clock_ns() + 5000000;
	ck_assert_int_eq(wait_for(&w, &l.post, 1), cases[_i].rc);
}
END_TEST

/* On a core that others want, each yield gives it away for YIELD_MS. */
static unsigned yields, yield_ms;

int sched_yield(void)
{
	const uint64_t until = clock_ns() + yield_ms * 1000000ull;

	yields++;
	while (clock_ns() < until)
		;
	return 0;
}

/* The wait does not go on with that, but sleeps, and looks around. */
START_TEST(busy_core)
{
	const _Atomic uint64_t word = BERTH_PEER_LOST;
	struct wait w;
	struct look l = { .looks = 0 };

	wait_tune(&w, 4, 2);
	w = (struct wait){ .spins = w.spins, .yields = w.yields, .broken = &word };
	yields = 0;
	yield_ms = 20;
	ck_assert_uint_eq(w.yields, 2000);
	ck_assert_int_eq(wait_for(&w, &l.post, 1), BERTH_PEER_LOST);
	ck_assert_uint_eq(yields, 1);
	yields = yield_ms = 0;
	for (unsigned i = 0; i < WAIT_CROWDED; i++) /* they sleep at once */
		ck_assert_int_eq(wait_for(&w, &l.post, 1), BERTH_PEER_LOST);
	ck_assert_uint_eq(yields, 0);
	ck_assert_int_eq(wait_for(&w, &l.post, 1), BERTH_PEER_LOST);
	ck_assert_uint_ge(yields, 1); /* how many, the clock decides */
}
END_TEST

int main(void)
{
	Suite *s = suite_create("wait");
	TCase *t = tcase_create("wait");
	SRunner *r = srunner_create(s);
	int failed;

	suite_add_tcase(s, t);
	tcase_set_timeout(t, 60);
	tcase_add_test(t, missed_post);
	tcase_add_test(t, deadline);
	tcase_add_loop_test(t, broken, 0, 5);
	tcase_add_test(t, busy_core);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed != 0;
}
