/* collectives.c - times an f32 sum over the ranks of one machine: one program for
 * libberth and, compiled with -DPEER by an mpicc, for every MPI.
 *
 *     collectives [-b BYTES] [-e BYTES] [-f FACTOR] [-s BATCH_MS]
 *                 [-k BATCHES] [-m private|heap|limit] [-l NAME]
 *
 * Ranks come from runner or an MPI's own launcher.  Rank i runs on core i % cores.
 * For each size a batch is calibrated to BATCH_MS; the median and the least of BATCHES
 * are taken, each being that of its slowest rank.  The result is verified before and
 * after.  Rows, comma separated:
 *     name, ranks, bytes, median us, least us, ok|WRONG, hand-over ns before, after
 * The hand-over of a cache line between ranks 0 and 1 says how near their cores are at
 * the moment, which in a virtual machine changes (S1, S2 in collectives.sh).
 *
 * heap: arrays lie in memory that all ranks map.  limit: the time in which this
 * machine's memory moves 2 * ranks * bytes, which no allreduce can do without; from
 * all ranks adding arrays past the caches. */
#include <fcntl.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#ifdef PEER
#include <mpi.h>
#else
#include "lib/berth.h"
#include "lib/base/kern.h"
#include "tests/helpers/calls.h"
#endif

enum { RANKS_MOST = 64, BATCHES_MOST = 64, HANDOVERS = 400 };

/* What the ranks tell each other past the library that is measured. */
struct board {
	_Alignas(128) _Atomic unsigned arrived;
	_Alignas(128) _Atomic unsigned turn;
	_Alignas(128) _Atomic unsigned ping;
	_Alignas(128) _Atomic unsigned pong;
	_Alignas(128) _Atomic long calls;
	_Atomic int wrong;
	double seconds[RANKS_MOST][BATCHES_MOST];
};

static struct {
	unsigned n, me;
	size_t from, to, factor;
	double batch_s;
	unsigned batches;
	const char *name, *memory;
	struct board *board;
	float *in, *out;
} b = { .from = 8,
	.to = 128 << 20,
	.factor = 4,
	.batch_s = 0.004,
	.batches = 9,
	.name = "berth",
	.memory = "private" };

static void die(const char *what)
{
	perror(what);
	exit(1);
}

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void *map(int fd, size_t bytes)
{
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	if (p == MAP_FAILED)
		die("mmap");
	return p;
}

static int memory(size_t bytes)
{
	int fd = memfd_create("bench", 0);

	if (fd < 0 || ftruncate(fd, (off_t)bytes))
		die("memfd_create");
	return fd;
}

static void meet(void)
{
	unsigned turn = atomic_load(&b.board->turn);

	if (atomic_fetch_add(&b.board->arrived, 1) + 1 == b.n) {
		atomic_store(&b.board->arrived, 0);
		atomic_store(&b.board->turn, turn + 1);
	}
	for (unsigned i = 0; atomic_load(&b.board->turn) == turn; i++)
		if (i > 2000)
			sched_yield();
}

/* ---- the library that is measured ---- */

#ifdef PEER

static void start(int *argc, char ***argv)
{
	char path[64];
	int size, rank, fd = -1;

	MPI_Init(argc, argv);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	b.n = (unsigned)size;
	b.me = (unsigned)rank;
	if (!rank) {
		fd = memory(sizeof *b.board);
		snprintf(path, sizeof path, "/proc/%d/fd/%d", getpid(), fd);
	}
	MPI_Bcast(path, sizeof path, MPI_CHAR, 0, MPI_COMM_WORLD);
	if (rank)
		fd = open(path, O_RDWR);
	b.board = map(fd, sizeof *b.board);
	MPI_Barrier(MPI_COMM_WORLD);
	close(fd);
}

static void *array(size_t bytes)
{
	void *p = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);

	if (!p)
		die("aligned_alloc");
	return memset(p, 0, bytes);
}

static void allreduce(size_t n)
{
	MPI_Allreduce(b.in, b.out, (int)n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

static void stop(void)
{
	MPI_Finalize();
}

#else

static void need(berth_result rc, const char *what)
{
	if (rc) {
		fprintf(stderr, "%s: %s\n", what, berth_last_error()->text);
		exit(1);
	}
}

static void start(int *argc, char ***argv)
{
	struct berth_desc d;
	char path[64];
	int fd = -1;

	(void)argc;
	(void)argv;
	need(berth_init(NULL), "berth_init");
	b.n = (unsigned)berth_size();
	b.me = (unsigned)berth_rank();
	if (!b.me) {
		fd = memory(sizeof *b.board);
		snprintf(path, sizeof path, "/proc/%d/fd/%d", getpid(), fd);
	}
	d = (struct berth_desc)BERTH_DESC(.in = path, .out = path, .type = BERTH_U8,
					  .count = sizeof path);
	need(call_broadcast(&d), "call_broadcast");
	if (b.me)
		fd = open(path, O_RDWR);
	b.board = map(fd, sizeof *b.board);
	need(call_barrier(NULL), "call_barrier");
	close(fd);
}

static void *array(size_t bytes)
{
	void *p = !strcmp(b.memory, "heap")
			  ? berth_alloc(bytes, BERTH_HOST, 0)
			  : aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);

	if (!p)
		die("aligned_alloc");
	return memset(p, 0, bytes);
}

/* So many bytes of results move three times as many; an allreduce of BYTES 2 * n. */
static void add(size_t n)
{
	size_t part = n * 2 / 3 / 16 * 16;

	struct kern k;

	kern_make(&k, BERTH_F32, BERTH_SUM, NULL, KERN_ELEMENTS, KERN_ELEMENTS);
	kern_reduce(&k, (void *[]){ b.out }, 1, (const void *[]){ b.in, b.in + n }, 2,
		    part, true);
	kern_fence();
}

static void allreduce(size_t n)
{
	struct berth_desc d = BERTH_DESC(.in = b.in, .out = b.out, .count = n,
					 .type = BERTH_F32, .op = BERTH_SUM);

	if (!strcmp(b.memory, "limit"))
		add(n);
	else
		need(call_allreduce(&d), "call_allreduce");
}

static void stop(void)
{
	need(berth_shutdown(), "berth_shutdown");
}

#endif

/* ---- the measuring ---- */

static void relax(void)
{
#if defined(__x86_64__)
	__builtin_ia32_pause();
#endif
}

/* One way, ns, the least of some rounds. */
static double handover(void)
{
	_Atomic unsigned *mine = b.me ? &b.board->pong : &b.board->ping;
	_Atomic unsigned *theirs = b.me ? &b.board->ping : &b.board->pong;
	double best = 1;

	if (b.n != 2)
		return 0;
	for (unsigned round = 0; round < 8; round++) {
		double begin;

		atomic_store(mine, 0);
		meet();
		begin = now();
		for (unsigned i = 1; i <= HANDOVERS; i++) {
			if (!b.me)
				atomic_store_explicit(mine, i, memory_order_release);
			while (atomic_load_explicit(theirs, memory_order_acquire) < i)
				relax();
			if (b.me)
				atomic_store_explicit(mine, i, memory_order_release);
		}
		begin = (now() - begin) / HANDOVERS / 2;
		best = begin < best ? begin : best;
		meet();
	}
	return best * 1e9;
}

static void verify(size_t n, unsigned modulus)
{
	for (size_t i = 0; i < n; i++) {
		b.in[i] = (float)(i % modulus + b.me);
		b.out[i] = -1;
	}
	meet();
	allreduce(n);
	for (size_t i = 0; i < n; i++)
		if (b.out[i] != (float)(i % modulus * b.n + b.n * (b.n - 1) / 2))
			b.board->wrong = 1;
	meet();
}

static double time_calls(long calls, size_t n)
{
	double begin;

	meet();
	begin = now();
	for (long i = 0; i < calls; i++)
		allreduce(n);
	return now() - begin;
}

static long calibrate(size_t n)
{
	long calls = 1;

	for (;;) {
		double s = time_calls(calls, n);

		meet();
		if (!b.me)
			b.board->calls =
				s > b.batch_s / 4 || calls > 1000000
					? -(long)(b.batch_s / s * (double)calls + 1)
					: calls * 4;
		meet();
		calls = b.board->calls;
		if (calls < 0)
			return -calls;
	}
}

static int ascending(const void *x, const void *y)
{
	double a = *(const double *)x, c = *(const double *)y;

	return (a > c) - (a < c);
}

static void measure(size_t bytes)
{
	size_t n = bytes / sizeof(float);
	bool sums = strcmp(b.memory, "limit");
	double slowest[BATCHES_MOST] = { 0 }, before, after;
	long calls;

	if (sums)
		verify(n, 1000);
	calls = calibrate(n);
	before = handover();
	for (unsigned i = 0; i < b.batches; i++)
		b.board->seconds[b.me][i] = time_calls(calls, n) / (double)calls;
	meet();
	after = handover();
	if (sums)
		verify(n, 997);
	if (b.me)
		return;
	for (unsigned i = 0; i < b.batches; i++)
		for (unsigned r = 0; r < b.n; r++)
			if (b.board->seconds[r][i] > slowest[i])
				slowest[i] = b.board->seconds[r][i];
	qsort(slowest, b.batches, sizeof *slowest, ascending);
	printf("%s,%u,%zu,%.4f,%.4f,%s,%.0f,%.0f\n", b.name, b.n, bytes,
	       slowest[b.batches / 2] * 1e6, slowest[0] * 1e6,
	       b.board->wrong ? "WRONG" : "ok", before, after);
	fflush(stdout);
}

static size_t bytes_of(const char *text)
{
	char *end;
	size_t n = strtoull(text, &end, 0);

	return *end == 'K'   ? n << 10
	       : *end == 'M' ? n << 20
	       : *end == 'G' ? n << 30
			     : n;
}

static void read_options(int argc, char **argv)
{
	for (int o; (o = getopt(argc, argv, "b:e:f:s:k:m:l:")) != -1;)
		switch (o) {
		case 'b':
			b.from = bytes_of(optarg);
			break;
		case 'e':
			b.to = bytes_of(optarg);
			break;
		case 'f':
			b.factor = bytes_of(optarg);
			break;
		case 's':
			b.batch_s = strtod(optarg, NULL) / 1000;
			break;
		case 'k':
			b.batches = (unsigned)strtoul(optarg, NULL, 0);
			break;
		case 'm':
			b.memory = optarg;
			break;
		case 'l':
			b.name = optarg;
			break;
		default:
			exit(2);
		}
	if (!b.batches || b.batches > BATCHES_MOST || b.factor < 2 || b.from < 4)
		exit(2);
}

int main(int argc, char **argv)
{
	cpu_set_t core;
	size_t room;

	read_options(argc, argv);
	start(&argc, &argv);
	if (b.n > RANKS_MOST)
		exit(2);
	CPU_ZERO(&core);
	CPU_SET(b.me % (unsigned)sysconf(_SC_NPROCESSORS_ONLN), &core);
	sched_setaffinity(0, sizeof core, &core);
	room = !strcmp(b.memory, "limit") ? 2 * b.to : b.to;
	b.in = array(room);
	b.out = array(b.to);
	for (size_t bytes = b.from; bytes <= b.to; bytes *= b.factor)
		measure(bytes);
	meet();
	stop();
	return 0;
}
