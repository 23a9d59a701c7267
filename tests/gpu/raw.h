/* raw.h - a step of gpu.c: what a launch of ncclAllReduce() costs the thread that calls
 * it, without the library.  The library's communicators are non-blocking, for which
 * NCCL makes a thread per launch; a blocking one, and a blocking child of a
 * non-blocking one, are what it could have instead. */
#ifndef BERTH_TESTS_GPU_RAW_H
#define BERTH_TESTS_GPU_RAW_H

#include <limits.h>
#include <stdio.h>

enum { RAW_BLOCKING, RAW_NON_BLOCKING, RAW_CHILD, RAW_WAYS };
enum { RAW_OK, RAW_IN_PROGRESS = 7, RAW_FLOAT = 7, RAW_SUM = 0 };

static struct {
#define CALL(result, name, arguments) result(*name) arguments;
#include "lib/backend/nccl_calls.def"
#undef CALL
	int (*ncclCommSplit)(void *comm, int color, int key, void **out,
			     struct nccl_config *config);
} raw_nccl;

static void raw_load(void)
{
	const char *path = getenv("BERTH_NCCL");
	void *lib = dlopen(path ? path : "libnccl.so.2", RTLD_NOW);

	CHECK(lib, "%s", dlerror());
#define CALL(result, name, arguments)                                                  \
	*(void **)&raw_nccl.name = dlsym(lib, #name);                                  \
	CHECK(raw_nccl.name, "NCCL has no " #name);
#include "lib/backend/nccl_calls.def"
#undef CALL
	*(void **)&raw_nccl.ncclCommSplit = dlsym(lib, "ncclCommSplit");
}

static int raw_state(void *comm, int rc)
{
	while (rc == RAW_IN_PROGRESS)
		if (raw_nccl.ncclCommGetAsyncError(comm, &rc))
			return -1;
	return rc;
}

/* NULL: NCCL has no such communicator. */
static void *raw_join(int way, void *parent)
{
	struct nccl_config config = { .size = sizeof config,
				      .magic = 0xcafebeef,
				      .version = 21800,
				      .blocking = way != RAW_NON_BLOCKING,
				      .cga = INT_MIN,
				      .min_ctas = INT_MIN,
				      .max_ctas = INT_MIN,
				      .split_share = INT_MIN };
	struct nccl_id id[OWN_RANKS_MOST], mine = { "" };
	void *comm = NULL;
	int rc;

	if (way == RAW_CHILD) {
		if (!raw_nccl.ncclCommSplit)
			return NULL;
		/* it is made in the way of its parent */
		rc = raw_nccl.ncclCommSplit(parent, 0, rank, &comm, &config);
		return raw_state(parent, rc) == RAW_OK ? comm : NULL;
	}
	if (!rank)
		CHECK(!raw_nccl.ncclGetUniqueId(&mine), "an id");
	own_ranks_gather(&rank, &mine, id, sizeof mine);
	rc = raw_nccl.ncclCommInitRankConfig(&comm, size, id[0], rank, &config);
	return raw_state(comm, rc) == RAW_OK ? comm : NULL;
}

struct raw_times {
	double call_us, whole_us, done_us, threads;
};

/* Threads that have begun on this machine.  The number of a new one would not tell: it
 * begins again at the greatest that there may be. */
static long raw_begun(void)
{
	FILE *f = fopen("/proc/stat", "r");
	char line[512];
	long n = 0;

	while (f && fgets(line, sizeof line, f))
		sscanf(line, "processes %ld", &n);
	if (f)
		fclose(f);
	return n;
}

/* Medians of N sums of COUNT elements, one after the other.  Threads: those that began
 * meanwhile, of all processes. */
static struct raw_times raw_time(void *comm, void *p, size_t count, unsigned n)
{
	static uint64_t call[SMALL_ROUNDS], whole[SMALL_ROUNDS], done[SMALL_ROUNDS];
	const long threads = raw_begun();
	struct raw_times t;

	for (unsigned i = 0; i < n; i++) {
		const uint64_t begun_ns = clock_ns();
		int rc = raw_nccl.ncclAllReduce(p, p, count, RAW_FLOAT, RAW_SUM, comm,
						stream);

		call[i] = clock_ns() - begun_ns;
		rc = raw_state(comm, rc);
		whole[i] = clock_ns() - begun_ns;
		CHECK(rc == RAW_OK, "NCCL says %d", rc);
		CHECK(!cuda.cuStreamSynchronize(stream), "the sum");
		done[i] = clock_ns() - begun_ns;
	}
	t.threads = (double)(raw_begun() - threads) / n;
	qsort(call, n, sizeof *call, by_size);
	qsort(whole, n, sizeof *whole, by_size);
	qsort(done, n, sizeof *done, by_size);
	t.call_us = (double)call[n / 2] / 1000;
	t.whole_us = (double)whole[n / 2] / 1000;
	t.done_us = (double)done[n / 2] / 1000;
	return t;
}

static void raw_print(const char *name, void *comm, void *there)
{
	const size_t count = most_bytes / sizeof(float);
	struct raw_times small, large;

	if (!comm) {
		if (rank == 0)
			printf("%s: NCCL has none; ", name);
		return;
	}
	raw_time(comm, there, 1, ROUNDS); /* the first one makes connections */
	small = raw_time(comm, there, 1, SMALL_ROUNDS);
	large = raw_time(comm, there, count, ROUNDS);
	if (rank == 0)
		printf("%s: 4 B %.1f us, launched in %.1f, done in %.1f, %.1f threads, "
		       "%zu KiB in %.0f us; ",
		       name, small.call_us, small.whole_us, small.done_us,
		       small.threads, most_bytes >> 10, large.done_us);
}

/* They are not destroyed: that waits for the other rank, and is no part of this. */
static int raw(void)
{
	static const char *const name[RAW_WAYS] = { "blocking", "non-blocking",
						    "blocking child" };
	void *comm[RAW_WAYS], *there = make_there(most_bytes);
	float one = 1, *here = make_here(sizeof *here);

	raw_load();
	if (rank == 0)
		printf("np %d: ", size);
	for (int way = 0; way < RAW_WAYS; way++) {
		comm[way] = raw_join(way, way ? comm[way - 1] : NULL);
		raw_print(name[way], comm[way], there);
	}
	copy(there, &one, sizeof one);
	CHECK(comm[RAW_NON_BLOCKING], "no non-blocking communicator");
	raw_time(comm[RAW_NON_BLOCKING], there, 1, 1);
	copy(here, there, sizeof *here);
	CHECK(*here == (float)size, "a sum of %g", (double)*here);
	if (rank == 0)
		printf("sums are right\n");
	return 0;
}

#endif
