/* lib/p2p/p2p: peers that are gone, or say what cannot be; random patterns;
 * waiting; threads.
 * limit_s: 500 */
#include "p2p_rig.h"

#include <sys/resource.h>

static void (*body)(struct rig *g);

static void with_rig(struct ranks *r)
{
	struct rig g = { .r = r };

	rig_join(&g, r);
	body(&g);
	p2p_leave(g.p);
}

static void run(int i, unsigned n, void (*f)(struct rig *g))
{
	const unsigned hosts[] = { 1, n, 2 };

	rig_hosts = hosts[i];
	body = f;
	ranks_run(n, rig_bytes(n), 0, with_rig, RIG_LIMIT_S);
}

static unsigned seed_of(const char *what)
{
	const char *text = getenv("SEED");
	unsigned seed = text ? (unsigned)atoi(text) : (unsigned)getpid();

	printf("%s: SEED=%u\n", what, seed);
	fflush(stdout);
	return seed;
}

/* ---- peers that are gone ---- */

/* Rank 0 ends without a word, in the middle of all; what the others have with each
 * other goes on. */
static void one_dies(struct rig *g)
{
	enum { BYTES = 20 << 20 };
	static unsigned char data[BYTES], out[BYTES], last[100];
	unsigned me = g->r->me, n = g->r->n;
	struct p2p_message m[8];

	if (!me) {
		m[0] = rig_send(1, 1, data, BYTES);
		m[1] = rig_send(1, 2, "early", 6);
		m[1].early = true;
		rig_post(g, m, 2);
		while (!m[0].moved)
			p2p_progress(g->p);
		atomic_store(&g->shared->gone[0], 1);
		_exit(0);
	}
	m[0] = rig_receive(0, 1, out, BYTES);
	m[1] = rig_receive(0, 5, out, 1);
	m[2] = rig_send(0, 5, data, 10);
	m[3] = rig_send(0, 5, data, BYTES);
	m[4] = rig_receive(P2P_ANY, 6, out, 1);
	m[5] = rig_send(me % (n - 1) + 1, 7, data, 100);
	m[6] = rig_receive(P2P_ANY, 7, last, 100);
	m[6].peer = (int)((me + n - 3) % (n - 1) + 1);
	rig_run(g, m, 7);
	for (unsigned k = 0; k < 5; k++)
		RANKS_ASSERT(g->r, m[k].rc == BERTH_PEER_LOST, "%u: %d", k, m[k].rc);
	RANKS_ASSERT(g->r, !m[5].rc && !m[6].rc, "among others: %d %d", m[5].rc,
		     m[6].rc);
	m[0] = rig_send(0, 5, data, 10);
	RANKS_ASSERT(g->r, rig_do(g, m[0]) == BERTH_PEER_LOST, "a send later");
	m[0] = rig_receive(P2P_ANY, 5, data, 10);
	RANKS_ASSERT(g->r, rig_do(g, m[0]) == BERTH_PEER_LOST, "from any later");
	if (me == 1) {
		m[0] = rig_receive(0, 2, last, 100);
		RANKS_ASSERT(g->r, !rig_do(g, m[0]), "what came before");
		RANKS_ASSERT(g->r, !strcmp((char *)last, "early"), "its data");
	}
	/* all have seen it before one leaves */
	atomic_fetch_add(&g->shared->step, 1);
	while (atomic_load(&g->shared->step) < n - 1)
		p2p_progress(g->p);
}

START_TEST(dies)
{
	run(_i, 4, one_dies);
}
END_TEST

/* A rank that has left is lost for who still waits for it, but not for a receive from
 * any as long as there are others. */
static void one_leaves(struct rig *g)
{
	unsigned me = g->r->me;
	struct p2p_message m[2] = { rig_receive(0, 1, NULL, 0),
				    rig_receive(P2P_ANY, 2, NULL, 0) };

	if (!me)
		return;
	rig_post(g, m, 2);
	while (m[0].rc == BERTH_BUSY)
		p2p_progress(g->p);
	RANKS_ASSERT(g->r, m[0].rc == BERTH_PEER_LOST, "%d", m[0].rc);
	RANKS_ASSERT(g->r, m[1].rc == BERTH_BUSY, "from any: %d", m[1].rc);
	atomic_fetch_add(&g->shared->step, 1);
	while (atomic_load(&g->shared->step) < g->r->n - 1)
		p2p_progress(g->p);
	for (unsigned i = 1; i < g->r->n; i++)
		if (i != me) {
			struct p2p_message s = rig_send(i, 2, NULL, 0);

			s.early = true;
			rig_post(g, &s, 1);
			while (s.rc == BERTH_BUSY)
				p2p_progress(g->p);
		}
	while (m[1].rc == BERTH_BUSY)
		p2p_progress(g->p);
	RANKS_ASSERT(g->r, !m[1].rc, "%d", m[1].rc);
}

START_TEST(leaves)
{
	run(_i, 3, one_leaves);
}
END_TEST

/* Until the peer's host has said WHAT of the connection to rank 0. */
static void await_end(struct rig *g, short what)
{
	const struct p2p_stream *s = g->p->peer[0].stream;
	struct pollfd p = { net_socket(s->net, 0, (unsigned)s->hears), what, 0 };

	do
		RANKS_ASSERT(g->r, poll(&p, 1, RIG_LIMIT_S * 1000) == 1, "no end");
	while (!(p.revents & what));
}

/* Rank 0 leaves.  Rank 1 cannot send to it any more before it has read what rank 0 said
 * last. */
static void says_last(struct rig *g)
{
	char first, last = 0;
	struct p2p_message m[3] = { g->r->me ? rig_receive(0, 1, &first, 1)
					     : rig_send(1, 1, "a", 1) };

	rig_run(g, m, 1);
	if (!g->r->me) {
		m[0] = rig_send(1, 2, "b", 1);
		m[0].early = true;
		rig_run(g, m, 1);
		return;
	}
	await_end(g, POLLRDHUP);
	for (unsigned i = 0; i < 2; i++) {
		m[i] = rig_send(0, 3, "c", 1);
		m[i].early = true;
		rig_post(g, &m[i], 1);
		if (!i)
			await_end(g, POLLHUP);
	}
	m[2] = rig_receive(0, 2, &last, 1);
	rig_post(g, &m[2], 1);
	rig_await(g, 3);
	RANKS_ASSERT(g->r, !m[2].rc && last == 'b', "%d: %d", m[2].rc, last);
}

START_TEST(last_words)
{
	run(1, 2, says_last);
}
END_TEST

/* ---- a peer that writes what it likes ---- */

/* Of a frame, or none that there is; ending the group is any rank's right. */
static uint32_t any_kind(unsigned *seed)
{
	unsigned kind = P2P_EAGER + (unsigned)rand_r(seed) % 11;

	return kind == P2P_ABORT ? P2P_ABORT + 1 : kind;
}

static void scribble(struct rig *g, unsigned *seed, int lasts_ms)
{
	struct p2p_peer *q = &g->p->peer[1];
	uint64_t until = clock_ns() + (unsigned)lasts_ms * 1000000ull;
	uint64_t cells = q->out.cells;

	while (clock_ns() < until) {
		struct p2p_cell *c = &q->out.ring->cell[cells % P2P_CELLS];
		struct p2p_frame f = { .kind = any_kind(seed),
				       .signature = (unsigned)rand_r(seed) % 9,
				       .id = (unsigned)rand_r(seed) % 4,
				       .to = (unsigned)rand_r(seed) % 4,
				       .tag = (unsigned)rand_r(seed) % 3,
				       .bytes = (uint64_t)rand_r(seed) >>
						rand_r(seed) % 31 };
		unsigned way = (unsigned)rand_r(seed) % 40;

		if (way == 0)
			f.heads = (unsigned)rand_r(seed);
		if (way == 1)
			f.room = (unsigned)rand_r(seed);
		if (way == 2)
			f.bytes = ~0ull >> rand_r(seed) % 64;
		if (way == 3)
			f.id = f.to = (unsigned)rand_r(seed);
		if (way == 4)
			atomic_store(&q->in.ring->cells_taken, (uint64_t)rand_r(seed));
		if (way == 5)
			atomic_store(&q->in.ring->bytes_taken, (uint64_t)rand_r(seed)
								       << 6);
		c->frame = f;
		atomic_store(&c->stamp, ++cells);
		while (clock_ns() < until &&
		       atomic_load(&q->out.ring->cells_taken) + P2P_CELLS <= cells)
			sched_yield();
	}
}

static unsigned hostile_seed;

/* Rank 0 is hostile; rank 1 has messages with it and with rank 2, to which nothing
 * happens. */
static void hostile(struct rig *g)
{
	static unsigned char data[100000], in[40][100000];
	struct p2p_message m[40];
	unsigned me = g->r->me, peer = me ^ 3;

	if (!me) {
		scribble(g, &hostile_seed, 60);
		atomic_store(&g->shared->gone[0], 1);
		_exit(0);
	}
	for (unsigned k = 0; k < 40; k++) {
		size_t bytes = k % 4 * 4000;

		m[k] = k % 2 ? rig_send(k < 20 ? peer : 0, k, data, bytes)
			     : rig_receive(k < 20 ? (int)peer : 0, k % 3, in[k], bytes);
		if (k < 20)
			m[k].tag = 100 + k / 2 * 2;
	}
	for (unsigned k = 0; k < 10; k++) /* what one sends the other receives */
		m[2 * k + 1].bytes = m[2 * k].bytes;
	rig_run(g, m, 40);
	for (unsigned k = 0; k < 20; k++)
		RANKS_ASSERT(g->r, !m[k].rc, "%u: %d", k, m[k].rc);
	for (unsigned k = 20; k < 40; k++)
		RANKS_ASSERT(g->r, m[k].rc != BERTH_BUSY, "%u waits", k);
	atomic_fetch_add(&g->shared->step, 1);
	while (atomic_load(&g->shared->step) < 2)
		p2p_progress(g->p);
}

START_TEST(hostile_ring)
{
	hostile_seed = seed_of("hostile") + (unsigned)_i * 1000;
	run(0, 3, hostile);
}
END_TEST

/* The same over a connection: bytes changed on their way. */
static void hostile_bytes(struct rig *g)
{
	static unsigned char data[100000], in[40][100000];
	struct p2p_message m[40];
	unsigned me = g->r->me, peer = me ^ 3;

	for (unsigned k = 0; k < 40; k++) {
		size_t bytes = k % 4 * 4000;
		bool sends = (k + !me) % 2;

		peer = k < 20 && me ? me ^ 3 : !me;
		if (me == 2)
			peer = 1;
		m[k] = sends ? rig_send(peer, k / 2, data, k / 2 % 4 * 4000)
			     : rig_receive((int)peer, k / 2, in[k], k / 2 % 4 * 4000);
		(void)bytes;
	}
	if (!me) {
		struct p2p_stream *s = g->p->peer[1].stream;

		rig_post(g, m + 20, 20);
		while (!s->out || s->speaks < 0)
			p2p_progress(g->p);
		for (unsigned i = 0; i < 300 && !g->p->peer[1].gone; i++) {
			struct p2p_frame f = {
				.kind = any_kind(&hostile_seed),
				.id = (unsigned)rand_r(&hostile_seed) % 4,
				.to = (unsigned)rand_r(&hostile_seed) % 4,
				.tag = (unsigned)rand_r(&hostile_seed) % 30,
				.bytes = (uint64_t)rand_r(&hostile_seed) >>
					 rand_r(&hostile_seed) % 31
			};

			p2p_stream_put(s, &f, data,
				       (unsigned)rand_r(&hostile_seed) % 3 * 100);
			p2p_progress(g->p);
		}
		_exit(0);
	}
	rig_run(g, m, me == 1 ? 40 : 20);
	for (unsigned k = 0; k < 20; k++)
		RANKS_ASSERT(g->r, !m[k].rc, "%u: %d", k, m[k].rc);
	atomic_fetch_add(&g->shared->step, 1);
	while (atomic_load(&g->shared->step) < 2)
		p2p_progress(g->p);
}

START_TEST(hostile_stream)
{
	hostile_seed = seed_of("hostile") + (unsigned)_i * 1000;
	run(1, 3, hostile_bytes);
}
END_TEST

/* ---- random patterns ---- */

enum { PATTERNS = 1000, MESSAGES = 24, TAGS = 4 };

/* A message of a pattern, which all ranks draw alike. */
struct drawn {
	unsigned from, to, tag, number; /* its number among those of its three */
	size_t bytes;
	bool early, wrong_type, too_small;
};

static unsigned draw(unsigned *seed, unsigned n)
{
	return (unsigned)rand_r(seed) % n;
}

/* Tag 0 is received from any, and all of it fits. */
static void draw_all(struct drawn *d, unsigned n, unsigned *seed,
		     unsigned count[8][8][TAGS])
{
	static const size_t most[] = { 1, 100, 9000, 9000, 70000, 2000000 };

	for (unsigned k = 0; k < MESSAGES; k++) {
		unsigned how = draw(seed, 40);

		d[k].from = draw(seed, n);
		d[k].to = draw(seed, n);
		d[k].tag = draw(seed, TAGS);
		d[k].bytes = draw(seed, (unsigned)most[how == 0 ? 5 : how % 5]);
		d[k].early = draw(seed, 2);
		d[k].wrong_type = d[k].tag && draw(seed, 10) == 0;
		d[k].too_small = d[k].tag && d[k].bytes && draw(seed, 10) == 0;
		d[k].number = count[d[k].from][d[k].to][d[k].tag]++;
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

	RANKS_ASSERT(g->r, m->rc == want || (d->early && !m->rc),
		     "send to %u, tag %u, %zu bytes: %d, not %d", d->to, d->tag,
		     d->bytes, m->rc, want);
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
		      unsigned *taken)
{
	unsigned skip = taken[m->from]++;

	for (unsigned k = 0; k < MESSAGES; k++)
		if (d[k].to == g->r->me && d[k].tag == 0 && d[k].from == m->from &&
		    !skip--) {
			check_received(g, &d[k], m);
			return;
		}
	RANKS_ASSERT(g->r, false, "a message of %u too many", m->from);
}

static unsigned pattern_seed;

/* Receives from any have a tag for each pattern, or a fast sender's next message could
 * match. */
static void one_pattern(struct rig *g, unsigned *seed, uint64_t any_tag,
			unsigned count[8][8][TAGS])
{
	struct p2p_message m[2 * MESSAGES];
	struct drawn d[MESSAGES];
	const struct drawn *of[2 * MESSAGES];
	unsigned mine = (*seed ^ 77) + g->r->me, k = 0, taken[8] = { 0 };
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
			m[k].early = of[k]->early;
		}
		if (!of[k]->tag)
			m[k].tag = any_tag;
		rig_post(g, &m[k++], 1);
		if (draw(&mine, 4) == 0)
			p2p_progress(g->p);
	}
	rig_await(g, k);
	for (unsigned i = 0; i < k; i++) {
		if (m[i].sends)
			check_sent(g, of[i], &m[i]);
		else if (m[i].peer == P2P_ANY)
			check_any(g, d, &m[i], taken);
		else
			check_received(g, of[i], &m[i]);
		free(m[i].sends ? (void *)(uintptr_t)m[i].in : m[i].out);
	}
}

static void patterns(struct rig *g)
{
	static unsigned count[8][8][TAGS];
	unsigned seed = pattern_seed;

	for (unsigned k = 0; k < PATTERNS / 5; k++)
		one_pattern(g, &seed, TAGS + k, count);
}

START_TEST(random_patterns)
{
	static const unsigned n[] = { 2, 2, 4, 3, 5 }, way[] = { 0, 1, 2, 1, 2 };

	pattern_seed = seed_of("patterns");
	run((int)way[_i], n[_i], patterns);
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
	RANKS_ASSERT(g->r, me != last || least < 10000000, "%.3f ms late",
		     (double)least / 1e6);
}

START_TEST(sleeps)
{
	run(_i, _i == 2 ? 4 : 2, sleeping);
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
	RANKS_ASSERT(g->r, !g->r->me || least < 15000000, "%.3f ms",
		     (double)least / 1e6);
	free(data);
}

START_TEST(fills)
{
	run(0, 2, filling);
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
	run(_i, _i == 2 ? 4 : 2, threads);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("p2p_lost");
	TCase *t = tcase_create("p2p_lost");
	SRunner *r = srunner_create(s);
	int failed;

	suite_add_tcase(s, t);
	tcase_set_timeout(t, 100);
	tcase_add_loop_test(t, dies, 0, 3);
	tcase_add_test(t, last_words);
	tcase_add_loop_test(t, leaves, 0, 3);
	tcase_add_loop_test(t, hostile_ring, 0, 20);
	tcase_add_loop_test(t, hostile_stream, 0, 20);
	tcase_add_loop_test(t, random_patterns, 0, 5);
	tcase_add_loop_test(t, sleeps, 0, 3);
	tcase_add_test(t, fills);
	tcase_add_loop_test(t, of_threads, 0, 3);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed != 0;
}
