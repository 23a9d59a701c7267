/* lib/base/fiber, lib/base/apart */
#include <check.h>
#include <pthread.h>
#include <string.h>
#include <time.h>

#include "lib/base/apart.h"
#include "lib/base/clock.h"
#include "lib/base/fiber.h"
#include "lib/base/sleep.h"

enum { FIBERS = 50, TURNS = 200 };

/* ---- resuming ---- */

struct counter {
	unsigned n, waits;
};

static void count(void *ctx)
{
	struct counter *c = ctx;
	volatile char stack[32 << 10]; /* each has its own */

	memset((void *)stack, (int)c->waits, sizeof stack);
	for (unsigned i = 0; i < c->waits; i++) {
		const struct fiber_wait w = { .until_ns = 1 + i };

		ck_assert(fiber_runs());
		fiber_wait(&w);
		for (size_t k = 0; k < sizeof stack; k += 4096)
			ck_assert_int_eq(stack[k], (char)c->waits);
		c->n++;
	}
}

START_TEST(turns)
{
	struct counter c[FIBERS] = { { 0, 0 } };
	struct fiber *f[FIBERS];

	for (unsigned i = 0; i < FIBERS; i++) {
		f[i] = fiber_make();
		ck_assert_ptr_nonnull(f[i]);
		c[i].waits = i;
		ck_assert_int_eq(fiber_begin(f[i], count, &c[i]), i == 0);
	}
	for (unsigned k = 1; k < FIBERS; k++)
		for (unsigned i = k; i < FIBERS; i++) {
			ck_assert_uint_eq(fiber_waits(f[i])->until_ns, k);
			ck_assert_int_eq(fiber_resume(f[i]), i == k);
			ck_assert(!fiber_runs());
		}
	for (unsigned i = 0; i < FIBERS; i++)
		ck_assert_uint_eq(c[i].n, i);
	for (unsigned i = 0; i < FIBERS; i++) { /* again, on the same stacks */
		c[i] = (struct counter){ 0, 1 };
		ck_assert(!fiber_begin(f[i], count, &c[i]));
		ck_assert(fiber_resume(f[i]));
		ck_assert_uint_eq(c[i].n, 1);
		fiber_free(f[i]);
	}
}
END_TEST

/* ---- calls in other threads ---- */

static _Atomic uint32_t rung;

static void ring(void *ctx)
{
	(void)ctx;
	atomic_fetch_add(&rung, 1);
	sleep_wake(&rung);
}

static bool has_changed(const struct fiber_wait *w)
{
	return (w->word && atomic_load(w->word) != w->value) ||
	       (w->until_ns && clock_ns() >= w->until_ns);
}

/* Until all of F are over. */
static void serve(struct fiber **f, unsigned n)
{
	while (n) {
		const uint32_t seen = atomic_load(&rung);
		bool ran = false;

		for (unsigned i = 0; i < n; i++)
			if (has_changed(fiber_waits(f[i]))) {
				ran = true;
				if (fiber_resume(f[i]))
					f[i--] = f[--n];
			}
		if (ran)
			continue;
		fiber_count_sleep(1);
		for (unsigned i = 0; i < n; i++)
			ran |= has_changed(fiber_waits(f[i]));
		if (!ran)
			sleep_on(&rung, seen, 1000000);
		fiber_count_sleep(-1);
	}
}

static pthread_t own;
static _Atomic uint32_t calls, slow, may_end;

static void quick_call(void *ctx)
{
	ck_assert(!pthread_equal(pthread_self(), own));
	ck_assert(!fiber_runs());
	++*(unsigned *)ctx;
	atomic_fetch_add(&calls, 1);
}

static void call_often(void *ctx)
{
	unsigned n = 0;

	(void)ctx;
	for (unsigned i = 0; i < TURNS; i++)
		apart_call(quick_call, &n);
	ck_assert_uint_eq(n, TURNS);
	if (atomic_load(&calls) == FIBERS / 2 * TURNS) { /* the slow ones go on */
		atomic_store(&may_end, 1);
		sleep_wake(&may_end);
	}
}

static void slow_call(void *ctx)
{
	(void)ctx;
	atomic_fetch_add(&slow, 1);
	while (!atomic_load(&may_end))
		sleep_on(&may_end, 0, 0);
}

static void call_slow(void *ctx)
{
	apart_call(slow_call, ctx);
}

START_TEST(calls_apart)
{
	struct fiber *f[FIBERS], *all[FIBERS];

	own = pthread_self();
	fiber_home(ring, NULL);
	for (unsigned i = 0; i < FIBERS; i++) {
		all[i] = f[i] = fiber_make();
		ck_assert(!fiber_begin(f[i], i % 2 ? call_often : call_slow, NULL));
	}
	serve(f, FIBERS);
	ck_assert_uint_eq(calls, FIBERS / 2 * TURNS);
	ck_assert_uint_eq(slow, FIBERS / 2);
	fiber_home(NULL, NULL);
	apart_end();
	for (unsigned i = 0; i < FIBERS; i++)
		fiber_free(all[i]);
}
END_TEST

START_TEST(outside)
{
	unsigned n = 0;

	own = (pthread_t)0;
	apart_call(quick_call, &n);
	ck_assert_uint_eq(n, 1);
	fiber_pause(1000);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("fiber");
	TCase *t = tcase_create("fiber");
	SRunner *r = srunner_create(s);
	int failed;

	suite_add_tcase(s, t);
	tcase_set_timeout(t, 60);
	tcase_add_test(t, turns);
	tcase_add_test(t, calls_apart);
	tcase_add_test(t, outside);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed != 0;
}
