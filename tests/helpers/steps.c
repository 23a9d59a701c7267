/* steps SECONDS MS CAUSE RANK EXTRA_MS: takes steps, as a training does; one rank is
 * slow.
 *
 * Each rank computes MS of CPU time a step, then all reduce 1 MiB.  RANK takes EXTRA_MS
 * longer, by its CAUSE:
 *   none     it does not
 *   work     it computes so much more
 *   later    it computes so much more in the last 40 % of the time
 *   lock     it sleeps
 *   file     it reads a file of 1 MiB, and the disk is slow
 *   crowd    a process of no job has the same CPU, and takes half of it
 *   moved    it lets itself run on one CPU alone
 *   loader   each rank's batches come from a child, which takes EXTRA_MS for each
 * At the end rank 0 prints the steps, and the milliseconds of one. */
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "lib/berth.h"
#include "tests/helpers/calls.h"

enum { COUNT = 1 << 18 };

static float in[COUNT], out[COUNT];

static double read_clock(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void compute(double s)
{
	const double until = read_clock(CLOCK_THREAD_CPUTIME_ID) + s;

	while (read_clock(CLOCK_THREAD_CPUTIME_ID) < until)
		continue;
}

static void rest(double s)
{
	struct timespec t = { (time_t)s, (long)((s - (double)(time_t)s) * 1e9) };

	nanosleep(&t, NULL);
}

static void reduce(const float *from, float *to, size_t n, berth_op op)
{
	struct berth_desc d = { .size = sizeof d,
				.kind = BERTH_ALLREDUCE,
				.type = BERTH_F32,
				.op = op,
				.in = from,
				.out = to,
				.count = n };

	if (berth_run(&d, -1, NULL))
		exit(1);
}

/* A child that computes for ever, on the CPUs of this process. */
static void crowd(void)
{
	if (fork())
		return;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (;;)
		compute(1);
}

/* A child that writes a byte for each batch; the end that is read. */
static int load(double s)
{
	int fd[2];

	if (pipe(fd))
		exit(1);
	if (fork())
		return fd[0];
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (;;) {
		compute(s);
		if (write(fd[1], "", 1) != 1)
			exit(0);
	}
}

static void read_file(void)
{
	static char bytes[1 << 20];
	int fd = open("/dev/zero", O_RDONLY);

	if (read(fd, bytes, sizeof bytes) < 0)
		exit(1);
	close(fd);
}

static void move(void)
{
	cpu_set_t mine, one;

	CPU_ZERO(&one);
	sched_getaffinity(0, sizeof mine, &mine);
	for (int i = 0; i < CPU_SETSIZE && !CPU_COUNT(&one); i++)
		if (CPU_ISSET((size_t)i, &mine))
			CPU_SET((size_t)i, &one);
	sched_setaffinity(0, sizeof one, &one);
}

int main(int argc, char **argv)
{
	const double ms = argc == 6 ? atof(argv[2]) : 0,
		     extra = argc == 6 ? atof(argv[5]) / 1000 : 0;
	const char *cause = argc == 6 ? argv[3] : "";
	double begin, end;
	float more = 1, all = 1;
	long steps = 0;
	bool slow;
	int loader;

	if (argc != 6 || berth_init(NULL))
		return 64;
	slow = berth_rank() == atoi(argv[4]);
	loader = strcmp(cause, "loader") ? -1 : load(extra);
	if (slow && !strcmp(cause, "crowd"))
		crowd();
	if (slow && !strcmp(cause, "moved"))
		move();
	reduce(&more, &all, 1, BERTH_MIN);
	begin = read_clock(CLOCK_MONOTONIC);
	end = begin + atof(argv[1]);
	for (; all > 0; steps++) {
		char batch;

		if (loader >= 0 && read(loader, &batch, 1) != 1)
			return 1;
		compute(ms / 1000);
		if (slow && (!strcmp(cause, "work") ||
			     (!strcmp(cause, "later") &&
			      end - read_clock(CLOCK_MONOTONIC) < 0.4 * (end - begin))))
			compute(extra);
		if (slow && !strcmp(cause, "file"))
			read_file();
		if (slow && (!strcmp(cause, "lock") || !strcmp(cause, "file")))
			rest(extra);
		reduce(in, out, COUNT, BERTH_SUM);
		more = read_clock(CLOCK_MONOTONIC) < end;
		reduce(&more, &all, 1, BERTH_MIN);
	}
	if (berth_rank() == 0)
		printf("%ld steps, %.3f ms\n", steps,
		       1000 * (read_clock(CLOCK_MONOTONIC) - begin) / (double)steps);
	berth_shutdown();
	return 0;
}
