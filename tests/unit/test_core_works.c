/* lib/core/works: in which order one rank starts works of several sets, and how they
 * end.  The device is the test's: it notes what is started, and is done when it is
 * told. */
#include <check.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "lib/backend/host_stage.h"
#include "lib/base/fiber.h"
#include "lib/core/staged.h"
#include "lib/core/staged_step.h"
#include "lib/core/turns.h"
#include "lib/core/works.h"

enum { SETS = 3 };

static char started[64];
static unsigned revoked, overs, tested;
static bool done;
static berth_result start_rc, started_rc, last_rc;

static berth_result start(void *group, struct device_work *w)
{
	(void)w;
	strncat(started, group, 1);
	return start_rc;
}

static berth_result is_started(void *group, struct device_work *w)
{
	(void)group;
	(void)w;
	return started_rc;
}

static berth_result test(void *group, struct device_work *w)
{
	(void)group;
	(void)w;
	tested++;
	return done ? BERTH_OK : BERTH_BUSY;
}

static void end(void *group, struct device_work *w)
{
	(void)group;
	(void)w;
}

/* What is revoked comes to its end. */
static void revoke(void *group)
{
	(void)group;
	revoked++;
	done = true;
}

static const char *says(const void *group)
{
	(void)group;
	return "no room on the device";
}

static const struct device_backend fake = { .name = "fake",
					    .begin = start,
					    .begun = is_started,
					    .test = test,
					    .end = end,
					    .revoke = revoke,
					    .says = says };

static void over(struct work *w)
{
	last_rc = w->rc;
	overs++;
}

static void watch(struct work *w)
{
	(void)w;
}

static void failed(struct work *w, const char *why)
{
	(void)w;
	ck_assert_ptr_nonnull(strstr(why, "barrier"));
}

static const struct work_hooks hooks = { .over = over,
					 .watch = watch,
					 .failed = failed };

static struct comm comm[SETS];
static struct comm_device device[SETS];
static const struct op op = { .coll = { .kind = BERTH_BARRIER }, .memory = BERTH_CUDA };
static struct work *work[SETS];
static struct bell bell;

static struct work *make_work(uint32_t set)
{
	struct work *w = calloc(1, sizeof *w);

	w->refs = 1;
	w->comm = &comm[set];
	w->of = &device[set];
	w->back = &fake;
	w->group = device[set].group;
	w->hooks = &hooks;
	w->op = &op;
	return w;
}

static void setup(void)
{
	static const char *const names[SETS] = { "A", "B", "C" };

	turns_open(&bell, -1, 1, 2);
	started[0] = '\0';
	done = true;
	revoked = overs = tested = 0;
	start_rc = started_rc = last_rc = BERTH_OK;
	for (uint32_t i = 0; i < SETS; i++) {
		memset(&comm[i], 0, sizeof comm[i]);
		memset(&device[i], 0, sizeof device[i]);
		comm[i].id = i;
		device[i].back = &fake;
		device[i].group = (void *)(uintptr_t)names[i];
		work[i] = make_work(i);
	}
}

static void teardown(void)
{
	for (unsigned i = 0; i < SETS; i++)
		works_let_go(work[i]);
	works_stop();
	turns_close();
}

START_TEST(lower_number_holds_back)
{
	const uint64_t a = works_propose(work[0]), b = works_propose(work[1]);

	ck_assert_uint_lt(a, b);
	works_agree(work[1], b + 4);
	ck_assert_str_eq(started, "");
	works_agree(work[0], b + 2);
	ck_assert_str_eq(started, "AB");
	ck_assert_uint_eq(overs, 2);
}
END_TEST

START_TEST(time_counts_not_number)
{
	const uint64_t b = (works_propose(work[0]), works_propose(work[1]));

	works_agree(work[0], b + 9);
	ck_assert_str_eq(started, "");
	works_agree(work[1], b + 4);
	ck_assert_str_eq(started, "BA");
	ck_assert_uint_gt(works_propose(work[2]), b + 9);
	works_withdraw(work[2]);
}
END_TEST

START_TEST(equal_times_by_set)
{
	const uint64_t c = (works_propose(work[2]), works_propose(work[0]));

	works_agree(work[2], c + 5);
	works_agree(work[0], c + 5);
	ck_assert_str_eq(started, "AC");
}
END_TEST

START_TEST(withdrawn_holds_nothing)
{
	const uint64_t b = (works_propose(work[0]), works_propose(work[1]));

	works_agree(work[1], b);
	ck_assert_str_eq(started, "");
	works_withdraw(work[0]);
	ck_assert_str_eq(started, "B");
}
END_TEST

/* What was proposed before there was a second set comes before its works. */
START_TEST(only_set)
{
	const uint64_t a = works_propose(work[0]);

	works_agree(work[1], works_propose(work[1]));
	ck_assert_str_eq(started, "");
	works_agree(work[0], a);
	ck_assert_str_eq(started, "AB");
	ck_assert_uint_gt(works_propose(work[2]), a + 1);
	ck_assert_uint_gt(works_propose(work[2]), a + 2); /* anew */
	works_withdraw(work[2]);
	works_withdraw(work[2]);
}
END_TEST

/* The device does not have A yet: B waits, however often works are tested. */
START_TEST(nothing_passes_what_starts)
{
	done = false;
	start_rc = started_rc = BERTH_BUSY;
	works_agree(work[0], works_propose(work[0]));
	start_rc = BERTH_OK;
	works_agree(work[1], works_propose(work[1]));
	ck_assert(!works_wait(work[0], WORK_RUNS, 20000000));
	ck_assert_str_eq(started, "A");
	works_lock();
	started_rc = BERTH_OK;
	works_unlock();
	ck_assert(works_wait(work[1], WORK_RUNS, 1000000000));
	ck_assert_str_eq(started, "AB");
	works_lock();
	done = true;
	works_unlock();
	ck_assert(works_wait(work[0], WORK_OVER, 1000000000));
	ck_assert(works_wait(work[1], WORK_OVER, 1000000000));
	ck_assert_int_eq(work[0]->rc, BERTH_OK);
}
END_TEST

/* A work that waits for no other rank begins all the same, and nothing else does. */
START_TEST(passes_what_starts)
{
	done = false;
	start_rc = started_rc = BERTH_BUSY;
	works_agree(work[0], works_propose(work[0]));
	start_rc = BERTH_OK;
	works_agree(work[1], works_propose(work[1]));
	works_begun(work[2]);
	ck_assert(works_wait(work[2], WORK_RUNS, 1000000000));
	ck_assert(!works_wait(work[1], WORK_RUNS, 20000000));
	ck_assert_str_eq(started, "A");
	works_lock();
	started_rc = BERTH_OK;
	done = true;
	works_unlock();
	for (unsigned i = 0; i < SETS; i++)
		ck_assert(works_wait(work[i], WORK_OVER, 1000000000));
	ck_assert_str_eq(started, "AB");
}
END_TEST

/* A runs for long.  A thread that waits until B has begun asks for B alone, over and
 * over.  The works' turns ask for A now and then. */
START_TEST(start_asks_for_nothing_else)
{
	done = false;
	works_agree(work[0], works_propose(work[0]));
	start_rc = started_rc = BERTH_BUSY;
	works_agree(work[1], works_propose(work[1]));
	for (int i = 0; i < 10; i++)
		ck_assert(!works_wait(work[1], WORK_RUNS, 1));
	works_lock();
	ck_assert_uint_lt(tested, 1000); /* each of them looks 200 times */
	started_rc = BERTH_OK;
	done = true;
	works_unlock();
	for (unsigned i = 0; i < 2; i++)
		ck_assert(works_wait(work[i], WORK_OVER, 1000000000));
}
END_TEST

/* Its set ends meanwhile: it is revoked, and ends when the device gives it up. */
START_TEST(ends_while_it_starts)
{
	start_rc = started_rc = BERTH_BUSY;
	works_agree(work[0], works_propose(work[0]));
	atomic_store(&comm[0].broken, BERTH_PEER_LOST);
	ck_assert(!works_wait(work[0], WORK_OVER, 20000000));
	ck_assert_uint_eq(revoked, 1);
	works_lock();
	started_rc = BERTH_SYSTEM;
	works_unlock();
	ck_assert(works_wait(work[0], WORK_OVER, 1000000000));
	ck_assert_int_eq(work[0]->rc, BERTH_PEER_LOST);
}
END_TEST

START_TEST(ends_with_its_comm)
{
	done = false;
	works_agree(work[0], works_propose(work[0]));
	ck_assert_uint_eq(overs, 0);
	comm[0].finally.rc = BERTH_PEER_LOST;
	atomic_store(&comm[0].broken, BERTH_PEER_LOST);
	ck_assert(works_wait(work[0], WORK_OVER, 1000000000));
	ck_assert_int_eq(work[0]->rc, BERTH_PEER_LOST);
	ck_assert_uint_eq(revoked, 1);
	ck_assert_int_eq(work[0]->why->rc, BERTH_PEER_LOST);
	/* nothing of it begins any more */
	works_agree(work[1], works_propose(work[1]));
	atomic_store(&device[2].stopped, true);
	works_agree(work[2], works_propose(work[2]));
	ck_assert_str_eq(started, "AB");
	ck_assert_int_eq(work[2]->rc, BERTH_ABORTED);
}
END_TEST

START_TEST(fails_at_its_start)
{
	start_rc = BERTH_SYSTEM;
	works_agree(work[0], works_propose(work[0]));
	ck_assert_int_eq(work[0]->rc, BERTH_SYSTEM);
	ck_assert_str_eq(work[0]->why->text,
			 "barrier, on the GPU: a system call failed: no "
			 "room on the device");
	ck_assert_int_eq(last_rc, BERTH_SYSTEM);
	ck_assert_uint_eq(overs, 1);
}
END_TEST

/* A stream waits for A, of a rank that leaves: it comes to its end.  B is revoked. */
static void *let_end(void *ctx)
{
	(void)ctx;
	works_lock();
	done = true;
	works_unlock();
	return NULL;
}

START_TEST(promised)
{
	pthread_t t;

	done = false;
	work[0]->promised = true;
	works_agree(work[0], works_propose(work[0]));
	comm[0].aborted = true;
	comm[0].broken = BERTH_ABORTED;
	ck_assert(works_are_promised(&device[0]));
	pthread_create(&t, NULL, let_end, NULL);
	while (device[0].works)
		works_nap();
	pthread_join(t, NULL);
	ck_assert_uint_eq(revoked, 0);
	ck_assert_int_eq(work[0]->rc, BERTH_OK);
	works_lock();
	done = false;
	works_unlock();
	works_agree(work[1], works_propose(work[1]));
	works_end(&device[1]);
	ck_assert_uint_eq(revoked, 1);
	ck_assert_int_eq(work[1]->rc, BERTH_ABORTED);
}
END_TEST

/* ---- by way of the host ---- */

static unsigned did;

static berth_result step_at_once(void *group, const struct coll *c,
				 uint64_t deadline_ns)
{
	(void)group;
	(void)c;
	(void)deadline_ns;
	did++;
	return BERTH_OK;
}

static void run_staged(void *stage)
{
	ck_assert_int_eq(staged_run(work[0]->comm, work[0], stage, 1), BERTH_OK);
}

/* Neither copies nor other ranks are awaited: other sets go on after each step. */
START_TEST(steps_let_others_go_on)
{
	enum { STEPS = 20, FLOATS = STAGED_BYTES / sizeof(float) };
	static const struct backend ranks = { .name = "ranks", .begin = step_at_once };
	static const struct members two = { .n = 2 };
	static float room[STEPS * FLOATS];
	struct berth_set set = { .comm = { .members = &two, .back = &ranks } };
	struct coll c = { .kind = BERTH_ALLREDUCE,
			  .type = BERTH_F32,
			  .in = room,
			  .out = room,
			  .count = STEPS * FLOATS };
	struct fiber *f = fiber_make();
	unsigned passes = 0;
	const char *why;
	void *stage = staged_open(&host_stage, 0, two.n, &why);

	ck_assert(f && stage);
	work[0]->comm = &set.comm;
	work[0]->coll = &c;
	work[0]->device.coll = &c;
	work[0]->device.n = 1;
	if (!fiber_begin(f, run_staged, stage))
		do
			ck_assert(fiber_passes(f) && did <= ++passes);
		while (!fiber_resume(f));
	ck_assert_uint_eq(did, STEPS);
	ck_assert_uint_eq(passes, STEPS);
	ck_assert_uint_eq(overs, 1);
	staged_close(stage);
	fiber_free(f);
}
END_TEST

/* A turn of another set, behind which that of the works is late. */
static _Atomic bool is_late, goes_on;

static bool be_late(struct turn *t)
{
	(void)t;
	atomic_store(&is_late, true);
	while (!atomic_load(&goes_on))
		sched_yield();
	return false;
}

static void begin_one(void)
{
	struct work *w = make_work(0);

	works_agree(w, works_propose(w));
	works_let_go(w);
}

/* What is over is found when others begin, if no thread looks for it. */
START_TEST(late_turn)
{
	enum { WORKS = 40, MORE = 4 };
	static const struct turn_hooks late = { .take = be_late };
	static struct turn turn;

	turn = (struct turn){ .hooks = &late };
	ck_assert(turn_start(&turn));
	turn_ring(&turn);
	while (!atomic_load(&is_late))
		sched_yield();
	done = false;
	for (int i = 0; i < WORKS; i++)
		begin_one();
	ck_assert_uint_eq(overs, 0);
	works_lock();
	done = true;
	works_unlock();
	for (int i = 0; i < MORE; i++)
		begin_one();
	ck_assert_uint_eq(overs, WORKS + MORE);
	atomic_store(&goes_on, true);
	turn_leave(&turn);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("works");
	TCase *t = tcase_create("works");
	SRunner *r = srunner_create(s);
	int failures;

	suite_add_tcase(s, t);
	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, lower_number_holds_back);
	tcase_add_test(t, time_counts_not_number);
	tcase_add_test(t, equal_times_by_set);
	tcase_add_test(t, withdrawn_holds_nothing);
	tcase_add_test(t, only_set);
	tcase_add_test(t, nothing_passes_what_starts);
	tcase_add_test(t, passes_what_starts);
	tcase_add_test(t, start_asks_for_nothing_else);
	tcase_add_test(t, ends_while_it_starts);
	tcase_add_test(t, ends_with_its_comm);
	tcase_add_test(t, fails_at_its_start);
	tcase_add_test(t, promised);
	tcase_add_test(t, steps_let_others_go_on);
	tcase_add_test(t, late_turn);
	srunner_run_all(r, CK_ENV);
	failures = srunner_ntests_failed(r);
	srunner_free(r);
	return failures != 0;
}
