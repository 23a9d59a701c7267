/* lib/core/request: the states of a request, threads that sleep until it has one, and
 * its words. */
#include <check.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "lib/core/engine.h"
#include "lib/core/request.h"
#include "lib/core/set.h"
#include "lib/core/world.h"

enum { TURNS = 2000, SLEEPERS = 3 };

static struct world world;
/* Its thread is not started. */
static struct berth_set *make(void)
{
	static const unsigned rank[] = { 0, 1 }, host[] = { 0, 0 };
	static struct berth_set set;
	struct berth_set *s = &set;

	ck_assert(!members_make(&s->members, rank, 2, host, 0));
	s->users = 1;
	s->world = s->comm.world = &world;
	s->comm.members = &s->members;
	engine_open(s);
	return s;
}

static struct berth_request *request(struct berth_set *s, size_t n, int64_t timeout_ms)
{
	static float room[4];
	struct op op[2];
	const struct berth_desc d =
		BERTH_DESC(.kind = BERTH_ALLREDUCE, .type = BERTH_F32, .name = "grad",
			   .in = room, .out = room, .count = 4,
			   .timeout_ms = timeout_ms);
	struct berth_request *r;

	ck_assert_uint_le(n, 2);
	for (size_t i = 0; i < n; i++)
		ck_assert_ptr_null(op_make(&op[i], &d, 2, 0));
	r = request_make(s, op, n, NULL);
	ck_assert_ptr_nonnull(r);
	atomic_fetch_add(&s->collectives, 1); /* as the queue does */
	return r;
}

static void ends(struct berth_request *r, berth_result rc)
{
	const struct failure because = { .rc = rc };
	struct failure why;

	request_end(r, rc, &because, NULL);
	ck_assert(request_is_done(r));
	ck_assert_int_eq(request_free(r, &why), rc);
}

static void says(const struct berth_request *r, const char *words)
{
	char text[512], cut[24];

	request_text(text, sizeof text, r);
	ck_assert_msg(strstr(text, words), "'%s' is not in '%s'", words, text);
	request_text(cut, sizeof cut, r);
	ck_assert_uint_lt(strlen(cut), sizeof cut);
	ck_assert(!strncmp(cut, text, strlen(cut)));
}

START_TEST(words)
{
	struct berth_set *s = make();
	struct berth_request *r = request(s, 2, 60000);

	says(r, "allreduce \"grad\" of 4 f32, sum, and 1 other: new, submitted 0.");
	says(r, "s ago, its time is over in ");
	request_become(r, REQUEST_QUEUED);
	r->beside = true;
	says(r, ": queued, submitted 0.");
	says(r, " s ago, not expected by the plan, its time");
	ck_assert(request_want(r));
	ck_assert(!request_want(r));
	says(r, ", a thread waits for it, its time");
	request_become(r, REQUEST_PROMISED);
	says(r, ": promised, submitted 0.");
	request_become(r, REQUEST_RUNNING);
	says(r, ": running, submitted 0.");
	atomic_fetch_add(&r->parts, 1); /* as a work on a device would */
	r->nworks = 1;
	says(r, ", 2 parts are not done, a thread");
	r->nworks = 0;
	atomic_fetch_sub(&r->parts, 1);
	request_end(r, BERTH_TIMEOUT, &(struct failure){ .rc = BERTH_TIMEOUT }, NULL);
	says(r, "sum, and 1 other: done, ");
	says(r, berth_result_text(BERTH_TIMEOUT));
	free(r->why);
	r->why = NULL;
	ck_assert_int_eq(request_free(r, &(struct failure){ 0 }), BERTH_TIMEOUT);
	ck_assert_uint_eq(s->users, 1);
	ck_assert_uint_eq(s->collectives, 0);
}
END_TEST

/* A request of which each part comes to its end by itself, with the first error. */
START_TEST(parts)
{
	struct berth_set *s = make();
	struct berth_request *r = request(s, 1, 0);
	struct failure why = { .rc = BERTH_TIMEOUT, .text = "first" };

	atomic_fetch_add(&r->parts, 2);
	request_end(r, BERTH_OK, NULL, NULL);
	request_end(r, BERTH_TIMEOUT, &why, NULL);
	ck_assert(!request_is_done(r));
	snprintf(why.text, sizeof why.text, "second");
	request_end(r, BERTH_SYSTEM, &why, NULL);
	ck_assert(request_is_done(r));
	ck_assert_int_eq(request_free(r, &why), BERTH_TIMEOUT);
	ck_assert_str_eq(why.text, "first");
}
END_TEST

/* ---- callbacks ---- */

struct called {
	struct berth_request *r, *other; /* R: it ends it */
	unsigned *calls, at;
	bool other_was_done;
};

static void calls(void *ctx, berth_result rc)
{
	struct called *c = ctx;

	c->at = ++*c->calls;
	c->other_was_done = request_is_done(c->other);
	if (c->r)
		ck_assert_int_eq(request_free(c->r, &(struct failure){ 0 }), rc);
}

/* Of requests that end together, threads are woken first, then the callbacks called in
 * order.  One of them ends its request. */
START_TEST(callbacks)
{
	struct berth_set *s = make();
	struct berth_request *r[] = { request(s, 1, 0), request(s, 1, 0),
				      request(s, 1, 0) };
	unsigned n = 0;
	struct called called[] = { { .r = r[0], .other = r[2], .calls = &n },
				   { .other = r[2], .calls = &n } };
	struct request_wakes together = { .n = 0 };

	for (unsigned i = 0; i < 2; i++)
		ck_assert_int_eq(request_then(r[i], calls, &called[i]), BERTH_OK);
	for (unsigned i = 0; i < 3; i++)
		request_end(r[i], BERTH_OK, NULL, &together);
	ck_assert_uint_eq(n, 0);
	ck_assert(!request_is_done(r[1]));
	ck_assert(request_is_done(r[2]));
	request_wake(&together);
	ck_assert_uint_eq(n, 2);
	for (unsigned i = 0; i < 2; i++) {
		ck_assert_uint_eq(called[i].at, i + 1);
		ck_assert(called[i].other_was_done);
	}
	ck_assert(request_is_done(r[1]));
	for (unsigned i = 1; i < 3; i++)
		ck_assert_int_eq(request_free(r[i], &(struct failure){ 0 }), BERTH_OK);
	ck_assert_uint_eq(s->users, 1);
}
END_TEST

/* ---- threads that sleep ---- */

struct sleeper {
	pthread_t thread;
	struct berth_request *r;
	enum request_state until;
	_Atomic uint32_t *begun;
};

static void *sleeps(void *arg)
{
	struct sleeper *s = arg;

	atomic_fetch_add(s->begun, 1);
	while (request_state(s->r) < s->until)
		request_sleep(s->r, s->until, 0);
	return NULL;
}

/* The states come while threads begin to sleep until one of them: each is woken, or the
 * test does not end. */
START_TEST(wakes)
{
	struct berth_set *set = make();

	for (unsigned turn = 0; turn < TURNS; turn++) {
		struct berth_request *r = request(set, 1, 0);
		_Atomic uint32_t begun = 0;
		struct sleeper sleeper[SLEEPERS];

		for (unsigned i = 0; i < SLEEPERS; i++) {
			sleeper[i] = (struct sleeper){ .r = r,
						       .begun = &begun,
						       .until = i ? REQUEST_DONE
								  : REQUEST_RUNNING };
			pthread_create(&sleeper[i].thread, NULL, sleeps, &sleeper[i]);
		}
		while (turn % 2 && atomic_load(&begun) < SLEEPERS)
			sched_yield();
		request_become(r, REQUEST_QUEUED);
		request_become(r, REQUEST_PROMISED);
		if (turn % 3)
			request_become(r, REQUEST_QUEUED);
		request_launched(r);
		pthread_join(sleeper[0].thread, NULL);
		request_end(r, BERTH_OK, NULL, NULL);
		for (unsigned i = 1; i < SLEEPERS; i++)
			pthread_join(sleeper[i].thread, NULL);
		ends(request(set, 1, 0), BERTH_OK);
		ck_assert_int_eq(request_free(r, &(struct failure){ 0 }), BERTH_OK);
	}
}
END_TEST

int main(void)
{
	Suite *s = suite_create("lib_request");
	TCase *t = tcase_create("lib_request");
	SRunner *r = srunner_create(s);
	int failed;

	tcase_set_timeout(t, 60);
	tcase_add_test(t, words);
	tcase_add_test(t, parts);
	tcase_add_test(t, callbacks);
	tcase_add_test(t, wakes);
	suite_add_tcase(s, t);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
