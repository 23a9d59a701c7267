/* changes SEED [WHAT]: ranks of a job of `runner --keep-going` go on without those that
 * were killed, until two are left.  Each prints nothing; rank 0 of each world prints
 * `N ranks after MS ms`: the time from a kill to the end of the first allreduce in the
 * next world, of the last rank.
 *
 * WHAT  kill    one rank is killed before each change (the default)
 *       during  and another one in the next change
 *       once    the same, once
 *       plain   nobody is, and all change
 *       exits   one ends with status 0 in place of each kill
 *       late    one rank does not call berth_change(), and a second later the clock of
 *               each leaps forward by LEAP_S: the others wait a minute
 *       fixed   the ranks are those of a PMIx server: berth_change() says so, and
 *               they go on in their world; each prints the text of the error */
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "lib/berth.h"
#include "tests/helpers/calls.h"

enum { RANKS_MOST = 64, LEAP_S = 59, LATE_MS = 66000 };

static uint64_t seed;
static int me, alive[RANKS_MOST], n; /* ranks of the job */
static uint64_t epoch = 1;

#define CHECK(fine, what, is) CALL_CHECK(me, fine, what, is)

/* What the library sees is the linker's --wrap=clock_gettime. */
static _Atomic uint64_t leap_ns; /* when the clock leaps; 0: never */
int __real_clock_gettime(clockid_t clock, struct timespec *t);
int __wrap_clock_gettime(clockid_t clock, struct timespec *t);

int __wrap_clock_gettime(clockid_t clock, struct timespec *t)
{
	const int rc = __real_clock_gettime(clock, t);
	const uint64_t ns = (uint64_t)t->tv_sec * 1000000000u + (uint64_t)t->tv_nsec;

	if (leap_ns && ns >= leap_ns)
		t->tv_sec += LEAP_S;
	return rc;
}

static double now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static berth_result sum(double *x, berth_op op)
{
	return call_allreduce(
		&(struct berth_desc)BERTH_DESC(.in = x, .out = x, .count = 1,
					       .type = BERTH_F64, .op = op));
}

static int place(int rank)
{
	for (int i = 0; i < n; i++)
		if (alive[i] == rank)
			return i;
	return -1;
}

static void check_world(void)
{
	const struct berth_world w = call_world();
	double x = me;
	double want = 0;
	berth_result rc = sum(&x, BERTH_SUM);

	for (int i = 0; i < n; i++)
		want += alive[i];
	CHECK(!rc, "allreduce", rc);
	CHECK(x == want, "sum", x);
	CHECK(w.rank == place(me) && w.ranks == n, "rank", w.rank);
	CHECK(w.epoch == epoch, "epoch", w.epoch);
	CHECK(w.local_rank < w.local_size && w.cross_rank < w.cross_size, "local",
	      w.local_rank);
	CHECK(!w.changed, "changed", w.changed);
}

static int choose(int turn)
{
	const uint64_t x = (seed + (uint64_t)turn * 7919) * 0x9e3779b97f4a7c15u;

	return alive[(x >> 33) % (uint64_t)n];
}

static void drop(int rank)
{
	for (int i = place(rank); i < n - 1; i++)
		alive[i] = alive[i + 1];
	n--;
}

static void leave(const char *what)
{
	if (strcmp(what, "exits") == 0)
		_exit(0);
	kill(getpid(), SIGKILL);
}

/* A rank has ended, which this one learns from an operation. */
static void lose(void)
{
	double x = 1;
	berth_result rc = sum(&x, BERTH_SUM);

	CHECK(rc == BERTH_PEER_LOST, "a rank was lost", rc);
	for (int i = 0; i < 5000 && !call_world().changed; i++)
		usleep(1000);
	CHECK(call_world().changed == 1, "changed", 0);
}

/* GONE does not come to the next world. */
static void miss(int gone)
{
	const double began = now_ms();
	berth_result rc;

	leap_ns = (uint64_t)(began * 1e6) + 1000000000u;
	while (gone == me && now_ms() - began < LATE_MS)
		usleep(1000);
	if (gone == me)
		_exit(0);
	rc = berth_change(NULL);
	CHECK(rc == BERTH_TIMEOUT, "a rank does not come", rc);
	CHECK(berth_rank() == -1, "rank", berth_rank());
	printf("%s\n", berth_last_error()->text);
	fflush(stdout);
	_exit(3);
}

/* This rank is killed in its change, somewhere, or before it. */
static void end_in_change(void)
{
	usleep((useconds_t)(seed * 131 % 3000));
	if (seed % 2)
		kill(getpid(), SIGKILL);
	if (!fork()) {
		usleep((useconds_t)(seed * 577 % 8000));
		kill(getppid(), SIGKILL);
		_exit(0);
	}
}

/* THEN may have come to this world, and be lost there. */
static void change_without(int then)
{
	double x = 1;

	while (berth_size() == n) {
		if (then == me)
			sleep(60);
		while (!sum(&x, BERTH_SUM))
			;
		CHECK(!berth_change(NULL), "berth_change again", 0);
	}
	if (then == me)
		sleep(60);
	drop(then);
	epoch = call_world().epoch - 1;
}

static void tell_time(double took)
{
	const double ms = now_ms();
	berth_result rc = sum(&took, BERTH_MAX);

	CHECK(!rc, "allreduce", rc);
	if (!berth_rank())
		printf("%d ranks after %.1f ms\n", n, took + now_ms() - ms);
	fflush(stdout);
}

static void change(const char *what, int turn)
{
	const bool plain = !strcmp(what, "plain"), late = !strcmp(what, "late"),
		   during = !strcmp(what, "during");
	int gone, then = -1;
	double began;
	berth_result rc;

	/* who is killed behind it may take it from the others */
	rc = call_barrier(NULL);
	CHECK(!rc || (rc == BERTH_PEER_LOST && !plain && !late), "barrier", rc);
	gone = choose(turn);
	began = now_ms();
	if (late)
		miss(gone);
	if (!plain) {
		if (gone == me)
			leave(what);
		lose();
		drop(gone);
	}
	if (during && n > 2)
		then = choose(turn + 1000);
	if (then == me)
		end_in_change();
	rc = berth_change(NULL);
	CHECK(!rc, "berth_change", rc);
	if (then >= 0)
		change_without(then);
	epoch++;
	tell_time(now_ms() - began);
}

/* What is in flight goes on, too. */
static void keep_world(void)
{
	double x = 1, y = 2;
	berth_request *r;

	CHECK(!call_submit(BERTH_ALLREDUCE,
			   &(struct berth_desc)BERTH_DESC(.name = "in flight", .in = &x,
							  .out = &x, .count = 1,
							  .type = BERTH_F64),
			   1, &r),
	      "submit", 0);
	CHECK(berth_change(NULL) == BERTH_UNSUPPORTED, "berth_change", 0);
	printf("%s\n", berth_last_error()->text);
	CHECK(berth_rank() == me, "rank", berth_rank());
	CHECK(!berth_wait(r, -1) && x == n, "what was in flight", x);
	CHECK(!sum(&y, BERTH_SUM) && y == 2 * n, "a sum", y);
	check_world();
}

int main(int argc, char **argv)
{
	const char *what = argc > 2 ? argv[2] : "kill";

	me = atoi(getenv("BERTH_RANK") ? getenv("BERTH_RANK") : "0");
	seed = argc > 1 ? strtoull(argv[1], NULL, 10) : 1;
	CHECK(!berth_init(NULL), "berth_init", 0);
	for (n = 0; n < berth_size(); n++)
		alive[n] = n;
	if (!strcmp(what, "fixed"))
		me = berth_rank();
	check_world();
	if (!strcmp(what, "fixed")) {
		keep_world();
		return berth_shutdown() != BERTH_OK;
	}
	for (int turn = 0; turn < (n > 2 ? 20 : 1); turn++) {
		change(what, turn);
		check_world();
		if ((n <= 2 && strcmp(what, "plain") != 0) || !strcmp(what, "once"))
			break;
	}
	CHECK(!berth_shutdown(), "berth_shutdown", 0);
	return 0;
}
