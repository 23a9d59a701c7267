/* wait.c - what a wait costs, and how soon it ends: the last rank comes MS late to each
 * of COUNT operations.
 *
 *     runner -np 2 build/bench/wait MS COUNT [async | crossed]
 *
 * crossed: meanwhile it waits for another operation, to which the others come later.
 * Rank 0 prints the CPU time of its process while it waits, and the time from the
 * last call to the return of its own.  The hosts share the clock of this machine. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "lib/berth.h"
#include "tests/helpers/calls.h"

enum { COUNT_MOST = 1000 };

static double us_of(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static int by_size(const void *a, const void *b)
{
	const double *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

static void check(berth_result rc)
{
	if (!rc)
		return;
	fprintf(stderr, "%s\n", berth_last_error()->text);
	exit(1);
}

static void sum(const char *name, double *x, int async)
{
	struct berth_desc d = BERTH_DESC(.name = name, .in = x, .out = x, .count = 1,
					 .type = BERTH_F64);
	berth_request *r;

	if (!async) {
		check(call_allreduce(&d));
		return;
	}
	check(call_submit(BERTH_ALLREDUCE, &d, 1, &r));
	check(berth_wait(r, -1));
}

/* The operation that only the last rank has at first. */
static berth_request *begin_other(double *x)
{
	struct berth_desc d = BERTH_DESC(.name = "other", .in = x, .out = x, .count = 1,
					 .type = BERTH_F64);
	berth_request *r;

	check(call_submit(BERTH_ALLREDUCE, &d, 1, &r));
	return r;
}

int main(int argc, char **argv)
{
	int ms = argc > 1 ? atoi(argv[1]) : 20, n = argc > 2 ? atoi(argv[2]) : 100;
	int async = argc > 3, crossed = async && !strcmp(argv[3], "crossed"), last;
	double late[COUNT_MOST], cpu = 0, x = 1, y = 1;

	n = n < 1 ? 1 : n < COUNT_MOST ? n : COUNT_MOST;
	check(berth_init(NULL));
	last = berth_rank() == berth_size() - 1;
	for (int i = 0; i < 20; i++)
		sum("warm", &x, async);
	for (int i = 0; i < n; i++) {
		berth_request *other = NULL;
		double begun, called = 0;

		check(call_barrier(NULL));
		if (last && crossed) {
			other = begin_other(&y);
			if (berth_wait(other, ms) != BERTH_BUSY)
				exit(1);
		}
		if (last) {
			usleep((useconds_t)(crossed ? 0 : ms) * 1000 +
			       (useconds_t)(i * 37 % 200));
			called = us_of(CLOCK_MONOTONIC);
		}
		begun = us_of(CLOCK_PROCESS_CPUTIME_ID);
		sum("late", &called, async); /* of the others: 0 */
		late[i] = us_of(CLOCK_MONOTONIC) - called;
		cpu += us_of(CLOCK_PROCESS_CPUTIME_ID) - begun;
		if (crossed)
			check(berth_wait(last ? other : begin_other(&y), -1));
	}
	qsort(late, (size_t)n, sizeof *late, by_size);
	if (berth_rank() == 0)
		printf("%d x %d ms: CPU %.0f us each, %.2f %% of a core; late by %.0f "
		       "us, "
		       "p90 %.0f, p99 %.0f, most %.0f\n",
		       n, ms, cpu / n, cpu / n / ms / 10, late[n / 2], late[n * 9 / 10],
		       late[n * 99 / 100], late[n - 1]);
	check(berth_shutdown());
	return 0;
}
