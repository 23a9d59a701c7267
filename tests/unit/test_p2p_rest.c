/* lib/p2p/p2p_rest: connections that nobody uses are closed, and come again.
 * limit_s: 300 */
#include "p2p_rig.h"

/* What the door's thread does about once a second. */
static void tidy(struct rig *g)
{
	p2p_tidy(g->p);
	usleep(1000);
}

static unsigned sockets(const struct rig *g)
{
	unsigned n = 0;

	for (unsigned i = 0; i < g->r->n; i++)
		for (unsigned lane = 0; lane < 2 && g->p->peer[i].stream; lane++)
			n += net_socket(g->p->config.net, i, lane) >= 0;
	return n;
}

static void tidy_until_all_rest(struct rig *g)
{
	uint64_t until = clock_ns() + RIG_LIMIT_S * 1000000000ull;

	while (g->p->bell_fd >= 0) {
		RANKS_ASSERT(g->r, clock_ns() < until, "%u sockets", sockets(g));
		tidy(g);
	}
	RANKS_ASSERT(g->r, !sockets(g), "%u sockets", sockets(g));
}

/* All come here, by way of the memory that they share; what others wait for goes on. */
static void meet_in_memory(struct rig *g)
{
	const unsigned want =
		(atomic_fetch_add(&g->shared->step, 1) / g->r->n + 1) * g->r->n;

	while (atomic_load(&g->shared->step) < want) {
		if (p2p_owes(g->p))
			p2p_progress(g->p);
		usleep(100);
	}
}

/* ROUND: who speaks first. */
static void speak(struct rig *g, unsigned round)
{
	static unsigned char data[20000], in[20000];
	const unsigned me = g->r->me, peer = !me, n = round & 4 ? sizeof data : 10;
	struct p2p_message m[2] = { rig_send(peer, round, data, n),
				    rig_receive((int)peer, round, in, n) };
	const bool sends = (round & 3) == me || (round & 3) > 1;
	const bool receives = (round & 3) == peer || (round & 3) > 1;

	RANKS_ASSERT(g->r, p2p_ready(g->p), "no bell");
	rig_fill(data, me, round, n);
	rig_run(g, sends ? m : m + 1, sends + receives);
	RANKS_ASSERT(g->r, (!sends || !m[0].rc) && (!receives || !m[1].rc), "%d %d",
		     m[0].rc, m[1].rc);
	if (receives)
		rig_check(g, in, peer, round, n);
}

static void they_rest(struct rig *g)
{
	for (unsigned round = 0; round < 24; round++) {
		speak(g, round);
		tidy_until_all_rest(g);
		meet_in_memory(g);
		speak(g, round / 8 + 1); /* and at once again */
	}
}

START_TEST(rests)
{
	rig_start(1, 2, they_rest);
}
END_TEST

/* Rank 1 waits for a message: the connection stays. */
static void one_waits(struct rig *g)
{
	struct p2p_message m =
		g->r->me ? rig_receive(0, 1, NULL, 0) : rig_send(1, 1, NULL, 0);

	speak(g, 2);
	meet_in_memory(g);
	if (!g->r->me)
		for (unsigned i = 0; i < 50 || g->p->peer[1].asks; i++) {
			tidy(g);
			RANKS_ASSERT(g->r, sockets(g), "look %u", i);
		}
	rig_run(g, &m, 1);
	RANKS_ASSERT(g->r, !m.rc, "%d", m.rc);
}

START_TEST(stays)
{
	rig_start(1, 2, one_waits);
}
END_TEST

static void pause_at_random(struct rig *g, unsigned *seed)
{
	for (unsigned i = (unsigned)rand_r(seed) % 6; i; i--)
		if (rand_r(seed) % 2)
			p2p_tidy(g->p);
		else
			usleep((unsigned)rand_r(seed) % 1000);
	RANKS_ASSERT(g->r, p2p_ready(g->p), "no bell");
}

/* Each step is one message, and each rank looks after its connections as often as it
 * likes.  Some steps leave ranks at rest. */
static void at_random(struct rig *g, unsigned seed)
{
	static unsigned char out[30000], in[30000];
	unsigned own = seed + g->r->me, n = g->r->n, me = g->r->me;

	for (unsigned step = 0; step < 600; step++) {
		const unsigned from = (unsigned)rand_r(&seed) % n;
		const unsigned to = (from + 1 + (unsigned)rand_r(&seed) % (n - 1)) % n;
		const unsigned bytes = (unsigned)rand_r(&seed) % 3
					       ? (unsigned)rand_r(&seed) % 100
					       : (unsigned)rand_r(&seed) % sizeof out;
		struct p2p_message m =
			me == from ? rig_send(to, step, out, bytes)
				   : rig_receive((int)from, step, in, bytes);

		pause_at_random(g, &own);
		if (me != from && me != to)
			continue;
		m.early = me == from && step % 2;
		rig_fill(out, from, step, bytes);
		rig_run(g, &m, 1);
		RANKS_ASSERT(g->r, !m.rc, "step %u: %d", step, m.rc);
		if (me == to)
			rig_check(g, in, from, step, bytes);
	}
	meet_in_memory(g);
}

static unsigned seeded;

static void with_seed(struct rig *g)
{
	at_random(g, seeded);
}

START_TEST(random_rests)
{
	seeded = rig_seed("random_rests");
	rig_start(1 + _i, 4 + (unsigned)_i, with_seed);
}
END_TEST

/* Rank 1 has agreed to rest, and rank 0 has not heard that, when rank 1 ends the group,
 * or leaves it. */
static void one_ends(struct rig *g)
{
	speak(g, 2);
	meet_in_memory(g);
	if (g->r->me) {
		while (!g->p->peer[0].rests)
			tidy(g);
		meet_in_memory(g);
		p2p_end(g->p, BERTH_ABORTED);
		while (!p2p_abort(g->p, "because of a test"))
			usleep(1000);
		return;
	}
	while (!g->p->peer[1].asks)
		tidy(g);
	meet_in_memory(g);
	while (!*rig_aborted)
		tidy(g);
	RANKS_ASSERT(g->r, !strcmp(rig_aborted, "1: because of a test"), "%s",
		     rig_aborted);
}

START_TEST(ends)
{
	rig_start(1, 2, one_ends);
}
END_TEST

/* Rank 0 asks, and ends the group before it has an answer. */
static void one_ends_first(struct rig *g)
{
	speak(g, 2);
	meet_in_memory(g);
	if (!g->r->me) {
		while (!g->p->peer[1].asks)
			tidy(g);
		p2p_end(g->p, BERTH_ABORTED);
		while (!p2p_abort(g->p, "because of a test"))
			usleep(1000);
		meet_in_memory(g);
		return;
	}
	meet_in_memory(g);
	while (!*rig_aborted)
		tidy(g);
	RANKS_ASSERT(g->r, !strcmp(rig_aborted, "0: because of a test"), "%s",
		     rig_aborted);
}

START_TEST(ends_first)
{
	rig_start(1, 2, one_ends_first);
}
END_TEST

/* One leaves while it asks (0), or has agreed (1): who wants something of it then hears
 * that. */
static unsigned leaver;

static void one_leaves(struct rig *g)
{
	struct p2p_peer *q = &g->p->peer[!g->r->me];
	struct p2p_message m = rig_receive((int)leaver, 1, NULL, 0);

	speak(g, 2);
	meet_in_memory(g);
	while (!g->r->me && !q->asks)
		tidy(g);
	while (g->r->me && leaver && !q->rests)
		tidy(g);
	if (g->r->me == leaver)
		return;
	RANKS_ASSERT(g->r, rig_do(g, m) == BERTH_PEER_LOST, "rank %u has left", leaver);
}

START_TEST(leaves)
{
	leaver = (unsigned)_i;
	rig_start(1, 2, one_leaves);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("p2p_rest");
	TCase *t = tcase_create("p2p_rest");
	SRunner *r = srunner_create(s);
	int failed;

	suite_add_tcase(s, t);
	tcase_set_timeout(t, 100);
	tcase_add_test(t, rests);
	tcase_add_test(t, stays);
	tcase_add_loop_test(t, random_rests, 0, 2);
	tcase_add_test(t, ends);
	tcase_add_test(t, ends_first);
	tcase_add_loop_test(t, leaves, 0, 2);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed != 0;
}
