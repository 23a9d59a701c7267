/* failures.h - what goes wrong: arguments, ranks that call for different things, come
 * late, die or have no memory left. */
#ifndef BERTH_TESTS_FAILURES_H
#define BERTH_TESTS_FAILURES_H

#include <errno.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "tests/helpers/verify.h"
#include "tests/helpers/calls.h"

/* ---- errors ---- */

static void expect_sides(berth_result rc, const char *one, const char *other)
{
	const struct berth_error *e = berth_last_error();

	CHECK(rc == BERTH_MISMATCH, "no mismatch: %d", rc);
	CHECK(e->result == BERTH_MISMATCH && e->nmissing > 0, "the last error");
	CHECK(strstr(e->text, one) && strstr(e->text, other), "both sides: %s",
	      e->text);
}

/* The error says which of them differ. */
static void mismatched_group(bool odd)
{
	float x[3] = { 1, 1, 1 };
	struct berth_desc d[3];
	berth_request *r;

	for (int i = 0; i < 3; i++)
		d[i] = (struct berth_desc)BERTH_DESC(.name = i == 1 ? "second"
								    : "other",
						     .in = x + i, .out = x + i,
						     .count = 1, .type = BERTH_F32);
	d[1].op = odd ? BERTH_MAX : BERTH_SUM;
	FINE(call_submit(BERTH_ALLREDUCE, d, 3, &r));
	expect_sides(berth_wait(r, -1), "\"second\" of 1 f32, sum",
		     "\"second\" of 1 f32, max");
	CHECK(!strcmp(berth_last_error()->tensor, "second"), "the tensor");
}

/* Where a number is each rank's own it is no side, nor is a rank that has joined. */
static void mismatch_of_counts(float *x)
{
	uint64_t counts[256];
	struct berth_desc d = BERTH_DESC(.name = "v", .in = x, .out = x + 1000,
					 .type = BERTH_F32, .out_counts = counts);

	for (int i = 0; i < size; i++)
		counts[i] = 1 + (uint64_t)i;
	d.count = counts[rank];
	if (rank == size - 1)
		counts[0] = 5;
	expect_sides(call_allgather(&d), "ranks 0",
		     "allgather \"v\" of f32, with counts "
		     "that differ");
	d.count = rank ? 8 : 4;
	if (rank < size - 1 && size > 2) {
		expect_sides(call_allreduce(&d), "rank 0 for allreduce \"v\" of 4 f32",
			     "\"v\" of 8 f32");
		CHECK(strchr(berth_last_error()->text, ';') ==
			      strrchr(berth_last_error()->text, ';'),
		      "two sides: %s", berth_last_error()->text);
	}
	FINE(berth_join(NULL, NULL));
}

/* One rank removes a set in which the others do something: that ends, and when they
 * remove it, too, all is well. */
static void mismatch_of_removal(void)
{
	float x = 1;
	char by[64];
	berth_set *set;
	struct berth_desc d =
		BERTH_DESC(.in = &x, .out = &x, .count = 1, .type = BERTH_F32);

	FINE(berth_set_split(NULL, 0, 0, &set));
	d.set = set;
	/* over connections that are yet to be made, a rank that has heard of it already
	 * may be named */
	if (call_world().local_size == size)
		snprintf(by, sizeof by, "sum: rank %d left the set", size - 1);
	else
		snprintf(by, sizeof by, " left the set");
	for (int turn = 0; rank < size - 1 && turn < 3; turn++) {
		CHECK(call_allreduce(&d) == BERTH_ABORTED, "another rank removes it");
		CHECK(strstr(berth_last_error()->text, by), "by whom: %s",
		      berth_last_error()->text);
	}
	FINE(berth_set_remove(set));
}

static void mismatches(void)
{
	static float x[2000];
	berth_request *r;
	bool odd = rank == size - 1;

	if (size == 1)
		return;

	for (int turn = 0; turn < 5; turn++) {
		struct berth_desc d = BERTH_DESC(.name = "g", .in = x, .out = x,
						 .count = 1024, .type = BERTH_F32);

		d.count = turn == 0 && odd ? 1000 : 1024;
		d.type = turn == 1 && odd ? BERTH_I32 : BERTH_F32;
		d.name = turn == 2 && odd ? "h" : "g";
		d.op = turn == 3 && odd ? BERTH_MAX : BERTH_SUM;
		if (turn == 4 && odd)
			expect_sides(call_broadcast(&d), "broadcast", "allreduce");
		else
			expect_sides(call_allreduce(&d), "1024 f32",
				     turn == 0   ? "1000 f32"
				     : turn == 1 ? "1024 i32"
				     : turn == 2 ? "\"h\""
				     : turn == 3 ? "max"
						 : "broadcast");
		CHECK(sum_in(NULL, 1) == size, "it goes on");
		d.name = "async";
		if (turn == 2 || turn == 4)
			continue;
		FINE(call_submit(BERTH_ALLREDUCE, &d, 1, &r));
		expect_sides(berth_wait(r, -1), "1024 f32",
			     turn == 0   ? "1000 f32"
			     : turn == 1 ? "1024 i32"
					 : "max");
	}
	mismatched_group(odd);
	{
		uint64_t gives[256], gets[256];

		for (int i = 0; i < size; i++)
			gives[i] = gets[i] = 1;
		if (odd)
			gets[0] = 2;
		CHECK(call_alltoall(&(struct berth_desc)BERTH_DESC(
				      .in = x, .out = x + 1000, .count = (uint64_t)size,
				      .type = BERTH_F32, .in_counts = gives,
				      .out_counts = gets)) == BERTH_MISMATCH,
		      "alltoall's counts");
		CHECK(strstr(berth_last_error()->text, "say 1 for rank"), "which: %s",
		      berth_last_error()->text);
	}
	mismatch_of_counts(x);
	mismatch_of_removal();
	CHECK(sum_in(NULL, 1) == size, "it goes on");
}

/* Structs of a program that was built with another version. */
static void other_sizes(void)
{
	struct larger {
		struct berth_desc d;
		long more[3];
	} large[2];
	struct berth_desc small =
		BERTH_DESC(.kind = BERTH_ALLREDUCE, .type = BERTH_F32, .count = 1,
			   .timeout_ms = -77, .priority = -77, .memory = 77);
	struct {
		struct berth_config known;
		long more;
	} config = { .known.size = 3 };
	float x[2] = { 1, 2 };
	berth_request *r;

	memset(large, 0, sizeof large);
	for (int i = 0; i < 2; i++) {
		large[i].d =
			(struct berth_desc)BERTH_DESC(.kind = BERTH_ALLREDUCE,
						      .type = BERTH_F32, .in = x + i,
						      .out = x + i, .count = 1);
		large[i].d.size = sizeof large[i];
	}
	FINE(berth_submit(&large[0].d, 2, &r));
	FINE(berth_wait(r, -1));
	CHECK(x[0] == (float)size && x[1] == 2 * (float)size, "a later version's");
	large[0].more[2] = 1;
	CHECK(berth_run(&large[0].d, -1, NULL) == BERTH_UNSUPPORTED &&
		      berth_submit(&large[0].d, 2, &r) == BERTH_UNSUPPORTED &&
		      strstr(berth_last_error()->text, "does not know"),
	      "fields that are not known");
	large[0].more[2] = 0;
	large[1].d.size--;
	CHECK(berth_submit(&large[0].d, 2, &r) == BERTH_INVALID, "two sizes");
	small.size = offsetof(struct berth_desc, timeout_ms);
	small.in = small.out = x;
	FINE(call_allreduce(&small));
	CHECK(x[0] == (float)size * (float)size, "an earlier version's");
	small.size = 3;
	small.set = (berth_set *)&small; /* means nothing */
	CHECK(call_allreduce(&small) == BERTH_INVALID, "no version's");
	CHECK(call_submit(BERTH_ALLREDUCE, &small, 1, &r) == BERTH_INVALID,
	      "no version's");
	berth_shutdown();
	CHECK(berth_init(&config.known) == BERTH_INVALID, "a config of no version");
	config.known.size = sizeof config;
	config.more = 1;
	CHECK(berth_init(&config.known) == BERTH_UNSUPPORTED, "a later version's");
	FINE(berth_init(NULL));
}

/* Times that nobody lives to see, and ones that wrap where they are nanoseconds. */
static void long_times(void)
{
	static const int64_t ms[] = { INT64_MAX, INT64_MAX / 1000000 * 2,
				      18446744073710, -5, INT64_MIN };
	float x = 1;
	struct berth_desc d = BERTH_DESC(.name = "long", .in = &x, .out = &x,
					 .count = 1, .type = BERTH_F32);
	berth_request *r;

	for (size_t i = 0; i < sizeof ms / sizeof *ms; i++) {
		d.timeout_ms = ms[i];
		usleep(rank == size - 1 ? 5000 : 0); /* for which the others wait */
		FINE(call_allreduce(&d));
		usleep(rank == size - 1 ? 5000 : 0);
		FINE(call_submit(BERTH_ALLREDUCE, &d, 1, &r));
		FINE(berth_wait(r, ms[i]));
	}
}

/* A child of a rank is none, and does its parent no harm. */
static void child(void)
{
	int status = -1;
	pid_t pid = fork();

	if (pid == 0) {
		bool fine = call_barrier(NULL) == BERTH_STATE && berth_rank() == rank &&
			    berth_shutdown() == BERTH_STATE;

		_exit(fine ? 0 : 1);
	}
	CHECK(pid > 0 && waitpid(pid, &status, 0) == pid && !status, "a child: %x",
	      (unsigned)status);
	CHECK(sum_in(NULL, 1) == size, "its parent");
}

static void arguments(void)
{
	float x[4];
	static uint64_t wraps[256] = { UINT64_MAX, 5 };
	struct berth_desc d =
		BERTH_DESC(.in = x, .out = x, .count = 4, .type = BERTH_F32);
	berth_request *r;
	berth_set *set;
	int twice[2] = { 0, 0 };
	const uint64_t wrap[256] = { (uint64_t)1 << 63, (uint64_t)1 << 63 };

#define WRONG(change, call)                                                            \
	do {                                                                           \
		struct berth_desc e = d;                                               \
		(void)e;                                                               \
		change;                                                                \
		CHECK((call) == BERTH_INVALID, #change);                               \
		CHECK(*berth_last_error()->text, "a text for " #change);               \
	} while (0)
#define SAYS(words)                                                                    \
	CHECK(strstr(berth_last_error()->text, words), "no " words " in: %s",          \
	      berth_last_error()->text)
	WRONG(e.in = NULL, call_allreduce(&e));
	SAYS("allreduce: in is NULL");
	WRONG((e.out = NULL, e.name = "g"), call_submit(BERTH_ALLREDUCE, &e, 1, &r));
	SAYS("allreduce \"g\": out is NULL");
	WRONG(e.type = TYPE_COUNT, call_allreduce(&e));
	SAYS("no such type");
	WRONG(e.op = OP_COUNT, call_allreduce(&e));
	SAYS("no such op");
	WRONG(e.op = BERTH_BAND, call_allreduce(&e));
	SAYS("not for floats");
	WRONG((e.op = BERTH_AVG, e.type = BERTH_BOOL), call_allreduce(&e));
	SAYS("no average of bool");
	WRONG(e.root = size, call_broadcast(&e));
	WRONG(e.size = 3, call_allreduce(&e));
	WRONG(e.size = SIZE_MAX, call_allreduce(&e));
	SAYS("BERTH_DESC()");
	WRONG(e.prescale = &two, call_broadcast(&e));
	if (rank) /* rank 0's part of IN begins where IN does */
		WRONG(e.count = (uint64_t)size, call_reducescatter(&e));
	if (size > 1)
		WRONG(e.in_counts = wraps; e.out = x + 2, call_reducescatter(&e));
	if (size == 1)
		WRONG(e.in_counts = wraps + 2; e.out_counts = wraps + 1;
		      e.count = 0, call_alltoall(&e));
	WRONG(e.out_counts = wraps;
	      e.count = rank ? wraps[rank] : UINT64_MAX, call_allgather(&e));
	WRONG((e.in_counts = e.out_counts = wrap, e.out = x + 1, e.count = 0),
	      call_reducescatter(&e));
	WRONG((void)0, call_submit(KIND_COUNT, &e, 1, &r));
	SAYS("no such kind");
	WRONG((void)0, call_submit(BERTH_ALLREDUCE, &e, 0, &r));
	SAYS("n is 0");
	WRONG((void)0, call_submit(BERTH_ALLREDUCE, &e, 1, NULL));
	SAYS("request is NULL");
	WRONG((void)0, berth_set_add(&size, 1, &set));
	SAYS("there is no rank ");
	WRONG((void)0, berth_set_add(twice, 2, &set));
	SAYS("rank 0 stands twice");
	WRONG((void)0, berth_set_remove(NULL));
	WRONG((void)0, berth_run(NULL, -1, NULL));
	WRONG((void)0, call(0, &e));
	SAYS("kind is not given");
	WRONG((void)0, berth_poll(NULL));
	WRONG((void)0, berth_wait(NULL, -1));
	WRONG((void)0, berth_set_add(twice, 1, NULL));
	WRONG((void)0, berth_set_split(NULL, 0, 0, NULL));
	WRONG((void)0, berth_metrics(NULL));
	WRONG((void)0, berth_register(NULL, 1, BERTH_HOST, 0));
	CHECK(berth_wait_stream(NULL, NULL, -1) == BERTH_INVALID, "streams");
	other_sizes();
	long_times();
	child();
	CHECK(sum_in(NULL, 1) == size, "it goes on");
}

/* So long the others may have to wait for their turns and not be late, too. */
enum { LATE_MS = 1500 };

static void is_late(int who)
{
	const struct berth_error *e = berth_last_error();

	CHECK(e->nmissing == 1 && e->missing[0] == who, "who is late: %s", e->text);
}

/* D, waited for in turns that are shorter than its time: its BERTH_TIMEOUT, which ends
 * the request, is not theirs, which leaves it. */
static void late_in_turns(const struct berth_desc *d)
{
	uint64_t before = now_ms();
	berth_request *r;
	berth_result rc;

	FINE(call_submit(BERTH_ALLREDUCE, d, 1, &r));
	rc = berth_wait(r, 20);
	CHECK(rc == BERTH_BUSY || now_ms() - before >= LATE_MS, "the first turn: %d",
	      rc);
	while (rc == BERTH_BUSY)
		rc = berth_wait(r, 20);
	CHECK(rc == BERTH_TIMEOUT, "timeout: %d", rc);
	is_late(size - 1);
}

/* The last rank does not come before the others, which meet in a set of their own with
 * it, have given it up. */
static void late(void)
{
	float x = 1;
	struct berth_desc d =
		BERTH_DESC(.name = "late", .in = &x, .out = &x, .count = 1,
			   .type = BERTH_F32, .timeout_ms = 2000);
	berth_set *given_up, *in_turns;
	berth_result rc;

	FINE(berth_set_split(NULL, 0, 0, &given_up));
	FINE(berth_set_split(NULL, 0, 0, &in_turns));
	if (rank == size - 1) {
		FINE(call_barrier(given_up));
		rc = call_allreduce(&d);
		CHECK(rc == BERTH_TIMEOUT || rc == BERTH_PEER_LOST, "too late: %d", rc);
		CHECK(!strchr(berth_last_error()->text, '?'), "why");
		return;
	}
	rc = call_allreduce(&d);
	CHECK(rc == BERTH_TIMEOUT, "timeout: %d", rc);
	is_late(size - 1);
	if (rank == 0)
		printf("%s\n", berth_last_error()->text);
	d.set = in_turns;
	late_in_turns(&d);
	FINE(call_barrier(given_up));
}

/* The last rank submits other tensors all the time, but not this one. */
static void lack(int64_t timeout_ms)
{
	float x = 1, y = 1;
	struct berth_desc d =
		BERTH_DESC(.name = "lacking", .in = &x, .out = &x, .count = 1,
			   .type = BERTH_F32, .timeout_ms = timeout_ms);
	berth_request *r = NULL, *steady = NULL;
	berth_result rc = BERTH_OK;

	if (rank < size - 1) /* another one's time may be over by now */
		rc = call_submit(BERTH_ALLREDUCE, &d, 1, &r);
	d = (struct berth_desc)BERTH_DESC(.name = "steady", .in = &y, .out = &y,
					  .count = 1, .type = BERTH_F32);
	for (uint64_t until = now_ms() + 20000; !rc; usleep(1000)) {
		CHECK(now_ms() < until, "no time is ever over");
		rc = call_submit(BERTH_ALLREDUCE, &d, 1, &steady);
		if (!rc)
			rc = berth_wait(steady, -1);
	}
	CHECK(rc == BERTH_TIMEOUT || rc == BERTH_PEER_LOST, "lacking: %d", rc);
	if (!r)
		return;
	rc = berth_wait(r, -1);
	if (size > 2) /* another one's time may have been over first */
		return;
	CHECK(rc == BERTH_TIMEOUT && berth_last_error()->nmissing == 1 &&
		      berth_last_error()->missing[0] == 1,
	      "who lacks it: %d", rc);
	printf("%s\n", berth_last_error()->text);
}

/* By the operation's time, then by that for stalls. */
static void lacking(void)
{
	if (size == 1)
		return;
	lack(300);
	berth_shutdown();
	/* of all operations: more than a rank is ever held up */
	setenv("HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", "2", 1);
	FINE(berth_init(NULL));
	lack(0);
	berth_shutdown();
	unsetenv("HOROVOD_STALL_SHUTDOWN_TIME_SECONDS");
	FINE(berth_init(NULL));
}

/* The last rank has no memory left for what it needs: the others don't wait for it,
 * nor is what it calls for next taken for what it did not do. */
static void starved(void)
{
	enum { BYTES = 64 << 20 };
	float *x = calloc(1, BYTES), *y = calloc(1, BYTES);
	struct berth_desc d = BERTH_DESC(.name = "starved", .in = x, .out = y,
					 .count = BYTES / sizeof *x, .type = BERTH_F32,
					 .op = BERTH_ADASUM);
	struct rlimit before, none;
	berth_result rc;

	CHECK(x && y && !getrlimit(RLIMIT_AS, &before), "memory");
	none = before;
	none.rlim_cur = 1;
	if (rank == size - 1)
		CHECK(!setrlimit(RLIMIT_AS, &none), "setrlimit");
	rc = call_allreduce(&d);
	CHECK(rc == BERTH_MEMORY || (rank < size - 1 && rc == BERTH_PEER_LOST) ||
		      size == 1,
	      "without memory: %d", rc);
	setrlimit(RLIMIT_AS, &before);
	CHECK(call_allreduce(&d) == rc || size == 1, "for good");
	free(x);
	free(y);
}

/* WHO alone is missing, for all that waited; others that went did so because of it. */
static void check_missing(int who)
{
	const struct berth_error *e = berth_last_error();

	CHECK(e->nmissing == 1 && e->missing[0] == who, "text: %s", e->text);
}

/* Before anything else: the first rank leaves, and nobody has heard of it yet. */
static void left(void)
{
	uint64_t before = now_ms();

	if (rank == 0) {
		berth_shutdown();
		return;
	}
	CHECK(call_barrier(NULL) == BERTH_PEER_LOST, "left");
	CHECK(now_ms() - before < 10000, "after %llu ms",
	      (unsigned long long)(now_ms() - before));
	CHECK(strstr(berth_last_error()->text, "ended") ||
		      strstr(berth_last_error()->text, "can't be reached"),
	      "text: %s", berth_last_error()->text);
	check_missing(0);
}

/* The last rank dies while the others wait for it, which say when they knew. */
static void lost(bool async)
{
	static float x[100000];
	uint64_t before, after;
	berth_result rc;
	berth_request *r;
	struct berth_desc d = BERTH_DESC(.name = "lost", .in = x, .out = x,
					 .count = 100000, .type = BERTH_F32);

	signal(SIGTERM, SIG_IGN); /* with which runner would end the others */
	FINE(call_allreduce(&d));
	if (rank == size - 1) {
		usleep(200000);
		kill(getpid(), SIGKILL);
	}
	before = now_ms();
	if (async) {
		FINE(call_submit(BERTH_ALLREDUCE, &d, 1, &r));
		rc = berth_wait(r, -1);
	} else {
		rc = call_allreduce(&d);
	}
	after = now_ms() - before;
	CHECK(rc == BERTH_PEER_LOST, "lost: %d", rc);
	printf("after %llu ms\n", (unsigned long long)after);
	CHECK(strstr(berth_last_error()->text, "has ended"), "text");
	check_missing(size - 1);
	CHECK(call_barrier(NULL) == (async ? BERTH_PEER_LOST : rc), "for good");
	if (rank == 0)
		printf("%s\n", berth_last_error()->text);
}

/* The last rank dies, and then, of those that have given up because of it and live on
 * in a set of their own, the last one. */
static void lost_again(void)
{
	const bool first = rank == size - 1, second = rank == size - 2;
	berth_result rc;
	float x = 1;
	struct berth_desc d =
		BERTH_DESC(.in = &x, .out = &x, .count = 1, .type = BERTH_F32);

	signal(SIGTERM, SIG_IGN); /* with which runner would end the others */
	FINE(berth_set_split(NULL, first, rank, &d.set));
	do { /* the first one: all have the set */
		rc = call_barrier(NULL);
		if (first)
			kill(getpid(), SIGKILL);
	} while (!rc);
	CHECK(rc == BERTH_PEER_LOST, "lost");
	check_missing(size - 1);
	do {
		rc = call_allreduce(&d);
		if (second)
			kill(getpid(), SIGKILL);
	} while (!rc);
	CHECK(rc == BERTH_PEER_LOST, "lost again");
	check_missing(size - 2);
}

#endif
