/* lib/net: connections that are not used are released, whatever the moment in which
 * their peers use them again. */
#include "meeting.h"

#include <pthread.h>
#include <sys/time.h>

#include "lib/net/net_state.h"

enum { TURNS = 3000, MOST_BYTES = 3000, SECONDS = 60 };

static unsigned seed;

/* Between two exchanges of a rank, a thread that has the lock may tidy its net. */
struct own {
	struct ranks *r;
	struct net *n;
	pthread_mutex_t lock;
	unsigned own_turn; /* of this rank's own choices */
	unsigned released;
};

static unsigned links(const struct net *n)
{
	unsigned k = 0;

	for (unsigned i = 0; i < n->config.size; i++)
		k += net_socket(n, i, 0) >= 0;
	return k;
}

static void tidy(struct own *o)
{
	const unsigned before = links(o->n);

	net_tidy(o->n);
	o->released += before > links(o->n);
}

/* By the door's thread. */
static void tend(void *ctx)
{
	struct own *o = ctx;

	if (pthread_mutex_trylock(&o->lock))
		return;
	tidy(o);
	pthread_mutex_unlock(&o->lock);
}

static void fill(unsigned char *p, size_t bytes, unsigned from, unsigned turn)
{
	for (size_t i = 0; i < bytes; i++)
		p[i] = (unsigned char)(i * 7 + from * 31 + turn);
}

/* Message TURN of A to B, and if BOTH another one back. */
static void exchange(struct own *o, unsigned turn, unsigned a, unsigned b, bool both,
		     size_t bytes)
{
	const unsigned me = o->r->me, peer = me == a ? b : a;
	unsigned char out[MOST_BYTES], in[MOST_BYTES], want[MOST_BYTES];
	struct net_send s = {
		.peer = peer, .tag = { 1, turn, 0 }, .data = out, .bytes = bytes
	};
	struct net_receive v = {
		.peer = peer, .tag = { 1, turn, 0 }, .data = in, .bytes = bytes
	};
	const bool sends = both || me == a, receives = both || me == b;
	unsigned lost = 0;
	berth_result rc;

	fill(out, bytes, me, turn);
	fill(want, bytes, peer, turn);
	rc = net_exchange(o->n, &s, sends, &v, receives, 0, &lost);
	RANKS_ASSERT(o->r, !rc, "seed %u, turn %u: %s, of rank %u", seed, turn,
		     berth_result_text(rc), lost);
	RANKS_ASSERT(o->r, !receives || !memcmp(in, want, bytes),
		     "seed %u, turn %u: other bytes", seed, turn);
}

static void use(struct own *o, unsigned turn, unsigned *common)
{
	unsigned a = (unsigned)rand_r(common) % o->r->n,
		 b = (a + 1 + (unsigned)rand_r(common) % (o->r->n - 1)) % o->r->n;
	bool both = rand_r(common) % 2;
	size_t bytes = (size_t)rand_r(common) % MOST_BYTES;

	if (o->r->me != a && o->r->me != b)
		return;
	exchange(o, turn, a, b, both, bytes);
}

/* All ranks know which exchanges there are; what each does between them is its own:
 * nothing, some looks, or a pause in which its door's thread tidies if it is asked. */
static void race(struct ranks *r)
{
	struct own o = { .r = r,
			 .n = connect_with(r, key),
			 .lock = PTHREAD_MUTEX_INITIALIZER,
			 .own_turn = seed * 64 + r->me };
	struct meeting *m = r->region;
	unsigned common = seed;

	net_tend(o.n, tend, &o);
	for (unsigned turn = 0; turn < TURNS; turn++) {
		unsigned looks = (unsigned)rand_r(&o.own_turn) % 8,
			 yields = (unsigned)rand_r(&o.own_turn) % 4;

		pthread_mutex_lock(&o.lock);
		use(&o, turn, &common);
		for (unsigned i = 0; i < looks; i++) {
			for (unsigned k = 0; k < yields; k++)
				sched_yield();
			tidy(&o);
		}
		pthread_mutex_unlock(&o.lock);
	}
	RANKS_ASSERT(r, o.released > 0, "seed %u: none was released", seed);
	atomic_fetch_add(&m->left, 1);
	while (atomic_load(&m->left) < r->n)
		sched_yield();
	net_tend(o.n, NULL, NULL);
	net_close(o.n);
}

START_TEST(races)
{
	ranks_run((unsigned)_i, sizeof(struct meeting), 0, race, SECONDS);
}
END_TEST

/* Rank 1 is released, and stands still: it hears of that only by its door, when rank 0
 * would use the connection again. */
static void stand_still(struct ranks *r)
{
	struct own o = { .r = r,
			 .n = connect_with(r, key),
			 .lock = PTHREAD_MUTEX_INITIALIZER };
	struct meeting *m = r->region;

	net_tend(o.n, r->me ? tend : NULL, &o);
	exchange(&o, 0, 0, 1, true, 100);
	while (r->me == 0 && links(o.n) && !net_link(o.n, 1, 0)->releasing) {
		sched_yield(); /* until what it sent has come to the other end */
		tidy(&o);
	}
	if (r->me == 0)
		exchange(&o, 1, 0, 1, false, 100);
	atomic_fetch_add(&m->left, r->me == 0);
	while (!atomic_load(&m->left)) /* rank 0 has sent, and rank 1 not looked */
		sched_yield();
	if (r->me) {
		pthread_mutex_lock(&o.lock);
		exchange(&o, 1, 0, 1, false, 100);
		pthread_mutex_unlock(&o.lock);
	}
	net_tend(o.n, NULL, NULL);
	net_close(o.n);
}

START_TEST(one_that_stands_still)
{
	ranks_run(2, sizeof(struct meeting), 0, stand_still, SECONDS);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("net_idle");
	TCase *t = tcase_create("net_idle");
	SRunner *r = srunner_create(s);
	const char *given = getenv("SEED");
	struct timeval now;
	int failed;

	gettimeofday(&now, NULL);
	seed = given ? (unsigned)atoi(given) : (unsigned)now.tv_usec;
	tcase_set_timeout(t, 2 * SECONDS);
	suite_add_tcase(s, t);
	tcase_add_loop_test(t, races, 2, 4);
	tcase_add_test(t, one_that_stands_still);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed;
}
