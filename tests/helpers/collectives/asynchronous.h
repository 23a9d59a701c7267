/* asynchronous.h - ranks that submit and wait, in orders of their own; that join; that
 * are shut down meanwhile. */
#ifndef BERTH_TESTS_ASYNCHRONOUS_H
#define BERTH_TESTS_ASYNCHRONOUS_H

#include <pthread.h>

#include "tests/helpers/verify.h"
#include "tests/helpers/calls.h"

/* ---- asynchronous ---- */

enum { TENSORS = 40 };

static void fill_tensor(float *p, uint64_t n, int t, int step)
{
	for (uint64_t i = 0; i < n; i++)
		p[i] = (float)(rank + t + step + (int)(i % 5));
}

static void check_tensor(const float *p, uint64_t n, int t, int step)
{
	for (uint64_t i = 0; i < n; i++) {
		float want = (float)(size * (size - 1) / 2 +
				     size * (t + step + (int)(i % 5)));

		CHECK(p[i] == want, "step %d tensor %d [%llu]: %g, not %g", step, t,
		      (unsigned long long)i, (double)p[i], (double)want);
	}
}

static berth_request *submit(const char *name, float *p, uint64_t n)
{
	berth_request *r = NULL;

	FINE(call_submit(BERTH_ALLREDUCE,
			 &(struct berth_desc)BERTH_DESC(.name = name, .in = p, .out = p,
							.count = n, .type = BERTH_F32),
			 1, &r));
	return r;
}

/* In an order of this rank's own; SKIP: a tensor that is left out in some steps. */
static void training(int steps, bool skip)
{
	static float *buf[TENSORS];
	char name[TENSORS][24];
	int order[TENSORS];
	berth_request *request[TENSORS];

	for (int t = 0; t < TENSORS; t++) {
		buf[t] = malloc(5000 * 4);
		snprintf(name[t], sizeof name[t], "layer%d", t);
		order[t] = t;
	}
	for (int step = 0; step < steps; step++) {
		for (int t = TENSORS - 1; t > 0; t--) {
			int k = (int)(noise((uint64_t)(t + step * 64 + rank * 4096)) %
				      (uint64_t)(t + 1)),
			    x = order[t];

			order[t] = order[k];
			order[k] = x;
		}
		for (int i = 0; i < TENSORS; i++) {
			int t = order[i];
			uint64_t n = (uint64_t)(1 + t * 117);

			if (skip && t == 11 && step % 7 == 3)
				continue;
			fill_tensor(buf[t], n, t, step);
			request[t] = submit(name[t], buf[t], n);
		}
		for (int t = 0; t < TENSORS; t++) {
			if (skip && t == 11 && step % 7 == 3)
				continue;
			if (t % 9 == 4)
				while (berth_poll(request[t]) == BERTH_BUSY)
					;
			FINE(berth_wait(request[t], -1));
			check_tensor(buf[t], (uint64_t)(1 + t * 117), t, step);
		}
		if (step % 5 == 2)
			CHECK(sum_in(NULL, 1) == size, "blocking between");
	}
	for (int t = 0; t < TENSORS; t++)
		free(buf[t]);
}

static void asynchronous(void)
{
	struct berth_metrics m = { .size = sizeof m };
	berth_request *r;
	float x[4] = { (float)rank, 1, 2, 3 }, y[4];
	struct berth_desc pair[2] = { BERTH_DESC(.name = "a", .in = x, .out = y,
						 .count = 2, .type = BERTH_F32),
				      BERTH_DESC(.name = "b", .in = x + 2, .out = y + 2,
						 .count = 2, .type = BERTH_F32) };

	FINE(call_submit(BERTH_ALLREDUCE, pair, 2, &r));
	FINE(berth_wait(r, 30000));
	CHECK(y[1] == (float)size && y[3] == 3.0F * (float)size, "grouped");
	FINE(call_submit(BERTH_BROADCAST,
			 &(struct berth_desc)BERTH_DESC(.in = x, .out = x, .count = 4,
							.type = BERTH_F32),
			 1, &r));
	FINE(berth_wait(r, -1));
	CHECK(x[0] == 0, "unnamed broadcast");
	training(30, false);
	training(40, true);
	FINE(berth_metrics(&m));
	CHECK(m.fused > 0 && m.operations > TENSORS * 60u, "metrics");
	if (rank == 0)
		printf("fused %llu of %llu, %llu negotiations\n",
		       (unsigned long long)m.fused, (unsigned long long)m.operations,
		       (unsigned long long)m.negotiations);
	CHECK(m.negotiations < 3000, "a plan is followed");
}

static void poll_until_done(berth_request *r, int step, int t)
{
	uint64_t until = now_ms() + 30000;
	berth_result rc;

	while ((rc = berth_poll(r)) == BERTH_BUSY)
		CHECK(now_ms() < until, "step %d tensor %d is never done", step, t);
	CHECK(rc == BERTH_OK, "step %d tensor %d: %d", step, t, rc);
	FINE(berth_wait(r, -1));
}

/* Ranks that only look, and leave out what the plan has: nobody waits for it. */
static void polling(void)
{
	enum { N = 6 };
	char name[N][16];
	float x[N];

	for (int step = 0; step < 30; step++) {
		berth_request *r[N] = { 0 };

		for (int t = 0; t < N; t++) {
			x[t] = 1;
			snprintf(name[t], sizeof name[t], "poll%d", t);
			if (t != 2 || step < 5 || step % 3)
				r[t] = submit(name[t], &x[t], 1);
		}
		for (int t = 0; t < N; t++)
			if (r[t]) {
				poll_until_done(r[t], step, t);
				CHECK(x[t] == (float)size, "poll: %g", (double)x[t]);
			}
	}
}

static void begin_anew(const char *fusion)
{
	berth_shutdown();
	if (fusion)
		setenv("HOROVOD_FUSION_THRESHOLD", fusion, 1);
	else
		unsetenv("HOROVOD_FUSION_THRESHOLD");
	FINE(berth_init(NULL));
}

/* In some steps the last rank submits the first of the plan when the others have begun
 * it and the plan is left: it is done anew, from the same input. */
static void done_anew(void)
{
	for (int step = 0; step < 12; step++) {
		bool late = step > 3 && step % 2 && rank == size - 1;
		float x[2] = { 8, 8 };
		struct berth_desc d =
			BERTH_DESC(.name = "first", .in = x, .out = x, .count = 1,
				   .type = BERTH_F32, .prescale = &half);
		berth_request *first, *second;

		if (!late)
			FINE(call_submit(BERTH_ALLREDUCE, &d, 1, &first));
		second = submit("second", x + 1, 1);
		if (late && size > 1) {
			FINE(berth_wait(second, -1));
			second = NULL;
		}
		if (late)
			FINE(call_submit(BERTH_ALLREDUCE, &d, 1, &first));
		FINE(berth_wait(first, -1));
		if (second)
			FINE(berth_wait(second, -1));
		CHECK(x[0] == 4 * (float)size && x[1] == 8 * (float)size,
		      "step %d, done anew: %g, %g", step, (double)x[0], (double)x[1]);
	}
}

/* Ranks that would do other operations together do the same. */
static void thresholds(void)
{
	static float x[6][64];
	static const char *const name[6] = { "t0", "t1", "t2", "t3", "t4", "t5" };
	berth_request *r[6];

	begin_anew("0");
	done_anew();
	begin_anew(rank ? "1000" : "600");
	for (int step = 0; step < 10; step++) {
		for (int t = 0; t < 6; t++) {
			fill_tensor(x[t], 64, t, step);
			r[t] = submit(name[t], x[t], 64);
		}
		for (int t = 0; t < 6; t++) {
			FINE(berth_wait(r[t], 30000));
			check_tensor(x[t], 64, t, step);
		}
	}
	begin_anew(NULL);
}

/* ---- joining ---- */

/* What one rank's coming too late has begun is not to be in what is done anew. */
static void join_in_place(int here, uint64_t n)
{
	static float z[100000];

	for (uint64_t i = 0; i < n; i++)
		z[i] = (float)(i % 3);
	FINE(call_allreduce(&(struct berth_desc)BERTH_DESC(.name = "z", .in = z,
							   .out = z, .count = n,
							   .type = BERTH_F32)));
	for (uint64_t i = 0; i < n; i++)
		CHECK(z[i] == (float)here * (float)(i % 3), "in place [%llu]: %g",
		      (unsigned long long)i, (double)z[i]);
}

/* What is submitted before a rank joins is done: with nothing of the others, or as
 * always, if all of them have it. */
static float own, both[2];

static void submit_last(berth_request **late, berth_request **group)
{
	struct berth_desc pair[2] = {
		BERTH_DESC(.name = "a", .in = &both[0], .out = &both[0], .count = 1,
			   .type = BERTH_F32),
		BERTH_DESC(.name = "b", .in = &both[1], .out = &both[1], .count = 1,
			   .type = BERTH_F32, .prescale = &two)
	};

	own = 5;
	both[0] = both[1] = 1;
	*late = rank ? NULL : submit("own", &own, 1);
	FINE(call_submit(BERTH_ALLREDUCE, pair, 2, group));
}

static void wait_last(berth_request *late, berth_request *group)
{
	if (late)
		FINE(berth_wait(late, -1));
	CHECK(own == 5, "submitted before joining: %g", (double)own);
	FINE(berth_wait(group, -1));
	CHECK(both[0] == (float)size && both[1] == 2 * (float)size,
	      "together, before joining: %g, %g", (double)both[0], (double)both[1]);
}

/* No set can be made of a rank that has joined. */
static void join_and_split(void)
{
	berth_set *set = NULL;

	if (size == 1)
		return;
	if (rank == 0) {
		CHECK(berth_set_split(NULL, 0, 0, &set) == BERTH_STATE, "split");
		CHECK(!set && strstr(berth_last_error()->text,
				     " joined: only allreduce"),
		      "why: %s", berth_last_error()->text);
	}
	FINE(berth_join(NULL, NULL));
}

static void joining(void)
{
	int last = -1, done = 0;
	float x, y;
	berth_request *r, *late, *group;

	for (int turn = 0; turn < 3; turn++) {
		for (int i = 0; i < 5 * (rank + 1); i++) {
			x = 1;
			/* ranks that have made their 5, 10, ... have joined */
			int here = size - i / 5;

			FINE(call_allreduce(
				&(struct berth_desc)BERTH_DESC(.name = "x", .in = &x,
							       .out = &y, .count = 1,
							       .type = BERTH_F32)));
			CHECK(y == (float)here, "sum %g of %d ranks", (double)y, here);
			join_in_place(here, i % 2 ? 100000 : 77);
			FINE(call_submit(
				BERTH_ALLREDUCE,
				&(struct berth_desc)BERTH_DESC(.name = "y", .in = &x,
							       .out = &y, .count = 1,
							       .type = BERTH_F32,
							       .op = BERTH_MAX),
				1, &r));
			FINE(berth_wait(r, -1));
			CHECK(y == 1, "max %g", (double)y);
			done++;
		}
		submit_last(&late, &group);
		FINE(berth_join(NULL, &last));
		CHECK(last == size - 1, "last to join: %d", last);
		wait_last(late, group);
	}
	(void)done;
	join_and_split();
}

/* ---- shut down meanwhile ---- */

struct waiting {
	pthread_t thread;
	berth_request *request; /* NULL: it calls */
	berth_set *set;
	float x;
};

static void *until_the_end(void *arg)
{
	struct waiting *w = arg;
	berth_result rc;

	if (w->request)
		rc = berth_wait(w->request, -1);
	else
		rc = call_allreduce(
			&(struct berth_desc)BERTH_DESC(.name = "call", .set = w->set,
						       .in = &w->x, .out = &w->x,
						       .count = 1, .type = BERTH_F32));
	CHECK(size == 1 || rc == BERTH_ABORTED || (rc == BERTH_STATE && !w->request),
	      "shut down, and waiting came to %d", rc);
	return NULL;
}

/* At any moment rank 0 shuts down while threads wait for requests and in calls; the
 * others, which wait for it, hear that. */
static void stop_once(uint64_t turn)
{
	enum { N = 6 };
	static const char *const name[N] = { "s0", "s1", "s2", "s3", "s4", "s5" };
	struct waiting w[N];
	berth_set *set;
	float other = 1;
	berth_result rc;

	FINE(berth_set_split(NULL, 0, 0, &set));
	for (int i = 0; rank == 0 && i < N; i++) {
		w[i] = (struct waiting){ .set = set };
		if (i < 4)
			w[i].request = submit(name[i], &w[i].x, 1);
		pthread_create(&w[i].thread, NULL, until_the_end, &w[i]);
	}
	if (rank == 0) {
		usleep((useconds_t)(5000 + noise(turn) % 40000));
	} else {
		rc = berth_wait(submit("other", &other, 1), -1);
		CHECK(rc == BERTH_ABORTED || rc == BERTH_PEER_LOST, "rank 0 left: %d",
		      rc);
	}
	FINE(berth_shutdown());
	for (int i = 0; rank == 0 && i < N; i++)
		pthread_join(w[i].thread, NULL);
	FINE(berth_init(NULL));
}

/* Threads that never look whether the library is there, until STOP. */
static _Atomic bool stop_calls;

static void *call_on(void *arg)
{
	while (!stop_calls) {
		float x = 1;

		if (call_allreduce(&(struct berth_desc)BERTH_DESC(.in = &x, .out = &x,
								  .count = 1,
								  .type = BERTH_F32)))
			usleep(100);
	}
	return arg;
}

static void *submit_on(void *arg)
{
	char name[32];

	for (unsigned i = 0; !stop_calls; i++) {
		float x = 1;
		berth_request *r;
		berth_result rc;
		struct berth_desc d = BERTH_DESC(.name = name, .in = &x, .out = &x,
						 .count = 1, .type = BERTH_F32);

		snprintf(name, sizeof name, "busy %u", i);
		if (call_submit(BERTH_ALLREDUCE, &d, 1, &r)) {
			usleep(100);
			continue;
		}
		rc = berth_wait(r, 20000);
		CHECK(rc != BERTH_BUSY, "a request that nobody ends");
		if (rc == BERTH_BUSY)
			break;
	}
	return arg;
}

static void *look_on(void *arg)
{
	const int all[] = { 0 };
	char text[500];

	while (!stop_calls) {
		struct berth_metrics m = { .size = sizeof m };
		berth_set *set;

		if (berth_metrics(&m))
			usleep(100);
		berth_algorithms(text, sizeof text);
		berth_free(berth_alloc(1000, BERTH_HOST, 0));
		berth_set_member(NULL, 0);
		if (size == 1)
			berth_set_add(all, 1, &set);
	}
	return arg;
}

/* Threads go on calling while the library is shut down and begun anew. */
static void stop_busy(void)
{
	static void *(*const what[])(void *) = { call_on, submit_on, look_on };
	pthread_t thread[3];

	stop_calls = false;
	for (int i = 0; i < 3; i++)
		pthread_create(&thread[i], NULL, what[i], NULL);
	for (uint64_t turn = 0; turn < 40; turn++) {
		usleep((useconds_t)(noise(turn) % 2000));
		FINE(berth_shutdown());
		FINE(berth_init(NULL));
	}
	FINE(berth_shutdown());
	stop_calls = true;
	for (int i = 0; i < 3; i++)
		pthread_join(thread[i], NULL);
	FINE(berth_init(NULL));
}

static void stopping(void)
{
	for (uint64_t turn = 0; turn < 12; turn++)
		stop_once(turn);
	stop_busy();
	CHECK(sum_in(NULL, 1) == size, "afterwards");
}

#endif
