/* across.c - times an f32 sum over connections, on one host or several: one program for
 * libberth (compiled with -DWHOLE), for its connections alone, which ranks of one host
 * would not use otherwise, both started by runner, and, compiled with -DPEER by an
 * mpicc, for an MPI.
 *
 *     across NAME BATCH_MS BATCHES BYTES...
 *
 * Rank 0 prints a row for each size: NAME, ranks, bytes, median us, least us, ok or
 * WRONG.  A batch is calibrated to BATCH_MS and timed by rank 0, between barriers of
 * the library itself, since hosts share no memory.  The result is verified before and
 * after.  ACROSS_PIN: rank i runs on core i % cores. */
#include <netdb.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { BATCHES_MOST = 99 };

static unsigned ranks, me;

static void die(const char *what)
{
	perror(what);
	exit(1);
}

#ifdef PEER

#include <mpi.h>

static void start(int *argc, char ***argv)
{
	int n, rank;

	MPI_Init(argc, argv);
	MPI_Comm_size(MPI_COMM_WORLD, &n);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	ranks = (unsigned)n;
	me = (unsigned)rank;
}

static void allreduce(const float *in, float *out, size_t n)
{
	MPI_Allreduce(in, out, (int)n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

static void stop(void)
{
	MPI_Finalize();
}

#elif defined WHOLE

#include "tests/helpers/calls.h"

static void start(int *argc, char ***argv)
{
	(void)argc;
	(void)argv;
	if (berth_init(NULL)) {
		fprintf(stderr, "across: %s\n", berth_last_error()->text);
		exit(1);
	}
	ranks = (unsigned)berth_size();
	me = (unsigned)berth_rank();
}

static void allreduce(const float *in, float *out, size_t n)
{
	struct berth_desc d =
		BERTH_DESC(.in = in, .out = out, .count = n, .type = BERTH_F32);

	if (call_allreduce(&d)) {
		fprintf(stderr, "across: %s\n", berth_last_error()->text);
		exit(1);
	}
}

static void stop(void)
{
	berth_shutdown();
}

#else

#include "lib/backend/tcp.h"
#include "tests/helpers/calls.h"

static struct net *net;
static struct tcp *group;

static unsigned number(const char *name)
{
	const char *text = getenv(name);

	if (!text) {
		fprintf(stderr, "across: no %s; start it with runner\n", name);
		exit(2);
	}
	return (unsigned)strtoul(text, NULL, 10);
}

static void whole(int fd, void *data, size_t bytes, bool out)
{
	for (size_t done = 0; done < bytes;) {
		ssize_t k = out ? send(fd, (char *)data + done, bytes - done, 0)
				: recv(fd, (char *)data + done, bytes - done, 0);

		if (k <= 0)
			die("the meeting");
		done += (size_t)k;
	}
}

static int master(bool listens)
{
	struct addrinfo *a, want = { .ai_family = AF_INET, .ai_socktype = SOCK_STREAM };
	int fd, on = 1;

	if (getaddrinfo(getenv("MASTER_ADDR"), getenv("MASTER_PORT"), &want, &a))
		die("MASTER_ADDR");
	for (int i = 0; i < 1000; i++) {
		fd = socket(AF_INET, SOCK_STREAM, 0);
		setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
		if (listens ? !bind(fd, a->ai_addr, a->ai_addrlen) && !listen(fd, 1000)
			    : !connect(fd, a->ai_addr, a->ai_addrlen))
			return fd;
		close(fd);
		usleep(10000);
	}
	die("MASTER_PORT");
	return -1;
}

/* Rank 0 hears where all are, and tells them. */
static void meet(char (*address)[NET_ADDRESS_BYTES])
{
	size_t bytes = ranks * sizeof *address;
	int fd = master(me == 0), *other = calloc(ranks, sizeof *other);
	uint32_t who = me;

	if (me) {
		whole(fd, &who, sizeof who, true);
		whole(fd, address[me], sizeof *address, true);
		whole(fd, address, bytes, false);
		close(fd);
		return;
	}
	for (unsigned i = 1; i < ranks; i++) {
		int in = accept(fd, NULL, NULL);

		whole(in, &who, sizeof who, false);
		whole(in, address[who], sizeof *address, false);
		other[i] = in;
	}
	for (unsigned i = 1; i < ranks; i++) {
		whole(other[i], address, bytes, true);
		close(other[i]);
	}
	close(fd);
}

static void start(int *argc, char ***argv)
{
	static const unsigned char key[NET_KEY_BYTES] = "of the bench";
	char(*address)[NET_ADDRESS_BYTES], why[256];
	unsigned *rank;
	struct net_config config = { .key = key, .spins = 10000 };

	(void)argc;
	(void)argv;
	config.rank = me = number("RANK");
	config.size = ranks = number("WORLD_SIZE");
	if (getenv("ACROSS_SPINS"))
		config.spins = number("ACROSS_SPINS");
	const char *secure = getenv("BERTH_NET_SECURE");

	config.guard = secure && !strcmp(secure, "aead")    ? NET_GUARD_AEAD
		       : secure && !strcmp(secure, "heads") ? NET_GUARD_HEADS
							    : NET_GUARD_MAC;
	net = net_open(&config, why, sizeof why);
	address = calloc(ranks, sizeof *address);
	rank = calloc(ranks, sizeof *rank);
	if (!net || !address || !rank)
		die("net_open");
	snprintf(address[me], sizeof *address, "%s", net_address(net));
	if (ranks > 1)
		meet(address);
	for (unsigned i = 0; i < ranks; i++) {
		rank[i] = i;
		if (net_peer(net, i, address[i]))
			die("an address");
	}
	group = tcp_join(
		&(struct tcp_config){ &net_lanes, net, 1, ranks, me, rank, NULL });
}

static void allreduce(const float *in, float *out, size_t n)
{
	struct coll c = { .kind = BERTH_ALLREDUCE,
			  .in = in,
			  .out = out,
			  .count = n,
			  .type = BERTH_F32,
			  .op = BERTH_SUM,
			  .signature = (uint32_t)n };
	berth_result rc = tcp_backend.begin(group, &c, 0);

	if (rc) {
		fprintf(stderr, "across: rank %u: result %d\n", me, rc);
		exit(1);
	}
}

static void stop(void)
{
	tcp_backend.leave(group);
	net_close(net);
}

#endif

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* X of rank 0. */
static float tell(float x)
{
	float sum;

	x = me ? 0 : x;
	allreduce(&x, &sum, 1);
	return sum;
}

static bool is_right(float *in, float *out, size_t n, unsigned modulus)
{
	float wrong = 0, sum;

	for (size_t i = 0; i < n; i++) {
		in[i] = (float)(i % modulus + me);
		out[i] = -1;
	}
	allreduce(in, out, n);
	for (size_t i = 0; i < n; i++)
		wrong += out[i] !=
			 (float)(i % modulus * ranks + ranks * (ranks - 1) / 2);
	allreduce(&wrong, &sum, 1);
	return sum == 0;
}

static double time_calls(float *in, float *out, size_t n, unsigned calls)
{
	double begin;

	tell(0);
	begin = now();
	for (unsigned i = 0; i < calls; i++)
		allreduce(in, out, n);
	return now() - begin;
}

static int ascending(const void *x, const void *y)
{
	double a = *(const double *)x, b = *(const double *)y;

	return (a > b) - (a < b);
}

static void measure(const char *name, size_t bytes, double batch_s, unsigned batches)
{
	size_t n = bytes / sizeof(float);
	float *in = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
	float *out = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
	double us[BATCHES_MOST], s;
	unsigned calls = 1, next;
	bool right;

	if (!in || !out)
		die("memory");
	right = is_right(in, out, n, 1000);
	for (;;) {
		s = time_calls(in, out, n, calls);
		next = (unsigned)tell(s < batch_s / 4 ? 0
						      : (float)(batch_s / s * calls));
		if (next || tell(s >= batch_s / 4))
			break;
		calls *= 4;
	}
	calls = next ? next : 1;
	for (unsigned i = 0; i < batches; i++)
		us[i] = time_calls(in, out, n, calls) / calls * 1e6;
	qsort(us, batches, sizeof *us, ascending);
	right = is_right(in, out, n, 997) && right;
	if (!me) {
		printf("%s,%u,%zu,%.3f,%.3f,%s\n", name, ranks, bytes, us[batches / 2],
		       us[0], right ? "ok" : "WRONG");
		fflush(stdout);
	}
	free(in);
	free(out);
}

static void pin(void)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(me % (unsigned)sysconf(_SC_NPROCESSORS_ONLN), &set);
	sched_setaffinity(0, sizeof set, &set);
}

int main(int argc, char **argv)
{
	unsigned batches;

	start(&argc, &argv);
	batches = argc > 4 ? (unsigned)strtoul(argv[3], NULL, 10) : 0;
	if (!batches || batches > BATCHES_MOST) {
		fprintf(stderr, "usage: across NAME BATCH_MS BATCHES BYTES...\n");
		return 2;
	}
	if (getenv("ACROSS_PIN"))
		pin();
	for (int i = 4; i < argc; i++)
		measure(argv[1], strtoull(argv[i], NULL, 10),
			strtod(argv[2], NULL) / 1e3, batches);
	stop();
	return 0;
}
