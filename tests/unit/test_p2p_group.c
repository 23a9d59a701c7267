/* lib/p2p/p2p_group: groups beside each other, that receive nothing, end, or are left.
 * limit_s: 300
 * takes_s: 3 */
#include "p2p_rig.h"

#include <semaphore.h>

enum { OTHER = 7, THIRD = 1 << 30 }; /* numbers of groups */

static berth_result do_in(struct rig *g, struct p2p_group *group, struct p2p_message m)
{
	RANKS_ASSERT(g->r, !p2p_post(group, &m, 1), "p2p_post");
	rig_await(g, 1);
	return m.rc;
}

static void await_step(struct rig *g, unsigned step)
{
	while (atomic_load(&g->shared->step) < step) {
		p2p_progress(g->p);
		sched_yield();
	}
}

/* All come here, and what others wait for goes on. */
static void meet_in_memory(struct rig *g)
{
	const unsigned n = g->r->n;

	await_step(g, (atomic_fetch_add(&g->shared->step, 1) / n + 1) * n);
}

/* Members M of all N ranks, the last one first. */
static void turn_round(struct rig *g, struct members *m)
{
	unsigned rank[64], host[64];
	const unsigned n = g->r->n;

	for (unsigned k = 0; k < n; k++) {
		rank[k] = n - 1 - k;
		host[k] = k % rig_hosts;
	}
	RANKS_ASSERT(g->r, !members_make(m, rank, n, host, g->r->me), "members_make");
}

/* ---- groups that do not see each other ---- */

/* The same tag in three groups, one of which has the places the other way round. */
static void beside(struct rig *g)
{
	struct members back;
	struct p2p_group *group[3] = { g->all };
	struct p2p_message m[6];
	uint32_t data[6];
	const unsigned n = g->r->n, me = g->r->me;

	turn_round(g, &back);
	group[1] = rig_group(g, &back, OTHER);
	group[2] = rig_group(g, &g->members, THIRD);
	meet_in_memory(g);
	for (unsigned k = 0; k < 3; k++) {
		const unsigned next = (me + 1) % n;

		data[k] = me * 10 + k;
		m[k] = rig_send(k == 1 ? n - 1 - next : next, 4, &data[k], 4);
		m[3 + k] = rig_receive(P2P_ANY, 4, &data[3 + k], 4);
	}
	for (unsigned k = 3; k-- > 0;) /* in another order than they are received */
		RANKS_ASSERT(g->r, !p2p_post(group[k], &m[k], 1), "a send");
	for (unsigned k = 0; k < 3; k++)
		RANKS_ASSERT(g->r, !p2p_post(group[k], &m[3 + k], 1), "a receive");
	rig_await(g, 6);
	for (unsigned k = 0; k < 3; k++) {
		const unsigned last = (me + n - 1) % n;

		RANKS_ASSERT(g->r, !m[k].rc && !m[3 + k].rc, "%u: %d %d", k, m[k].rc,
			     m[3 + k].rc);
		RANKS_ASSERT(g->r, data[3 + k] == last * 10 + k, "%u: %u", k,
			     data[3 + k]);
		RANKS_ASSERT(g->r, m[3 + k].from == (k == 1 ? n - 1 - last : last),
			     "%u: from %u", k, m[3 + k].from);
	}
	rig_meet(g);
	p2p_leave(group[1]);
	p2p_leave(group[2]);
	members_free(&back);
}

START_TEST(apart)
{
	rig_start(_i, 3, beside);
}
END_TEST

/* Rank 1 receives nothing in one group, into which rank 0 sends more than it keeps. */
static void one_is_full(struct rig *g)
{
	enum { SMALL = 3000, LARGE = 4, BYTES = 20 << 20 };
	static struct p2p_message m[SMALL + LARGE];
	static unsigned char data[BYTES], in[200000];
	struct p2p_group *full = rig_group(g, &g->members, OTHER);
	const unsigned me = g->r->me, peer = !me;

	meet_in_memory(g);
	for (unsigned k = 0; !me && k < SMALL + LARGE; k++) {
		m[k] = rig_send(peer, 1, data, k < SMALL ? 200 : BYTES);
		RANKS_ASSERT(g->r, !p2p_post(full, &m[k], 1), "p2p_post");
	}
	for (unsigned k = 0; k < 200; k++) {
		const size_t bytes = k % 10 ? 100 : sizeof in;
		struct p2p_message one = me ? rig_receive((int)peer, 1, in, bytes)
					    : rig_send(peer, 1, data, bytes);

		one.deadline_ns = clock_ns() + RIG_LIMIT_S * 1000000000ull;
		rig_run(g, &one, 1);
		RANKS_ASSERT(g->r, !one.rc, "message %u: %d", k, one.rc);
	}
	meet_in_memory(g);
	p2p_leave(full);
	if (!me)
		RANKS_ASSERT(g->r, atomic_load(&rig_done) == SMALL + LARGE, "%u ended",
			     atomic_load(&rig_done));
	atomic_store(&rig_done, 0);
	rig_meet(g);
}

START_TEST(full)
{
	rig_start(_i, 2, one_is_full);
}
END_TEST

/* ---- a function of the caller's that is slow ---- */

static sem_t begun, returns;
static _Atomic bool has_begun;

static void slow_done(struct p2p_message *m)
{
	(void)m;
	atomic_store(&has_begun, true);
	sem_post(&begun);
	sem_wait(&returns);
}

/* The connection may be new: a look may bring its first frames alone. */
static void *look_until_begun(void *g)
{
	while (!atomic_load(&has_begun))
		p2p_progress(((struct rig *)g)->p);
	return NULL;
}

/* Two messages, one after the other.  Another thread has done() of the first one. */
static void one_is_slow(struct rig *g)
{
	struct p2p_group *group = rig_group(g, &g->members, OTHER);
	const bool sends = !g->r->me;
	struct p2p_message m[2];
	pthread_t t;

	for (unsigned k = 0; k < 2; k++)
		m[k] = sends ? rig_send(1, 1, NULL, 0) : rig_receive(0, 1, NULL, 0);
	if (!sends)
		m[0].done = slow_done;
	meet_in_memory(g);
	/* a message that has come before its receive is done in p2p_post() */
	while (sends && atomic_load(&g->shared->step) < 3)
		sched_yield();
	rig_post(g, &m[0], 1);
	RANKS_ASSERT(g->r, !p2p_post(group, &m[1], 1), "p2p_post");
	if (sends) {
		rig_await(g, 2);
	} else {
		sem_init(&begun, 0, 0);
		sem_init(&returns, 0, 0);
		atomic_fetch_add(&g->shared->step, 1);
		RANKS_ASSERT(g->r, !pthread_create(&t, NULL, look_until_begun, g),
			     "a thread");
		sem_wait(&begun);
		rig_await(g, 1); /* the other group's */
		sem_post(&returns);
		pthread_join(t, NULL);
	}
	rig_meet(g);
	p2p_leave(group);
}

START_TEST(slow)
{
	rig_start(0, 2, one_is_slow);
}
END_TEST

/* ---- a rank that leaves a group ---- */

/* Of members of this host, as a set says it in its memory. */
static bool rig_has_left(void *ctx, unsigned place)
{
	return atomic_load(&((struct rig *)ctx)->shared->ns[place]);
}

static struct p2p_group *group_to_leave(struct rig *g)
{
	struct p2p_group *group =
		p2p_join(g->p, &(struct p2p_group_config){ .members = &g->members,
							   .number = OTHER,
							   .has_left = rig_has_left,
							   .aborted = rig_note_abort,
							   .ctx = g });

	RANKS_ASSERT(g->r, group, "p2p_join");
	return group;
}

static void leave(struct rig *g, struct p2p_group *group)
{
	p2p_leave(group);
	atomic_store(&g->shared->ns[g->r->me], 1);
}

/* Rank 0 leaves a group.  In turn 1 they have spoken there before; in turn 2 rank 1
 * sends.  Their other group goes on. */
static unsigned leaving_turn;

static void one_leaves(struct rig *g)
{
	struct p2p_group *group = group_to_leave(g);
	const unsigned me = g->r->me, peer = !me;
	struct p2p_message m;
	berth_result rc;
	char c = 0;

	meet_in_memory(g);
	if (leaving_turn) {
		m = me ? rig_receive(0, 1, &c, 1) : rig_send(1, 1, "a", 1);
		RANKS_ASSERT(g->r, !do_in(g, group, m), "the first message");
	}
	if (!me) {
		leave(g, group);
		await_step(g, 3);
	} else {
		m = leaving_turn == 2 ? rig_send(0, 2, "b", 1)
				      : rig_receive(0, 2, &c, 1);
		rc = do_in(g, group, m);
		RANKS_ASSERT(g->r, rc == BERTH_PEER_LOST, "%d", rc);
		rc = do_in(g, group, rig_send(0, 2, "b", 1));
		RANKS_ASSERT(g->r, rc == BERTH_PEER_LOST, "later: %d", rc);
		rc = do_in(g, group, rig_receive(P2P_ANY, 2, &c, 1));
		RANKS_ASSERT(g->r, rc == BERTH_PEER_LOST, "from any: %d", rc);
		atomic_fetch_add(&g->shared->step, 1);
		leave(g, group);
	}
	m = me ? rig_receive((int)peer, 1, &c, 1) : rig_send(peer, 1, "a", 1);
	RANKS_ASSERT(g->r, !rig_do(g, m), "in the other group");
	rig_meet(g);
}

START_TEST(leaves)
{
	leaving_turn = (unsigned)_i / 2;
	rig_start(_i % 2, 2, one_leaves);
}
END_TEST

/* Rank _i leaves while data come and go in the group; those of the other group come
 * whole. */
static unsigned leaver;

static void one_leaves_in_data(struct rig *g)
{
	enum { BYTES = 16 << 20 };
	struct p2p_group *group = group_to_leave(g);
	const unsigned me = g->r->me, peer = !me;
	unsigned char *data = malloc(4 * (size_t)BYTES);
	struct p2p_message in_group[2], m[2];

	RANKS_ASSERT(g->r, data, "memory");
	for (unsigned k = 0; k < 2; k++)
		rig_fill(data + k * (size_t)BYTES, me, k, BYTES);
	in_group[0] = rig_send(peer, 1, data, BYTES);
	in_group[1] = rig_receive((int)peer, 1, data + 2 * (size_t)BYTES, BYTES);
	m[0] = rig_send(peer, 1, data + BYTES, BYTES);
	m[1] = rig_receive((int)peer, 1, data + 3 * (size_t)BYTES, BYTES);
	meet_in_memory(g);
	RANKS_ASSERT(g->r, !p2p_post(group, in_group, 2), "p2p_post");
	rig_post(g, m, 2);
	while (!in_group[1].moved)
		p2p_progress(g->p);
	if (me == leaver)
		leave(g, group);
	rig_await(g, 4);
	RANKS_ASSERT(g->r, !m[0].rc && !m[1].rc, "%d %d", m[0].rc, m[1].rc);
	rig_check(g, m[1].out, peer, 1, BYTES);
	rig_meet(g);
	if (me != leaver)
		leave(g, group);
	free(data);
}

START_TEST(leaves_in_data)
{
	leaver = (unsigned)_i % 2;
	rig_start(_i / 2, 2, one_leaves_in_data);
}
END_TEST

/* ---- a rank that ends a group ---- */

/* Rank 0 ends one group, and leaves it at once.  Rank 1 waits in it; rank 2 waits in
 * another one. */
static void one_ends(struct rig *g)
{
	struct p2p_group *group = rig_group(g, &g->members, OTHER);
	const unsigned me = g->r->me;
	char c = 0;

	meet_in_memory(g);
	if (me == 1)
		RANKS_ASSERT(g->r,
			     do_in(g, group, rig_receive(2, 1, &c, 1)) == BERTH_ABORTED,
			     "in the group");
	if (me == 0) {
		p2p_end(group, BERTH_ABORTED);
		p2p_abort(group, "because of a test");
		p2p_leave(group);
		while (p2p_owes(g->p))
			p2p_progress(g->p);
	}
	rig_meet(g);
	if (!me)
		return;
	while (!*rig_aborted)
		p2p_progress(g->p);
	RANKS_ASSERT(g->r, !strcmp(rig_aborted, "0: because of a test"), "%s",
		     rig_aborted);
	p2p_leave(group);
}

START_TEST(ends)
{
	rig_start(1, 3, one_ends);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("p2p_group");
	TCase *t = tcase_create("p2p_group");
	SRunner *r = srunner_create(s);
	int failed;

	suite_add_tcase(s, t);
	tcase_set_timeout(t, 100);
	tcase_add_loop_test(t, apart, 0, 3);
	tcase_add_loop_test(t, full, 0, 2);
	tcase_add_test(t, slow);
	tcase_add_loop_test(t, leaves, 0, 6);
	tcase_add_loop_test(t, leaves_in_data, 0, 4);
	tcase_add_test(t, ends);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed != 0;
}
