/* device.c - what the library's own code takes for operations on the memory of a GPU,
 * in us.  There need not be a GPU: LD_LIBRARY_PATH names the stand-in (tests/standin).
 *
 *     LD_LIBRARY_PATH=build/standin build/bench/device RANKS [ROUNDS]
 *     build/bench/device look         where there is no libcuda
 *
 * The ranks are children of this process, on one host.  Streams of the stand-in are
 * threads, and it launches what NCCL does from a thread of its own.  None of its time
 * is in a figure: calls that do more than a few instructions there are timed, and left
 * out with the time of the clock.  Calls of contexts and captures remain, which return
 * at once there.  An operation has these parts, of rank 0:
 *   agree    from the last rank's call until the back end's begin() is entered.  Where
 *            each array is submitted by a call of its own, it is the last call.
 *   start    the back end's begin(), and the begun() that finds the launch done
 *   end      from the test that finds the work done, of any thread, until berth_run(),
 *            or the last berth_wait(), has returned
 * The time from begin() to that test is left out: the device has the work, and the
 * library looks for its end.  Requests are polled for that, as a thread that waits does
 * it for its first 50 us.
 *
 * Each rank has one core, and each calls last in turn.  The other one spins then,
 * unless another program takes its core.  A submission that completes a bucket wakes
 * the library's thread, which takes 2 us there.  (On a core that was idle, of a virtual
 * machine, it took 15.) */
#include <dlfcn.h>
#include <math.h>

#include "lib/backend/cuda.h"
#include "lib/backend/devices.h"
#include "lib/backend/nccl.h"
#include "lib/base/clock.h"
#include "lib/base/wait.h"
#include "lib/berth.h"
#include "tests/helpers/own_ranks.h"
#include "tests/helpers/rank_check.h"

enum {
	TENSORS = 64,
	BYTES = 16 << 10,
	LARGE_BYTES = 1 << 20,
	ROUNDS = 500,
	ROUNDS_MOST = 10000,
	WARM = 50, /* rounds that do not count: the plan learns */
	PROBES = 300,
	LOOKERS = 101,    /* processes */
	AFTER_NS = 50000, /* longer than a step's submissions; ranks spin for longer */
	NON_BLOCKING = 1
};

enum part { CALLS, AGREE, START, END, ALL, PARTS };

static int rank, ranks = 1, rounds = ROUNDS;
static void *stream, *other_stream, *tensor[TENSORS];
static _Atomic int *come; /* calls of ranks that are not the last, of all ranks */

static int by_value(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* ---- calls of CUDA and NCCL ---- */

/* Calls of this thread. */
struct outside {
	uint64_t ns;
	unsigned calls;
};

static _Thread_local struct outside outside;
static double clock_cost_ns; /* of a call that is timed, in what is around it */

/* X(name, parameters, arguments), of those that are timed. */
#define TIMED_CALLS(X)                                                                 \
	X(cuEventRecord, (void *event, void *s), (event, s))                           \
	X(cuEventQuery, (void *event), (event))                                        \
	X(cuStreamWaitEvent, (void *s, void *event, unsigned flags),                   \
	  (s, event, flags))                                                           \
	X(cuLaunchKernel,                                                              \
	  (void *f, unsigned x, unsigned y, unsigned z, unsigned bx, unsigned by,      \
	   unsigned bz, unsigned shared, void *s, void **args, void **extra),          \
	  (f, x, y, z, bx, by, bz, shared, s, args, extra))                            \
	X(ncclAllReduce,                                                               \
	  (const void *in, void *out, size_t n, int type, int op, void *comm,          \
	   void *s),                                                                   \
	  (in, out, n, type, op, comm, s))                                             \
	X(ncclGroupEnd, (void), ())                                                    \
	X(ncclCommGetAsyncError, (void *comm, int *error), (comm, error))              \
	X(probe, (void), ())

#define TIMED(name, parameters, arguments)                                             \
	static int(*real_##name) parameters;                                           \
	static int timed_##name parameters                                             \
	{                                                                              \
		const uint64_t begun_ns = clock_ns();                                  \
		const int rc = real_##name arguments;                                  \
                                                                                       \
		outside.ns += clock_ns() - begun_ns;                                   \
		outside.calls++;                                                       \
		return rc;                                                             \
	}
TIMED_CALLS(TIMED)

static const struct timed {
	const char *name;
	void *real, *timed;
} timed[] = {
#define ROW(name, parameters, arguments)                                               \
	{ #name, (void *)&real_##name, (void *)timed_##name },
	TIMED_CALLS(ROW)
};

/* In the place of CALL, which is NAME. */
static void *time_call(const char *name, void *call)
{
	for (size_t i = 0; call && i < sizeof timed / sizeof *timed; i++)
		if (!strcmp(timed[i].name, name)) {
			*(void **)timed[i].real = call;
			return timed[i].timed;
		}
	return call;
}

static int (*real_get)(const char *name, void **call, int version, uint64_t flags,
		       int *status);

static int timed_get(const char *name, void **call, int version, uint64_t flags,
		     int *status)
{
	const int rc = real_get(name, call, version, flags, status);

	if (!rc)
		*call = time_call(name, *call);
	return rc;
}

/* In the library the linker puts these in the place of dlsym() and dlopen(). */
void *__real_dlsym(void *lib, const char *name);
void *__wrap_dlsym(void *lib, const char *name);
void *__real_dlopen(const char *name, int flags);
void *__wrap_dlopen(const char *name, int flags);

void *__wrap_dlsym(void *lib, const char *name)
{
	void *call = __real_dlsym(lib, name);

	if (strcmp(name, "cuGetProcAddress_v2") || !call)
		return time_call(name, call);
	*(void **)&real_get = call;
	return (void *)timed_get;
}

static struct search {
	double n, us;
} search; /* for libcuda */

void *__wrap_dlopen(const char *name, int flags)
{
	const uint64_t begun_ns = clock_ns();
	void *lib = __real_dlopen(name, flags);

	if (name && !strcmp(name, "libcuda.so.1")) {
		search.us += (double)(clock_ns() - begun_ns) / 1000;
		search.n++;
	}
	return lib;
}

/* ---- the library's time ---- */

struct moment {
	uint64_t ns;
	struct outside outside;
};

static struct moment moment_now(void)
{
	return (struct moment){ clock_ns(), outside };
}

/* In calls that are timed, of this thread, since M. */
static double outside_ns_since(const struct moment *m)
{
	return (double)(outside.ns - m->outside.ns) +
	       clock_cost_ns * (outside.calls - m->outside.calls);
}

/* The time of the library's own code in this thread, since M. */
static double own_us(const struct moment *m)
{
	return ((double)(clock_ns() - m->ns) - outside_ns_since(m)) / 1000;
}

static int do_nothing(void)
{
	return 0;
}

/* The least of many, of which others may have been held up. */
static void measure_clock(void)
{
	double least_ns = INFINITY;

	real_probe = do_nothing;
	clock_cost_ns = 0;
	for (int i = 0; i < PROBES; i++) {
		const struct moment m = moment_now();
		double ns;

		for (int k = 0; k < PROBES; k++)
			timed_probe();
		ns = own_us(&m) * 1000 / PROBES;
		least_ns = ns < least_ns ? ns : least_ns;
	}
	clock_cost_ns = least_ns;
}

/* The operation that goes on. */
static struct {
	unsigned begins, calls;
	uint64_t begin_ns, done_ns;
	double start_us;
	bool followed;
} seen;

static berth_result seen_begin(void *group, struct device_work *w)
{
	const struct moment m = moment_now();
	const berth_result rc = nccl_backend.begin(group, w);

	seen.begins++;
	seen.begin_ns = m.ns;
	seen.start_us = own_us(&m);
	seen.calls += outside.calls - m.outside.calls;
	return rc;
}

static berth_result seen_begun(void *group, struct device_work *w)
{
	const struct moment m = moment_now();
	const berth_result rc = nccl_backend.begun(group, w);

	if (rc == BERTH_BUSY)
		return rc;
	seen.start_us += own_us(&m);
	seen.calls += outside.calls - m.outside.calls;
	return rc;
}

static berth_result seen_test(void *group, struct device_work *w)
{
	const berth_result rc = nccl_backend.test(group, w);

	if (rc != BERTH_BUSY)
		seen.done_ns = clock_ns();
	return rc;
}

static berth_result seen_follow(void *group, struct device_work *w, void *s)
{
	seen.followed = true;
	return nccl_backend.follow(group, w, s);
}

/* ---- a rank ---- */

static void begin_library(void)
{
	const struct berth_bootstrap b = { .size = sizeof b,
					   .rank = rank,
					   .ranks = ranks,
					   .allgather = own_ranks_gather,
					   .ctx = &rank,
					   .host = "here" };
	const struct berth_config c = { .size = sizeof c, .bootstrap = &b };

	CHECK(!berth_init(&c), "berth_init");
}

/* As runner does it where there are no more cores than ranks. */
static void take_core(void)
{
	cpu_set_t all, own;
	int left = rank;

	CPU_ZERO(&own);
	if (sched_getaffinity(0, sizeof all, &all))
		return;
	for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
		if (CPU_ISSET(cpu, &all) && !left--)
			CPU_SET(cpu, &own);
	sched_setaffinity(0, sizeof own, &own);
}

static void begin_on_device(void)
{
	static struct device_backend backend;

	take_core();
	backend = nccl_backend;
	backend.begin = seen_begin;
	backend.begun = seen_begun;
	backend.test = seen_test;
	backend.follow = seen_follow;
	device_register(&backend);
	begin_library();
	for (int t = 0; t < TENSORS; t++) {
		tensor[t] = berth_alloc(BYTES, BERTH_CUDA, 0);
		CHECK(tensor[t], "berth_alloc");
	}
	CHECK(cuda_enter(0) &&
		      !cuda.cuStreamCreateWithPriority(&stream, NON_BLOCKING, 0) &&
		      !cuda.cuStreamCreateWithPriority(&other_stream, NON_BLOCKING, 0),
	      "streams");
	cuda_leave();
}

/* Rank LAST goes on when the others have called, and wait for it. */
static void take_turns(int last)
{
	static int all;
	uint64_t until_ns;

	pthread_barrier_wait(&own_ranks->barrier);
	all += ranks - 1;
	if (rank != last) {
		atomic_fetch_add(come, 1);
		return;
	}
	while (atomic_load(come) < all)
		sched_yield();
	for (until_ns = clock_ns() + AFTER_NS; clock_ns() < until_ns;)
		wait_pause();
}

static struct berth_desc allreduce(int t)
{
	return (struct berth_desc)BERTH_DESC(.kind = BERTH_ALLREDUCE, .type = BERTH_F32,
					     .in = tensor[t], .out = tensor[t],
					     .count = BYTES / sizeof(float),
					     .memory = BERTH_CUDA, .stream = stream);
}

/* The last of all ranks' CALLED_NS. */
static double last_call_ns(double called_ns)
{
	double last = 0, ns;

	memcpy(own_ranks->said[rank], &called_ns, sizeof called_ns);
	pthread_barrier_wait(&own_ranks->barrier);
	for (int r = 0; r < ranks; r++) {
		memcpy(&ns, own_ranks->said[r], sizeof ns);
		last = ns > last ? ns : last;
	}
	return last;
}

/* The parts of what is over now, and was called for at CALLED_NS. */
static void take_seen(double us[PARTS], double called_ns)
{
	const double over_ns = (double)clock_ns();

	us[AGREE] = ((double)seen.begin_ns - last_call_ns(called_ns)) / 1000;
	us[START] = seen.start_us;
	us[END] = (over_ns - (double)seen.done_ns) / 1000;
	us[ALL] = us[AGREE] + us[START] + us[END];
	us[CALLS] = seen.calls;
}

static void run_one(double us[PARTS])
{
	struct berth_desc d = allreduce(0);
	const double called_ns = (double)clock_ns();

	d.stream = BERTH_HOST_STREAM;
	CHECK(!berth_run(&d, -1, NULL), "run");
	take_seen(us, called_ns);
}

static int make_all(struct berth_desc *d)
{
	static char name[TENSORS][8];

	for (int t = 0; t < TENSORS; t++) {
		snprintf(name[t], sizeof name[t], "t%d", t);
		d[t] = allreduce(t);
		d[t].name = name[t];
	}
	return TENSORS;
}

/* Waits for the N of R, which a call of M completed: as if it had come later by as much
 * as it took for marks. */
static void finish_step(double us[PARTS], const struct moment *m, berth_request **r,
			int n)
{
	const double called_ns = (double)m->ns + outside_ns_since(m);

	seen.calls += outside.calls - m->outside.calls;
	/* this thread begins the bucket, and looks for its end */
	CHECK(!berth_wait_stream(r[0], stream, -1), "until it is launched");
	while (berth_poll(r[0]) == BERTH_BUSY)
		sched_yield();
	for (int i = 0; i < n; i++)
		CHECK(!berth_wait(r[i], -1), "wait");
	take_seen(us, called_ns);
}

static void submit_one_request(double us[PARTS])
{
	struct berth_desc d[TENSORS];
	const int n = make_all(d);
	const struct moment m = moment_now();
	berth_request *r;

	CHECK(!berth_submit(d, (size_t)n, &r), "submit");
	finish_step(us, &m, &r, 1);
}

static void submit_each(double us[PARTS])
{
	struct berth_desc d[TENSORS];
	const int n = make_all(d);
	const struct moment m = moment_now();
	berth_request *r[TENSORS];

	CHECK(!berth_submit_each(d, (size_t)n, r), "submit_each");
	finish_step(us, &m, r, n);
}

/* Returns the time of each call but the last, which completes the bucket. */
static double submit_alone(double us[PARTS])
{
	struct berth_desc d[TENSORS];
	const int n = make_all(d);
	const struct moment first = moment_now();
	berth_request *r[TENSORS];
	struct moment last;
	double each_us;

	for (int t = 0; t < n - 1; t++)
		CHECK(!berth_submit(&d[t], 1, &r[t]), "submit");
	each_us = own_us(&first) / (n - 1);
	last = moment_now();
	CHECK(!berth_submit(&d[n - 1], 1, &r[n - 1]), "the last");
	finish_step(us, &last, r, n);
	return each_us;
}

static void submit_last(double us[PARTS])
{
	submit_alone(us);
}

static void submit_others(double us[PARTS])
{
	const double each_us = submit_alone(us);

	us[CALLS] = us[AGREE] = us[START] = us[END] = NAN;
	us[ALL] = each_us;
}

/* A large operation: it still runs when it has been launched. */
static void wait_stream(double us[PARTS])
{
	static void *large;
	struct berth_desc d = allreduce(0);
	berth_request *r;
	struct moment m;

	for (int part = 0; part < PARTS; part++)
		us[part] = NAN;
	if (!large)
		large = berth_alloc(LARGE_BYTES, BERTH_CUDA, 0);
	CHECK(large, "berth_alloc");
	d.in = d.out = large;
	d.count = LARGE_BYTES / sizeof(float);
	CHECK(!berth_submit(&d, 1, &r), "submit");
	CHECK(!berth_wait_stream(r, stream, -1), "until it is launched");
	seen.followed = false;
	m = moment_now();
	CHECK(!berth_wait_stream(r, other_stream, -1), "wait_stream");
	if (seen.followed)
		us[ALL] = own_us(&m);
	CHECK(!berth_wait(r, -1), "wait");
}

/* ---- the table ---- */

static const struct row {
	const char *name;
	void (*once)(double us[PARTS]);
	double most_us[2]; /* of 1 rank, of 2 */
} rows[] = {
	{ "allreduce of 16 KiB, berth_run()", run_one, { 3, 5 } },
	{ "64 x 16 KiB, one berth_submit()", submit_one_request, { 20, 20 } },
	{ "64 x 16 KiB, berth_submit_each()", submit_each, { 20, 20 } },
	{ "64 x 16 KiB, the last of 64 requests", submit_last, { 20, 20 } },
	{ "each of the 63 berth_submit() before", submit_others, { 1, 1 } },
	{ "berth_wait_stream() of what runs", wait_stream, { 1, 1 } },
};

/* The value that PERCENT of those which are numbers do not exceed; NAN: there are none.
 */
static double within(const double *value, int n, int percent)
{
	static double sorted[ROUNDS_MOST];
	int k = 0;

	for (int i = 0; i < n; i++)
		if (!isnan(value[i]))
			sorted[k++] = value[i];
	qsort(sorted, (size_t)k, sizeof *sorted, by_value);
	return k ? sorted[k * percent / 100] : NAN;
}

static void print_us(double us)
{
	if (isnan(us))
		printf("%8s", "");
	else
		printf("%8.2f", us);
}

static void print_row(const char *name, double most_us, double us[PARTS][ROUNDS_MOST],
		      int n)
{
	const double middle = within(us[ALL], n, 50), calls = within(us[CALLS], n, 50);

	printf("%-38s", name);
	if (isnan(calls))
		printf("%7s", "");
	else
		printf("%7.0f", calls);
	for (int part = AGREE; part < PARTS; part++)
		print_us(within(us[part], n, 50));
	print_us(within(us[ALL], n, 10));
	printf("%9.0f  %s\n", most_us,
	       isnan(middle)       ? "not measured"
	       : middle <= most_us ? "met"
				   : "missed");
}

static void print_rows(const struct row *row, double us[][PARTS][ROUNDS_MOST],
		       const int *n)
{
	const double most_us = row->most_us[ranks > 1];

	print_row(row->name, most_us, us[0], n[0]);
	if (ranks > 1 && !isnan(within(us[0][AGREE], n[0], 50)))
		print_row("  where the other rank calls last", most_us, us[1], n[1]);
	if (n[0] + n[1] < rounds)
		printf("  (%d of %d rounds, in which it was one bucket)\n", n[0] + n[1],
		       rounds);
}

static int run_row(int own, void *ctx)
{
	static double us[2][PARTS][ROUNDS_MOST]; /* by the rank that calls last */
	const struct row *row = ctx;
	double once[PARTS];
	int n[2] = { 0 };

	rank = own;
	begin_on_device();
	for (int i = 0; i < WARM + rounds; i++) {
		const int last = i % ranks;

		seen.begins = seen.calls = 0;
		take_turns(last);
		row->once(once);
		if (i < WARM || seen.begins != 1)
			continue;
		for (int part = 0; part < PARTS; part++)
			us[last][part][n[last]] = once[part];
		n[last]++;
	}
	if (!rank)
		print_rows(row, us, n);
	CHECK(!berth_shutdown(), "shutdown");
	return 0;
}

static int measure_parts(void)
{
	int rc = 0;

	measure_clock();
	come = mmap(NULL, sizeof *come, PROT_READ | PROT_WRITE,
		    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (come == MAP_FAILED)
		return 1;
	printf("%-38s%7s%8s%8s%8s%8s%8s%9s\n", "", "calls", "agree", "start", "end",
	       "all", "tenth", "at most");
	for (size_t i = 0; !rc && i < sizeof rows / sizeof *rows; i++) {
		struct row row = rows[i];

		fflush(stdout); /* a child would print it, too */
		rc = own_ranks_run(ranks, run_row, &row);
	}
	return rc;
}

/* ---- the search for libcuda ---- */

enum look { AT_INIT, FIRST, LATER, LOOKS };

static void look_for(struct search *found, int n)
{
	static float x[1];
	struct berth_desc d =
		BERTH_DESC(.kind = BERTH_ALLREDUCE, .type = BERTH_F32, .in = x,
			   .out = x, .count = 1, .memory = BERTH_CUDA);

	search = (struct search){ 0 };
	for (int i = 0; i < n; i++)
		CHECK(berth_run(&d, -1, NULL), "this machine has libcuda");
	*found = (struct search){ search.n / n, search.us / n };
}

static int look_once(int own, void *ctx)
{
	enum { MANY = 10 };
	struct search found[LOOKS];

	(void)own;
	(void)ctx;
	begin_library();
	found[AT_INIT] = search;
	look_for(&found[FIRST], 1);
	look_for(&found[LATER], MANY);
	memcpy(own_ranks->said[0], found, sizeof found);
	return berth_shutdown() != BERTH_OK;
}

static int measure_looks(void)
{
	static const char *const name[LOOKS] = { "berth_init()",
						 "the first operation on a GPU",
						 "each later one" };
	static const double most_us[LOOKS] = { 100, 100, 1 };
	static double us[LOOKS][ROUNDS_MOST];
	struct search found[LOOKS];

	for (int i = 0; i < LOOKERS; i++) {
		if (own_ranks_run(1, look_once, NULL))
			return 1;
		memcpy(found, own_ranks->said[0], sizeof found);
		munmap(own_ranks, sizeof *own_ranks);
		for (int k = 0; k < LOOKS; k++)
			us[k][i] = found[k].us;
	}
	printf("%-38s%9s%9s%9s%9s\n", "", "searches", "us", "tenth", "at most");
	for (int k = 0; k < LOOKS; k++) {
		const double middle = within(us[k], LOOKERS, 50);

		printf("%-38s%9.1f%9.2f%9.2f%9.0f  %s\n", name[k], found[k].n, middle,
		       within(us[k], LOOKERS, 10), most_us[k],
		       middle <= most_us[k] ? "met" : "missed");
	}
	return 0;
}

int main(int argc, char **argv)
{
	const bool looks = argc == 2 && !strcmp(argv[1], "look");

	if (!looks) {
		ranks = argc > 1 ? (int)strtol(argv[1], NULL, 10) : 0;
		rounds = argc > 2 ? (int)strtol(argv[2], NULL, 10) : ROUNDS;
	}
	if (ranks < 1 || ranks > 2 || rounds < 1 || rounds > ROUNDS_MOST) {
		fprintf(stderr, "usage: device 1|2 [ROUNDS], device look\n");
		return 2;
	}
	/* the stand-in searches the environment in most of its calls */
	clearenv();
	setenv("STANDIN_DELAY_US", "0", 1);
	return looks ? measure_looks() : measure_parts();
}
