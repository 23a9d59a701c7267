/* worlds [-n WORLDS] [-s SEED] [-k]: a chain of worlds in the same processes.
 * worlds -f: changes that fail.
 *
 * Five processes that no launcher started change their world again and again: each time
 * they are dealt anew into one or two worlds, in another order, on one host or on two
 * that they make believe.  -k: now and then one is killed in its world, and another
 * takes its slot in the next.  Their bootstrap is memory that all have.
 *
 * In each process four threads go on calling meanwhile: with sets and requests of the
 * old worlds, and blocks of their memory.  At the end there are as many descriptors,
 * threads and mappings as at the beginning. */
#include <dirent.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "lib/berth.h"
#include "tests/helpers/calls.h"
#include "tests/helpers/slow.h"

enum {
	SLOTS = 5,
	CALLS_MOST = 4, /* of the bootstrap, in each world */
	TEXT_BYTES = 2304,
	HELD = 8, /* blocks */
	REQUESTS = 8,
	HANG_S = 120
};

/* One world at most: its bootstrap. */
struct area {
	_Atomic unsigned arrived[CALLS_MOST + 1]; /* the last: a barrier */
	unsigned char said[SLOTS][CALLS_MOST][TEXT_BYTES];
};

static struct area *areas;           /* two for each deal */
static _Atomic unsigned *turn_of;    /* of each slot */
static uint64_t epoch_of[SLOTS + 1]; /* of each slot, as it must be */
static unsigned deals = 50;
static uint64_t seed = 1;
static bool kills;
static int rank; /* the slot of this process */

__attribute__((format(printf, 3, 4))) static void verify(bool fine, int line,
							 const char *fmt, ...)
{
	va_list ap;

	if (fine)
		return;
	fprintf(stderr, "slot %d, deal %u, line %d: ", rank, turn_of[rank], line);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fprintf(stderr, "; last error: %s\n", berth_last_error()->text);
	_exit(1);
}
#define CHECK(fine, ...) verify((fine), __LINE__, __VA_ARGS__)
#define FINE(call) verify((call) == BERTH_OK, __LINE__, "%s", #call)

/* What is dealt in one turn: the same in all processes. */
struct deal {
	unsigned n, me; /* of this slot's world */
	unsigned slot[SLOTS];
	bool two_hosts;
	int dies; /* a slot, at the end; or -1 */
	struct area *area;
	unsigned call;
	uint64_t epoch;
};

static uint64_t noise(uint64_t x)
{
	x = (x + seed) * 0x9e3779b97f4a7c15u;
	x ^= x >> 31;
	x *= 0xbf58476d1ce4e5b9u;
	return x ^ x >> 29;
}

static uint64_t noise_of(unsigned turn, unsigned about)
{
	return noise(noise(seed * 1000003 + turn) + about);
}

static uint64_t next_epoch(const unsigned *slot, unsigned n)
{
	uint64_t most = 0;

	for (unsigned i = 0; i < n; i++)
		if (epoch_of[slot[i]] > most)
			most = epoch_of[slot[i]];
	for (unsigned i = 0; i < n; i++)
		epoch_of[slot[i]] = most + 1;
	return most + 1;
}

/* To be called for one turn after the other. */
static struct deal deal(unsigned turn)
{
	struct deal d = { .dies = -1, .two_hosts = noise_of(turn, 101) % 2 };
	unsigned order[SLOTS], from = 0, n = (unsigned)(noise_of(turn, 100) % SLOTS);

	for (unsigned i = 0; i < SLOTS; i++)
		order[i] = i;
	for (unsigned i = SLOTS; i-- > 1;) {
		const unsigned k = (unsigned)(noise_of(turn, i) % (i + 1)),
			       o = order[i];

		order[i] = order[k];
		order[k] = o;
	}
	for (unsigned w = 0; w < 2; w++, from += n, n = SLOTS - n) {
		const uint64_t epoch = next_epoch(order + from, n);

		for (unsigned i = from; i < from + n; i++) {
			if ((int)order[i] != rank)
				continue;
			d.area = &areas[2 * turn + w];
			d.n = n;
			d.me = i - from;
			d.epoch = epoch;
			memcpy(d.slot, order + from, n * sizeof *order);
		}
	}
	if (kills && turn % 5 == 4) {
		d.dies = (int)(noise_of(turn, 102) % SLOTS);
		epoch_of[d.dies] = 1; /* of the next in this slot: it was alone */
	}
	return d;
}

/* ---- the bootstrap ---- */

static void await(_Atomic unsigned *arrived, unsigned n)
{
	atomic_fetch_add(arrived, 1);
	while (atomic_load(arrived) < n)
		nanosleep(&(struct timespec){ .tv_nsec = 20000 }, NULL);
}

static int gather(void *ctx, const void *in, void *out, size_t bytes)
{
	struct deal *d = ctx;
	struct area *a = d->area;
	const unsigned call = d->call++;

	if (call >= CALLS_MOST || bytes > TEXT_BYTES)
		return 7;
	memcpy(a->said[d->me][call], in, bytes);
	await(&a->arrived[call], d->n);
	for (unsigned i = 0; i < d->n; i++)
		memcpy((unsigned char *)out + i * bytes, a->said[i][call], bytes);
	return 0;
}

/* ---- what is counted ---- */

static unsigned entries(const char *path)
{
	DIR *d = opendir(path);
	unsigned n = 0;

	while (d && readdir(d))
		n++;
	closedir(d);
	return n;
}

static unsigned memory_mappings(void)
{
	FILE *f = fopen("/proc/self/maps", "r");
	char line[512];
	unsigned n = 0;

	while (f && fgets(line, sizeof line, f))
		n += strstr(line, "memfd:berth") != NULL;
	fclose(f);
	return n;
}

struct counts {
	unsigned descriptors, threads, mappings;
};

/* A thread that was joined may still be seen for a moment. */
static struct counts count(unsigned threads)
{
	for (int i = 0; i < 1000 && entries("/proc/self/task") != threads; i++)
		usleep(1000);
	return (struct counts){ entries("/proc/self/fd"), entries("/proc/self/task"),
				memory_mappings() };
}

/* ---- the threads ---- */

static _Atomic bool over;
static berth_set *_Atomic set_in_use;

/* What a call may come to that may be of any world, or of none. */
static berth_result allowed(berth_result rc, const char *what)
{
	CHECK(rc == BERTH_OK || rc == BERTH_BUSY || rc == BERTH_STATE ||
		      rc == BERTH_MISMATCH || rc == BERTH_PEER_LOST ||
		      rc == BERTH_ABORTED,
	      "%s came to %d", what, rc);
	if (rc)
		usleep(50);
	return rc;
}

static void *block(void *arg)
{
	while (!over) {
		float x = 1;
		berth_set *set = set_in_use;
		berth_result rc = BERTH_OK;

		if (set)
			rc = allowed(call_allreduce(&(struct berth_desc)BERTH_DESC(
						     .set = set, .in = &x, .out = &x,
						     .count = 1, .type = BERTH_F32)),
				     "allreduce");
		else
			usleep(50);
		CHECK(rc || (x >= 1 && x <= SLOTS), "sum %g", (double)x);
	}
	return arg;
}

static void *submit_and_wait(void *arg)
{
	static struct {
		berth_request *request;
		float x;
		char name[16];
	} f[REQUESTS];
	uint64_t at = (uint64_t)rank;

	while (!over) {
		const unsigned i = (unsigned)(noise(at++) % REQUESTS);
		struct berth_desc d =
			BERTH_DESC(.name = f[i].name, .in = &f[i].x, .out = &f[i].x,
				   .count = 1, .type = BERTH_F32);

		if (f[i].request) {
			allowed(berth_poll(f[i].request), "poll");
			if (allowed(berth_wait(f[i].request, (int64_t)(at % 3)),
				    "wait") != BERTH_BUSY)
				f[i].request = NULL;
			continue;
		}
		f[i].x = 1;
		snprintf(f[i].name, sizeof f[i].name, "f%u", i);
		allowed(call_submit(BERTH_ALLREDUCE, &d, 1, &f[i].request), "submit");
	}
	for (int i = 0; i < REQUESTS; i++)
		while (f[i].request &&
		       allowed(berth_wait(f[i].request, 1), "wait") == BERTH_BUSY)
			;
	return arg;
}

static void *make_and_remove(void *arg)
{
	while (!over) {
		berth_set *old = atomic_exchange(&set_in_use, NULL), *set = NULL;

		if (old)
			allowed(berth_set_remove(old), "remove");
		allowed(berth_set_split(NULL, 0, 0, &set), "split");
		set_in_use = set;
		usleep(500);
	}
	if (set_in_use)
		berth_set_remove(set_in_use);
	return arg;
}

static void *look(void *arg)
{
	while (!over) {
		struct berth_world w = { .size = sizeof w };
		char *p = berth_alloc(5000, BERTH_HOST, 0);

		if (p)
			memset(p, 1, 5000);
		if (!allowed(berth_world(&w), "world"))
			CHECK(w.rank >= 0 && w.rank < w.ranks && w.ranks <= SLOTS &&
				      w.epoch,
			      "rank %d of %d, epoch %llu", w.rank, w.ranks,
			      (unsigned long long)w.epoch);
		berth_free(p);
	}
	return arg;
}

static void *(*const what[])(void *) = { block, submit_and_wait, make_and_remove,
					 look };
enum { THREADS = sizeof what / sizeof *what };

/* ---- memory of old worlds ---- */

static struct {
	unsigned char *p, value;
	size_t bytes;
} held[HELD];

static void hold(uint64_t how)
{
	const unsigned i = (unsigned)(how % HELD);

	for (size_t k = 0; held[i].p && k < held[i].bytes; k++)
		CHECK(held[i].p[k] == held[i].value, "byte %zu of a block", k);
	berth_free(held[i].p);
	held[i].bytes = 1 + (how >> 8) % 20000;
	held[i].value = (unsigned char)(how >> 32);
	held[i].p = how >> 40 & 1 ? berth_alloc(held[i].bytes, BERTH_HOST, 0) : NULL;
	if (held[i].p) {
		CHECK(!held[i].p[0] && !held[i].p[held[i].bytes - 1], "not zero");
		memset(held[i].p, held[i].value, held[i].bytes);
	}
}

static void hold_nothing(void)
{
	for (int i = 0; i < HELD; i++) {
		berth_free(held[i].p);
		held[i].p = NULL;
	}
}

/* ---- the worlds ---- */

static berth_result wait_for(struct berth_desc *d)
{
	berth_request *r;
	berth_result rc = call_submit(BERTH_ALLREDUCE, d, 1, &r);

	return rc ? rc : berth_wait(r, -1);
}

/* The world is as it was dealt. */
static void check_world(const struct deal *d)
{
	const unsigned here = d->two_hosts ? (d->n + !(d->me % 2)) / 2 : d->n;
	const struct berth_world w = call_world();
	uint64_t in = 1u << d->me, out = 0;

	CHECK(w.rank == (int)d->me && w.ranks == (int)d->n,
	      "rank %d of %d, not %u of %u", w.rank, w.ranks, d->me, d->n);
	CHECK(w.epoch == d->epoch, "epoch %llu, not %llu", (unsigned long long)w.epoch,
	      (unsigned long long)d->epoch);
	CHECK(w.local_size == (int)here, "%d local ranks, not %u", w.local_size, here);
	FINE(wait_for(&(struct berth_desc)BERTH_DESC(.name = "check", .in = &in,
						     .out = &out, .count = 1,
						     .type = BERTH_U64)));
	CHECK(out == (1u << d->n) - 1, "sum %llx", (unsigned long long)out);
}

static void join(struct deal *d, bool first)
{
	struct berth_bootstrap b = { .size = sizeof b,
				     .rank = (int)d->me,
				     .ranks = (int)d->n,
				     .allgather = gather,
				     .ctx = d,
				     .host = d->two_hosts && d->me % 2 ? "b" : "a" };
	struct berth_config c = { .size = sizeof c, .bootstrap = &b };

	if (first)
		FINE(berth_init(&c));
	else
		FINE(berth_change(&c));
}

/* One of this world is killed, which its others know from the library alone. */
static void lose_one(const struct deal *d, unsigned turn)
{
	uint64_t x = 1;
	berth_result rc;

	if (d->dies == rank) {
		if (noise_of(turn, 103) % 2)
			usleep(2000);
		kill(getpid(), SIGKILL);
	}
	rc = wait_for(&(struct berth_desc)BERTH_DESC(.name = "gone", .in = &x,
						     .out = &x, .count = 1,
						     .type = BERTH_U64));
	CHECK(rc == BERTH_PEER_LOST, "a rank was killed, and waiting came to %d", rc);
}

static bool is_in(const struct deal *d, int slot)
{
	for (unsigned i = 0; i < d->n; i++)
		if ((int)d->slot[i] == slot)
			return true;
	return false;
}

static void live(unsigned turn, bool first)
{
	struct deal d = deal(turn);

	alarm(slow_s(HANG_S));
	atomic_store(&turn_of[rank], turn);
	join(&d, first);
	check_world(&d);
	hold(noise_of(turn, 200 + (unsigned)rank));
	/* who leaves ends what others still do */
	await(&d.area->arrived[CALLS_MOST], d.n);
	if (is_in(&d, d.dies))
		lose_one(&d, turn);
	usleep((useconds_t)(noise_of(turn, 300 + (unsigned)rank) % 1000));
}

static struct counts alone(unsigned threads)
{
	CHECK(berth_size() == 1 && berth_rank() == 0, "alone: %d", berth_size());
	return count(threads);
}

static void *do_nothing(void *arg)
{
	return arg;
}

/* The process of SLOT from TURN on. */
static void be(int slot, unsigned turn)
{
	pthread_t thread[THREADS];
	struct counts before, after;

	rank = slot;
	if (turn == deals)
		exit(0);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (int i = 0; i < SLOTS; i++)
		epoch_of[i] = 1;
	for (unsigned i = 0; i < turn; i++)
		deal(i);
	/* the thread sanitizer begins its own with the first */
	pthread_create(&thread[0], NULL, do_nothing, NULL);
	pthread_join(thread[0], NULL);
	FINE(berth_init(NULL));
	before = alone(entries("/proc/self/task"));
	FINE(berth_shutdown());
	for (int i = 0; i < THREADS; i++)
		pthread_create(&thread[i], NULL, what[i], NULL);
	for (bool first = true; turn < deals; turn++, first = false)
		live(turn, first);
	over = true;
	FINE(berth_change(NULL)); /* which ends what they wait for */
	for (int i = 0; i < THREADS; i++)
		pthread_join(thread[i], NULL);
	FINE(berth_change(NULL));
	hold_nothing();
	after = alone(before.threads);
	CHECK(!memcmp(&before, &after, sizeof after),
	      "%u descriptors, %u threads, %u mappings; before %u, %u, %u",
	      after.descriptors, after.threads, after.mappings, before.descriptors,
	      before.threads, before.mappings);
	FINE(berth_shutdown());
	CHECK(berth_shutdown() == BERTH_STATE, "a second shutdown");
	exit(0);
}

static pid_t start(int slot, unsigned turn)
{
	pid_t pid = fork();

	if (!pid)
		be(slot, turn);
	return pid;
}

/* 0, or 1: a process has failed, and the others are ended. */
static int await_all(pid_t *pid)
{
	unsigned killed = 0;

	for (int left = SLOTS; left;) {
		int status, slot = 0;
		const pid_t who = wait(&status);

		while (slot < SLOTS && pid[slot] != who)
			slot++;
		if (kills && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) {
			killed++;
			pid[slot] = start(slot, turn_of[slot] + 1);
			continue;
		}
		left--;
		if (!status)
			continue;
		fprintf(stderr, "slot %d, deal %u: status %x\n", slot, turn_of[slot],
			(unsigned)status);
		for (int i = 0; i < SLOTS; i++)
			if (i != slot)
				kill(pid[i], SIGTERM);
		return 1;
	}
	printf("%u worlds, seed %llu: %u killed\n", deals, (unsigned long long)seed,
	       killed);
	return 0;
}

/* ---- changes that fail ---- */

static int fail(void *ctx, const void *in, void *out, size_t bytes)
{
	(void)in, (void)out, (void)bytes;
	CHECK(berth_change(NULL) == BERTH_STATE, "berth_change in allgather");
	++*(int *)ctx;
	return 5;
}

/* This process has left its world. */
static void check_none(unsigned char *block)
{
	struct berth_world w = { .size = sizeof w };
	int x = 1;

	CHECK(berth_rank() == -1 && berth_size() == -1, "rank %d", berth_rank());
	CHECK(berth_world(&w) == BERTH_STATE, "a world");
	CHECK(berth_init(NULL) == BERTH_STATE, "berth_init");
	CHECK(!berth_alloc(1, BERTH_HOST, 0), "memory");
	CHECK(call_allreduce(
		      &(struct berth_desc)BERTH_DESC(.in = &x, .out = &x, .count = 1,
						     .type = BERTH_I32)) == BERTH_STATE,
	      "allreduce");
	CHECK(strstr(berth_last_error()->text, "berth_change()"), "the text");
	CHECK(block[0] == 7 && block[9999] == 7, "a block");
}

static int failing(void)
{
	int calls = 0;
	struct berth_bootstrap b = {
		.size = sizeof b, .ranks = 1, .allgather = fail, .ctx = &calls
	};
	struct berth_config c = { .size = sizeof c, .bootstrap = &b };
	unsigned char *block, *other;
	unsigned fds, maps;

	CHECK(berth_change(NULL) == BERTH_STATE, "before berth_init");
	FINE(berth_init(NULL));
	FINE(berth_init(NULL));
	fds = entries("/proc/self/fd");
	maps = memory_mappings();
	block = berth_alloc(10000, BERTH_HOST, 0);
	other = berth_alloc(10000, BERTH_HOST, 0);
	memset(block, 7, 10000);
	for (int i = 0; i < 3; i++) {
		CHECK(berth_change(&c) == BERTH_SYSTEM && calls, "allgather fails");
		check_none(block);
	}
	berth_free(other); /* without a world */
	c.size = 3;
	CHECK(berth_change(&c) == BERTH_INVALID, "a config of 3 bytes");
	check_none(block);
	FINE(berth_change(NULL));
	CHECK(berth_rank() == 0 && call_world().epoch == 2, "the next world");
	CHECK(block[0] == 7 && block[9999] == 7, "a block");
	CHECK(memory_mappings() == maps + 1, "its mapping");
	berth_free(block);
	CHECK(memory_mappings() == maps, "%u mappings", memory_mappings());
	CHECK(entries("/proc/self/fd") == fds, "descriptors");
	CHECK(berth_change(&c) == BERTH_INVALID, "a config of 3 bytes");
	FINE(berth_shutdown());
	FINE(berth_shutdown());
	CHECK(berth_shutdown() == BERTH_STATE, "a third berth_shutdown");
	CHECK(entries("/proc/self/fd") == fds - 1, "descriptors at the end");
	FINE(berth_init(NULL));
	CHECK(call_world().epoch == 3, "epoch");
	FINE(berth_shutdown());
	CHECK(!memory_mappings(), "mappings at the end");
	printf("changes that fail: fine\n");
	return 0;
}

static void *share(size_t bytes)
{
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
		       MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (p == MAP_FAILED)
		abort();
	return p;
}

int main(int argc, char **argv)
{
	bool fails = false;
	pid_t pid[SLOTS];
	int option;

	while ((option = getopt(argc, argv, "n:s:kf")) != -1)
		if (option == 'n')
			deals = (unsigned)strtoul(optarg, NULL, 10);
		else if (option == 's')
			seed = strtoull(optarg, NULL, 10);
		else if (option == 'f')
			fails = true;
		else
			kills = true;
	areas = share(2 * deals * sizeof *areas);
	turn_of = share(SLOTS * sizeof *turn_of);
	if (fails)
		return failing();
	for (int i = 0; i < SLOTS; i++)
		pid[i] = start(i, 0);
	return await_all(pid);
}
