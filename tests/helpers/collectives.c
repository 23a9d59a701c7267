/* collectives.c - a rank that uses all of berth.h and checks what it gets:
 *
 *     runner -np 4 build/helpers/collectives [SEED] CASE...
 *
 * A sample of all there is, chosen by SEED; with ALL=1 in the environment, all of it.
 * Prints what was wrong and exits with 1, or rank 0 prints "CASE: N checks". */
#include <math.h>
#include <pthread.h>
#include <sys/mman.h>

#include "lib/berth.h"
#include "tests/helpers/collectives/asynchronous.h"
#include "tests/helpers/collectives/bits.h"
#include "tests/helpers/collectives/ended.h"
#include "tests/helpers/collectives/failures.h"
#include "tests/helpers/collectives/joined.h"
#include "tests/helpers/collectives/lifetimes.h"
#include "tests/helpers/collectives/overlap.h"
#include "tests/helpers/collectives/requests.h"
#include "tests/helpers/collectives/counts.h"
#include "tests/helpers/collectives/sends.h"
#include "tests/helpers/collectives/sets.h"
#include "tests/helpers/collectives/idle.h"
#include "tests/helpers/collectives/waiting.h"
#include "tests/helpers/calls.h"

/* ---- reductions ---- */

static bool is_defined(berth_type t, berth_op op)
{
	if (op >= BERTH_BAND)
		return !is_float(t);
	return op != BERTH_AVG || t != BERTH_BOOL;
}

static void check_reduction(enum berth_kind kind, berth_type t, berth_op op,
			    uint64_t count, unsigned n, void *a, void *b)
{
	int root = (int)(n % (unsigned)size);
	const double third = 1.0 / 3, more = 1.7;
	bool in_place = n % 2 && kind != BERTH_REDUCESCATTER;
	struct berth_desc d =
		BERTH_DESC(.in = a, .out = in_place ? a : b, .count = count, .type = t,
			   .op = op, .root = root);
	uint64_t from = 0, some = count;

	if (is_float(t) && n % 3 == 1)
		d.prescale = &third;
	if (is_float(t) && n % 4 == 1)
		d.postscale = &more;
	for (uint64_t i = 0; i < count; i++)
		give((char *)a + i * type_bytes[t], t, i, rank, n);
	if (kind == BERTH_ALLREDUCE) {
		FINE(call_allreduce(&d));
		if (n % 8 == 0)
			check_same(d.out, count * type_bytes[t]);
	} else if (kind == BERTH_REDUCE) {
		FINE(call_reduce(&d));
		some = rank == root ? count : 0;
	} else {
		FINE(call_reducescatter(&d));
		some = count / (uint64_t)size +
		       ((uint64_t)rank < count % (uint64_t)size);
		for (int r = 0; r < rank; r++)
			from += count / (uint64_t)size +
				((uint64_t)r < count % (uint64_t)size);
	}
	for (uint64_t i = 0; i<some; i += some> 3000 ? 97 : 1)
		check_element((char *)d.out + i * type_bytes[t], from + i, &d, n,
			      kind == BERTH_ALLREDUCE ? "allreduce"
			      : kind == BERTH_REDUCE  ? "reduce"
						      : "reducescatter");
}

/* Where the result goes to is each rank's own affair. */
static void here_and_there(void)
{
	static float x[200000], y[200000];

	for (uint64_t n = 100; n <= 200000; n *= 20) {
		float *out = ((uint64_t)rank + n / 100) % 2 ? x : y;

		for (uint64_t i = 0; i < n; i++)
			x[i] = (float)rank;
		FINE(call_allreduce(&(struct berth_desc)BERTH_DESC(.in = x, .out = out,
								   .count = n,
								   .type = BERTH_F32)));
		for (uint64_t i = 0; i < n; i++)
			CHECK(out[i] == (float)(size * (size - 1) / 2),
			      "some in place");
	}
}

static void reductions(void)
{
	static const uint64_t counts[] = { 0, 1, 7, 61, 1021, 4099, 70001 };
	void *a = malloc(70001 * 8), *b = malloc(70001 * 8);
	void *heap_a = berth_alloc(70001 * 8, BERTH_HOST, 0),
	     *heap_b = berth_alloc(70001 * 8, BERTH_HOST, 0);
	unsigned n = 1, every = getenv("ALL") ? 1 : 8; /* a sample, by the seed */

	find_hosts();
	CHECK(heap_a && heap_b, "berth_alloc");
	for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
		for (int t = 0; t < TYPE_COUNT; t++)
			for (int op = 0; op < BERTH_ADASUM; op++, n++)
				if (is_defined((berth_type)t, (berth_op)op) &&
				    noise(n) % every == 0)
					for (int k = BERTH_ALLREDUCE;
					     k <= BERTH_REDUCESCATTER; k++)
						check_reduction((enum berth_kind)k,
								(berth_type)t,
								(berth_op)op, counts[i],
								n, n % 3 ? a : heap_a,
								n % 3 ? b : heap_b);
	free(a);
	free(b);
	berth_free(heap_a);
	berth_free(heap_b);
	here_and_there();
}

static void scaled(void)
{
	float in[3] = { 1, 2, (float)rank }, out[3];
	int32_t ints[2] = { 7, -7 };
	struct berth_desc d =
		BERTH_DESC(.name = "scaled", .in = in, .out = out, .count = 3,
			   .type = BERTH_F32, .prescale = &half, .postscale = &four);

	FINE(call_allreduce(&d));
	CHECK(out[0] == 2.0F * (float)size && out[1] == 4.0F * (float)size, "scaled");
	CHECK(out[2] == (float)(size * (size - 1)), "scaled sum");
	FINE(call_allreduce(
		&(struct berth_desc)BERTH_DESC(.in = ints, .out = ints, .count = 2,
					       .type = BERTH_I32, .op = BERTH_AVG)));
	CHECK(ints[0] == 7 && ints[1] == -7, "average of integers");
}

/* ---- data that move ---- */

static uint32_t word(int from, int to, uint64_t i)
{
	return (uint32_t)noise(i + (uint64_t)from * 1000003 + (uint64_t)to * 7919);
}

/* IN_PLACE: in memory that others reach. */
static void gather(uint64_t count, bool uneven, bool in_place)
{
	uint64_t counts[256], all = 0;
	uint32_t *in, *out;

	for (int r = 0; r < size; r++)
		all += counts[r] = uneven ? count * (uint64_t)(r % 3) : count;
	out = in_place ? berth_alloc(all * 4 + 4, BERTH_HOST, 0) : malloc(all * 4 + 4);
	in = in_place ? out : malloc(counts[rank] * 4 + 4);
	for (uint64_t i = 0; i < counts[rank]; i++)
		in[i] = word(rank, 0, i);
	FINE(call_allgather(
		&(struct berth_desc)BERTH_DESC(.in = in, .out = out,
					       .count = counts[rank], .type = BERTH_U32,
					       .out_counts = uneven ? counts : NULL)));
	all = 0;
	for (int r = 0; r < size; r++)
		for (uint64_t i = 0; i < counts[r]; i++)
			CHECK(out[all++] == word(r, 0, i), "allgather from %d", r);
	if (in_place) {
		berth_free(out);
		return;
	}
	free(in);
	free(out);
}

static void exchange(uint64_t count, bool uneven, bool in_place)
{
	uint64_t gives[256], gets[256], in_all = 0, out_all = 0, at = 0;
	uint32_t *in, *out;

	for (int r = 0; r < size; r++) {
		in_all += gives[r] =
			uneven ? count * (uint64_t)((rank + 2 * r) % 3) : count;
		out_all += gets[r] =
			uneven ? count * (uint64_t)((r + 2 * rank) % 3) : count;
	}
	in = malloc((in_all > out_all ? in_all : out_all) * 4 + 4);
	out = in_place ? in : malloc(out_all * 4 + 4);
	for (int r = 0; r < size; r++)
		for (uint64_t i = 0; i < gives[r]; i++)
			in[at++] = word(rank, r, i);
	FINE(call_alltoall(
		&(struct berth_desc)BERTH_DESC(.in = in, .out = out, .count = in_all,
					       .type = BERTH_U32,
					       .in_counts = uneven ? gives : NULL,
					       .out_counts = uneven ? gets : NULL)));
	at = 0;
	for (int r = 0; r < size; r++)
		for (uint64_t i = 0; i < gets[r]; i++)
			CHECK(out[at++] == word(r, rank, i), "alltoall from %d", r);
	if (!in_place)
		free(in);
	free(out);
}

static void moves(void)
{
	static const uint64_t counts[] = { 0, 1, 13, 1000, 100021 };
	uint32_t *p = malloc(100021 * 4);

	for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
		int root = (int)i % size;

		for (int k = 0; k < 4; k++) {
			gather(counts[i], k & 1, k & 2);
			exchange(counts[i], k & 1, k & 2);
		}
		for (uint64_t k = 0; k < counts[i]; k++)
			p[k] = rank == root ? word(root, 0, k) : 0;
		FINE(call_broadcast(&(struct berth_desc)BERTH_DESC(.in = p, .out = p,
								   .count = counts[i],
								   .type = BERTH_U32,
								   .root = root)));
		for (uint64_t k = 0; k < counts[i]; k++)
			CHECK(p[k] == word(root, 0, k), "broadcast");
		FINE(call_barrier(NULL));
	}
	free(p);
}

/* ---- Adasum ---- */

static void adasum_pair(double *a, const double *b, int n)
{
	double aa = 0, bb = 0, ab = 0, ka, kb;

	for (int i = 0; i < n; i++) {
		aa += a[i] * a[i];
		bb += b[i] * b[i];
		ab += a[i] * b[i];
	}
	ka = aa > 0 ? 1 - ab / (2 * aa) : 1;
	kb = bb > 0 ? 1 - ab / (2 * bb) : 1;
	for (int i = 0; i < n; i++)
		a[i] = ka * a[i] + kb * b[i];
}

static void adasum(void)
{
	enum { N = 1000 };
	static double all[64][N], mine[N];
	int power = 1;

	while (power * 2 <= size)
		power *= 2;
	for (int r = 0; r < size; r++)
		for (int i = 0; i < N; i++)
			all[r][i] = (double)(noise((uint64_t)(r * N + i)) % 1000) - 500;
	memcpy(mine, all[rank], sizeof mine);
	FINE(call_allreduce(&(struct berth_desc)BERTH_DESC(.name = "adasum", .in = mine,
							   .out = mine, .count = N,
							   .type = BERTH_F64,
							   .op = BERTH_ADASUM)));
	for (int r = power; r < size; r++)
		adasum_pair(all[r - power], all[r], N);
	for (int d = 1; d < power; d *= 2)
		for (int r = 0; r < power; r += 2 * d)
			adasum_pair(all[r], all[r + d], N);
	for (int i = 0; i < N; i++)
		CHECK(fabs(mine[i] - all[0][i]) <= 1e-9 * (1 + fabs(all[0][i])),
		      "adasum [%d]: %g, not %g", i, mine[i], all[0][i]);
	check_same(mine, sizeof mine);
	FINE(call_allreduce(&(struct berth_desc)BERTH_DESC(.in = mine,
							   .type = BERTH_F64,
							   .op = BERTH_ADASUM)));
}

/* ---- under a limit that leaves all ranks but the first without the heap ---- */

static void without_heap(void)
{
	enum { N = 50000 };
	const size_t bytes = (size_t)4 << 30;
	static float there[N];
	float *p = rank ? there : berth_alloc(sizeof there, BERTH_HOST, 0);
	berth_set *set;

	CHECK(p, "berth_alloc");
	if (rank)
		CHECK(!berth_alloc(1, BERTH_HOST, 0), "a heap");
	for (int i = 0; i < N; i++)
		p[i] = rank ? 0 : (float)i;
	FINE(call_broadcast(&(struct berth_desc)BERTH_DESC(.in = p, .out = p,
							   .count = N,
							   .type = BERTH_F32)));
	for (int i = 0; i < N; i++)
		CHECK(p[i] == (float)i, "broadcast");
	CHECK(berth_set_split(NULL, 0, 0, &set) == BERTH_MEMORY, "a set in the heap");
	CHECK(strstr(berth_last_error()->text, "out of memory"), "why");
	FINE(call_barrier(NULL));
	if (rank) { /* with no memory for a part in what the first calls for */
		CHECK(berth_join(NULL, NULL) == BERTH_MEMORY, "joined");
		return;
	}
	p = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
		 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	CHECK(p != MAP_FAILED, "mmap");
	CHECK(call_allreduce(&(struct berth_desc)BERTH_DESC(.in = p, .out = p,
							    .count = bytes / 4,
							    .type = BERTH_F32)) ==
		      BERTH_MEMORY,
	      "others' memory");
}

/* ---- threads, again and again ---- */

struct job {
	berth_set *set;
	int number;
};

static void *work(void *arg)
{
	struct job *j = arg;
	char name[32];
	berth_request *r;

	snprintf(name, sizeof name, "thread%d", j->number);
	for (int i = 0; i < 300; i++) {
		float x = (float)(rank + j->number + i), y = 0;

		CHECK(sum_in(j->set, 1) == size, "thread %d", j->number);
		FINE(call_submit(
			BERTH_ALLREDUCE,
			&(struct berth_desc)BERTH_DESC(.name = name,
						       .set = j->number % 2 ? j->set
									    : NULL,
						       .in = &x, .out = &y, .count = 1,
						       .type = BERTH_F32),
			1, &r));
		FINE(berth_wait(r, i % 3 ? -1 : 60000));
		CHECK(y == (float)(size * (size - 1) / 2 + size * (j->number + i)),
		      "thread %d: %g", j->number, (double)y);
	}
	return NULL;
}

static void threads(void)
{
	enum { N = 4 };
	pthread_t thread[N];
	struct job job[N];

	for (int i = 0; i < N; i++) {
		job[i].number = i;
		FINE(berth_set_split(NULL, 0, 0, &job[i].set));
	}
	for (int i = 0; i < N; i++)
		pthread_create(&thread[i], NULL, work, &job[i]);
	for (int i = 0; i < N; i++)
		pthread_join(thread[i], NULL);
	for (int i = 0; i < N; i++)
		FINE(berth_set_remove(job[i].set));
}

/* With a sanitizer, whose own mappings come and go, the shared ones alone. */
static unsigned mappings(void)
{
	FILE *f = fopen("/proc/self/maps", "r");
	char line[512], shared;
	unsigned n = 0;

	while (f && fgets(line, sizeof line, f)) {
		if (sscanf(line, "%*x-%*x %*c%*c%*c%c", &shared) != 1)
			continue;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
		n += shared == 's';
#else
		n++;
#endif
	}
	if (f)
		fclose(f);
	return n;
}

static unsigned open_descriptors(void)
{
	unsigned n = 0;

	for (int fd = 0; fd < 1024; fd++)
		n += dup2(fd, fd) == fd;
	return n;
}

/* A set that is there, with its thread, when the library is shut down. */
static void leave_set(bool removed)
{
	float x = 1;
	struct berth_metrics before = { .size = sizeof before }, after = before;
	struct berth_desc d = BERTH_DESC(.name = "x", .in = &x, .out = &x, .count = 1,
					 .type = BERTH_F32);
	berth_request *r;

	FINE(berth_set_split(NULL, 0, 0, &d.set));
	FINE(berth_metrics(&before));
	FINE(call_submit(BERTH_ALLREDUCE, &d, 1, &r));
	FINE(berth_wait(r, -1));
	FINE(call_allreduce(&d));
	if (removed)
		FINE(berth_set_remove(d.set));
	FINE(berth_metrics(&after));
	CHECK(after.operations == before.operations + 2, "%d operations",
	      (int)(after.operations - before.operations));
}

static void again(void)
{
	unsigned fds = 0, maps = 0,
		 times = getenv("TIMES") ? (unsigned)atol(getenv("TIMES")) : 100;

	berth_shutdown();
	for (unsigned i = 0; i < times; i++) {
		FINE(berth_init(NULL));
		CHECK(sum_in(NULL, 1) == size, "time %u", i);
		if (i % 4 == 1)
			leave_set(i % 8 == 1);
		FINE(berth_shutdown());
		if (i == 8) {
			fds = open_descriptors();
			maps = mappings();
		}
	}
	CHECK(open_descriptors() == fds, "descriptors: %u, %u before",
	      open_descriptors(), fds);
	CHECK(mappings() <= maps + 2, "mappings: %u, %u before", mappings(), maps);
	CHECK(berth_rank() == -1 && berth_shutdown() == BERTH_STATE, "after the end");
	FINE(berth_init(NULL));
}

static const struct {
	const char *name;
	void (*run)(void);
} cases[] = {
	{ "reductions", reductions },
	{ "scaled", scaled },
	{ "bits", bits },
	{ "moves", moves },
	{ "sets", sets },
	{ "idle", idle },
	{ "without-heap", without_heap },
	{ "async", asynchronous },
	{ "poll", polling },
	{ "thresholds", thresholds },
	{ "join", joining },
	{ "joined", joined },
	{ "adasum", adasum },
	{ "mismatch", mismatches },
	{ "arguments", arguments },
	{ "threads", threads },
	{ "waiting", waiting },
	{ "late", late },
	{ "lacking", lacking },
	{ "starved", starved },
	{ "stop", stopping },
	{ "again", again },
	{ "ended", ended },
	{ "children", children },
	{ "lifetimes", lifetimes },
	{ "left", left },
	{ "meet", meet },
	{ "requests", requests },
	{ "abort", aborts },
	{ "make", makes },
	{ "counts", counts },
	{ "sends", sends },
	{ "overlap", overlap },
	{ "lost-again", lost_again },
};

static bool run_case(const char *name)
{
	if (!strcmp(name, "lost") || !strcmp(name, "lost-async")) {
		lost(name[4]);
		return true;
	}
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
		if (!strcmp(name, cases[i].name)) {
			cases[i].run();
			return true;
		}
	return false;
}

int main(int argc, char **argv)
{
	if (argc < 2)
		return 2;
	if (berth_init(NULL)) {
		fprintf(stderr, "%s\n", berth_last_error()->text);
		return 3;
	}
	rank = berth_rank();
	size = berth_size();
	for (int i = 1; i < argc; i++) {
		char *end;

		seed = strtoul(argv[i], &end, 10);
		if (*end && !run_case(argv[i]))
			return 2;
		if (*end && rank == 0)
			printf("%s: %lu checks\n", argv[i], checks);
	}
	berth_shutdown();
	return 0;
}
