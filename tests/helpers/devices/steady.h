/* steady.h - training steps over and over, in which the library waits for the device in
 * no call; and cycles of init and shutdown, which leave nothing on it. */
#ifndef BERTH_TESTS_DEVICES_STEADY_H
#define BERTH_TESTS_DEVICES_STEADY_H

#include <stdatomic.h>
#include <unistd.h>

#include "lib/base/clock.h"
#include "tests/helpers/devices/rank.h"
#include "tests/helpers/here.h"

enum {
	GRADIENTS = 5,
	LARGE = 3 << 18, /* floats: too many for a bucket */
	LARGE_STEPS = 10,
	WARM_UP = 2 * LARGE_STEPS,
	CROWD = 20, /* works: more than a step has */
	CROWD_MORE = 3,
	SETTLE_MS = 10000
};

static int times = 40; /* steps, or cycles */

/* Arrays of a program on the device, for its steps. */
struct training {
	berth_set *set; /* all ranks, a second time */
	void *gradient[GRADIENTS], *other, *in, *out, *large;
};

static void *make_there(size_t bytes)
{
	void *p = berth_alloc(bytes, BERTH_CUDA, 0);

	CHECK(p, "berth_alloc");
	return p;
}

static void begin_training(struct training *t)
{
	CHECK(!berth_set_split(NULL, 0, rank, &t->set), "split");
	for (int i = 0; i < GRADIENTS; i++)
		t->gradient[i] = make_there(BYTES);
	t->other = make_there(BYTES);
	t->in = make_there(BYTES * (size_t)size);
	t->out = make_there(BYTES * (size_t)size);
	t->large = make_there(LARGE * sizeof(float));
}

static void end_training(const struct training *t)
{
	for (int i = 0; i < GRADIENTS; i++)
		berth_free(t->gradient[i]);
	berth_free(t->other);
	berth_free(t->in);
	berth_free(t->out);
	berth_free(t->large);
}

/* Operations of each kind, in which the host blocks, and the stream waits. */
static void block_in_all(const struct training *t, int step)
{
	static const berth_kind kinds[] = { BERTH_ALLREDUCE,     BERTH_REDUCE,
					    BERTH_REDUCESCATTER, BERTH_ALLGATHER,
					    BERTH_BROADCAST,     BERTH_ALLTOALL,
					    BERTH_GATHER,        BERTH_SCATTER };
	struct berth_desc d;

	for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
		const bool apart =
			kinds[i] == BERTH_REDUCESCATTER || kinds[i] == BERTH_SCATTER;

		d = allreduce(t->out);
		d.kind = kinds[i];
		if (apart || step % 2)
			d.in = t->in;
		d.root = step % size;
		CHECK(!berth_run(&d, -1, NULL), "kind %d", (int)kinds[i]);
	}
	d = (struct berth_desc)BERTH_DESC(.kind = BERTH_BARRIER, .memory = BERTH_CUDA,
					  .stream = stream);
	CHECK(!berth_run(&d, -1, NULL), "barrier");
	if (step % LARGE_STEPS)
		return;
	d = allreduce(t->large);
	d.count = LARGE;
	CHECK(!berth_run(&d, -1, NULL), "a large allreduce");
}

/* Gradients that are submitted, in two sets, beside what blocks; then the program looks
 * at its stream, once. */
static void train(const struct training *t, float *here, int step)
{
	berth_request *r[GRADIENTS + 1];

	put(t->gradient[0], here, 0, step);
	for (int i = 0; i <= GRADIENTS; i++) {
		struct berth_desc d =
			allreduce(i < GRADIENTS ? t->gradient[i] : t->other);
		char name[16];

		snprintf(name, sizeof name, "g%d", i);
		d.name = name;
		d.set = i < GRADIENTS ? NULL : t->set;
		d.op = i && step % 2 ? BERTH_AVG : BERTH_SUM;
		CHECK(!berth_submit(&d, 1, &r[i]), "submit");
	}
	for (int i = 0; i <= GRADIENTS; i++)
		CHECK(!berth_wait_stream(r[i], stream, -1), "wait_stream");
	block_in_all(t, step);
	cuStreamSynchronize(stream);
	for (int i = 0; i <= GRADIENTS; i++)
		CHECK(!berth_wait(r[i], -1), "wait");
}

/* ---- waits ---- */

/* By the host the library asks for events, and sleeps in between: it has to wait. */
static void check_wait(enum standin_wait kind, unsigned long n)
{
	const char *way = getenv("BERTH_DEVICE");
	const bool may = kind == STANDIN_QUERY && way && !strcmp(way, "host");

	CHECK(!n || may, "%s: %lu times in %d steps", standin_wait_name[kind], n,
	      times);
	if (may && !rank)
		printf("np %d, by the host: %s: %lu times in %d steps\n", size,
		       standin_wait_name[kind], n, times);
}

/* Calls that may wait for the device: in TIMES steps there is none but the
 * program's own. */
static int waits(void)
{
	unsigned long before[STANDIN_WAITS], own[STANDIN_WAITS] = { 0 };
	float *here = make_here();
	struct training t;

	begin_training(&t);
	for (int step = 0; step < WARM_UP; step++)
		train(&t, here, step);
	for (int i = 0; i < STANDIN_WAITS; i++)
		before[i] = standin_waits_of((enum standin_wait)i);
	for (int step = 0; step < times; step++)
		train(&t, here, step);
	own[STANDIN_SYNC] = (unsigned long)times;
	for (int i = 0; i < STANDIN_WAITS; i++)
		check_wait((enum standin_wait)i,
			   standin_waits_of((enum standin_wait)i) - before[i] - own[i]);
	train(&t, here, 0);
	check_sum(t.gradient[0], 0, 0);
	end_training(&t);
	return 0;
}

/* ---- cycles ---- */

struct stock {
	long held[STANDIN_HELD];
	int threads, descriptors; /* threads: but for those of streams */
};

/* The stream stands still until the flag is set. */
static void run_until(void *arg)
{
	while (!atomic_load(*(_Atomic bool **)arg))
		usleep(100);
}

/* N works are on the device at a time.  (By the host each of them would wait for the
 * stream.) */
static void crowd(const struct training *t, int n)
{
	_Atomic bool goes_on = false, *at = &goes_on;
	const struct berth_desc d = allreduce(t->other);

	standin_enqueue(stream, run_until, &at, sizeof at);
	for (int i = 0; i < n; i++)
		CHECK(!berth_run(&d, -1, NULL), "one of many");
	atomic_store(&goes_on, true);
	cuStreamSynchronize(stream);
}

/* NCCL can't: it goes by the host.  Nothing is under way after it. */
static void go_by_host(const struct training *t)
{
	struct berth_desc d = allreduce(t->out);

	d.type = BERTH_U32;
	d.op = BERTH_BXOR;
	d.stream = BERTH_HOST_STREAM;
	CHECK(!berth_run(&d, -1, NULL), "by the host");
}

/* All gradients are in one bucket, which is as large as it ever gets: those of train()
 * are in one or in several, as their submissions come. */
static void fill_bucket(const struct training *t)
{
	struct berth_desc d[GRADIENTS];
	berth_request *r;

	for (int i = 0; i < GRADIENTS; i++)
		d[i] = allreduce(t->gradient[i]);
	CHECK(!berth_submit(d, GRADIENTS, &r), "submit all");
	CHECK(!berth_wait(r, -1), "wait for all");
}

/* In a cycle that is a WARM_UP pools become larger than they have to be later: a thread
 * may be late to give back the marks of what is over. */
static void one_cycle(float *here, int i, bool warm_up)
{
	struct training t;

	begin_library();
	begin_training(&t);
	train(&t, here, i);
	if (warm_up)
		fill_bucket(&t);
	go_by_host(&t);
	crowd(&t, warm_up ? CROWD + CROWD_MORE : CROWD);
	end_training(&t);
	if (i % 2) /* else it ends with its world */
		CHECK(!berth_set_remove(t.set), "remove");
	berth_shutdown();
}

/* Communicators, and threads that nobody joins, end by themselves. */
static void take_stock(struct stock *s, int threads)
{
	const uint64_t until_ns = clock_until(slow_s(SETTLE_MS));

	standin_wait_all();
	do {
		for (int i = 0; i < STANDIN_HELD; i++)
			s->held[i] = standin_holds((enum standin_held)i);
		s->threads = threads_here() - (int)s->held[STANDIN_STREAMS];
		s->descriptors = descriptors_here();
		usleep(1000);
	} while ((s->held[STANDIN_COMMS] || s->threads > threads) &&
		 clock_ns() < until_ns);
}

static void compare_stocks(const struct stock *a, const struct stock *b)
{
	for (int i = 0; i < STANDIN_HELD; i++) {
		CHECK(a->held[i] == b->held[i], "%s: %ld before, %ld after %d cycles",
		      standin_held_name[i], a->held[i], b->held[i], times);
		if (!rank)
			printf("%ld %s, ", b->held[i], standin_held_name[i]);
	}
	CHECK(a->descriptors == b->descriptors,
	      "%d descriptors before, %d after %d cycles", a->descriptors,
	      b->descriptors, times);
	if (!rank)
		printf("%d descriptors after %d cycles as before\n", b->descriptors,
		       times);
}

/* After the first cycles all is there that is kept for good.  All threads end. */
static int cycles(void)
{
	const int warm_up = times < WARM_UP ? 1 : WARM_UP;
	float *here = make_here();
	struct stock before, after;
	int threads;

	berth_shutdown();
	threads = threads_here() - (int)standin_holds(STANDIN_STREAMS);
	for (int i = 0; i < times; i++) {
		if (i == warm_up)
			take_stock(&before, threads);
		one_cycle(here, i, i < warm_up);
	}
	take_stock(&after, threads);
	CHECK(!after.held[STANDIN_COMMS], "communicators");
	CHECK(after.threads == threads, "%d threads before, %d after %d cycles",
	      threads, after.threads, times);
	compare_stocks(&before, &after);
	begin_library();
	return 0;
}

#endif
