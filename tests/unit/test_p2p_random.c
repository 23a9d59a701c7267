/* lib/p2p/p2p: random patterns, in several groups; waiting; threads.
 * limit_s: 300
 * takes_s: 6 */
#include "p2p_rig.h"

#include <sys/resource.h>

/* ---- random patterns ---- */

enum { PATTERNS = 1000, MESSAGES = 24, TAGS = 4, GROUPS = 3 };

/* A message of a pattern, which all ranks draw alike. */
struct drawn {
	unsigned group, from, to, tag;
	unsigned number; /* its number among those of its four */
	size_t bytes;
	bool wrong_type, too_small;
};

static unsigned draw(unsigned *seed, unsigned n)
{
	return (unsigned)rand_r(seed) % n;
}

/* Tag 0 is received from any, and all of it fits. */
static void draw_all(struct drawn *d, unsigned n, unsigned *seed,
		     unsigned count[GROUPS][8][8][TAGS])
{
	static const size_t most[] = { 1, 100, 9000, 9000, 70000, 2000000 };

	for (unsigned k = 0; k < MESSAGES; k++) {
		unsigned how = draw(seed, 40);

		d[k].from = draw(seed, n);
		d[k].to = draw(seed, n);
		d[k].tag = draw(seed, TAGS);
		d[k].bytes = draw(seed, (unsigned)most[how == 0 ? 5 : how % 5]);
		d[k].group = draw(seed, GROUPS);
		d[k].wrong_type = d[k].tag && draw(seed, 10) == 0;
		d[k].too_small = d[k].tag && d[k].bytes && draw(seed, 10) == 0;
		d[k].number = count[d[k].group][d[k].from][d[k].to][d[k].tag]++;
	}
}

static struct p2p_message receive_of(const struct drawn *d)
{
	struct p2p_message m =
		rig_receive(d->tag ? (int)d->from : P2P_ANY, d->tag, NULL, 2000000);

	if (d->tag)
		m.bytes = d->too_small ? d->bytes - 1 : d->bytes;
	m.signature = d->wrong_type ? 8 : 7;
	m.out = malloc(m.bytes + 1);
	return m;
}

static void check_sent(struct rig *g, const struct drawn *d,
		       const struct p2p_message *m)
{
	berth_result want = d->wrong_type || d->too_small ? BERTH_MISMATCH : BERTH_OK;

	RANKS_ASSERT(g->r, m->rc == want, "send to %u, tag %u, %zu bytes: %d, not %d",
		     d->to, d->tag, d->bytes, m->rc, want);
}

static void check_received(struct rig *g, const struct drawn *d,
			   const struct p2p_message *m)
{
	berth_result want = d->wrong_type || d->too_small ? BERTH_MISMATCH : BERTH_OK;

	RANKS_ASSERT(g->r, m->rc == want, "receive from %u, tag %u: %d, not %d",
		     d->from, d->tag, m->rc, want);
	RANKS_ASSERT(g->r, m->from == d->from && m->got == d->bytes,
		     "from %u, %zu bytes, not %u, %zu", m->from, (size_t)m->got,
		     d->from, d->bytes);
	if (!want)
		rig_check(g, m->out, d->from, d->number, d->bytes);
}

/* A receive from any may have matched each sender's next message. */
static void check_any(struct rig *g, const struct drawn *d, const struct p2p_message *m,
		      unsigned group, unsigned *taken)
{
	unsigned skip = taken[m->from]++;

	for (unsigned k = 0; k < MESSAGES; k++)
		if (d[k].to == g->r->me && d[k].tag == 0 && d[k].group == group &&
		    d[k].from == m->from && !skip--) {
			check_received(g, &d[k], m);
			return;
		}
	RANKS_ASSERT(g->r, false, "a message of %u too many", m->from);
}

static unsigned pattern_seed;
static struct p2p_group *pattern_groups[GROUPS];

/* Receives from any have a tag for each pattern, or a fast sender's next message could
 * match. */
static void one_pattern(struct rig *g, unsigned *seed, uint64_t any_tag,
			unsigned count[GROUPS][8][8][TAGS])
{
	struct p2p_message m[2 * MESSAGES];
	struct drawn d[MESSAGES];
	const struct drawn *of[2 * MESSAGES];
	unsigned mine = (*seed ^ 77) + g->r->me, k = 0;
	unsigned taken[GROUPS][8] = { { 0 } };
	unsigned at[2] = { 0, 0 };

	draw_all(d, g->r->n, seed, count);
	/* sends and receives each in order, mixed as it comes */
	while (at[0] < MESSAGES || at[1] < MESSAGES) {
		unsigned side = draw(&mine, 2);

		if (at[side] == MESSAGES)
			continue;
		of[k] = &d[at[side]++];
		if ((side ? of[k]->to : of[k]->from) != g->r->me)
			continue;
		if (side) {
			m[k] = receive_of(of[k]);
		} else {
			unsigned char *data = malloc(of[k]->bytes + 1);

			rig_fill(data, g->r->me, of[k]->number, of[k]->bytes);
			m[k] = rig_send(of[k]->to, of[k]->tag, data, of[k]->bytes);
		}
		if (!of[k]->tag)
			m[k].tag = any_tag;
		RANKS_ASSERT(g->r, !p2p_post(pattern_groups[of[k]->group], &m[k], 1),
			     "p2p_post");
		k++;
		if (draw(&mine, 4) == 0)
			p2p_progress(g->p);
	}
	rig_await(g, k);
	for (unsigned i = 0; i < k; i++) {
		if (m[i].sends)
			check_sent(g, of[i], &m[i]);
		else if (m[i].peer == P2P_ANY)
			check_any(g, d, &m[i], of[i]->group, taken[of[i]->group]);
		else
			check_received(g, of[i], &m[i]);
		free(m[i].sends ? (void *)(uintptr_t)m[i].in : m[i].out);
	}
}

static void patterns(struct rig *g)
{
	static unsigned count[GROUPS][8][8][TAGS];
	unsigned seed = pattern_seed;

	for (unsigned i = 0; i < GROUPS; i++)
		pattern_groups[i] = i ? rig_group(g, &g->members, i) : g->all;
	rig_meet(g);
	for (unsigned k = 0; k < PATTERNS / 5; k++)
		one_pattern(g, &seed, TAGS + k, count);
	rig_meet(g);
	for (unsigned i = 1; i < GROUPS; i++)
		p2p_leave(pattern_groups[i]);
}

START_TEST(random_patterns)
{
	static const unsigned n[] = { 2, 2, 4, 3, 5 }, way[] = { 0, 1, 2, 1, 2 };

	pattern_seed = rig_seed("patterns");
	rig_start((int)way[_i], n[_i], patterns);
}
END_TEST

/* ---- waiting ---- */

/* A wait of 400 ms costs little, and ends when the message comes: the least of 10.
 * Where there are 4 ranks on 2 hosts, it comes from one of the same host. */
static void sleeping(struct rig *g)
{
	enum { TURNS = 10 };
	unsigned me = g->r->me, last = g->r->n > 2 ? 2 : 1;
	uint64_t least = UINT64_MAX, cpu;

	for (unsigned k = 0; k < TURNS; k++) {
		struct p2p_message m =
			me ? rig_receive(0, 1, NULL, 0) : rig_send(last, 1, NULL, 0);
		uint64_t late;

		rig_meet(g);
		if (me && me != last)
			continue;
		cpu = clock_read(CLOCK_PROCESS_CPUTIME_ID);
		if (!me) {
			usleep(k ? 30000 : 400000);
			atomic_store(&g->shared->ns[0], clock_ns());
		}
		rig_run(g, &m, 1);
		late = clock_ns() - atomic_load(&g->shared->ns[0]);
		cpu = clock_read(CLOCK_PROCESS_CPUTIME_ID) - cpu;
		least = me && late < least ? late : least;
		RANKS_ASSERT(g->r, !me || k || cpu < 8000000, "%.2f ms of CPU",
			     (double)cpu / 1e6);
	}
	RANKS_ASSERT(g->r, me != last || least < 10000000 * slow_s(1), "%.3f ms late",
		     (double)least / 1e6);
}

START_TEST(sleeps)
{
	rig_start(_i, _i == 2 ? 4 : 2, sleeping);
}
END_TEST

/* A sender that sleeps since its ring is full goes on as soon as there is room. */
static void filling(struct rig *g)
{
	enum { BYTES = 3 << 20 };
	unsigned char *data = calloc(1, BYTES);
	uint64_t least = UINT64_MAX, begun = 0, took;

	for (unsigned k = 0; k < 8; k++) {
		struct p2p_message m = g->r->me ? rig_receive(0, 1, data, BYTES)
						: rig_send(1, 1, data, BYTES);

		rig_meet(g);
		rig_post(g, &m, 1);
		if (g->r->me) {
			while (!m.moved)
				p2p_progress(g->p);
			usleep(30000);
			begun = clock_ns();
		}
		rig_await(g, 1);
		took = clock_ns() - begun;
		least = took < least ? took : least;
	}
	RANKS_ASSERT(g->r, !g->r->me || least < 15000000 * slow_s(1), "%.3f ms",
		     (double)least / 1e6);
	free(data);
}

START_TEST(fills)
{
	rig_start(0, 2, filling);
}
END_TEST

/* ---- threads ---- */

enum { THREADS = 3, EACH = 200 };

struct own_wait {
	struct rig *g;
	unsigned number;
	_Atomic unsigned done;
	unsigned want;
};

static void count_own(struct p2p_message *m)
{
	struct own_wait *w = m->alloc_ctx;

	atomic_fetch_add(&w->done, 1);
}

static bool own_is_over(void *ctx)
{
	struct own_wait *w = ctx;

	return atomic_load(&w->done) >= w->want;
}

/* Each thread sends to, and receives from, the same one of the next rank. */
static void *one_thread(void *ctx)
{
	struct own_wait *w = ctx;
	struct rig *g = w->g;
	unsigned n = g->r->n, next = (g->r->me + 1) % n, last = (g->r->me + n - 1) % n;
	static const size_t size[] = { 8, 9000, 100, 70000 };
	unsigned char *out = malloc(70000), *in = malloc(70000);

	for (unsigned k = 0; k < EACH; k++) {
		struct p2p_message m[2] = { rig_send(next, w->number, out, size[k % 4]),
					    rig_receive((int)last, w->number, in,
							size[k % 4]) };

		rig_fill(out, g->r->me, k, size[k % 4]);
		m[0].done = m[1].done = count_own;
		m[0].alloc_ctx = m[1].alloc_ctx = w;
		w->want = 2 * (k + 1);
		rig_post(g, m, 2);
		p2p_wait(g->p, own_is_over, w, clock_ns() + 60000000000ull);
		RANKS_ASSERT(g->r, own_is_over(w) && !m[0].rc && !m[1].rc,
			     "thread %u, %u", w->number, k);
		rig_check(g, in, last, k, size[k % 4]);
	}
	free(out);
	free(in);
	return NULL;
}

static void threads(struct rig *g)
{
	struct own_wait w[THREADS];
	pthread_t t[THREADS];

	for (unsigned i = 0; i < THREADS; i++) {
		w[i] = (struct own_wait){ .g = g, .number = i };
		RANKS_ASSERT(g->r, !pthread_create(&t[i], NULL, one_thread, &w[i]),
			     "pthread_create");
	}
	for (unsigned i = 0; i < THREADS; i++)
		pthread_join(t[i], NULL);
}

START_TEST(of_threads)
{
	rig_start(_i, _i == 2 ? 4 : 2, threads);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("p2p_random");
	TCase *t = tcase_create("p2p_random");
	SRunner *r = srunner_create(s);
	int failed;

	suite_add_tcase(s, t);
	tcase_set_timeout(t, 100);
	tcase_add_loop_test(t, random_patterns, 0, 5);
	tcase_add_loop_test(t, sleeps, 0, 3);
	tcase_add_test(t, fills);
	tcase_add_loop_test(t, of_threads, 0, 3);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed != 0;
}
