/* requests.h - ranks that block beside ranks that submit; callbacks; waiting for one
 * of several; slices of time; a set that is aborted; sets that their members alone
 * make. */
#ifndef BERTH_TESTS_REQUESTS_H
#define BERTH_TESTS_REQUESTS_H

#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/helpers/calls.h"
#include "tests/helpers/verify.h"

/* D in one of four ways. */
static berth_result do_one_way(const struct berth_desc *d, uint64_t way)
{
	berth_request *r = NULL;
	size_t which = 7;
	berth_result rc;

	switch (way % 4) {
	case 0:
		return berth_run(d, -1, NULL);
	case 1:
		rc = berth_submit(d, 1, &r);
		return rc ? rc : berth_wait(r, -1);
	case 2:
		rc = berth_run(d, 1, &r);
		return rc == BERTH_BUSY ? berth_wait(r, -1) : rc;
	default:
		rc = berth_submit(d, 1, &r);
		if (!rc)
			rc = berth_wait_any(&r, 1, -1, &which);
		CHECK(!which || rc, "which: %zu", which);
		return rc;
	}
}

/* Each rank in a way of its own; with names and without; other requests in flight. */
static void meeting(void)
{
	enum { STEPS = 200 };
	double x, y = 1;
	char name[32];
	berth_request *held = NULL;

	for (uint64_t i = 0; i < STEPS; i++) {
		struct berth_desc d =
			BERTH_DESC(.kind = BERTH_ALLREDUCE, .type = BERTH_F64, .in = &x,
				   .out = &x, .count = 1,
				   .name = noise(2 * i) % 2 ? name : NULL);
		struct berth_desc h =
			BERTH_DESC(.kind = BERTH_ALLREDUCE, .type = BERTH_F64,
				   .name = "held", .in = &y, .out = &y, .count = 1);

		snprintf(name, sizeof name, "meet %u", (unsigned)i % 3);
		if (i % 20 == 10)
			FINE(berth_submit(&h, 1, &held));
		x = rank + (double)i;
		FINE(do_one_way(&d, noise(i * 64 + (uint64_t)rank)));
		CHECK(x == size * (double)i + size * (size - 1) / 2.0, "sum %u: %g",
		      (unsigned)i, x);
		if (i % 20 == 13)
			FINE(berth_wait(held, -1));
	}
}

/* Different operations, of ranks that block and ranks that submit: all hear of both. */
static void meeting_differs(void)
{
	float x[4] = { 0 };

	for (uint64_t i = 0; i < 12; i++) {
		struct berth_desc d =
			BERTH_DESC(.kind = BERTH_ALLREDUCE, .type = BERTH_F32, .in = x,
				   .out = x, .count = 2, .shape = "[2,1]");

		if (rank == size - 1)
			d.shape = "[2]";
		CHECK(do_one_way(&d, i + (uint64_t)rank) == BERTH_MISMATCH, "differs");
		CHECK(strstr(berth_last_error()->text, "shape \"[2,1]\"") &&
			      strstr(berth_last_error()->text, "shape \"[2]\""),
		      "both sides: %s", berth_last_error()->text);
		d.shape = NULL;
		FINE(do_one_way(&d, noise(i * 64 + (uint64_t)rank)));
	}
}

static void meet(void)
{
	meeting();
	if (size > 1)
		meeting_differs();
}

/* ---- callbacks ---- */

static _Atomic int called;

static void note_call(void *ctx, berth_result rc)
{
	struct berth_desc d = BERTH_DESC(.kind = BERTH_BARRIER);
	berth_request *r = *(berth_request **)ctx;

	CHECK(!rc && berth_poll(r) == BERTH_OK, "it is done: %d", rc);
	CHECK(berth_run(&d, -1, NULL) == BERTH_STATE &&
		      berth_shutdown() == BERTH_STATE &&
		      berth_init(NULL) == BERTH_STATE,
	      "a callback may not wait");
	called++;
}

static void end_it(void *ctx, berth_result rc)
{
	CHECK(berth_wait(*(berth_request **)ctx, 0) == rc, "its own end");
	called++;
}

static void callbacks(void)
{
	enum { CALLS = 30 };
	float x[CALLS];
	berth_request *r[CALLS];
	char name[32];

	called = 0;
	for (int i = 0; i < CALLS; i++) {
		struct berth_desc d =
			BERTH_DESC(.kind = BERTH_ALLREDUCE, .type = BERTH_F32,
				   .name = name, .in = &x[i], .out = &x[i], .count = 1);

		x[i] = 1;
		snprintf(name, sizeof name, "call %d", i);
		FINE(berth_submit(&d, 1, &r[i]));
		if (i % 3 == 1)
			usleep(200);
		FINE(berth_then(r[i], i % 2 ? note_call : end_it, &r[i]));
		if (i % 2) {
			CHECK(berth_then(r[i], note_call, &r[i]) == BERTH_STATE, "one");
			FINE(berth_wait(r[i], -1));
		}
	}
	for (uint64_t until = now_ms() + 20000; called < CALLS; sched_yield())
		CHECK(now_ms() < until, "only %d were called", called);
	for (int i = 0; i < CALLS; i++)
		CHECK(x[i] == (float)size, "its sum");
}

/* ---- one of several ---- */

static void any(void)
{
	enum { FEW = 5 };
	float x[FEW] = { 0 };
	static const char *const name[FEW] = { "0", "1", "2", "3", "4" };
	berth_request *r[FEW] = { NULL };
	size_t which, seen = 0;

	CHECK(berth_wait_any(r, FEW, -1, &which) == BERTH_INVALID, "none");
	for (int i = 0; i < FEW; i++) {
		struct berth_desc d = BERTH_DESC(.kind = BERTH_ALLREDUCE,
						 .type = BERTH_F32, .name = name[i],
						 .in = &x[i], .out = &x[i], .count = 1);

		x[i] = 1;
		FINE(berth_submit(&d, 1, &r[i]));
	}
	for (int i = 0; i < FEW; i++) {
		FINE(berth_wait_any(r, FEW, -1, &which));
		CHECK(which < FEW && r[which] && x[which] == (float)size, "one");
		seen |= (size_t)1 << which;
		r[which] = NULL;
	}
	CHECK(seen == (1 << FEW) - 1, "all of them");
}

/* The last rank comes late: the others get their slices of time. */
static void slices(void)
{
	float x = 1;
	struct berth_desc d = BERTH_DESC(.kind = BERTH_ALLREDUCE, .type = BERTH_F32,
					 .in = &x, .out = &x, .count = 1);
	berth_request *later;
	size_t which;
	berth_result rc;
	unsigned turns = 0;

	if (size == 1)
		return;
	FINE(call_barrier(NULL));
	if (rank == size - 1)
		usleep(200000);
	rc = berth_run(&d, 20, &later);
	for (; rc == BERTH_BUSY; turns++)
		rc = turns % 2 ? berth_wait(later, 20)
			       : berth_wait_any(&later, 1, 20, &which);
	CHECK(!rc && x == (float)size, "in slices: %d", rc);
	CHECK(turns > 2 || rank == size - 1, "%u slices", turns);
}

static void requests(void)
{
	callbacks();
	any();
	slices();
}

/* ---- the end of a set ---- */

static void abort_one(bool waits)
{
	float x = 1;
	struct berth_desc d =
		BERTH_DESC(.kind = BERTH_ALLREDUCE, .type = BERTH_F32, .name = "never",
			   .in = &x, .out = &x, .count = 1);
	berth_request *r = NULL;
	berth_result rc;

	FINE(berth_set_split(NULL, 0, 0, &d.set));
	FINE(berth_run(&d, -1, NULL));
	FINE(call_barrier(NULL)); /* no rank is in that any more */
	if (rank == 0) {
		if (waits)
			usleep(100000); /* the others wait by then */
		FINE(berth_set_abort(d.set, "the loss is nan"));
	} else if (waits && rank % 2) {
		FINE(berth_submit(&d, 1, &r));
		rc = berth_wait(r, -1);
		CHECK(rc == BERTH_ABORTED, "submitted: %d", rc);
	}
	rc = berth_run(&d, -1, NULL);
	CHECK(rc == BERTH_ABORTED || size == 1, "aborted: %d", rc);
	/* between hosts the name may be lost */
	CHECK(size == 1 || call_world().local_size < size ||
		      strstr(berth_last_error()->text, "rank 0 aborted the set: the "
						       "loss is nan"),
	      "by whom: %s", berth_last_error()->text);
	FINE(berth_set_remove(d.set));
	FINE(call_barrier(NULL));
}

static void aborts(void)
{
	abort_one(true);
	abort_one(false);
}

/* ---- sets that their members alone make ---- */

static int gather_in(void *ctx, const void *in, void *out, size_t bytes)
{
	struct berth_desc d =
		BERTH_DESC(.kind = BERTH_ALLGATHER, .type = BERTH_U8, .set = ctx,
			   .in = in, .out = out, .count = bytes);

	return (int)berth_run(&d, -1, NULL);
}

static int refuse_gather(void *ctx, const void *in, void *out, size_t bytes)
{
	(void)ctx;
	(void)in;
	(void)out;
	(void)bytes;
	return 77;
}

/* Of all but the last rank, in descending order. */
static void makes(void)
{
	double x = rank;
	berth_set *part, *made;
	struct berth_bootstrap b = { .size = sizeof b, .allgather = gather_in };
	struct berth_desc d = BERTH_DESC(.kind = BERTH_ALLREDUCE, .type = BERTH_F64,
					 .in = &x, .out = &x, .count = 1);
	int members = size - 1;

	FINE(berth_set_split(NULL, rank < members ? 0 : -1, -rank, &part));
	if (rank < members) {
		b.ctx = part;
		b.rank = berth_set_rank(part);
		b.ranks = members;
		for (int i = 0; i < 3; i++) {
			FINE(berth_set_make(&b, &made));
			CHECK(berth_set_size(made) == members &&
				      berth_set_rank(made) == members - 1 - rank &&
				      berth_set_member(made, 0) == members - 1,
			      "who is who");
			d.set = made;
			x = rank;
			FINE(berth_run(&d, -1, NULL));
			CHECK(x == members * (members - 1) / 2, "its sum: %g", x);
			FINE(berth_set_remove(made));
		}
		b.allgather = refuse_gather;
		CHECK(berth_set_make(&b, &made) == BERTH_SYSTEM &&
			      strstr(berth_last_error()->text, "failed with 77"),
		      "a bootstrap that fails: %s", berth_last_error()->text);
		FINE(berth_set_remove(part));
	}
	FINE(call_barrier(NULL));
}

#endif
