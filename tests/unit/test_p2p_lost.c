/* lib/p2p/p2p: peers that are gone, or say what cannot be.
 * limit_s: 300
 * takes_s: 3 */
#include "p2p_rig.h"

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
		m[1] = rig_send(1, 2, "small", 6);
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
		RANKS_ASSERT(g->r, !strcmp((char *)last, "small"), "its data");
	}
	/* all have seen it before one leaves */
	atomic_fetch_add(&g->shared->step, 1);
	while (atomic_load(&g->shared->step) < n - 1)
		p2p_progress(g->p);
}

START_TEST(dies)
{
	rig_start(_i, 4, one_dies);
}
END_TEST

/* A rank that has left is lost for who still waits for it, but not for a receive from
 * any as long as there are others. */
static void one_leaves(struct rig *g)
{
	unsigned me = g->r->me;
	struct p2p_message m[2] = { rig_receive(0, 1, NULL, 0),
				    rig_receive(P2P_ANY, 2, NULL, 0) };
	struct p2p_message s[4];

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
			s[i] = rig_send(i, 2, NULL, 0);
			rig_post(g, &s[i], 1);
		}
	while (m[1].rc == BERTH_BUSY || s[3 - me].rc == BERTH_BUSY)
		p2p_progress(g->p);
	RANKS_ASSERT(g->r, !m[1].rc && !s[3 - me].rc, "%d %d", m[1].rc, s[3 - me].rc);
}

START_TEST(leaves)
{
	rig_start(_i, 3, one_leaves);
}
END_TEST

/* Rank 0 leaves after two messages of a tag of which only the second brought its data
 * along: that is not for the first receive. */
static void one_is_cut(struct rig *g)
{
	static unsigned char data[P2P_EAGER_BYTES + 1], out[P2P_EAGER_BYTES + 1];
	const struct p2p_message large = rig_send(1, 0, data, sizeof data),
				 small = rig_send(1, 0, "b", 1);
	static struct p2p_message m[4];

	m[0] = m[2] = large;
	m[1] = m[3] = small;
	m[2].tag = m[3].tag = 1;
	if (!g->r->me) {
		rig_post(g, m, 4);
		while (g->all->pair[1].heads_out < 4)
			p2p_progress(g->p);
		return;
	}
	m[0] = rig_receive(0, 2, out, 1);
	RANKS_ASSERT(g->r, rig_do(g, m[0]) == BERTH_PEER_LOST, "rank 0 has left");
	for (unsigned i = 0; i < 4; i++) {
		m[i] = rig_receive(i < 2 ? 0 : P2P_ANY, i / 2, out, sizeof out);
		rig_run(g, &m[i], 1);
		RANKS_ASSERT(g->r, m[i].rc == (i % 2 ? BERTH_OK : BERTH_PEER_LOST),
			     "%u: %d", i, m[i].rc);
		RANKS_ASSERT(g->r, m[i].from == 0, "%u: from %u", i, m[i].from);
	}
}

START_TEST(cut)
{
	rig_start(_i, 2, one_is_cut);
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
	static struct p2p_message m[3];

	m[0] = g->r->me ? rig_receive(0, 1, &first, 1) : rig_send(1, 1, "a", 1);
	rig_run(g, m, 1);
	if (!g->r->me) {
		m[0] = rig_send(1, 2, "b", 1);
		rig_post(g, m, 1);
		while (!p2p_stream_is_flushed(g->p->peer[1].stream))
			p2p_progress(g->p);
		return;
	}
	await_end(g, POLLRDHUP);
	for (unsigned i = 0; i < 2; i++) {
		m[i] = rig_send(0, 3, "c", 1);
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
	rig_start(1, 2, says_last);
}
END_TEST

/* ---- a peer that writes what it likes ---- */

/* Of a frame, or none that there is; ending the group is any rank's right. */
static uint32_t any_kind(unsigned *seed)
{
	unsigned kind = P2P_EAGER + (unsigned)rand_r(seed) % 13;

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
			f.group = (unsigned)rand_r(seed);
		if (way == 1)
			f.place = (unsigned)rand_r(seed);
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
	hostile_seed = rig_seed("hostile") + (unsigned)_i * 1000;
	rig_start(0, 3, hostile);
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
	hostile_seed = rig_seed("hostile") + (unsigned)_i * 1000;
	rig_start(1, 3, hostile_bytes);
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
	tcase_add_loop_test(t, cut, 0, 2);
	tcase_add_loop_test(t, hostile_ring, 0, 20);
	tcase_add_loop_test(t, hostile_stream, 0, 20);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed != 0;
}
