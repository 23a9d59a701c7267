/* own_ranks.h - ranks that a test program starts itself, without a launcher: they are
 * its children, and their bootstrap is memory that all of them have. */
#ifndef BERTH_TESTS_OWN_RANKS_H
#define BERTH_TESTS_OWN_RANKS_H

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

enum { OWN_RANKS_MOST = 64 };

static struct own_ranks {
	pthread_barrier_t barrier;
	int n;
	unsigned char said[OWN_RANKS_MOST][4096];
} * own_ranks; /* NULL: a launcher has started them */

/* The allgather of a struct berth_bootstrap; RANK: an int, of the caller. */
static int own_ranks_gather(void *rank, const void *in, void *out, size_t bytes)
{
	if (bytes > sizeof own_ranks->said[0])
		return 1;
	memcpy(own_ranks->said[*(int *)rank], in, bytes);
	pthread_barrier_wait(&own_ranks->barrier);
	for (int r = 0; r < own_ranks->n; r++)
		memcpy((unsigned char *)out + (size_t)r * bytes, own_ranks->said[r],
		       bytes);
	pthread_barrier_wait(&own_ranks->barrier);
	return 0;
}

static inline void own_ranks_prepare(int n)
{
	pthread_barrierattr_t attr;

	own_ranks = mmap(NULL, sizeof *own_ranks, PROT_READ | PROT_WRITE,
			 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (own_ranks == MAP_FAILED)
		abort();
	own_ranks->n = n;
	pthread_barrierattr_init(&attr);
	pthread_barrierattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
	pthread_barrier_init(&own_ranks->barrier, &attr, (unsigned)n);
	pthread_barrierattr_destroy(&attr);
}

/* The first that fails ends the others, which would wait for it.  Its exit status, or 1
 * for a signal; 0: none has failed. */
static inline int own_ranks_await(pid_t *pid, int n)
{
	int worst = 0, status;

	for (int left = n; left--;) {
		const pid_t who = wait(&status);

		for (int r = 0; r < n; r++)
			if (pid[r] == who)
				pid[r] = 0;
		if (!status || worst)
			continue;
		worst = WIFEXITED(status) ? WEXITSTATUS(status) : 1;
		if (WIFSIGNALED(status))
			fprintf(stderr, "%s\n", strsignal(WTERMSIG(status)));
		for (int r = 0; r < n; r++)
			if (pid[r])
				kill(pid[r], SIGKILL);
	}
	return worst;
}

/* N ranks, each of which exits with RUN(its rank, CTX). */
static inline void own_ranks_start(pid_t *pid, int n, int (*run)(int rank, void *ctx),
				   void *ctx)
{
	own_ranks_prepare(n);
	for (int rank = 0; rank < n; rank++) {
		pid[rank] = fork();
		if (pid[rank])
			continue;
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		exit(run(rank, ctx));
	}
}

static inline int own_ranks_run(int n, int (*run)(int rank, void *ctx), void *ctx)
{
	pid_t pid[OWN_RANKS_MOST];

	own_ranks_start(pid, n, run, ctx);
	return own_ranks_await(pid, n);
}

/* The last rank is to be killed, the others to end well.  0: it was so. */
static inline int own_ranks_run_dying(int n, int (*run)(int rank, void *ctx), void *ctx)
{
	pid_t pid[OWN_RANKS_MOST];
	int worst = 0, status;

	own_ranks_start(pid, n, run, ctx);
	for (int r = 0; r < n; r++) {
		waitpid(pid[r], &status, 0);
		if (r == n - 1 ? !WIFSIGNALED(status) : status != 0)
			worst = 1;
	}
	return worst;
}

#endif
