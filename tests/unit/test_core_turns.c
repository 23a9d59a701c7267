/* lib/core/turns: sets that ring, wait and leave, in one thread. */
#include <check.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <unistd.h>

#include "lib/base/bell.h"
#include "lib/base/clock.h"
#include "lib/base/fiber.h"
#include "lib/base/wait.h"
#include "lib/core/turns.h"

enum { SETS = 20, RINGERS = 3, RINGS = 20000, ROUNDS = 5, SOON_NS = 2000000000 };

/* A set takes one step for each ring, and waits in it in one of four ways. */
static struct set {
	struct turn turn;
	_Atomic uint64_t asked, done; /* rings; those that a turn has seen */
	_Atomic uint32_t word;        /* changes when it is even, by a ringer */
	struct post post;
	int pipe[2];
	unsigned turns;
	bool was_dropped;
	pthread_mutex_t lock; /* of ASKED's changes, and whether it has turns */
} set[SETS];

static struct bell bell;
static int bell_fd; /* -1: the thread sleeps on the bell, and there are no sockets */

/* S waits for what another thread gives. */
static void set_wait(struct set *s)
{
	const uint32_t word = atomic_load(&s->word);
	struct pollfd p = { s->pipe[0], POLLIN, 0 };
	const struct fiber_wait post = { .post = &s->post, .want = word / 2 + 1 },
				sockets = { .sockets = &p, .nsockets = 1 };
	char c;

	switch (s->turns++ % (bell_fd < 0 ? 3 : 4)) {
	case 0:
		fiber_pause(1000);
		break;
	case 1:
		atomic_store(&s->word, word + 1); /* it wants */
		while (atomic_load(&s->word) == word + 1)
			fiber_sleep_on(&s->word, word + 1, 0);
		break;
	case 2:
		atomic_store(&s->word, word + 1);
		while (!wait_reached(atomic_load(&s->post.value), word / 2 + 1))
			fiber_wait(&post);
		break;
	default:
		atomic_store(&s->word, word + 1);
		while (atomic_load(&s->word) == word + 1) {
			fiber_wait(&sockets);
			if (poll(&p, 1, 0) > 0) /* perhaps of an earlier time */
				ck_assert_int_eq(read(s->pipe[0], &c, 1), 1);
		}
	}
}

static bool set_take(struct turn *t)
{
	struct set *s = (struct set *)t;
	const uint64_t asked = atomic_load(&s->asked);

	ck_assert(fiber_runs());
	set_wait(s);
	atomic_store(&s->done, asked);
	return true;
}

static size_t set_sockets(struct turn *t, struct pollfd *p)
{
	(void)t;
	(void)p;
	return 0;
}

static bool set_is_called(struct turn *t)
{
	(void)t;
	return false;
}

static void set_retire(struct turn *t)
{
	struct set *s = (struct set *)t;

	if (pthread_mutex_trylock(&s->lock))
		return;
	if (atomic_load(&s->asked) == atomic_load(&s->done))
		turn_drop(t);
	pthread_mutex_unlock(&s->lock);
}

static void set_ask(struct set *s)
{
	pthread_mutex_lock(&s->lock);
	atomic_fetch_add(&s->asked, 1);
	ck_assert(turn_start(&s->turn));
	pthread_mutex_unlock(&s->lock);
	turn_ring(&s->turn);
}

static void set_is_dropped(struct turn *t)
{
	((struct set *)t)->was_dropped = true;
}

static const struct turn_hooks hooks = { .take = set_take,
					 .sockets = set_sockets,
					 .is_called = set_is_called,
					 .retire = set_retire,
					 .dropped = set_is_dropped };

static struct bell *bells_of[] = { &bell, &bell };

/* If S waits, gives it what it waits for in WAY; 0: in any. */
static void set_give(struct set *s, unsigned way)
{
	const struct bells bells = { .n = 1, .me = 1, .of = bells_of, .fd = bell_fd };
	uint32_t word = atomic_load(&s->word);

	if (word % 2 == 0 || !atomic_compare_exchange_strong(&s->word, &word, word + 1))
		return;
	if (!way || way == 1)
		fiber_wake(&s->word);
	if (!way || way == 2)
		post_to(&s->post, word / 2 + 1, &bells);
	while ((!way || way == 3) && bell_fd >= 0 && write(s->pipe[1], "", 1) != 1)
		;
}

static _Atomic bool over;

static void *give_all(void *arg)
{
	(void)arg;
	while (!atomic_load(&over)) {
		for (int i = 0; i < SETS; i++)
			set_give(&set[i], 0);
		sched_yield();
	}
	return NULL;
}

static void *ring_all(void *seed)
{
	unsigned turn = *(unsigned *)seed;

	for (int i = 0; i < RINGS; i++) {
		set_ask(&set[rand_r(&turn) % SETS]);
		if (rand_r(&turn) % 64 == 0)
			usleep((unsigned)rand_r(&turn) % 100);
	}
	return NULL;
}

static bool all_are_done(void)
{
	for (int i = 0; i < SETS; i++)
		if (atomic_load(&set[i].done) != atomic_load(&set[i].asked))
			return false;
	return true;
}

static void ring_in_threads(void)
{
	pthread_t thread[RINGERS], giver;
	unsigned seed[RINGERS];

	atomic_store(&over, false);
	pthread_create(&giver, NULL, give_all, NULL);
	for (unsigned i = 0; i < RINGERS; i++) {
		seed[i] = i + 1;
		pthread_create(&thread[i], NULL, ring_all, &seed[i]);
	}
	for (int i = 0; i < RINGERS; i++)
		pthread_join(thread[i], NULL);
	for (uint64_t until = clock_ns() + SOON_NS;
	     !all_are_done() && clock_ns() < until;)
		usleep(100);
	ck_assert(all_are_done());
	atomic_store(&over, true);
	pthread_join(giver, NULL);
}

static void take_turns(void)
{
	turns_open(&bell, bell_fd, 1, 2);
	for (int i = 0; i < SETS; i++) {
		set[i] = (struct set){ .turn = { .hooks = &hooks } };
		pthread_mutex_init(&set[i].lock, NULL);
		ck_assert(!pipe(set[i].pipe));
	}
	for (int i = 0; i < ROUNDS; i++)
		ring_in_threads();
	for (int i = 0; i < SETS; i++) {
		turn_leave(&set[i].turn);
		ck_assert(set[i].was_dropped);
		ck_assert_uint_eq(set[i].turn.served, 0);
		close(set[i].pipe[0]);
		close(set[i].pipe[1]);
	}
	turns_close();
	ck_assert_uint_eq(bell.sleepers + bell.polls, 0);
}

START_TEST(asleep_on_the_bell)
{
	bell_fd = -1;
	take_turns();
}
END_TEST

START_TEST(asleep_in_poll)
{
	bell_fd = bell_open(&bell);
	ck_assert_int_ge(bell_fd, 0);
	take_turns();
}
END_TEST

static bool is_soon(bool (*is)(struct set *s), struct set *s)
{
	for (uint64_t until = clock_ns() + SOON_NS / 2; clock_ns() < until;)
		if (is(s))
			return true;
	return false;
}

static bool is_asleep(struct set *s)
{
	(void)s;
	return atomic_load(&bell.sleepers) + atomic_load(&bell.polls) > 0;
}

static bool set_wants(struct set *s)
{
	return atomic_load(&s->word) % 2;
}

static bool set_is_done(struct set *s)
{
	return atomic_load(&s->done) == atomic_load(&s->asked);
}

/* The thread, which sleeps for 2 s if nothing wakes it, is woken by a ring, and by what
 * a step waits for. */
START_TEST(is_woken)
{
	struct set *s = &set[0];

	bell_fd = bell_open(&bell);
	turns_open(&bell, bell_fd, 1, 2);
	*s = (struct set){ .turn = { .hooks = &hooks } };
	pthread_mutex_init(&s->lock, NULL);
	ck_assert(!pipe(s->pipe));
	for (unsigned i = 0; i < 80; i++) {
		s->turns = i;
		set_ask(s);
		if (i % 4) {
			ck_assert(is_soon(set_wants, s));
			usleep(1000);
			ck_assert(is_soon(is_asleep, s));
			set_give(s, i % 4);
		}
		ck_assert(is_soon(set_is_done, s));
		usleep(500);
		ck_assert(is_soon(is_asleep, s));
	}
	turn_leave(&s->turn);
	turns_close();
}
END_TEST

/* The thread ends when nothing was rung for 2 s; the next start has another one. */
START_TEST(retires)
{
	struct set *s = &set[0];

	bell_fd = -1;
	turns_open(&bell, -1, 1, 2);
	*s = (struct set){ .turn = { .hooks = &hooks } };
	pthread_mutex_init(&s->lock, NULL);
	for (int i = 0; i < 2; i++) {
		s->turns = 0; /* it pauses */
		set_ask(s);
		while (atomic_load(&s->turn.served))
			usleep(1000);
		ck_assert_uint_eq(s->done, s->asked);
		ck_assert(s->was_dropped);
	}
	turn_leave(&s->turn);
	turns_close();
	ck_assert(!turn_start(&s->turn)); /* there is no world */
}
END_TEST

int main(void)
{
	Suite *s = suite_create("turns");
	TCase *t = tcase_create("turns");
	SRunner *r = srunner_create(s);
	int failed;

	suite_add_tcase(s, t);
	tcase_set_timeout(t, 120);
	tcase_add_test(t, asleep_on_the_bell);
	tcase_add_test(t, asleep_in_poll);
	tcase_add_test(t, is_woken);
	tcase_add_test(t, retires);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed != 0;
}
