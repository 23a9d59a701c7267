/* messages WAY BYTES [TURNS]: how long a message of BYTES takes between two ranks, that
 * send it to and fro.  The median of 11 rounds of TURNS, half of a turn, in us.
 *
 * WAY: shm (p2p in memory), tcp (p2p over a connection), allreduce (one of the same
 * bytes in memory), exchange (net_exchange()); or late, late_tcp: rank 1 sends
 * TURNS ms late, how long after that rank 0 has it, and what the wait costs. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/p2p/p2p.h"
#include "lib/backend/shm.h"
#include "lib/base/clock.h"
#include "lib/base/kern.h"

enum { ROUNDS = 11, LATE_MS = 2000 };

struct side {
	unsigned me;
	struct p2p *p;
	struct p2p_group *all;
	struct p2p_message message[2]; /* the last receive, the last send */
	_Atomic bool done[2];
	struct shm *shm;
	struct net *net;
	unsigned char *data;
	size_t bytes;
	uint32_t seq;
};

static struct shared {
	_Atomic unsigned here;
	_Atomic uint64_t sent_ns;
	char address[2][NET_ADDRESS_BYTES];
} * shared;

static void check(berth_result rc)
{
	if (rc) {
		fprintf(stderr, "messages: result %d\n", rc);
		_exit(1);
	}
}

static bool is_done(void *ctx)
{
	return atomic_load_explicit((_Atomic bool *)ctx, memory_order_acquire);
}

static void note_done(struct p2p_message *m)
{
	atomic_store_explicit((_Atomic bool *)m->alloc_ctx, true, memory_order_release);
}

/* A send ends when the other side has received it: its answer comes before the next
 * message of that side. */
static void p2p_turn(struct side *s, bool sends)
{
	struct p2p_message *m = &s->message[sends];

	*m = (struct p2p_message){ .sends = sends,
				   .peer = !s->me,
				   .in = s->data,
				   .out = s->data,
				   .bytes = s->bytes,
				   .alloc_ctx = &s->done[sends],
				   .done = note_done };
	s->done[sends] = false;
	check(p2p_post(s->all, m, 1));
	for (unsigned i = 0; !sends && i < 2; i++) {
		if (!is_done(&s->done[i]))
			p2p_wait(s->p, is_done, &s->done[i], 0);
		check(s->message[i].rc);
	}
}

static void net_turn(struct side *s, bool sends)
{
	struct net_send out = { .peer = !s->me,
				.tag = { 1, ++s->seq, 0 },
				.data = s->data,
				.bytes = s->bytes };
	struct net_receive in = { .peer = !s->me,
				  .tag = { 1, s->seq, 0 },
				  .data = s->data,
				  .bytes = s->bytes };
	unsigned lost;

	check(net_exchange(s->net, &out, sends, &in, !sends, 0, &lost));
}

static void allreduce(struct side *s)
{
	struct coll c = { .kind = BERTH_ALLREDUCE,
			  .count = s->bytes / 4,
			  .type = BERTH_F32,
			  .op = BERTH_SUM,
			  .in = s->data,
			  .out = s->data,
			  .signature = 1 };

	check(shm_backend.begin(s->shm, &c, 0));
}

static void turn(struct side *s)
{
	for (unsigned i = 0; i < 2; i++)
		if (s->shm)
			allreduce(s);
		else if (s->p)
			p2p_turn(s, s->me == i);
		else
			net_turn(s, s->me == i);
}

static void join(struct side *s, const char *way, void *region)
{
	static const unsigned char key[NET_KEY_BYTES] = "a key of no importance";
	struct net_config n = { .rank = s->me, .size = 2, .key = key, .spins = 20000 };
	struct shm_config m = { .n = 2, .me = s->me, .region = region, .cores = 2 };
	const bool apart = strcmp(way, "shm") && strcmp(way, "late");
	const unsigned rank[] = { 0, 1 }, host[] = { 0, apart };
	static struct members members;
	struct p2p_config c = { .members = &members, .cores = 2 };
	char why[128];

	check(members_make(&members, rank, 2, host, s->me) ? BERTH_MEMORY : BERTH_OK);
	if (!strcmp(way, "allreduce")) {
		s->shm = shm_join(&m);
	} else if (apart) {
		s->net = net_open(&n, why, sizeof why);
		snprintf(shared->address[s->me], NET_ADDRESS_BYTES, "%s",
			 net_address(s->net));
	} else {
		c.region = region;
	}
	atomic_fetch_add(&shared->here, 1);
	while (shared->here < 2)
		usleep(100);
	if (s->net)
		check(net_peer(s->net, !s->me, shared->address[!s->me]));
	c.net = s->net;
	if (!s->shm && strcmp(way, "exchange"))
		s->p = p2p_open(&c);
	s->done[true] = true;
	if (s->p)
		s->all = p2p_join(s->p,
				  &(struct p2p_group_config){ .members = &members });
}

static int by_size(const void *a, const void *b)
{
	const double *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

static void run_late(struct side *s, unsigned ms)
{
	unsigned n = ms < LATE_MS ? LATE_MS / ms : 1;
	double us[LATE_MS], cpu;

	turn(s);
	cpu = (double)clock_read(CLOCK_PROCESS_CPUTIME_ID);
	for (unsigned k = 0; k < n; k++) {
		if (s->me) {
			usleep(ms * 1000);
			shared->sent_ns = clock_ns();
		}
		p2p_turn(s, s->me);
		us[k] = (double)(clock_ns() - shared->sent_ns) / 1e3;
	}
	cpu = (double)clock_read(CLOCK_PROCESS_CPUTIME_ID) - cpu;
	qsort(us, n, sizeof *us, by_size);
	if (!s->me)
		printf("%u x %u ms: %.1f us late, %.3f ms of CPU each, %.2f %%\n", n,
		       ms, us[n / 2], cpu / 1e6 / n, cpu / 1e4 / n / ms);
}

static void run(struct side *s, const char *way, unsigned turns)
{
	double us[ROUNDS];

	if (!strncmp(way, "late", 4)) {
		run_late(s, turns ? turns : 20);
		return;
	}
	for (unsigned k = 0; k < turns / 10 + 2; k++)
		turn(s);
	for (unsigned k = 0; k < ROUNDS; k++) {
		uint64_t begun = clock_ns();

		for (unsigned i = 0; i < turns; i++)
			turn(s);
		us[k] = (double)(clock_ns() - begun) / 2e3 / turns;
	}
	qsort(us, ROUNDS, sizeof *us, by_size);
	if (!s->me)
		printf("%s %zu bytes: %.3f us (%.3f to %.3f), %.2f GB/s\n", way,
		       s->bytes, us[ROUNDS / 2], us[0], us[ROUNDS - 1],
		       (double)s->bytes / us[ROUNDS / 2] / 1e3);
}

int main(int argc, char **argv)
{
	struct side s = { .bytes = argc > 2 ? strtoull(argv[2], NULL, 10) : 8 };
	size_t bytes = p2p_bytes(2) > shm_bytes(2) ? p2p_bytes(2) : shm_bytes(2);
	void *region = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
			    MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	int status = 0;
	pid_t pid;

	if (argc < 2)
		return 2;
	shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE,
		      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pid = fork();
	s.me = !pid;
	s.data = aligned_alloc(64, (s.bytes + 64) / 64 * 64);
	memset(s.data, 0, s.bytes);
	join(&s, argv[1], region);
	run(&s, argv[1], argc > 3 ? (unsigned)atoi(argv[3]) : 10000);
	if (s.p)
		p2p_leave(s.all);
	p2p_close(s.p);
	if (!pid)
		_exit(0);
	waitpid(pid, &status, 0);
	return status != 0;
}
