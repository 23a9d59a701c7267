/* requests.h - ranks that block beside ranks that submit; callbacks; waiting for one
 * of several; slices of time; a set that is aborted; sets that their members alone
 * make. */
#ifndef BERTH_TESTS_REQUESTS_H
#define BERTH_TESTS_REQUESTS_H

#include <pthread.h>
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

struct awaited {
	berth_request *r;
	_Atomic int called;
};

static void note_call(void *ctx, berth_result rc)
{
	struct berth_desc d = BERTH_DESC(.kind = BERTH_BARRIER);
	struct awaited *a = ctx;

	CHECK(!rc && berth_poll(a->r) == BERTH_OK, "it is done: %d", rc);
	CHECK(berth_run(&d, -1, NULL) == BERTH_STATE &&
		      berth_shutdown() == BERTH_STATE &&
		      berth_init(NULL) == BERTH_STATE,
	      "a callback may not wait");
	a->called++;
}

static void end_it(void *ctx, berth_result rc)
{
	struct awaited *a = ctx;

	CHECK(berth_wait(a->r, 0) == rc, "its own end");
	a->called++;
}

static void callbacks(void)
{
	enum { CALLS = 30 };
	float x[CALLS];
	struct awaited all[CALLS] = { { NULL, 0 } };
	const uint64_t until = now_ms() + 20000;
	char name[32];

	for (int i = 0; i < CALLS; i++) {
		struct awaited *a = &all[i];
		struct berth_desc d =
			BERTH_DESC(.kind = BERTH_ALLREDUCE, .type = BERTH_F32,
				   .name = name, .in = &x[i], .out = &x[i], .count = 1);

		x[i] = 1;
		snprintf(name, sizeof name, "call %d", i);
		FINE(berth_submit(&d, 1, &a->r));
		if (i % 3 == 1)
			usleep(200);
		FINE(berth_then(a->r, i % 2 ? note_call : end_it, a));
		if (i % 2) {
			CHECK(berth_then(a->r, note_call, a) == BERTH_STATE, "one");
			FINE(berth_wait(a->r, -1));
		}
	}
	for (int i = 0; i < CALLS; i++) {
		for (; !all[i].called; sched_yield())
			CHECK(now_ms() < until, "%d is not called", i);
		CHECK(all[i].called == 1, "%d is called again", i);
		CHECK(x[i] == (float)size, "its sum");
	}
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

/* ---- several at once ---- */

enum { EACH_OPS = 64 };

struct each {
	float x[EACH_OPS];
	char name[EACH_OPS][16];
	struct berth_desc d[EACH_OPS];
	berth_request *r[EACH_OPS];
};

/* In another order on each rank; without names, in the same order. */
static void each_make(struct each *e, bool named)
{
	for (int i = 0; i < EACH_OPS; i++) {
		const int at = named ? (i + 7 * rank) % EACH_OPS : i;

		e->x[i] = (float)at;
		snprintf(e->name[i], sizeof e->name[i], "each %d", at);
		e->d[i] =
			(struct berth_desc)BERTH_DESC(.kind = BERTH_ALLREDUCE,
						      .type = BERTH_F32,
						      .name = named ? e->name[i] : NULL,
						      .in = &e->x[i], .out = &e->x[i],
						      .count = 1);
	}
}

static void each_wait(struct each *e)
{
	for (int i = EACH_OPS - 1; i >= 0; i--) {
		const int at = e->d[i].name ? (i + 7 * rank) % EACH_OPS : i;

		FINE(berth_wait(e->r[i], -1));
		CHECK(e->x[i] == (float)(at * size), "sum %d: %g", i, (double)e->x[i]);
	}
}

/* None of them begins if one cannot, and the order of those without names stays. */
static void each_refused(struct each *e)
{
	each_make(e, false);
	e->d[EACH_OPS - 2].name = e->d[EACH_OPS - 1].name = "one name";
	CHECK(berth_submit_each(e->d, EACH_OPS, e->r) == BERTH_INVALID,
	      "one name twice");
	CHECK(!strcmp(berth_last_error()->tensor, "one name"), "names it");
	e->d[EACH_OPS - 1].name = NULL;
	e->d[EACH_OPS - 1].type = (berth_type)77;
	CHECK(berth_submit_each(e->d, EACH_OPS, e->r) == BERTH_INVALID, "no such type");
	CHECK(berth_submit_each(e->d, 0, e->r) == BERTH_INVALID, "none");
	CHECK(berth_submit_each(e->d, 1, NULL) == BERTH_INVALID, "nowhere");
}

static void each(void)
{
	struct each *e = calloc(1, sizeof *e);
	float to = (float)rank, from = -1;
	const struct berth_desc d[] = {
		BERTH_DESC(.kind = BERTH_SEND, .type = BERTH_F32, .in = &to, .count = 1,
			   .root = (rank + 1) % size),
		BERTH_DESC(.kind = BERTH_BARRIER),
		BERTH_DESC(.kind = BERTH_RECV, .type = BERTH_F32, .out = &from,
			   .count = 1, .root = (rank + size - 1) % size),
	};
	berth_request *r[3];

	for (int step = 0; step < 12; step++) {
		if (step == 6 && rank == 0)
			each_refused(e);
		each_make(e, step % 3 > 0);
		FINE(berth_submit_each(e->d, EACH_OPS, e->r));
		each_wait(e);
	}
	FINE(berth_submit_each(d, 3, r));
	for (int i = 2; i >= 0; i--)
		FINE(berth_wait(r[i], -1));
	CHECK(from == (float)((rank + size - 1) % size), "received %g", (double)from);
	free(e);
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

/* What has no elements may have no arrays, alone or beside what has some. */
static void nothing(void)
{
	static const char *const name[] = { "some", "none", "none either" };

	for (size_t i = 1; i < 5; i++) {
		float x = 1;
		struct berth_desc d[3];
		berth_request *r;

		for (size_t k = 0; k < 3; k++)
			d[k] = (struct berth_desc)BERTH_DESC(.kind = BERTH_ALLREDUCE,
							     .type = BERTH_F32,
							     .name = name[k]);
		d[0].in = d[0].out = &x;
		d[0].count = 1;
		FINE(berth_submit(d + i % 2, 3 - i % 2, &r));
		FINE(berth_wait(r, -1));
		CHECK(x == (i % 2 ? 1 : (float)size), "beside nothing: %g", (double)x);
	}
}

static void requests(void)
{
	nothing();
	callbacks();
	any();
	each();
	slices();
}

/* ---- the end of a set ---- */

static void check_abort(berth_result rc, const char *what)
{
	CHECK(rc == BERTH_ABORTED, "%s: %d", what, rc);
	/* between hosts the name may be lost */
	CHECK(call_world().local_size < size ||
		      strstr(berth_last_error()->text, "rank 0 aborted the set: the "
						       "loss is nan"),
	      "%s: by whom: %s", what, berth_last_error()->text);
}

/* The set stays until all have heard it: who leaves would end what the others do. */
static void end_aborted(berth_set *set)
{
	FINE(call_barrier(NULL));
	FINE(berth_set_remove(set));
	FINE(call_barrier(NULL));
}

static void abort_one(bool waits)
{
	float x = 1;
	struct berth_desc d =
		BERTH_DESC(.kind = BERTH_ALLREDUCE, .type = BERTH_F32, .name = "never",
			   .in = &x, .out = &x, .count = 1, .timeout_ms = 20000);
	berth_request *r = NULL;

	FINE(berth_set_split(NULL, 0, 0, &d.set));
	FINE(berth_run(&d, -1, NULL));
	FINE(call_barrier(NULL)); /* no rank is in that any more */
	if (rank == 0) {
		if (waits)
			usleep(100000); /* the others wait by then */
		FINE(berth_set_abort(d.set, "the loss is nan"));
	} else if (waits && rank % 2) {
		FINE(berth_submit(&d, 1, &r));
		check_abort(berth_wait(r, -1), "submitted");
	}
	check_abort(berth_run(&d, -1, NULL), "called");
	end_aborted(d.set);
}

/* What waits for the last rank, also of the rank that aborts the set: an operation at
 * which the library's thread is, and a message. */
static void abort_in_flight(void)
{
	float x = 1, y;
	struct berth_desc d[2] = {
		BERTH_DESC(.kind = BERTH_ALLREDUCE, .type = BERTH_F32, .name = "never",
			   .in = &x, .out = &x, .count = 1, .timeout_ms = 20000),
		BERTH_DESC(.kind = BERTH_RECV, .type = BERTH_F32, .root = size - 1,
			   .out = &y, .room = 1, .timeout_ms = 20000)
	};
	berth_request *r[2] = { NULL };

	FINE(berth_set_split(NULL, 0, 0, &d[0].set));
	d[1].set = d[0].set;
	FINE(call_barrier(d[0].set));
	for (int i = size == 1; i < 2 && (rank < size - 1 || size == 1); i++)
		FINE(berth_submit(&d[i], 1, &r[i]));
	FINE(call_barrier(NULL));
	if (rank == 0) {
		usleep(50000); /* all are at it */
		FINE(berth_set_abort(d[0].set, "the loss is nan"));
	}
	for (int i = 0; i < 2; i++)
		if (r[i])
			check_abort(berth_wait(r[i], -1), i ? "message" : "submitted");
	FINE(call_barrier(NULL));
	check_abort(berth_run(&d[0], -1, NULL), "called");
	end_aborted(d[0].set);
}

static void aborts(void)
{
	abort_one(true);
	abort_one(false);
	abort_in_flight();
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

/* Everybody is this rank. */
static int gather_oneself(void *ctx, const void *in, void *out, size_t bytes)
{
	const int *ranks = ctx;

	for (int i = 0; i < *ranks; i++)
		memcpy((char *)out + (size_t)i * bytes, in, bytes);
	return 0;
}

/* A set by the allgather of PART, as large. */
static berth_set *make_in(berth_set *part)
{
	berth_set *made;
	struct berth_bootstrap b = { .size = sizeof b,
				     .allgather = gather_in,
				     .ctx = part,
				     .rank = berth_set_rank(part),
				     .ranks = berth_set_size(part) };

	FINE(berth_set_make(&b, &made));
	CHECK(berth_set_size(made) == b.ranks && berth_set_rank(made) == b.rank,
	      "who is who");
	for (int i = 0; i < b.ranks; i++)
		CHECK(berth_set_member(made, i) == berth_set_member(part, i),
		      "member %d", i);
	return made;
}

static void makes_refused(berth_set *part)
{
	int ranks = berth_set_size(part);
	struct berth_bootstrap b = { .size = sizeof b,
				     .allgather = refuse_gather,
				     .rank = berth_set_rank(part),
				     .ranks = ranks };
	berth_set *made;

	CHECK(berth_set_make(&b, &made) == BERTH_SYSTEM &&
		      strstr(berth_last_error()->text, "failed with 77"),
	      "a bootstrap that fails: %s", berth_last_error()->text);
	b.allgather = gather_oneself;
	b.ctx = &ranks;
	CHECK(ranks == 1 || (berth_set_make(&b, &made) == BERTH_INVALID &&
			     strstr(berth_last_error()->text, "is in it twice")),
	      "a rank that is there twice: %s", berth_last_error()->text);
}

/* Ranks that have made other numbers of sets: then they count them differently. */
static void make_some_alone(void)
{
	int one = 1;
	struct berth_bootstrap b = {
		.size = sizeof b, .allgather = gather_oneself, .ctx = &one, .ranks = 1
	};
	berth_set *alone;

	for (int i = 0; i < rank; i++) {
		FINE(berth_set_make(&b, &alone));
		CHECK(sum_in(alone, 7) == 7, "alone");
		FINE(berth_set_remove(alone));
	}
}

static void *sum_later(void *set)
{
	usleep(200000);
	CHECK(sum_in(set, 1) == berth_set_size(set), "its sum");
	return NULL;
}

/* The first of ALL, which is not in FEW, does not come.  It alone is named, although
 * the others begin something in FEW meanwhile: what they say of ALL and of FEW is not
 * mixed up. */
static void make_late(berth_set *all, berth_set *few)
{
	struct berth_desc d =
		BERTH_DESC(.kind = BERTH_BARRIER, .set = all, .timeout_ms = 1000);
	const struct berth_error *e;
	pthread_t thread;

	for (int i = 0; i < 5; i++)
		FINE(call_barrier(all));
	if (!few)
		return;
	pthread_create(&thread, NULL, sum_later, few);
	CHECK(berth_run(&d, -1, NULL) == BERTH_TIMEOUT, "the first does not come");
	e = berth_last_error();
	CHECK(e->nmissing == 1 && e->missing[0] == berth_set_member(all, 0),
	      "%u are missing: %s", (unsigned)e->nmissing, e->text);
	pthread_join(thread, NULL);
}

/* Of all but the last rank, in descending order. */
static void makes(void)
{
	double x;
	berth_set *part = NULL, *few = NULL, *all = NULL, *made = NULL;
	struct berth_desc d = BERTH_DESC(.kind = BERTH_ALLREDUCE, .type = BERTH_F64,
					 .in = &x, .out = &x, .count = 1);
	int members = size - 1;

	FINE(berth_set_split(NULL, rank < members ? 0 : -1, -rank, &part));
	if (part) {
		CHECK(berth_set_member(part, 0) == members - 1, "descending");
		FINE(berth_set_split(part, rank < members - 1 ? 0 : -1, 0, &few));
		for (int i = 0; i < 3; i++) {
			made = make_in(part);
			d.set = made;
			x = rank;
			FINE(berth_run(&d, -1, NULL));
			CHECK(x == members * (members - 1) / 2, "its sum: %g", x);
			FINE(berth_set_remove(made));
		}
		makes_refused(part);
		make_some_alone();
		all = make_in(part);
		made = few ? make_in(few) : NULL;
		if (members > 1)
			make_late(all, made);
	}
	FINE(call_barrier(NULL));
	for (int i = 0; i < 4; i++) {
		berth_set *each[] = { part, few, all, made };

		if (each[i])
			FINE(berth_set_remove(each[i]));
	}
	FINE(call_barrier(NULL));
}

#endif
