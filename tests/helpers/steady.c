/* steady.c - a rank that sums with the others again and again, and checks each sum:
 *
 *     runner ... steady SECONDS [RANK MS]
 *
 * After the first sum each says "begun"; after SECONDS, or USR1, rank 0 says "N sums".
 * Rank RANK says "dies at T" and is killed after MS, wherever it is.  Who gets an error
 * says "RESULT of RANKS at T: TEXT" and ends with 3, a second later.  T: milliseconds
 * of a clock that all hosts of this machine share. */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "lib/berth.h"
#include "tests/helpers/calls.h"

enum { MOST = 500000 };

static unsigned long die_after_ms;

static unsigned long long now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (unsigned long long)t.tv_sec * 1000 +
	       (unsigned long long)t.tv_nsec / 1000000;
}

static void *die(void *unused)
{
	char text[64];
	int n;

	usleep((useconds_t)die_after_ms * 1000);
	n = snprintf(text, sizeof text, "dies at %llu\n", now_ms());
	if (write(1, text, (size_t)n) == n)
		kill(getpid(), SIGKILL);
	return unused;
}

static void give_up(void)
{
	const struct berth_error *e = berth_last_error();

	printf("%d of", (int)e->result);
	for (size_t i = 0; i < e->nmissing; i++)
		printf(" %d", e->missing[i]);
	printf(" at %llu: %s\n", now_ms(), e->text);
	fflush(stdout);
	sleep(1); /* to others it would have ended as well */
	_exit(3);
}

static void sum(const float *in, float *out, size_t n)
{
	struct berth_desc d =
		BERTH_DESC(.in = in, .out = out, .count = n, .type = BERTH_F32);

	if (call_allreduce(&d))
		give_up();
}

static volatile sig_atomic_t enough;

static void on_enough(int signo)
{
	enough = signo;
}

/* Rank 0 says whether it goes on: it is the same on all. */
static int goes_on(unsigned long long until)
{
	float x = berth_rank() == 0 && now_ms() < until && !enough, all;

	sum(&x, &all, 1);
	return all > 0;
}

int main(int argc, char **argv)
{
	static const size_t counts[] = { 1, 1000, 20000, MOST };
	static float in[MOST], out[MOST];
	unsigned long long until;
	unsigned long sums = 0;
	pthread_t thread;

	if (argc < 2)
		return 2;
	signal(SIGTERM, SIG_IGN); /* with which runner would end the others */
	signal(SIGUSR1, on_enough);
	if (berth_init(NULL)) {
		fprintf(stderr, "%s\n", berth_last_error()->text);
		return 3;
	}
	if (argc > 3 && atoi(argv[2]) == berth_rank()) {
		die_after_ms = strtoul(argv[3], NULL, 10);
		pthread_create(&thread, NULL, die, NULL);
	}
	for (until = now_ms() + strtoul(argv[1], NULL, 10) * 1000; goes_on(until);
	     sums++) {
		size_t n = counts[sums % 4];
		float all = (float)(berth_size() * (berth_size() - 1) / 2) +
			    (float)berth_size() * (float)(sums % 100);

		for (size_t i = 0; i < n; i++)
			in[i] = (float)berth_rank() + (float)(sums % 100);
		sum(in, out, n);
		for (size_t i = 0; i < n; i++)
			if (out[i] != all) {
				printf("wrong: sum %lu [%zu] is %g, not %g\n", sums, i,
				       (double)out[i], (double)all);
				return 1;
			}
		if (!sums) {
			printf("begun\n");
			fflush(stdout);
		}
	}
	if (berth_rank() == 0)
		printf("%lu sums\n", sums);
	berth_shutdown();
	return 0;
}
