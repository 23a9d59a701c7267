/* flip.c - one bit of what ranks say to each other changes: is it ever taken?
 *
 *     build/helpers/flip PLACES [SEED [KIND [BYTES]]]
 *
 * Each world has 2 to 4 ranks, processes of this program, which take each other for
 * other hosts.  Their bootstrap is memory that all have; it tells each rank, in place
 * of another one's port, a port of this process, which carries what comes there both
 * ways.  So it needs no right.  It reads the heads, and knows which bytes are data.
 * Ranks have different sets of instructions, where the processor has several.
 *
 * A place is drawn evenly from all bytes of data that one operation says, and one bit
 * of it changes, once.  No rank may return BERTH_OK with a wrong result, one returns
 * BERTH_AUTH, and each other one the same, BERTH_ABORTED or BERTH_PEER_LOST, or
 * BERTH_OK with the right result if that does not depend on the byte.  None hangs.
 *
 * A row for each kind: places, operations that failed as they should, and ranks that
 * had the right result.  The first failures are told with what repeats them. */
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

#include "lib/base/clock.h"
#include "lib/berth.h"
#include "tests/helpers/own_ranks.h"
#include "tests/helpers/flip/relay.h"

enum {
	RANKS_MOST = RELAY_RANKS_MOST,
	LARGE_PART = 50, /* one of so many operations has more than 1 MiB */
	DEADLINE_MS = 60000,
	TOLD_MOST = 10
};

/* ---- what the ranks share with this process ---- */

struct verdict {
	_Atomic int done;
	int result, wrong;
	char text[160];
};

static struct shared {
	_Atomic int armed; /* bytes of data count from here on */
	_Atomic int port[RANKS_MOST];
	pthread_barrier_t ready;
	struct verdict rank[RANKS_MOST];
} * shared;

/* ---- an operation ---- */

enum kind {
	IN_PLACE,
	ALLREDUCE,
	GROUPED,
	ALLGATHER,
	BROADCAST,
	REDUCE,
	REDUCESCATTER,
	ALLTOALL,
	GATHER,
	SCATTER,
	MESSAGES,
	KINDS
};

static const char *const kind_names[KINDS] = { "allreduce in place",
					       "allreduce",
					       "allreduces, grouped",
					       "allgather",
					       "broadcast",
					       "reduce",
					       "reducescatter",
					       "alltoall",
					       "gather",
					       "scatter",
					       "messages" };

struct job {
	enum kind kind;
	size_t bytes; /* of IN, a multiple of 8 * RANKS unless there are fewer */
	int ranks, hosts;
	int algorithm; /* of BERTH_ALGO; -1: the library's choice */
};

enum { GROUP = 5 };

static uint64_t value(const struct job *j, int rank, size_t i)
{
	return (i + 1) * 0x9e3779b97f4a7c15 ^ (uint64_t)(rank + 1) << 40 ^
	       (uint64_t)j->kind << 20;
}

static uint64_t sum(const struct job *j, size_t i)
{
	uint64_t s = 0;

	for (int r = 0; r < j->ranks; r++)
		s += value(j, r, i);
	return s;
}

/* Element I of what RANK gets. */
static uint64_t wanted(const struct job *j, int rank, size_t i, size_t n)
{
	const size_t part = n / (size_t)j->ranks;

	switch (j->kind) {
	case ALLGATHER:
	case GATHER:
		return value(j, (int)(i / n), i % n);
	case BROADCAST:
		return value(j, 0, i);
	case REDUCESCATTER:
		return sum(j, (size_t)rank * part + i);
	case ALLTOALL:
		return value(j, (int)(i / part), (size_t)rank * part + i % part);
	case SCATTER:
		return value(j, 0, (size_t)rank * n + i);
	case MESSAGES:
		return value(j, (rank + j->ranks - 1) % j->ranks, i);
	default:
		return sum(j, i);
	}
}

struct buffers {
	uint64_t *in, *out;
	size_t n, in_n, out_n; /* elements: COUNT, and of both */
};

static struct buffers buffers_of(const struct job *j, int rank)
{
	const size_t ranks = (size_t)j->ranks;
	struct buffers b = { .n = j->bytes / 8 };

	if (j->kind == REDUCESCATTER || j->kind == ALLTOALL)
		b.n = (b.n + ranks - 1) / ranks * ranks;
	b.in_n = j->kind == SCATTER ? b.n * ranks : b.n;
	b.out_n = j->kind == ALLGATHER || j->kind == GATHER ? b.n * ranks
		  : j->kind == REDUCESCATTER                ? b.n / ranks
							    : b.n;
	b.in = malloc(b.in_n * 8);
	b.out = malloc(b.out_n * 8);
	if (!b.in || !b.out)
		abort();
	for (size_t i = 0; i < b.in_n; i++)
		b.in[i] = value(j, rank, i);
	memset(b.out, 0x55, b.out_n * 8);
	if (j->kind == IN_PLACE)
		memcpy(b.out, b.in, b.n * 8);
	return b;
}

static struct berth_desc desc_of(const struct job *j, const struct buffers *b)
{
	static const berth_kind kinds[KINDS] = {
		BERTH_ALLREDUCE, BERTH_ALLREDUCE, BERTH_ALLREDUCE,     BERTH_ALLGATHER,
		BERTH_BROADCAST, BERTH_REDUCE,    BERTH_REDUCESCATTER, BERTH_ALLTOALL,
		BERTH_GATHER,    BERTH_SCATTER,   BERTH_SEND
	};

	return (struct berth_desc)BERTH_DESC(.kind = kinds[j->kind], .type = BERTH_U64,
					     .op = BERTH_SUM,
					     .in = j->kind == IN_PLACE ? b->out : b->in,
					     .out = b->out, .count = b->n);
}

static berth_result submit(const struct berth_desc *d, size_t n)
{
	berth_request *r;
	const berth_result rc = berth_submit(d, n, &r);

	return rc ? rc : berth_wait(r, -1);
}

/* Parts of one array, which the library does together. */
static berth_result run_grouped(const struct buffers *b, struct berth_desc d)
{
	struct berth_desc group[GROUP];
	size_t at = 0, n = 0;

	while (at < b->n) {
		d.count = n == GROUP - 1 || b->n < GROUP ? b->n - at : b->n / GROUP;
		d.in = b->in + at;
		d.out = b->out + at;
		at += d.count;
		group[n++] = d;
	}
	return submit(group, n);
}

/* To the next rank, from the one before. */
static berth_result run_messages(const struct job *j, int rank, struct berth_desc d)
{
	struct berth_desc both[2] = { d, d };

	both[0].root = (rank + 1) % j->ranks;
	both[1].kind = BERTH_RECV;
	both[1].root = (rank + j->ranks - 1) % j->ranks;
	both[1].room = d.count;
	both[1].count = 0;
	return submit(both, 2);
}

static berth_result operate(const struct job *j, int rank, bool *wrong)
{
	const bool has_out = (j->kind != REDUCE && j->kind != GATHER) || rank == 0;
	struct buffers b = buffers_of(j, rank);
	const struct berth_desc d = desc_of(j, &b);
	const berth_result rc = j->kind == GROUPED    ? run_grouped(&b, d)
				: j->kind == MESSAGES ? run_messages(j, rank, d)
						      : berth_run(&d, -1, NULL);

	*wrong = false;
	if (j->kind == BROADCAST && rank == 0)
		memcpy(b.out, b.in, b.n * 8); /* what it gets is its own */
	for (size_t i = 0; !rc && has_out && i < b.out_n; i++)
		*wrong |= b.out[i] != wanted(j, rank, i, b.n);
	free(b.in);
	free(b.out);
	return rc;
}

/* ---- the bootstrap ---- */

/* The fence's texts are addresses, "PORT ADDRESS/BITS": those of others become ours. */
static int gather(void *rank, const void *in, void *out, size_t bytes)
{
	enum { TEXTS = 3, CALL_AT = 8, TEXT_AT = 24 };
	const int me = *(int *)rank;
	unsigned char *said = out;
	uint32_t call;

	if (own_ranks_gather(rank, in, out, bytes))
		return 1;
	memcpy(&call, (const unsigned char *)in + CALL_AT, sizeof call);
	if (call != TEXTS)
		return 0;
	atomic_store(&shared->port[me],
		     (int)strtol((const char *)in + TEXT_AT, NULL, 10));
	for (int r = 0; r < own_ranks->n; r++, said += bytes)
		if (r != me)
			snprintf((char *)said + TEXT_AT, bytes - TEXT_AT,
				 "%d 127.0.0.1/8", relay.port[r]);
	return 0;
}

static void rank_log(void *ctx, enum berth_log_level level, const char *text)
{
	(void)ctx;
	if (getenv("FLIP_VERBOSE"))
		fprintf(stderr, "%d: %s\n", (int)level, text);
}

static void join(const struct job *j, int *rank)
{
	char host[16];
	const struct berth_bootstrap b = { .size = sizeof b,
					   .rank = *rank,
					   .ranks = j->ranks,
					   .allgather = gather,
					   .ctx = rank,
					   .host = host };
	const struct berth_config c = { .size = sizeof c,
					.log = rank_log,
					.bootstrap = &b };

	snprintf(host, sizeof host, "h%d", *rank * j->hosts / j->ranks);
	setenv("BERTH_NET", "127.0.0.0/8", 1);
	if (*rank % 3 > 0)
		setenv("BERTH_NO_AVX512", "1", 1);
	if (*rank % 3 > 1)
		setenv("BERTH_NO_AVX2", "1", 1);
	if (j->algorithm >= 0)
		setenv("BERTH_ALGO",
		       ((const char *[]){ "double", "halve", "direct" })[j->algorithm],
		       1);
	if (berth_init(&c)) {
		fprintf(stderr, "flip: %s\n", berth_last_error()->text);
		_exit(2);
	}
}

/* What the library measures at first, and what it sets up, is behind both when bytes
 * begin to count. */
static void run_rank(const struct job *j, int rank)
{
	struct verdict *v = &shared->rank[rank];
	bool wrong;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	join(j, &rank);
	if (operate(j, rank, &wrong) || wrong || operate(j, rank, &wrong) || wrong) {
		fprintf(stderr, "flip: before a bit was changed: %s\n",
			wrong ? "wrong" : berth_last_error()->text);
		_exit(2);
	}
	pthread_barrier_wait(&shared->ready);
	atomic_store(&shared->armed, 1);
	v->result = operate(j, rank, &wrong);
	v->wrong = wrong;
	snprintf(v->text, sizeof v->text, "%s",
		 v->result ? berth_last_error()->text : "");
	atomic_store(&v->done, 1);
	berth_shutdown();
	_exit(0);
}

/* ---- one world ---- */

static uint64_t now_ms(void)
{
	return clock_ns() / 1000000;
}

static void prepare(const struct job *j)
{
	pthread_barrierattr_t attr;

	if (own_ranks)
		munmap(own_ranks, sizeof *own_ranks);
	own_ranks_prepare(j->ranks);
	memset(shared, 0, sizeof *shared);
	pthread_barrierattr_init(&attr);
	pthread_barrierattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
	pthread_barrier_init(&shared->ready, &attr, (unsigned)j->ranks);
	relay.seen = 0;
	relay.changed = false;
}

/* How many of N have ended; *BAD: one of them as it should not. */
static int reap(pid_t *pid, int n, bool *bad)
{
	int ended = 0, status;

	for (int r = 0; r < n; r++) {
		if (pid[r] && waitpid(pid[r], &status, WNOHANG) == pid[r]) {
			pid[r] = 0;
			*bad |= status != 0;
		}
		ended += !pid[r];
	}
	return ended;
}

/* FALSE: a rank hung, or ended by itself. */
static bool run_world(const struct job *j)
{
	const uint64_t until = now_ms() + DEADLINE_MS;
	pid_t pid[RANKS_MOST];
	bool bad = false;

	prepare(j);
	for (int r = 0; r < j->ranks; r++) {
		pid[r] = fork();
		if (!pid[r])
			run_rank(j, r);
	}
	while (reap(pid, j->ranks, &bad) < j->ranks && !bad && now_ms() < until)
		relay_turn(j->ranks, 5);
	for (int r = 0; r < j->ranks; r++) {
		if (!pid[r])
			continue;
		bad = true;
		kill(pid[r], SIGKILL);
		waitpid(pid[r], NULL, 0);
	}
	while (relay.links)
		close_link(0);
	return !bad;
}

/* ---- places ---- */

static uint64_t random_state;

static uint64_t draw(uint64_t below)
{
	random_state += 0x9e3779b97f4a7c15;
	uint64_t z = random_state;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
	z = (z ^ z >> 27) * 0x94d049bb133111eb;
	return (z ^ z >> 31) % below;
}

static struct count {
	unsigned places, large, failed, right, not_reached;
} counts[KINDS];
static unsigned told;

static void tell(const struct job *j, const char *what)
{
	if (told++ >= TOLD_MOST)
		return;
	printf("WRONG: %s: %s, %zu bytes, %d ranks on %d hosts, algorithm %d, bit %u "
	       "of "
	       "byte %llu\n",
	       what, kind_names[j->kind], j->bytes, j->ranks, j->hosts, j->algorithm,
	       relay.bit, (unsigned long long)relay.place);
	for (int r = 0; r < j->ranks; r++)
		printf("  rank %d: %s%s %s\n", r,
		       shared->rank[r].done
			       ? berth_result_text((berth_result)shared->rank[r].result)
			       : "not done",
		       shared->rank[r].wrong ? ", WRONG" : "", shared->rank[r].text);
}

/* NULL, or what is wrong. */
static const char *judge(const struct job *j, struct count *c)
{
	unsigned auth = 0, right = 0;

	for (int r = 0; r < j->ranks; r++) {
		const struct verdict *v = &shared->rank[r];

		if (!v->done)
			return "a rank hung";
		if (v->wrong)
			return "a wrong result was taken";
		auth += v->result == BERTH_AUTH;
		right += v->result == BERTH_OK;
		if (v->result != BERTH_OK && v->result != BERTH_AUTH &&
		    v->result != BERTH_ABORTED && v->result != BERTH_PEER_LOST)
			return "another error";
	}
	c->right += right;
	c->failed += auth > 0;
	return auth ? NULL : "no rank has seen it";
}

static struct job draw_job(int kind, size_t bytes)
{
	static const size_t sizes[] = { 8,    64,    200,   1024,   1032,
					4096, 20000, 65536, 262144, 1 << 20 },
			    large_sizes[] = { 4 << 20, 16 << 20, 64 << 20 };
	struct job j = { .kind = kind >= 0 ? (enum kind)kind : (enum kind)draw(KINDS),
			 .algorithm = (int)draw(4) - 1 };

	j.ranks = 2 + (draw(3) == 0) + (draw(6) == 0);
	j.hosts = j.ranks > 2 && draw(3) == 0 ? 2 : j.ranks;
	j.bytes = bytes ? bytes : sizes[draw(10)];
	if (!bytes && draw(LARGE_PART) == 0)
		j.bytes = large_sizes[draw(8) ? draw(2) : 2];
	if (j.bytes > 1 << 20) {
		if (j.kind == ALLGATHER || j.kind == GATHER || j.kind == SCATTER)
			j.bytes /= (size_t)j.ranks;
		j.bytes = j.bytes / 64 * 64;
	}
	return j;
}

static bool is_same(const struct job *a, const struct job *b)
{
	return a->kind == b->kind && a->bytes == b->bytes && a->ranks == b->ranks &&
	       a->hosts == b->hosts && a->algorithm == b->algorithm;
}

/* How many bytes of data J says. */
static uint64_t measure(const struct job *j)
{
	enum { KNOWN_MOST = 1024 };
	static struct {
		struct job j;
		uint64_t bytes;
	} known[KNOWN_MOST];
	static size_t n;

	for (size_t i = 0; i < n; i++)
		if (is_same(&known[i].j, j))
			return known[i].bytes;
	relay.place = UINT64_MAX;
	if (!run_world(j)) {
		tell(j, "no bit was changed, and it failed");
		return 0;
	}
	if (n < KNOWN_MOST) {
		known[n].j = *j;
		known[n++].bytes = relay.seen;
	}
	return relay.seen;
}

/* FALSE: this one is to be drawn again. */
static bool try_place(const struct job *j)
{
	struct count *c = &counts[j->kind];
	const uint64_t bytes = measure(j);
	const char *wrong;
	bool well;

	if (!bytes)
		return false;
	relay.place = draw(bytes);
	relay.bit = (unsigned)draw(8);
	well = run_world(j);
	if (well && !relay.changed) {
		c->not_reached++; /* fewer bytes than before */
		return false;
	}
	c->places++;
	c->large += j->bytes > 1 << 20;
	wrong = well ? judge(j, c) : "a rank hung, or ended by itself";
	if (wrong)
		tell(j, wrong);
	return true;
}

/* How many places there were. */
static unsigned report(uint64_t seed)
{
	unsigned places = 0, large = 0, missed = 0;

	printf("%-20s %7s %7s %12s\n", "", "places", "failed", "ranks right");
	for (int k = 0; k < KINDS; k++) {
		const struct count *c = &counts[k];

		if (c->places)
			printf("%-20s %7u %7u %12u\n", kind_names[k], c->places,
			       c->failed, c->right);
		places += c->places;
		large += c->large;
		missed += c->not_reached;
	}
	printf("%u places, %u of them in more than 1 MiB, %u wrong; %u that no byte "
	       "came "
	       "to; seed %llu\n",
	       places, large, told, missed, (unsigned long long)seed);
	return places;
}

int main(int argc, char **argv)
{
	const unsigned long places = argc > 1 ? strtoul(argv[1], NULL, 10) : 0;
	const uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
	const int kind = argc > 3 ? (int)strtol(argv[3], NULL, 10) : -1;
	const size_t bytes = argc > 4 ? strtoul(argv[4], NULL, 10) : 0;
	unsigned long tries = 0;

	if (!places || kind >= KINDS) {
		fprintf(stderr, "usage: flip PLACES [SEED [KIND [BYTES]]]\n");
		return 2;
	}
	random_state = seed;
	signal(SIGPIPE, SIG_IGN);
	setvbuf(stdout, NULL, _IOLBF, 0);
	shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE,
		      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (shared == MAP_FAILED)
		return 2;
	relay.real = shared->port;
	relay.armed = &shared->armed;
	relay_open();
	for (unsigned long i = 0; i < places && tries < 2 * places + 100; tries++) {
		const struct job j = draw_job(kind, bytes);

		i += try_place(&j);
	}
	return report(seed) < places || told;
}
