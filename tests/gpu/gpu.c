/* gpu.c - NCCL's back end (lib/backend/nccl.c) on the GPU of this machine: steps of
 * check-gpu (run.sh).
 *
 *     build/gpu/gpu [-np 2] [-bytes 67108864] [-times 100] STEP
 *
 * Ranks are its own, and share the first GPU: each tells NCCL that it is a host of its
 * own (NCCL_HOSTID).  It prints a line of what it found, and exits with 0 if all was
 * right; with 77 and the reason where there is no GPU, or no NCCL. */
#include <dirent.h>
#include <dlfcn.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "lib/backend/cuda.h"
#include "lib/backend/device.h"
#include "lib/backend/nccl.h"
#include "lib/base/clock.h"
#include "lib/base/kern.h"
#include "lib/berth.h"
#include "tests/helpers/own_ranks.h"
#include "tests/helpers/rank_check.h"
#include "tests/helpers/slow.h"

enum { NO_GPU = 77, ROUNDS = 20, SMALL_ROUNDS = 500, NON_BLOCKING = 1 };

static int rank, size = 2;
static size_t most_bytes = 64 << 20;
static unsigned times = 100;
static void *stream;

/* Calls of libcuda that only tests make. */
static struct {
#define CALL(name, version, arguments) int(*name) arguments;
#include "tests/standin/cuda_calls.def"
#undef CALL
} more;

/* ---- the machine ---- */

/* NULL, or why there is no GPU here. */
static const char *load_cuda(void)
{
	const char *why = cuda_load();
	int (*get)(const char *, void **, int, uint64_t, int *);
	int n = 0;

	if (why)
		return why;
	*(void **)&get = dlsym(dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD),
			       "cuGetProcAddress_v2");
#define CALL(name, version, arguments)                                                 \
	if (get(#name, (void **)&more.name, version, 0, NULL) || !more.name)           \
		return "the NVIDIA driver has no " #name;
#include "tests/standin/cuda_calls.def"
#undef CALL
	if (more.cuDeviceGetCount(&n) || !n)
		return "no GPU";
	return NULL;
}

static const char *load_nccl(int *version, const char **path)
{
	void *lib = dlopen("libnccl.so.2", RTLD_NOW);
	int (*get)(int *);
	Dl_info where;

	if (!lib)
		return "no libnccl.so.2";
	*(void **)&get = dlsym(lib, "ncclGetVersion");
	*version = 0;
	get(version);
	*path = dladdr(*(void **)&get, &where) ? where.dli_fname : "?";
	return NULL;
}

static void print_facts(int nccl, const char *path)
{
	struct statvfs shm = { .f_bavail = 0 };
	size_t unused = 0, all = 0;
	char name[100] = "";
	int d = 0, n = 0, driver = 0;

	cuda_enter(0);
	cuda.cuDeviceGet(&d, 0);
	cuda.cuDriverGetVersion(&driver);
	more.cuDeviceGetName(name, sizeof name, d);
	more.cuDeviceGetCount(&n);
	more.cuMemGetInfo(&unused, &all);
	statvfs("/dev/shm", &shm);
	printf("%d x %s, %zu MiB (%zu unused), CUDA %d, NCCL %d of %s, %ld cores, "
	       "/dev/shm %lu MiB\n",
	       n, name, all >> 20, unused >> 20, driver, nccl, path,
	       sysconf(_SC_NPROCESSORS_ONLN),
	       (unsigned long)(shm.f_bavail * shm.f_bsize >> 20));
}

/* In a process without ranks, since these are forked before they have CUDA. */
static int facts(void)
{
	const char *why = load_cuda(), *path = "";
	int nccl = 0;

	if (!why)
		why = load_nccl(&nccl, &path);
	if (why)
		printf("%s\n", why);
	else
		print_facts(nccl, path);
	return why ? NO_GPU : 0;
}

/* ---- a rank ---- */

static void begin_library(void)
{
	const struct berth_bootstrap b = { .size = sizeof b,
					   .rank = rank,
					   .ranks = size,
					   .allgather = own_ranks_gather,
					   .ctx = &rank,
					   .host = "here" };
	const struct berth_config c = { .size = sizeof c,
					.timeout_ms = slow_s(60000),
					.bootstrap = &b };

	CHECK(!berth_init(&c), "berth_init");
}

static void begin_rank(int own)
{
	char host[16];

	rank = own;
	snprintf(host, sizeof host, "rank%d", rank);
	setenv("NCCL_HOSTID", host, 1);
	setenv("NCCL_SOCKET_IFNAME", "lo", 0);
	setenv("NCCL_IB_DISABLE", "1", 0);
	setenv("NCCL_MNNVL_ENABLE", "0", 0);
	CHECK(!load_cuda(), "the GPU");
	CHECK(cuda_enter(0), "its context");
	CHECK(!more.cuStreamCreate(&stream, NON_BLOCKING), "a stream");
	begin_library();
}

static void *make_there(size_t bytes)
{
	uint64_t p = 0;

	CHECK(!cuda.cuMemAlloc(&p, bytes), "%zu bytes of the GPU", bytes);
	return (void *)(uintptr_t)p;
}

/* Pinned, until the end. */
static void *make_here(size_t bytes)
{
	static void *all[8];
	static unsigned n;

	CHECK(n < sizeof all / sizeof *all, "room for one more");
	CHECK(!cuda.cuMemHostAlloc(&all[n], bytes, 0), "%zu pinned bytes", bytes);
	return all[n++];
}

/* On the stream, which the host does not await. */
static void copy_later(void *to, const void *from, size_t bytes)
{
	CHECK(!cuda.cuMemcpyAsync((uintptr_t)to, (uintptr_t)from, bytes, stream),
	      "a copy");
}

static void copy(void *to, const void *from, size_t bytes)
{
	copy_later(to, from, bytes);
	CHECK(!cuda.cuStreamSynchronize(stream), "the end of a copy");
}

static struct berth_desc allreduce(void *p, size_t count)
{
	return (struct berth_desc)BERTH_DESC(.kind = BERTH_ALLREDUCE, .type = BERTH_F32,
					     .in = p, .out = p, .count = count,
					     .memory = BERTH_CUDA,
					     .stream = BERTH_HOST_STREAM);
}

/* ---- sums ---- */

static int by_size(const void *a, const void *b)
{
	const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

/* The median of N sums of COUNT elements, in us. */
static double time_sums(void *there, size_t count, unsigned n)
{
	static uint64_t ns[SMALL_ROUNDS];
	struct berth_desc d = allreduce(there, count);

	for (unsigned i = 0; i < n; i++) {
		const uint64_t begun_ns = clock_ns();

		CHECK(!berth_run(&d, -1, NULL), "%zu elements", count);
		ns[i] = clock_ns() - begun_ns;
	}
	qsort(ns, n, sizeof *ns, by_size);
	return (double)ns[n / 2] / 1000;
}

static float given(size_t i)
{
	return (float)(i % 100) + (float)rank;
}

static float sum_at(size_t i)
{
	return (float)(size * (int)(i % 100) + size * (size - 1) / 2);
}

static void check_sums(void *there, float *here, size_t count)
{
	struct berth_desc d = allreduce(there, count);

	d.stream = stream;
	for (size_t i = 0; i < count; i++)
		here[i] = given(i);
	copy_later(there, here, count * sizeof *here);
	CHECK(!berth_run(&d, -1, NULL), "%zu elements", count);
	copy(here, there, count * sizeof *here);
	for (size_t i = 0; i < count; i++)
		CHECK(here[i] == sum_at(i), "element %zu of %zu: %g", i, count,
		      (double)here[i]);
}

static int sums(void)
{
	const size_t count = most_bytes / sizeof(float);
	void *there = make_there(most_bytes);
	float *here = make_here(most_bytes);
	const uint64_t begun_ns = clock_ns();
	double first_ms, small_us, large_us;

	check_sums(there, here, 1);
	first_ms = (double)(clock_ns() - begun_ns) / 1e6;
	check_sums(there, here, 4093);
	check_sums(there, here, count);
	small_us = time_sums(there, 1, SMALL_ROUNDS);
	large_us = time_sums(there, count, ROUNDS);
	if (rank == 0)
		printf("np %d: the first %.0f ms, 4 B %.1f us, %zu KiB %.0f us\n", size,
		       first_ms, small_us, most_bytes >> 10, large_us);
	return 0;
}

/* ---- while a stream captures ---- */

static bool is_refused(struct berth_desc d)
{
	berth_request *r;

	return berth_run(&d, -1, NULL) == BERTH_UNSUPPORTED &&
	       strstr(berth_last_error()->text, "captures a CUDA graph") &&
	       berth_submit(&d, 1, &r) == BERTH_UNSUPPORTED &&
	       strstr(berth_last_error()->text, "captures a CUDA graph");
}

/* The array is of berth_alloc(). */
static int captures(void)
{
	float *there = berth_alloc(sizeof(float), BERTH_CUDA, 0);
	float *here = make_here(sizeof *here);
	struct berth_desc d = allreduce(there, 1), of_it = d;
	void *captures = NULL, *graph = NULL;

	CHECK(there && !berth_register(there, sizeof(float), BERTH_CUDA, 0),
	      "berth_alloc");
	copy(here, there, sizeof *here);
	CHECK(*here == 0, "memory that is new is %g", (double)*here);
	check_sums(there, here, 1);
	CHECK(!more.cuStreamCreate(&captures, NON_BLOCKING), "a stream");
	CHECK(!more.cuStreamBeginCapture(captures, 0), "to capture");
	of_it.stream = captures;
	CHECK(is_refused(of_it), "on a stream that captures: %s",
	      berth_last_error()->text);
	d.memory = BERTH_ANYWHERE;
	for (int i = 0; i < 3; i++)
		CHECK(!berth_run(&d, -1, NULL), "beside it");
	CHECK(!more.cuStreamEndCapture(captures, &graph), "the capture was ended");
	CHECK(!more.cuGraphDestroy(graph) && !more.cuStreamDestroy(captures), "both");
	copy(here, there, sizeof *here);
	CHECK(*here == sum_at(0) * (float)(size * size * size), "%g", (double)*here);
	berth_free(there);
	if (rank == 0)
		printf("np %d: a stream that captures is refused, and goes on\n", size);
	return 0;
}

/* ---- the gradients of a step ---- */

/* As many as ResNet-50 has, and about as uneven: a few are large, most are small. */
enum { GRADIENTS = 161 };

struct gradients {
	float *here, *there; /* all of them, one behind the other */
	size_t at[GRADIENTS + 1];
	berth_request *request[GRADIENTS];
};

static void make_gradients(struct gradients *g)
{
	const size_t most = most_bytes / sizeof(float);

	for (size_t i = 0; i < GRADIENTS; i++)
		g->at[i + 1] =
			g->at[i] + 1 + (i % 3 ? most >> 15 : most / 16 >> (i / 3 % 4));
	g->here = make_here(g->at[GRADIENTS] * sizeof(float));
	g->there = make_there(g->at[GRADIENTS] * sizeof(float));
}

/* Backward writes them on the stream one by one, and the optimizer reads them there:
 * the host waits for nothing. */
static void step_gradients(struct gradients *g)
{
	for (size_t i = 0; i < GRADIENTS; i++) {
		const size_t at = g->at[i], count = g->at[i + 1] - at;
		struct berth_desc d = allreduce(g->there + at, count);
		char name[16];

		snprintf(name, sizeof name, "grad%zu", i);
		d.name = name;
		d.stream = stream;
		copy_later(g->there + at, g->here + at, count * sizeof(float));
		CHECK(!berth_submit(&d, 1, &g->request[i]), "%s", name);
	}
	for (size_t i = 0; i < GRADIENTS; i++)
		CHECK(!berth_wait_stream(g->request[i], stream, -1), "gradient %zu", i);
}

static void end_gradients(struct gradients *g)
{
	CHECK(!cuda.cuStreamSynchronize(stream), "the step");
	for (size_t i = 0; i < GRADIENTS; i++)
		CHECK(!berth_wait(g->request[i], -1), "gradient %zu", i);
}

static int gradients(void)
{
	static struct gradients g;
	static uint64_t ns[ROUNDS];
	size_t all;

	make_gradients(&g);
	all = g.at[GRADIENTS];
	for (unsigned round = 0; round < ROUNDS; round++) {
		const uint64_t begun_ns = clock_ns();

		for (size_t i = 0; i < all; i++)
			g.here[i] = given(i + round);
		step_gradients(&g);
		end_gradients(&g);
		ns[round] = clock_ns() - begun_ns;
		copy(g.here, g.there, all * sizeof(float));
		for (size_t i = 0; i < all; i++)
			CHECK(g.here[i] == sum_at(i + round), "round %u, element %zu",
			      round, i);
	}
	qsort(ns, ROUNDS, sizeof *ns, by_size);
	if (rank == 0)
		printf("np %d: %d gradients, %.1f MB, in %.2f ms with their copies\n",
		       size, GRADIENTS, (double)all * sizeof(float) / 1e6,
		       (double)ns[ROUNDS / 2] / 1e6);
	return 0;
}

/* ---- all operations against the host's ---- */

/* A rank's arrays, of BYTES each. */
struct arrays {
	size_t bytes;
	unsigned char *in, *out, *expected;
	void *in_there, *out_there;
	unsigned done, refused;
};

/* COUNT of the description, such that each rank has N. */
static size_t whole_count(berth_kind kind, size_t n)
{
	return kind == BERTH_ALLTOALL ? n * (size_t)size : n;
}

/* The host's, then the GPU's: both have to be the same, or the GPU's is refused. */
static void compare(struct arrays *a, struct berth_desc d)
{
	berth_result rc;

	d.stream = NULL;
	d.memory = BERTH_HOST;
	d.in = a->in;
	d.out = a->expected;
	memset(a->expected, 0x55, a->bytes);
	CHECK(!berth_run(&d, -1, NULL), "kind %d on the host", (int)d.kind);
	memset(a->out, 0x55, a->bytes);
	copy(a->in_there, a->in, a->bytes);
	copy(a->out_there, a->out, a->bytes);
	d.memory = BERTH_CUDA;
	d.stream = BERTH_HOST_STREAM;
	d.in = a->in_there;
	d.out = a->out_there;
	rc = berth_run(&d, -1, NULL);
	a->done += !rc;
	a->refused += rc == BERTH_UNSUPPORTED;
	if (rc == BERTH_UNSUPPORTED)
		return;
	CHECK(!rc, "kind %d type %d op %d count %lu", (int)d.kind, (int)d.type,
	      (int)d.op, (unsigned long)d.count);
	copy(a->out, a->out_there, a->bytes);
	CHECK(!memcmp(a->out, a->expected, a->bytes),
	      "kind %d type %d op %d count %lu: not what the host has", (int)d.kind,
	      (int)d.type, (int)d.op, (unsigned long)d.count);
}

/* 0, 1 or 2: sums and products of them are exact in each type. */
static void put(void *p, berth_type type, size_t i, unsigned x)
{
	static const uint64_t floats[][3] = {
		[BERTH_F16] = { 0, 0x3c00, 0x4000 },
		[BERTH_BF16] = { 0, 0x3f80, 0x4000 },
		[BERTH_F32] = { 0, 0x3f800000, 0x40000000 },
		[BERTH_F64] = { 0, 0x3ff0000000000000, 0x4000000000000000 },
		[BERTH_F8_E4M3] = { 0, 0x38, 0x40 },
		[BERTH_F8_E5M2] = { 0, 0x3c, 0x40 },
	};
	const uint64_t bits =
		type >= BERTH_F16 && type != BERTH_BOOL ? floats[type][x] : x;

	memcpy((unsigned char *)p + i * kern_size(type), &bits, kern_size(type));
}

static bool is_float(berth_type type)
{
	return type >= BERTH_F16 && type <= BERTH_F64;
}

static void fill(struct arrays *a, berth_type type, size_t n)
{
	const unsigned below = type == BERTH_BOOL ? 2 : 3;

	for (size_t i = 0; i < n; i++)
		put(a->in, type, i, (unsigned)((i + (size_t)rank) % below));
}

static void compare_kinds(struct arrays *a, berth_type type, size_t n)
{
	static const berth_op ops[] = { BERTH_SUM, BERTH_AVG, BERTH_MIN, BERTH_MAX,
					BERTH_PRODUCT };
	static const berth_kind reductions[] = { BERTH_ALLREDUCE, BERTH_REDUCE,
						 BERTH_REDUCESCATTER };
	static const berth_kind moves[] = { BERTH_ALLGATHER, BERTH_BROADCAST,
					    BERTH_ALLTOALL, BERTH_GATHER,
					    BERTH_SCATTER };
	static const double half = 0.5, four = 4;
	struct berth_desc d = BERTH_DESC(.type = type, .root = size - 1);

	fill(a, type, n * (size_t)size);
	for (size_t k = 0; k < sizeof reductions / sizeof *reductions; k++)
		for (size_t o = 0; o < sizeof ops / sizeof *ops; o++) {
			if (type == BERTH_BOOL && ops[o] == BERTH_AVG)
				continue;
			d.kind = reductions[k];
			d.op = ops[o];
			d.count = n;
			compare(a, d);
			if (!is_float(type))
				continue;
			d.prescale = &half;
			compare(a, d);
			d.postscale = &four;
			compare(a, d);
			d.prescale = d.postscale = NULL;
		}
	d.op = BERTH_SUM;
	for (size_t k = 0; k < sizeof moves / sizeof *moves; k++) {
		d.kind = moves[k];
		d.count = whole_count(moves[k], n);
		compare(a, d);
	}
}

static int operations(void)
{
	const size_t counts[] = { 1, 7, 4093, most_bytes / 64 + 3 };
	struct arrays a = { .bytes = (most_bytes / 64 + 3) * 8 * (size_t)size };

	a.in = make_here(a.bytes);
	a.out = make_here(a.bytes);
	a.expected = make_here(a.bytes);
	a.in_there = make_there(a.bytes);
	a.out_there = make_there(a.bytes);
	for (int type = BERTH_U8; type <= BERTH_F8_E5M2; type++)
		for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
			compare_kinds(&a, (berth_type)type, counts[i]);
	if (rank == 0)
		printf("np %d: %u operations as on the host, %u refused alike\n", size,
		       a.done, a.refused);
	return 0;
}

/* ---- a rank that dies ---- */

/* All ranks see it. */
static struct {
	_Atomic uint64_t died_ns, most_ns;
} * seen;

static void *die_later(void *ms)
{
	usleep(*(unsigned *)ms * 1000);
	atomic_store(&seen->died_ns, clock_ns());
	raise(SIGKILL);
	return NULL;
}

/* The last rank dies MS after its first call, or AFTER_FIRST operation; the others
 * learn it. */
static void lose_one(unsigned ms, bool after_first)
{
	static unsigned wait_ms;
	void *there = make_there(most_bytes);
	struct berth_desc d = allreduce(there, most_bytes / sizeof(float));
	berth_result rc = BERTH_OK;
	uint64_t ns;
	pthread_t t;

	wait_ms = ms;
	if (after_first)
		CHECK(!berth_run(&d, -1, NULL), "the first");
	if (rank == size - 1)
		CHECK(!pthread_create(&t, NULL, die_later, &wait_ms), "a thread");
	while (!rc)
		rc = berth_run(&d, -1, NULL);
	CHECK(rc == BERTH_PEER_LOST, "%s", berth_result_text(rc));
	ns = clock_ns() - atomic_load(&seen->died_ns);
	if (ns > atomic_load(&seen->most_ns))
		atomic_store(&seen->most_ns, ns);
	CHECK(ns < slow_s(2) * 1000000000ull, "after %.1f s", (double)ns / 1e9);
	copy(make_there(4096), make_here(4096), 4096); /* the GPU is of use still */
}

static int dies_joining(void)
{
	lose_one(5, false);
	return 0;
}

static int dies_running(void)
{
	lose_one(300, true);
	return 0;
}

/* ---- over and over ---- */

static unsigned entries(const char *folder)
{
	DIR *d = opendir(folder);
	unsigned n = 0;

	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

static void one_cycle(void *there)
{
	struct berth_desc d = allreduce(there, 1024);

	begin_library();
	CHECK(!berth_run(&d, -1, NULL), "a sum");
	CHECK(!berth_shutdown(), "shutdown");
}

/* Communicators end by themselves, behind the library's end. */
static void await_threads(unsigned most)
{
	const uint64_t until = clock_ns() + slow_s(20) * 1000000000ull;

	while (entries("/proc/self/task") > most && clock_ns() < until)
		usleep(10000);
}

static int cycles(void)
{
	enum { WARM_UP = 5, SLACK = 64 << 20 };
	void *there = make_there(4096);
	unsigned threads, files;
	size_t before = 0, after = 0, all;

	CHECK(!berth_shutdown(), "shutdown");
	for (unsigned i = 0; i < WARM_UP; i++)
		one_cycle(there);
	usleep(200000);
	threads = entries("/proc/self/task");
	files = entries("/proc/self/fd");
	more.cuMemGetInfo(&before, &all);
	for (unsigned i = 0; i < times; i++)
		one_cycle(there);
	await_threads(threads);
	more.cuMemGetInfo(&after, &all);
	CHECK(entries("/proc/self/task") <= threads, "%u threads, now %u", threads,
	      entries("/proc/self/task"));
	CHECK(entries("/proc/self/fd") <= files, "%u descriptors, now %u", files,
	      entries("/proc/self/fd"));
	CHECK(after + SLACK >= before, "%zu bytes of the GPU are lost", before - after);
	if (rank == 0)
		printf("np %d: %u cycles leave %u threads, %u descriptors, "
		       "%.1f MiB of the GPU\n",
		       size, times, threads, files,
		       ((double)before - (double)after) / (1 << 20));
	begin_library();
	return 0;
}

/* ---- which ---- */

#include "tests/gpu/raw.h"

static const struct step {
	const char *name;
	int (*run)(void);
	bool dies;
} steps[] = {
	{ "sums", sums, false },
	{ "captures", captures, false },
	{ "gradients", gradients, false },
	{ "operations", operations, false },
	{ "dies-joining", dies_joining, true },
	{ "dies-running", dies_running, true },
	{ "cycles", cycles, false },
	{ "raw", raw, false },
};

static int run_rank(int own, void *step)
{
	const struct step *s = step;
	int rc;

	begin_rank(own);
	rc = s->run();
	berth_shutdown();
	return rc;
}

/* A step in which the last rank is to be killed. */
static int run_dying(const struct step *s)
{
	int rc;

	seen = mmap(NULL, sizeof *seen, PROT_READ | PROT_WRITE,
		    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	rc = own_ranks_run_dying(size, run_rank, (void *)(uintptr_t)s);
	if (!rc)
		printf("np %d: a lost peer after %.2f s\n", size,
		       (double)atomic_load(&seen->most_ns) / 1e9);
	return rc;
}

int main(int argc, char **argv)
{
	int at = 1;

	for (; at + 1 < argc && argv[at][0] == '-'; at += 2)
		if (!strcmp(argv[at], "-np"))
			size = atoi(argv[at + 1]);
		else if (!strcmp(argv[at], "-bytes"))
			most_bytes = strtoul(argv[at + 1], NULL, 10);
		else if (!strcmp(argv[at], "-times"))
			times = (unsigned)atoi(argv[at + 1]);
	if (at < argc && !strcmp(argv[at], "facts"))
		return facts();
	for (size_t i = 0; at < argc && i < sizeof steps / sizeof *steps; i++)
		if (!strcmp(argv[at], steps[i].name))
			return steps[i].dies
				       ? run_dying(&steps[i])
				       : own_ranks_run(size, run_rank,
						       (void *)(uintptr_t)&steps[i]);
	return 2;
}
