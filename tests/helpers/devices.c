/* devices.c - operations of libberth on the memory of a stand-in device
 * (tests/standin), with ends that random programs do not have:
 *
 *     build/helpers/devices [-np 3] [-hosts 2] [-times 200] CASE
 *
 * Ranks are its own.  It exits with 0 if all came as the case expects. */
#include <math.h>
#include <signal.h>
#include <unistd.h>

#include "lib/base/clock.h"
#include "lib/berth.h"
#include "tests/helpers/devices/rank.h"
#include "tests/helpers/devices/steady.h"
#include "tests/standin/checked.h"

enum { TENSORS = 5, DOUBLES = BYTES / 8, STEPS = 8, SOON_MS = 10000 };

#include "tests/helpers/devices/messages.h"
#include "tests/helpers/devices/mixed.h"

/* ---- a training step ---- */

static void submit_step(const char *kind, void *const *p, int from, int to,
			berth_set *set, berth_request **r)
{
	static const double twice = 2;

	for (int t = from; t < to; t++) {
		struct berth_desc d = allreduce(p[t]);
		char name[16];

		snprintf(name, sizeof name, "%s%d", kind, t);
		d.name = name;
		d.set = set;
		if (t & 1) /* a bucket of its own: two are under way */
			d.postscale = &twice;
		CHECK(!berth_submit(&d, 1, &r[t]), "submit");
	}
}

static void halve(float *there)
{
	float *here;

	cuMemHostAlloc((void **)&here, BYTES, 0);
	standin_copy(here, there, BYTES, stream);
	cuStreamSynchronize(stream);
	for (int i = 0; i < COUNT; i++)
		here[i] /= 2;
	standin_copy(there, here, BYTES, stream);
	cuStreamSynchronize(stream);
	cuMemFreeHost(here);
}

/* Gradients fused in two sets of the same ranks, over and over. */
static int run_steps(void)
{
	float *here[2 * TENSORS];
	void *p[2 * TENSORS];
	berth_request *r[2 * TENSORS];
	berth_set *set;

	CHECK(!berth_set_split(NULL, 0, -rank, &set), "split");
	for (int t = 0; t < 2 * TENSORS; t++) {
		p[t] = standin_alloc(BYTES);
		here[t] = make_here();
	}
	for (int step = 0; step < STEPS; step++) {
		for (int t = 0; t < 2 * TENSORS; t++)
			put(p[t], here[t], t, step);
		submit_step("a", p, 0, TENSORS, NULL, r);
		submit_step("b", p, TENSORS, 2 * TENSORS, set, r);
		for (int t = 0; t < 2 * TENSORS; t++)
			CHECK(!berth_wait_stream(r[t], stream, -1), "wait_stream");
		for (int t = 0; t < 2 * TENSORS; t++) {
			if (t & 1)
				halve(p[t]);
			check_sum(p[t], t, step);
		}
		for (int t = 0; t < 2 * TENSORS; t++)
			CHECK(!berth_wait(r[t], -1), "wait");
	}
	return 0;
}

/* Arrays of one call on two streams, of which one is late: each has its own mark. */
static int run_streams(void)
{
	enum { MANY = 4 };
	struct berth_desc d[MANY];
	berth_request *r[MANY];
	void *of[2] = { stream };

	cuStreamCreate(&of[1], CU_STREAM_NON_BLOCKING);
	for (int step = 0; step < STEPS; step++) {
		const bool each = step % 2;
		const int n = each ? MANY : 1;

		for (int t = 0; t < MANY; t++) {
			stream = of[t / 2];
			if (t == 2)
				pause_stream(20);
			d[t] = allreduce(standin_alloc(BYTES));
			put(d[t].out, make_here(), t, step);
		}
		CHECK(!(each ? berth_submit_each : berth_submit)(d, MANY, r), "submit");
		for (int i = 0; i < n; i++)
			CHECK(!berth_wait(r[i], -1), "wait");
		for (int t = 0; t < MANY; t++)
			check_sum(d[t].out, t, step);
	}
	return 0;
}

/* Three sets of two ranks each.  What rank 0 has submitted to the first waits for rank
 * 1, which waits for rank 2, which waits for rank 0 in another set: the first may hold
 * up nothing. */
static int cross(void)
{
	const int of[3][2] = { { 0, 1 }, { 0, 2 }, { 1, 2 } };
	struct berth_desc d[3];
	berth_set *set[3];
	berth_request *r = NULL;

	for (int i = 0; i < 3; i++) {
		CHECK(!berth_set_add(of[i], 2, &set[i]), "add");
		d[i] = allreduce(standin_alloc(BYTES));
		d[i].set = set[i];
		d[i].name = "x";
		d[i].stream = BERTH_HOST_STREAM;
	}
	for (int step = 0; step < STEPS; step++) {
		if (rank == 1)
			CHECK(!berth_run(&d[2], -1, NULL), "1 and 2");
		if (rank < 2)
			CHECK(!berth_submit(&d[0], 1, &r), "0 and 1");
		if (rank == 0) /* it begins to wait for rank 1 */
			CHECK(berth_wait_stream(r, stream, 10) == BERTH_BUSY &&
				      berth_wait(r, 10) == BERTH_BUSY,
			      "rank 1 came");
		if (rank != 1)
			CHECK(!berth_run(&d[1], -1, NULL), "0 and 2");
		if (rank == 2)
			CHECK(!berth_run(&d[2], -1, NULL), "1 and 2");
		if (rank < 2)
			CHECK(!berth_wait(r, -1), "0 and 1");
	}
	return 0;
}

/* ---- errors ---- */

/* Another count, in host memory: both sides are told, and the set goes on. */
static int differ(void)
{
	static float host[COUNT];
	float *here = make_here();
	void *p = standin_alloc(BYTES);
	struct berth_desc d = allreduce(p);

	put(p, here, 0, 0);
	if (rank == 0) {
		d.in = d.out = host;
		d.count = COUNT - 1;
		d.memory = BERTH_HOST;
		d.stream = NULL;
	}
	d.name = "grad";
	CHECK(berth_run(&d, -1, NULL) == BERTH_MISMATCH, "host and device");
	CHECK(strstr(berth_last_error()->text, "rank 0 for allreduce \"grad\" of 2999 "
					       "f32, sum; rank"),
	      "the host's side");
	CHECK(strstr(berth_last_error()->text, "sum, in memory of a GPU"),
	      "the device's side");
	d = allreduce(p);
	CHECK(!berth_run(&d, -1, NULL), "after it");
	check_sum(p, 0, 0);
	return 0;
}

/* Both in one request. */
static int mix(void)
{
	float host[COUNT], *here = make_here();
	void *p = standin_alloc(BYTES);
	struct berth_desc d[2] = { allreduce(p), allreduce(host) };
	berth_request *r;

	d[1].memory = BERTH_ANYWHERE;
	d[1].stream = NULL;
	for (int step = 0; step < STEPS; step++) {
		put(p, here, 0, step);
		for (int i = 0; i < COUNT; i++)
			host[i] = value(rank, 1, step, i);
		CHECK(!berth_submit(d, 2, &r), "submit");
		CHECK(!berth_wait(r, -1), "wait");
		check_sum(p, 0, step);
		for (int i = 0; i < COUNT; i++)
			CHECK(host[i] == sum(1, step, i), "on the host");
	}
	return 0;
}

static int refused(void)
{
	struct berth_desc d = allreduce(standin_alloc(BYTES));

	for (int i = 0; i < 2; i++)
		CHECK(berth_run(&d, -1, NULL) == BERTH_UNSUPPORTED, "one GPU twice");
	CHECK(strstr(berth_last_error()->text, "ranks 0 and 1 share GPU 0000:17:00.0"),
	      "the text");
	d.op = BERTH_ADASUM;
	CHECK(berth_run(&d, -1, NULL) == BERTH_UNSUPPORTED, "Adasum");
	return 0;
}

/* NCCL can't, so it goes by the host, beside what NCCL does. */
static int odd(void)
{
	static const double half = 0.5;
	float *here = make_here();
	void *p = standin_alloc(BYTES);
	struct berth_desc d = allreduce(p);
	const unsigned most = ~0u >> 1;
	uint32_t *words = (uint32_t *)here;

	for (int step = 0; step < STEPS; step++) {
		d = allreduce(p);
		put(p, here, 0, step);
		CHECK(!berth_run(&d, -1, NULL), "a sum");
		check_sum(p, 0, step);
		d.type = step % 2 ? BERTH_U32 : BERTH_I32;
		d.op = step % 2 ? BERTH_BXOR : BERTH_SUM;
		d.prescale = step % 2 ? NULL : &half;
		for (int i = 0; i < COUNT; i++)
			words[i] = (uint32_t)(4 * i + 2 * rank);
		standin_copy(p, here, BYTES, stream);
		CHECK(!berth_run(&d, -1, NULL), "of integers");
		standin_copy(here, p, BYTES, stream);
		cuStreamSynchronize(stream);
		for (int i = 0; i < COUNT; i++) {
			uint32_t is = 0;

			for (int r = 0; r < size; r++)
				is = step % 2 ? is ^ (uint32_t)(4 * i + 2 * r)
					      : is + (uint32_t)(2 * i + r);
			CHECK(words[i] == is && is < most, "element %d: %u, not %u", i,
			      words[i], is);
		}
	}
	return 0;
}

/* It says how the arrays go. */
static int told(void)
{
	struct berth_desc d = allreduce(standin_alloc(BYTES));
	char text[4096];

	berth_algorithms(text, sizeof text);
	CHECK(!strstr(text, "GPU"), "before the first: %s", text);
	CHECK(!berth_run(&d, -1, NULL), "the first");
	CHECK(berth_algorithms(text, sizeof text) == strlen(text) &&
		      text[strlen(text) - 1] == '\n',
	      "a line: %s", text);
	if (rank == 0)
		printf("%s", strstr(text, "arrays in GPU memory"));
	return 0;
}

/* All ranks give one gradient, and its Adasum is itself. */
static int adasum(void)
{
	enum { MANY = 1 << 20 }; /* some steps of copies */
	float *here;
	void *p = standin_alloc(MANY * 4);
	struct berth_desc d = allreduce(p);

	cuMemHostAlloc((void **)&here, MANY * 4, 0);
	for (int i = 0; i < MANY; i++)
		here[i] = (float)(i % 1000);
	standin_copy(p, here, MANY * 4, stream);
	d.op = BERTH_ADASUM;
	d.count = MANY;
	CHECK(!berth_run(&d, -1, NULL), "Adasum");
	memset(here, 0, MANY * 4);
	standin_copy(here, p, MANY * 4, stream);
	cuStreamSynchronize(stream);
	for (int i = 0; i < MANY; i++)
		CHECK(fabsf(here[i] - (float)(i % 1000)) < 1e-3f, "element %d: %g", i,
		      (double)here[i]);
	cuMemFreeHost(here);
	return 0;
}

static int by_size(const void *a, const void *b)
{
	const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

/* While a large array goes by the host, another set waits for nothing. */
static int large(void)
{
	enum { MANY = 256 << 20, SMALL = 200 };
	void *p = standin_alloc(MANY);
	struct berth_desc d = allreduce(p);
	float one = 1;
	berth_request *r;
	berth_set *set;
	uint64_t ns[SMALL];
	unsigned during = 0;

	CHECK(!berth_set_split(NULL, 0, rank, &set), "split");
	d.count = MANY / 4;
	d.name = "large";
	CHECK(!berth_submit(&d, 1, &r), "submit");
	for (unsigned n = 0; n < SMALL; n++) {
		struct berth_desc small = allreduce(&one);
		const uint64_t begun_ns = clock_ns();
		berth_request *other;

		small.memory = BERTH_HOST;
		small.stream = NULL;
		small.set = set;
		small.count = 1;
		CHECK(!berth_submit(&small, 1, &other), "submit");
		while (berth_poll(other) ==
		       BERTH_BUSY) /* the thread of all sets does it */
			sched_yield();
		ns[n] = clock_ns() - begun_ns;
		CHECK(!berth_wait(other, -1), "wait");
		during += berth_poll(r) == BERTH_BUSY;
	}
	CHECK(!berth_wait(r, -1), "wait");
	qsort(ns, SMALL, sizeof *ns, by_size);
	if (rank == 0)
		printf("beside %u of %d operations of another set, which took %lu us, "
		       "one of ten %lu us, %lu us at most\n",
		       during, SMALL, (unsigned long)ns[SMALL / 2] / 1000,
		       (unsigned long)ns[SMALL * 9 / 10] / 1000,
		       (unsigned long)ns[SMALL - 1] / 1000);
	return 0;
}

/* BERTH_DEVICE=nccl-only: all ranks come to the same, and go on. */
static int lack(void)
{
	static const double half = 0.5;
	void *p = standin_alloc(BYTES);
	struct berth_desc d = allreduce(p);

	d.type = BERTH_U16;
	CHECK(berth_run(&d, -1, NULL) == BERTH_UNSUPPORTED, "of u16");
	CHECK(strstr(berth_last_error()->text, "does not reduce that type"), "text");
	d.type = BERTH_I32;
	d.op = BERTH_BXOR;
	CHECK(berth_run(&d, -1, NULL) == BERTH_UNSUPPORTED, "bxor");
	CHECK(strstr(berth_last_error()->text, "no such reduction"), "the text");
	d.op = BERTH_SUM;
	d.prescale = &half;
	CHECK(berth_run(&d, -1, NULL) == BERTH_UNSUPPORTED, "a scaled i32");
	CHECK(strstr(berth_last_error()->text, "only floats are scaled"), "the text");
	d = allreduce(p);
	CHECK(!berth_run(&d, -1, NULL), "a sum");
	return 0;
}

/* STANDIN_DRIVER says so. */
static int too_old(void)
{
	struct berth_desc d = allreduce(standin_alloc(BYTES));

	CHECK(berth_run(&d, -1, NULL) == BERTH_UNSUPPORTED, "a driver without calls");
	CHECK(strstr(berth_last_error()->text,
		     "rank 0 has no device for it: the NVIDIA driver is older than "
		     "CUDA 11.4"),
	      "the text");
	return 0;
}

/* Rank 0 has another NCCL. */
static int versions(void)
{
	struct berth_desc d = allreduce(standin_alloc(BYTES));

	if (rank == 0)
		setenv("STANDIN_NCCL", "22809", 1);
	CHECK(berth_run(&d, -1, NULL) == BERTH_UNSUPPORTED, "two versions");
	CHECK(strstr(berth_last_error()->text, "rank 0 has NCCL 2.28.9, rank 1 has "
					       "2.18.0"),
	      "the text");
	return 0;
}

/* Arrays of which NCCL can't have both as they lie, from two sets in turn. */
static int in_place(void)
{
	berth_set *set;

	CHECK(!berth_set_split(NULL, 0, rank, &set), "split");
	for (int step = 0; step < STEPS; step++) {
		float *here = make_here(), *there = standin_alloc(BYTES * (size_t)size);
		struct berth_desc d = allreduce(there);

		for (int i = 0; i < COUNT; i++)
			here[i] = value(rank, 0, step, i);
		standin_copy(there, here, BYTES, stream);
		d.kind = BERTH_ALLGATHER;
		d.set = step % 2 ? set : NULL;
		CHECK(!berth_run(&d, -1, NULL), "allgather");
		for (int r = 0; r < size; r++) {
			standin_copy(here, there + r * COUNT, BYTES, stream);
			cuStreamSynchronize(stream);
			for (int i = 0; i < COUNT; i++)
				CHECK(here[i] == value(r, 0, step, i),
				      "element %d of rank %d", i, r);
		}
	}
	return 0;
}

/* Beside rank 0, which has no data: zeros are added for it. */
static void sum_without_first(float *there, float *here, int step)
{
	struct berth_desc d = allreduce(there);

	put(there, here, 0, step);
	CHECK(!berth_run(&d, -1, NULL), "a sum");
	standin_copy(here, there, BYTES, stream);
	cuStreamSynchronize(stream);
	for (int i = 0; i < COUNT; i++)
		CHECK(here[i] == sum(0, step, i) - value(0, 0, step, i),
		      "step %d element %d: %g", step, i, (double)here[i]);
}

/* The product has a one of 8 bytes, which no word of 4 bytes repeats. */
static void multiply_without_first(void *there, double *here)
{
	struct berth_desc d = allreduce(there);
	double product = 1;

	d.type = BERTH_F64;
	d.op = BERTH_PRODUCT;
	d.count = DOUBLES;
	for (int i = 0; i < DOUBLES; i++)
		here[i] = 3;
	for (int r = 1; r < size; r++)
		product *= 3;
	standin_copy(there, here, BYTES, stream);
	CHECK(!berth_run(&d, -1, NULL), "a product");
	standin_copy(here, there, BYTES, stream);
	cuStreamSynchronize(stream);
	for (int i = 0; i < DOUBLES; i++)
		CHECK(here[i] == product, "element %d: %g", i, here[i]);
}

static bool only_nccl(void)
{
	const char *way = getenv("BERTH_DEVICE");

	return way && !strcmp(way, "nccl-only");
}

/* A request has three operations, of which NCCL can't do the second: all ranks go on
 * behind it. */
static void refuse_the_second(void *const there[3])
{
	struct berth_desc d[3] = { allreduce(there[0]), allreduce(there[1]),
				   allreduce(there[2]) };
	berth_request *r;

	d[1].type = BERTH_U16;
	CHECK(!berth_submit(d, 3, &r), "submit");
	CHECK(berth_wait(r, -1) == (only_nccl() ? BERTH_UNSUPPORTED : BERTH_OK),
	      "of u16");
}

static int join(void)
{
	float *there = standin_alloc(BYTES);
	float *here = make_here();
	void *more_here = make_here();
	void *const more[] = { standin_alloc(BYTES), standin_alloc(BYTES),
			       standin_alloc(BYTES) };
	struct berth_desc d = allreduce(there), other = d;
	int last;

	other.kind = BERTH_BROADCAST;
	for (int step = 0; rank && step < 3; step++) {
		CHECK(berth_run(&other, -1, NULL) == BERTH_STATE, "a broadcast");
		refuse_the_second(more);
		sum_without_first(there, here, step);
		multiply_without_first(more[0], more_here);
	}
	CHECK(!berth_join(NULL, &last), "join");
	CHECK(!berth_run(&d, -1, NULL), "after it");
	return 0;
}

/* A communicator that fails on rank 0: an error there, and the end of the set.  Rank 0
 * stays until the others have heard why: who has left is a lost peer. */
static int fail(void)
{
	struct berth_desc d = allreduce(standin_alloc(BYTES));
	berth_result rc = BERTH_OK;

	d.stream = BERTH_HOST_STREAM;
	for (int i = 0; !rc && i < 5; i++)
		rc = berth_run(&d, -1, NULL);
	if (rank)
		CHECK(rc == BERTH_ABORTED, "%s", berth_result_text(rc));
	else
		CHECK(rc == BERTH_SYSTEM && strstr(berth_last_error()->text,
						   "the stand-in was told to fail"),
		      "%s", berth_result_text(rc));
	CHECK(berth_run(&d, -1, NULL), "the set has ended");
	pthread_barrier_wait(&own_ranks->barrier);
	return 0;
}

/* ---- ranks that do not come ---- */

/* The last rank dies: while it launches nothing, or when its kernel hangs. */
static int die(bool in_kernel, bool blocks)
{
	void *p = standin_alloc(BYTES);
	struct berth_desc d = allreduce(p);
	berth_request *r;
	berth_result rc;

	CHECK(!berth_run(&d, -1, NULL), "the first");
	cuStreamSynchronize(stream);
	if (rank == size - 1) {
		pause_stream(SOON_MS);
		if (in_kernel)
			CHECK(!berth_submit(&d, 1, &r), "submit");
		usleep(300000);
		raise(SIGKILL);
	}
	d.stream = BERTH_HOST_STREAM;
	if (blocks) {
		rc = berth_run(&d, -1, NULL);
	} else {
		CHECK(!berth_submit(&d, 1, &r), "submit");
		rc = berth_wait(r, -1);
	}
	CHECK(rc == (standin_makes("abort-hangs") ? BERTH_SYSTEM : BERTH_PEER_LOST),
	      "%s", berth_result_text(rc));
	CHECK(berth_last_error()->nmissing == 1 &&
		      berth_last_error()->missing[0] == size - 1,
	      "who is missing");
	d.memory = BERTH_HOST;
	d.in = d.out = &(float){ 0 };
	d.count = 1;
	CHECK(berth_run(&d, -1, NULL) == BERTH_PEER_LOST, "on the host");
	return 0;
}

/* In the middle of the first operation, when the others make their communicators. */
static int die_joining(void)
{
	struct berth_desc d = allreduce(standin_alloc(BYTES));

	setenv("STANDIN_MISTAKE", "die-joining", 1);
	CHECK(berth_run(&d, -1, NULL) == BERTH_PEER_LOST, "the first");
	CHECK(berth_last_error()->missing[0] == size - 1, "who is missing");
	return 0;
}

/* After all have agreed: the first launch of the others waits for it. */
static int die_launching(void)
{
	struct berth_desc d = allreduce(standin_alloc(BYTES));

	setenv("STANDIN_MISTAKE", "die-launching", 1);
	d.stream = BERTH_HOST_STREAM;
	CHECK(berth_run(&d, -1, NULL) == BERTH_PEER_LOST, "the first");
	CHECK(berth_last_error()->missing[0] == size - 1, "who is missing");
	return 0;
}

static int die_before(void)
{
	return die(false, true);
}

static int die_in_kernel(void)
{
	return die(true, true);
}

static int die_submitted(void)
{
	return die(true, false);
}

/* Its stream stands still for longer than there is time. */
static int late_stream(void)
{
	struct berth_desc d = allreduce(standin_alloc(BYTES));
	berth_result rc;

	CHECK(!berth_run(&d, -1, NULL), "the first");
	cuStreamSynchronize(stream);
	if (rank == 0)
		pause_stream(slow_s(1500));
	d.timeout_ms = 500;
	if (rank)
		d.stream = BERTH_HOST_STREAM;
	rc = berth_run(&d, -1, NULL);
	if (rank)
		CHECK(rc == BERTH_TIMEOUT, "%s", berth_result_text(rc));
	cuStreamSynchronize(stream);
	usleep(slow_s(1000000)); /* for the others to be out of time, too */
	CHECK(berth_run(&d, -1, NULL), "the set has ended");
	return 0;
}

/* The stream has work that takes longer than an operation may. */
static int busy(void)
{
	float *here = make_here();
	void *p = standin_alloc(BYTES);
	struct berth_desc d = allreduce(p);
	berth_request *r;

	/* joining may wait for a device */
	CHECK(!berth_run(&d, -1, NULL), "the first");
	cuStreamSynchronize(stream);
	put(p, here, 0, 0);
	pause_stream(1500);
	d.timeout_ms = 500;
	CHECK(!berth_submit(&d, 1, &r), "submit");
	CHECK(!berth_wait(r, -1), "its time begins when its stream is there");
	check_sum(p, 0, 0);
	return 0;
}

/* Rank 0 leaves a set, and the others do it later: nobody waits. */
static int remove_set(void)
{
	struct berth_desc d = allreduce(standin_alloc(BYTES));
	berth_set *set;

	CHECK(!berth_set_split(NULL, 0, rank, &set), "split");
	d.set = set;
	CHECK(!berth_run(&d, -1, NULL), "the first");
	cuStreamSynchronize(stream);
	d.set = NULL;
	d.timeout_ms = 3000;
	if (rank == 0)
		CHECK(!berth_set_remove(set), "remove");
	CHECK(!berth_run(&d, -1, NULL), "another set");
	cuStreamSynchronize(stream);
	if (rank)
		CHECK(!berth_set_remove(set), "remove");
	return 0;
}

static int end_set(bool aborts)
{
	struct berth_desc d = allreduce(standin_alloc(BYTES));
	berth_request *r;
	berth_set *set;
	berth_result rc;

	CHECK(!berth_set_split(NULL, 0, rank, &set), "split");
	d.set = set;
	CHECK(!berth_run(&d, -1, NULL), "the first");
	cuStreamSynchronize(stream);
	if (rank == 0)
		pause_stream(3000); /* who leaves waits for 1 s */
	CHECK(!berth_submit(&d, 1, &r), "submit");
	usleep(100000);
	if (rank == 0 && aborts)
		CHECK(!berth_set_abort(set, "enough"), "abort");
	else if (rank == 0)
		CHECK(!berth_set_remove(set), "remove");
	rc = berth_wait(r, -1);
	CHECK(rc == BERTH_ABORTED, "%s", berth_result_text(rc));
	CHECK(!aborts || strstr(berth_last_error()->text, "rank 0 aborted the set"),
	      "the text");
	d.set = NULL;
	d.stream = BERTH_HOST_STREAM;
	CHECK(!berth_run(&d, -1, NULL), "another set");
	return 0;
}

static int abort_set(void)
{
	return end_set(true);
}

static int leave_set(void)
{
	return end_set(false);
}

/* The wait of a stream ends, also if the library ends meanwhile. */
static int shut_down(void)
{
	float *here = make_here();
	void *p = standin_alloc(BYTES);
	struct berth_desc d = allreduce(p);

	for (int step = 0; step < 4; step++) {
		put(p, here, 0, step);
		pause_stream(20);
		CHECK(!berth_run(&d, -1, NULL), "run");
		berth_shutdown();
		check_sum(p, 0, step);
		begin_library();
	}
	return 0;
}

static void meet_others(void)
{
	pthread_barrier_wait(&own_ranks->barrier);
}

/* Rank 0 leaves with what all have begun: it is done, as others have been told. */
static void leave_begun(void)
{
	void *p = standin_alloc(BYTES);
	struct berth_desc d = allreduce(p);
	berth_request *r;

	put(p, make_here(), 0, 0);
	if (rank) {
		pause_stream(500);
		CHECK(!berth_run(&d, -1, NULL), "run");
		meet_others();
	} else {
		CHECK(!berth_submit(&d, 1, &r), "submit");
		meet_others();
		usleep(100000);
		berth_shutdown();
		CHECK(!berth_wait(r, -1), "what has begun");
	}
	check_sum(p, 0, 0);
	meet_others();
	if (rank)
		berth_shutdown();
	begin_library();
}

/* It leaves while it waits for the others, who come then.  They may be told that it has
 * begun, but their streams go on. */
static void leave_waiting(void)
{
	struct berth_desc d = allreduce(standin_alloc(BYTES));
	berth_request *r;
	berth_result rc;

	CHECK(!berth_run(&d, -1, NULL), "the first");
	cuStreamSynchronize(stream);
	if (rank == 0) {
		CHECK(!berth_submit(&d, 1, &r), "submit");
		usleep(100000);
		berth_shutdown();
		rc = berth_wait(r, -1);
		CHECK(rc == BERTH_ABORTED, "%s", berth_result_text(rc));
	}
	meet_others();
	if (rank) {
		rc = berth_run(&d, -1, NULL);
		CHECK(!rc || rc == BERTH_ABORTED || rc == BERTH_PEER_LOST, "%s",
		      berth_result_text(rc));
		cuStreamSynchronize(stream);
		berth_shutdown();
	}
	begin_library();
}

/* Rank 0 leaves with a work in each of two sets, the second one behind the first one on
 * its device.  It waits for neither before it has given up the other, whichever comes
 * first: rank 1 comes much later. */
static int leave_two(void)
{
	berth_request *r[2];
	berth_set *set;

	for (int first = 0; first < 2; first++) {
		struct berth_desc d = allreduce(standin_alloc(BYTES));
		uint64_t begun_ns;

		CHECK(!berth_set_split(NULL, 0, rank, &set), "split");
		for (int i = 0; i < 2; i++) {
			d.set = i ? set : NULL;
			CHECK(!berth_run(&d, -1, NULL), "the first");
		}
		cuStreamSynchronize(stream);
		if (rank)
			pause_stream(slow_s(4000));
		for (int i = 0; i < 2; i++) {
			d.set = i == first ? set : NULL;
			CHECK(!berth_submit(&d, 1, &r[i]), "submit");
			CHECK(berth_wait(r[i], 100) == BERTH_BUSY, "it waits");
		}
		begun_ns = clock_ns();
		if (rank == 0)
			berth_shutdown();
		CHECK(clock_ns() - begun_ns < slow_s(3) * 1000000000ull, "it waited");
		for (int i = 0; i < 2; i++)
			CHECK(berth_wait(r[i], -1) != BERTH_BUSY, "wait");
		cuStreamSynchronize(stream);
		if (rank)
			berth_shutdown();
		meet_others();
		begin_library();
	}
	return 0;
}

static int part(void)
{
	leave_begun();
	leave_waiting();
	return 0;
}

/* ---- how long ---- */

/* From the last rank's call until the device gets the work: what ranks agree on is in
 * between.  It prints the median, and what the fastest tenth needs. */
static int agree(void)
{
	enum { TIMES = 2001 };
	static uint64_t ns[TIMES];
	struct berth_desc d = allreduce(standin_alloc(BYTES));

	d.stream = BERTH_HOST_STREAM;
	CHECK(!berth_run(&d, -1, NULL), "the first");
	for (int i = 0; i < TIMES; i++) {
		uint64_t last_ns = 0, begun_ns;

		pthread_barrier_wait(&own_ranks->barrier);
		begun_ns = clock_ns();
		memcpy(own_ranks->said[rank], &begun_ns, sizeof begun_ns);
		CHECK(!berth_run(&d, -1, NULL), "run");
		for (int r = 0; r < size; r++) {
			memcpy(&begun_ns, own_ranks->said[r], sizeof begun_ns);
			last_ns = begun_ns > last_ns ? begun_ns : last_ns;
		}
		ns[i] = standin_started_ns - last_ns;
	}
	qsort(ns, TIMES, sizeof *ns, by_size);
	if (rank == 0)
		printf("%lu ns, the fastest tenth %lu ns\n",
		       (unsigned long)ns[TIMES / 2], (unsigned long)ns[TIMES / 10]);
	return 0;
}

/* ---- which ---- */

static const struct {
	const char *name;
	int (*run)(void);
	bool dies;
} cases[] = {
	{ "steps", run_steps, false },
	{ "streams", run_streams, false },
	{ "cross", cross, false },
	{ "differ", differ, false },
	{ "mix", mix, false },
	{ "mixed", mixed, false },
	{ "mixed-refused", mixed_refused, false },
	{ "die-mixed-there", die_mixed_there, true },
	{ "die-mixed-here", die_mixed_here, true },
	{ "time-out-mixed", time_out_mixed, false },
	{ "time-out-staged", time_out_staged, false },
	{ "messages", messages, false },
	{ "messages-late", messages_late, false },
	{ "messages-refused", messages_refused, false },
	{ "refused", refused, false },
	{ "join", join, false },
	{ "fail", fail, false },
	{ "die-before", die_before, true },
	{ "die-in-kernel", die_in_kernel, true },
	{ "die-submitted", die_submitted, true },
	{ "time-out", late_stream, false },
	{ "lacks", lack, false },
	{ "odd", odd, false },
	{ "adasum", adasum, false },
	{ "told", told, false },
	{ "large", large, false },
	{ "die-joining", die_joining, true },
	{ "die-launching", die_launching, true },
	{ "too-old", too_old, false },
	{ "versions", versions, false },
	{ "in-place", in_place, false },
	{ "busy", busy, false },
	{ "remove", remove_set, false },
	{ "agree", agree, false },
	{ "abort", abort_set, false },
	{ "leave", leave_set, false },
	{ "shut-down", shut_down, false },
	{ "part", part, false },
	{ "leave-two", leave_two, false },
	{ "waits", waits, false },
	{ "cycles", cycles, false },
};

static int run_rank(int own, void *ctx)
{
	const size_t *which = ctx;
	int rc;

	rank = own;
	standin_register();
	standin_enter();
	cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
	begin_library();
	rc = cases[*which].run();
	berth_shutdown();
	return rc;
}

int main(int argc, char **argv)
{
	int at = 1;

	for (; at + 1 < argc && argv[at][0] == '-'; at += 2)
		*(!strcmp(argv[at], "-np")      ? &size
		  : !strcmp(argv[at], "-hosts") ? &hosts
						: &times) = atoi(argv[at + 1]);
	for (size_t i = 0; at < argc && i < sizeof cases / sizeof *cases; i++)
		if (!strcmp(argv[at], cases[i].name))
			return (cases[i].dies ? own_ranks_run_dying
					      : own_ranks_run)(size, run_rank, &i);
	return 2;
}
