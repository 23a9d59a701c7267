/* mixed.h - operations of devices.c to which some ranks give host memory and others a
 * device's. */
#ifndef BERTH_TESTS_DEVICES_MIXED_H
#define BERTH_TESTS_DEVICES_MIXED_H

#include "lib/base/clock.h"
#include "tests/helpers/devices/rank.h"
#include "tests/helpers/devices/steady.h"

enum { STANDS_MS = 3000, DIES_MS = 300, LATE_MS = 300, ENDS_MS = 2000 };

/* An array in both memories, of which one counts. */
struct both {
	float *there, *here, *host;
	bool is_there;
};

static struct both make_both(void)
{
	return (struct both){ .there = standin_alloc(BYTES),
			      .here = make_here(),
			      .host = make_here() };
}

static struct berth_desc describe_both(struct both *b, bool is_there, int tensor,
				       int step)
{
	struct berth_desc d = allreduce(b->there);

	b->is_there = is_there;
	if (is_there) {
		put(b->there, b->here, tensor, step);
		return d;
	}
	for (int i = 0; i < COUNT; i++)
		b->host[i] = value(rank, tensor, step, i);
	d.in = d.out = b->host;
	d.memory = BERTH_HOST;
	d.stream = NULL;
	return d;
}

static void check_both(const struct both *b, int tensor, int step)
{
	if (b->is_there) {
		check_sum(b->there, tensor, step);
		return;
	}
	for (int i = 0; i < COUNT; i++)
		CHECK(b->host[i] == sum(tensor, step, i),
		      "tensor %d step %d element %d: %g, not %g", tensor, step, i,
		      (double)b->host[i], (double)sum(tensor, step, i));
}

/* All block in it. */
static void mix_blocking(void)
{
	struct both b = make_both();

	for (int step = 0; step < STEPS; step++) {
		struct berth_desc d = describe_both(&b, (rank + step) % 2, 0, step);

		d.name = step % 3 ? NULL : "grad";
		CHECK(!berth_run(&d, -1, NULL), "step %d", step);
		check_both(&b, 0, step);
	}
}

/* In one request, here the first and there the second; a stream waits for it. */
static void mix_requests(void)
{
	struct both b[2] = { make_both(), make_both() };

	for (int step = 0; step < STEPS; step++) {
		struct berth_desc d[2];
		berth_request *r;

		for (int t = 0; t < 2; t++)
			d[t] = describe_both(&b[t], (rank + t) % 2, t, step);
		CHECK(!berth_submit(d, 2, &r), "submit");
		CHECK(!berth_wait_stream(r, stream, -1), "wait_stream");
		for (int t = 0; t < 2; t++)
			if (b[t].is_there)
				check_both(&b[t], t, step);
		CHECK(!berth_wait(r, -1), "wait");
		for (int t = 0; t < 2; t++)
			check_both(&b[t], t, step);
	}
}

/* Steps of three tensors, which a plan has.  In some of them rank 0 has the first one
 * on its device, and waits for it before it submits the others.  Other ranks submit
 * these only then. */
static void mix_in_plan(void)
{
	enum { MANY = 3, FIRST = 6, LAST = 30 };
	struct both b[MANY] = { make_both(), make_both(), make_both() };

	for (int step = 0; step < LAST; step++) {
		const bool mixed = step >= FIRST && step % 8 != 7;
		berth_request *r[MANY];

		for (int t = 0; t < MANY; t++) {
			struct berth_desc d =
				describe_both(&b[t], mixed && !rank && !t, t, step);
			char name[8];

			snprintf(name, sizeof name, "p%d", t);
			d.name = name;
			CHECK(!berth_submit(&d, 1, &r[t]), "submit");
			if (!t && !rank)
				CHECK(!berth_wait(r[t], -1), "step %d", step);
			if (!t)
				pthread_barrier_wait(&own_ranks->barrier);
		}
		for (int t = !rank; t < MANY; t++)
			CHECK(!berth_wait(r[t], -1), "step %d tensor %d", step, t);
		for (int t = 0; t < MANY; t++)
			check_both(&b[t], t, step);
	}
}

/* Beside rank 0, which has no data. */
static void mix_joined(void)
{
	struct both b = make_both();
	int last;

	for (int step = 0; rank && step < STEPS; step++) {
		struct berth_desc d = describe_both(&b, (rank + step) % 2, 0, step);

		CHECK(!berth_run(&d, -1, NULL), "step %d", step);
		if (b.is_there) {
			standin_copy(b.host, b.there, BYTES, stream);
			cuStreamSynchronize(stream);
		}
		for (int i = 0; i < COUNT; i++)
			CHECK(b.host[i] == sum(0, step, i) - value(0, 0, step, i),
			      "step %d element %d: %g", step, i, (double)b.host[i]);
	}
	CHECK(!berth_join(NULL, &last), "join");
}

static int mixed(void)
{
	mix_blocking();
	mix_requests();
	mix_in_plan();
	mix_joined();
	return 0;
}

/* The last rank dies in an operation for which a stream stands still: its own, or that
 * of the rank before it, beside which it has host memory. */
static int die_mixed(bool last_is_there)
{
	const int stands_still = last_is_there ? size - 1 : size - 2;
	const bool is_last = rank == size - 1;
	struct both b = make_both();
	struct berth_desc d =
		describe_both(&b, (size - 1 - rank) % 2 != last_is_there, 0, 0);
	uint64_t from_ns;
	berth_request *r;

	CHECK(!berth_run(&d, -1, NULL), "the first");
	cuStreamSynchronize(stream);
	pthread_barrier_wait(&own_ranks->barrier);
	from_ns = clock_ns();
	if (rank == stands_still)
		pause_stream(slow_s(STANDS_MS));
	CHECK(!berth_submit(&d, 1, &r), "submit");
	if (is_last) {
		usleep(DIES_MS * 1000);
		raise(SIGKILL);
	}
	CHECK(berth_wait(r, -1) == BERTH_PEER_LOST, "the second");
	CHECK(clock_ns() - from_ns < slow_s(DIES_MS + ENDS_MS) * 1000000ull,
	      "it took %u ms", (unsigned)((clock_ns() - from_ns) / 1000000));
	CHECK(berth_last_error()->nmissing == 1 &&
		      berth_last_error()->missing[0] == size - 1,
	      "who is missing");
	return 0;
}

static int die_mixed_there(void)
{
	return die_mixed(true);
}

static int die_mixed_here(void)
{
	return die_mixed(false);
}

/* An operation of SET comes to its deadline: the last rank's stream does not come to it
 * until GOES_ON. */
static void be_late(struct both *b, bool is_there, berth_set *set, bool blocks,
		    _Atomic bool *goes_on)
{
	const bool is_last = rank == size - 1;
	struct berth_desc d = describe_both(b, is_there, 0, 0);
	const uint64_t from_ns = clock_ns();
	berth_request *r;
	berth_result rc;

	d.set = set;
	d.timeout_ms = LATE_MS;
	if (is_last)
		standin_enqueue(stream, run_until, &goes_on, sizeof goes_on);
	if (blocks) {
		rc = berth_run(&d, -1, NULL);
	} else {
		CHECK(!berth_submit(&d, 1, &r), "submit");
		if (is_there)
			CHECK(berth_wait_stream(r, stream, -1), "wait_stream");
		rc = berth_wait(r, -1);
	}
	CHECK(rc == BERTH_TIMEOUT ||
		      (is_last && (rc == BERTH_PEER_LOST || rc == BERTH_ABORTED)),
	      "%s", berth_result_text(rc));
	CHECK(clock_ns() - from_ns < slow_s(LATE_MS + ENDS_MS) * 1000000ull,
	      "it took %u ms", (unsigned)((clock_ns() - from_ns) / 1000000));
	CHECK(berth_run(&d, -1, NULL), "the set has ended");
}

/* All ranks are told of the deadline while the stream still stands, and other sets go
 * on.  What the arrays get then stays there when it goes on: nothing is copied to
 * them. */
static void time_out_once(struct both *b, bool is_mixed, void *other, bool blocks)
{
	struct both *in_time = &b[0], *late = &b[1];
	const bool is_there = !is_mixed || (size - 1 - rank) % 2 == 0;
	_Atomic bool goes_on = false;
	struct berth_desc d;
	berth_set *set;

	begin_library();
	CHECK(!berth_set_split(NULL, 0, rank, &set), "split");
	d = describe_both(in_time, !is_mixed || !is_there, 0, 1);
	d.set = set;
	CHECK(!berth_run(&d, -1, NULL), "the first");
	check_both(in_time, 0, 1);
	be_late(late, is_there, set, blocks, &goes_on);
	for (int i = 0; i < COUNT; i++)
		late->host[i] = in_time->host[i] = sum(1, 2, i);
	standin_copy(late->there, late->host, BYTES, other);
	cuStreamSynchronize(other);
	d = describe_both(in_time, false, 0, 3);
	CHECK(!berth_run(&d, -1, NULL), "another set");
	check_both(in_time, 0, 3);
	atomic_store(&goes_on, true);
	standin_wait_all();
	check_sum(late->there, 1, 2);
	late->is_there = false;
	check_both(late, 1, 2);
	CHECK(!berth_set_remove(set), "remove");
	berth_shutdown();
}

/* Nothing of what came to its deadline stays on the device, or here.  (A work of NCCL
 * ends only when the stream goes on: see late_stream().) */
static int time_out(bool is_mixed)
{
	enum { ROUNDS = 6, KEEPS = 2, MORE = ROUNDS - KEEPS };
	struct both b[2] = { make_both(), make_both() };
	struct stock before, after;
	void *other;
	int threads;

	times = ROUNDS;
	cuStreamCreate(&other, CU_STREAM_NON_BLOCKING);
	berth_shutdown();
	threads = threads_here() - (int)standin_holds(STANDIN_STREAMS);
	for (int i = 0; i < ROUNDS; i++) {
		if (i == KEEPS)
			take_stock(&before, threads);
		time_out_once(b, is_mixed, other, i % 2);
	}
	take_stock(&after, threads);
	CHECK(after.threads == threads, "%d threads before, %d after it", threads,
	      after.threads);
	/* the pool of marks may become larger, but not in each round */
	if (after.held[STANDIN_EVENTS] < before.held[STANDIN_EVENTS] + MORE)
		before.held[STANDIN_EVENTS] = after.held[STANDIN_EVENTS];
	compare_stocks(&before, &after);
	begin_library();
	return 0;
}

static int time_out_mixed(void)
{
	return time_out(true);
}

static int time_out_staged(void)
{
	return time_out(false);
}

/* BERTH_DEVICE=nccl-only of one rank: an error on all, and the set goes on. */
static int mixed_refused(void)
{
	struct both b = make_both();
	struct berth_desc d = describe_both(&b, rank % 2, 0, 0);

	for (int i = 0; i < 2; i++) {
		CHECK(berth_run(&d, -1, NULL) == BERTH_UNSUPPORTED, "once more");
		CHECK(strstr(berth_last_error()->text,
			     "BERTH_DEVICE=nccl-only allows no way between"),
		      "%s", berth_last_error()->text);
	}
	d = describe_both(&b, false, 0, 1);
	CHECK(!berth_run(&d, -1, NULL), "after it");
	check_both(&b, 0, 1);
	return 0;
}

#endif
