/* lifetimes.h - threads call all of berth.h while another shuts the library down and
 * begins anew, ROUNDS times (environment; 200).
 *
 * They keep sets and requests of earlier worlds, remove sets in which others are, and
 * never look whether the library is there.  Calls may fail: what they come to must be
 * one of the results that berth.h allows, a sum must be right, and nothing may hang. */
#ifndef BERTH_TESTS_LIFETIMES_H
#define BERTH_TESTS_LIFETIMES_H

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>

#include "tests/helpers/verify.h"
#include "tests/helpers/calls.h"
#include "tests/helpers/slow.h"

enum { REQUESTS = 16, HANG_S = 60, RESULTS = BERTH_SYSTEM + 1 };

static _Atomic bool over;
static _Atomic unsigned long came_to[RESULTS];
/* Sets that one thread makes and removes, and all use. */
static berth_set *_Atomic sets_in_use[2];

/* What any call may come to here. */
static berth_result allowed(berth_result rc, const char *what)
{
	const bool fine = rc == BERTH_OK || rc == BERTH_BUSY || rc == BERTH_STATE ||
			  rc == BERTH_MISMATCH || rc == BERTH_PEER_LOST ||
			  rc == BERTH_TIMEOUT || rc == BERTH_ABORTED;

	CHECK(fine, "%s came to %d", what, rc);
	came_to[rc]++;
	return rc;
}

static uint64_t next(uint64_t *state)
{
	return noise((*state)++);
}

/* The library is away: the others get the core. */
static void pause_after(berth_result rc)
{
	if (rc)
		usleep(50);
}

/* Ranks that have joined give nothing: all ranks do so at times, in no set. */
static void check_sum(berth_result rc, const berth_set *set, float x)
{
	CHECK(rc || x == (float)size || (!set && x >= 1 && x < (float)size), "sum: %g",
	      (double)x);
}

/* ---- the threads ---- */

static void *block(void *arg)
{
	uint64_t at = noise((uint64_t)rank + 1000);

	while (!over) {
		berth_set *set = sets_in_use[next(&at) % 2];
		float x = 1;
		berth_result rc;

		rc = allowed(call_allreduce(&(
				     struct berth_desc)BERTH_DESC(.set = set, .in = &x,
								  .out = &x, .count = 1,
								  .type = BERTH_F32)),
			     "allreduce");
		check_sum(rc, set, x);
		pause_after(rc);
	}
	return arg;
}

struct flying {
	berth_request *request;
	berth_set *set;
	float x;
	char name[16];
};

/* Until it is done, or for a moment: it may be of a world that has ended. */
static void look_after(struct flying *f, uint64_t how)
{
	berth_result rc;

	if (how % 3 == 0)
		allowed(berth_poll(f->request), "poll");
	rc = allowed(berth_wait(f->request, how % 5 ? (int64_t)(how % 2) : 20), "wait");
	if (rc != BERTH_BUSY)
		check_sum(rc, f->set, f->x);
	if (rc != BERTH_BUSY)
		f->request = NULL;
}

static void fly(struct flying *f, uint64_t how, uint64_t number)
{
	struct berth_desc d = BERTH_DESC(.name = f->name, .in = &f->x, .out = &f->x,
					 .count = 1, .type = BERTH_F32);

	f->x = 1;
	d.set = f->set = how % 3 ? NULL : sets_in_use[how % 2];
	snprintf(f->name, sizeof f->name, "f%" PRIu64, number);
	pause_after(
		allowed(call_submit(BERTH_ALLREDUCE, &d, 1, &f->request), "submit"));
}

/* No two operations in flight may have one name: each request has its own. */
static void *submit_and_wait(void *arg)
{
	static struct flying f[REQUESTS];
	uint64_t at = noise((uint64_t)rank + 2000);

	while (!over) {
		const uint64_t number = next(&at) % REQUESTS;
		struct flying *one = &f[number];

		if (one->request)
			look_after(one, next(&at));
		else
			fly(one, next(&at), number);
	}
	for (int i = 0; i < REQUESTS; i++)
		while (f[i].request)
			look_after(&f[i], 1);
	return arg;
}

/* The same steps on all ranks, of which some fail. */
static void *make_and_remove(void *arg)
{
	uint64_t at = 3000;
	int last;

	while (!over) {
		int i = (int)(next(&at) % 2);
		berth_set *old = atomic_exchange(&sets_in_use[i], NULL), *set = NULL;
		berth_result rc = BERTH_OK;

		if (old)
			allowed(berth_set_remove(old), "remove");
		if (old && next(&at) % 4 == 0)
			CHECK(berth_set_remove(old) == BERTH_STATE, "removed twice");
		rc = berth_set_split(NULL, 0, rank, &set);
		allowed(rc, "split");
		CHECK(!rc == !!set, "a set and %d", rc);
		sets_in_use[i] = set;
		if (next(&at) % 16 == 0)
			rc = allowed(berth_join(NULL, &last), "join");
		usleep((useconds_t)(next(&at) % 1000));
		pause_after(rc);
	}
	return arg;
}

/* Numbers of a world, or -1. */
static void *look(void *arg)
{
	char text[500];

	while (!over) {
		struct berth_metrics m = { .size = sizeof m };
		berth_set *set = sets_in_use[0];
		int r = berth_rank(), n = berth_set_size(set);

		pause_after(allowed(berth_metrics(&m), "metrics"));
		berth_algorithms(text, sizeof text);
		berth_free(berth_alloc(1000, BERTH_HOST, 0));
		CHECK(r == -1 || r == rank, "rank %d", r);
		CHECK(n == -1 || n == size, "size %d", n);
		r = berth_set_member(set, rank);
		CHECK(r == -1 || r == rank, "member %d", r);
		r = berth_set_rank(set);
		CHECK(r == -1 || r == rank, "rank in a set: %d", r);
	}
	return arg;
}

/* ---- the rounds ---- */

static void fork_one(void)
{
	int status = -1;
	pid_t pid = fork();

	if (pid == 0) {
		float x = 1;
		struct berth_desc d =
			BERTH_DESC(.set = sets_in_use[0], .in = &x, .out = &x,
				   .count = 1, .type = BERTH_F32);

		alarm(slow_s(HANG_S));
		_exit(call_allreduce(&d) != BERTH_STATE ||
		      berth_alloc(100, BERTH_HOST, 0) ||
		      berth_timeline_stop() != BERTH_STATE ||
		      (sets_in_use[1] &&
		       berth_set_remove(sets_in_use[1]) != BERTH_STATE));
	}
	CHECK(pid > 0 && waitpid(pid, &status, 0) == pid && !status, "a child: %x",
	      (unsigned)status);
}

static void rounds(unsigned long n)
{
	uint64_t at = noise((uint64_t)rank + 4000);

	for (unsigned long i = 0; i < n; i++) {
		alarm(slow_s(HANG_S));
		usleep((useconds_t)(next(&at) % 3000));
		if (i % 64 == 63)
			fork_one();
		FINE(berth_shutdown());
		if (next(&at) % 2)
			usleep((useconds_t)(next(&at) % 300));
		FINE(berth_init(NULL));
	}
}

static void lifetimes(void)
{
	static void *(*const what[])(void *) = { block, submit_and_wait,
						 make_and_remove, look };
	enum { N = sizeof what / sizeof *what };
	pthread_t thread[N];
	unsigned long n = getenv("ROUNDS") ? strtoul(getenv("ROUNDS"), NULL, 10) : 200;

	for (int i = 0; i < N; i++)
		pthread_create(&thread[i], NULL, what[i], NULL);
	rounds(n);
	over = true;
	FINE(berth_shutdown());
	for (int i = 0; i < N; i++)
		pthread_join(thread[i], NULL);
	FINE(berth_init(NULL));
	CHECK(sum_in(NULL, 1) == size, "afterwards");
	for (int i = 0; rank == 0 && i < RESULTS; i++)
		if (came_to[i])
			printf("%s: %lu\n", berth_result_text((berth_result)i),
			       came_to[i]);
}

#endif
