/* lib/p2p/p2p: messages from rank to rank: order, tags, any source, sizes, what
 * does not match, deadlines, limits; in memory, over connections, and both.
 * limit_s: 400
 * takes_s: 3 */
#include "p2p_rig.h"

static const size_t sizes[] = { 0, 1, 80, 81, 4096, 8192, 8193, 100000, 1 << 20 };
enum { SIZES = sizeof sizes / sizeof *sizes };

/* ---- order, tags ---- */

enum { MANY = 300 };

static void all_in_order(struct rig *g)
{
	static struct p2p_message out[MANY], in[MANY];
	unsigned me = g->r->me, n = g->r->n, to = (me + 1) % n, from = (me + n - 1) % n;

	for (unsigned k = 0; k < MANY; k++) {
		size_t bytes = sizes[k % SIZES];
		unsigned char *data = malloc(bytes + 1);

		rig_fill(data, me, k, bytes);
		out[k] = rig_send(to, 5, data, bytes);
		in[k] = rig_receive((int)from, 5, malloc(bytes + 1), bytes);
	}
	rig_post(g, out, MANY / 2);
	rig_post(g, in, MANY);
	rig_post(g, out + MANY / 2, MANY / 2);
	rig_await(g, 2 * MANY);
	for (unsigned k = 0; k < MANY; k++) {
		RANKS_ASSERT(g->r, !in[k].rc && !out[k].rc, "%d %d", in[k].rc,
			     out[k].rc);
		RANKS_ASSERT(g->r, in[k].from == from && in[k].got == sizes[k % SIZES],
			     "from %u", in[k].from);
		rig_check(g, in[k].out, from, k, in[k].got);
		free(in[k].out);
		free((void *)(uintptr_t)out[k].in);
	}
}

START_TEST(order)
{
	rig_start(_i, 4, all_in_order);
}
END_TEST

/* Messages of 1,000 tags, received from the last to the first, and one of another tag
 * behind 1,000 that nobody receives yet. */
static void by_tags(struct rig *g)
{
	static struct p2p_message m[1001];
	static uint32_t data[1001];
	unsigned peer = !g->r->me;

	for (unsigned k = 0; k < 1001; k++) {
		data[k] = k;
		m[k] = g->r->me ? rig_receive((int)peer, 1000 - k, &data[k], 4)
				: rig_send(peer, k, &data[k], 4);
	}
	rig_run(g, m, 1001);
	for (unsigned k = 0; g->r->me && k < 1001; k++)
		RANKS_ASSERT(g->r, !m[k].rc && data[k] == 1000 - k, "tag %u", k);
	for (unsigned k = 0; k < 1001; k++) {
		data[k] = k;
		m[k] = g->r->me ? rig_receive((int)peer, 1, &data[k], 4)
				: rig_send(peer, k == 1000 ? 2 : 1, &data[k], 4);
	}
	m[1000].tag = 2;
	if (g->r->me) {
		rig_run(g, m + 1000, 1);
		rig_run(g, m, 1000);
	} else {
		rig_run(g, m, 1001);
	}
	for (unsigned k = 0; k < 1001; k++)
		RANKS_ASSERT(g->r, !m[k].rc && data[k] == k, "%u", k);
}

START_TEST(tags)
{
	rig_start(_i, 2, by_tags);
}
END_TEST

static void from_any(struct rig *g)
{
	static struct p2p_message m[300];
	static uint32_t data[300];
	unsigned n = g->r->n, next[64] = { 0 };

	if (g->r->me) {
		for (unsigned k = 0; k < 100; k++) {
			data[k] = k;
			m[k] = rig_send(0, 9, &data[k], 4);
		}
		rig_run(g, m, 100);
		return;
	}
	for (unsigned k = 0; k < 100 * (n - 1); k++)
		m[k] = rig_receive(P2P_ANY, 9, &data[k], 4);
	rig_run(g, m, 100 * (n - 1));
	for (unsigned k = 0; k < 100 * (n - 1); k++) {
		RANKS_ASSERT(g->r, !m[k].rc && m[k].from > 0 && m[k].from < n,
			     "from %u", m[k].from);
		RANKS_ASSERT(g->r, data[k] == next[m[k].from]++, "order of %u",
			     m[k].from);
	}
}

START_TEST(any)
{
	rig_start(_i, 4, from_any);
}
END_TEST

/* ---- to itself, and all at once ---- */

static void to_self(struct rig *g)
{
	static unsigned char a[100000], b[100000];
	unsigned me = g->r->me;

	for (unsigned k = 0; k < 8; k++) {
		size_t bytes = k & 4 ? sizeof a : 100;
		struct p2p_message m[2] = { rig_send(me, k, a, bytes),
					    rig_receive(k & 1 ? P2P_ANY : (int)me, k, b,
							sizeof b) };

		rig_fill(a, me, k, bytes);
		if (k & 2) {
			rig_post(g, &m[1], 1);
			rig_post(g, &m[0], 1);
			rig_await(g, 2);
		} else {
			rig_run(g, m, 2);
		}
		RANKS_ASSERT(g->r, !m[0].rc && !m[1].rc && m[1].from == me, "%d %d",
			     m[0].rc, m[1].rc);
		rig_check(g, b, me, k, bytes);
	}
}

START_TEST(self)
{
	rig_start(_i, 2, to_self);
}
END_TEST

static void crossing(struct rig *g)
{
	enum { BYTES = 3000001 };
	struct p2p_message m[16];
	unsigned me = g->r->me, n = g->r->n;
	unsigned char *mine = malloc(BYTES);

	rig_fill(mine, me, 1, BYTES);
	for (unsigned i = 0; i < n; i++) {
		m[i] = rig_send((me + i) % n, 1, mine, BYTES);
		m[n + i] = rig_receive((int)i, 1, malloc(BYTES), BYTES);
	}
	rig_post(g, m, n);
	for (unsigned i = 0; i < 100; i++)
		p2p_progress(g->p);
	rig_post(g, m + n, n);
	rig_await(g, 2 * n);
	for (unsigned i = 0; i < n; i++) {
		RANKS_ASSERT(g->r, !m[i].rc && !m[n + i].rc, "%d", m[i].rc);
		rig_check(g, m[n + i].out, i, 1, BYTES);
		free(m[n + i].out);
	}
	free(mine);
}

START_TEST(crossings)
{
	rig_start(_i, 4, crossing);
}
END_TEST

/* ---- what does not match ---- */

static void *take_memory(void *ctx, uint64_t bytes)
{
	return ctx ? NULL : malloc(bytes);
}

/* Rank 0 sends what rank 1 has no room for, does not expect, or has no memory for; then
 * both go on. */
static void not_fitting(struct rig *g)
{
	static unsigned char data[200000], out[200000];
	unsigned peer = !g->r->me;

	for (unsigned k = 0; k < 3 * SIZES; k++) {
		size_t bytes = sizes[k % SIZES] % sizeof data;
		unsigned way = k / SIZES % 3;
		bool fits = bytes == 0 && way != 1;
		struct p2p_message m;
		berth_result rc, want = way == 2 ? BERTH_MEMORY : BERTH_MISMATCH;

		memset(out, 99, sizeof out);
		rig_fill(data, 0, k, bytes);
		if (!g->r->me) {
			m = rig_send(peer, 1, data, bytes);
			rc = rig_do(g, m);
			RANKS_ASSERT(g->r, rc == (fits ? BERTH_OK : want),
				     "send %u: %d", k, rc);
		} else {
			m = rig_receive((int)peer, 1, out, bytes);
			if (way == 0 && bytes)
				m.bytes = bytes - 1;
			else if (way == 1)
				m.signature = 8;
			else if (way == 2)
				m.out = NULL, m.alloc = take_memory, m.alloc_ctx = g;
			rc = rig_do(g, m);
			RANKS_ASSERT(g->r, rc == (fits ? BERTH_OK : want),
				     "receive %u: %d", k, rc);
			for (size_t i = 0; i < sizeof out; i++)
				RANKS_ASSERT(g->r, out[i] == 99, "OUT changed");
		}
	}
	rig_meet(g);
}

START_TEST(mismatches)
{
	rig_start(_i, 2, not_fitting);
}
END_TEST

static void allocating(struct rig *g)
{
	static unsigned char data[1 << 20];
	unsigned peer = !g->r->me;

	for (unsigned k = 0; k < SIZES; k++) {
		struct p2p_message m = rig_send(peer, 1, data, sizes[k]);

		rig_fill(data, 0, k, sizes[k]);
		if (g->r->me) {
			m = rig_receive(P2P_ANY, 1, NULL, 0);
			m.alloc = take_memory;
		}
		rig_run(g, &m, 1);
		RANKS_ASSERT(g->r, !m.rc, "%d", m.rc);
		if (g->r->me) {
			RANKS_ASSERT(g->r, m.got == sizes[k] && !m.out == !m.got,
				     "got %zu", (size_t)m.got);
			rig_check(g, m.out, 0, k, m.got);
			free(m.out);
		}
	}
}

START_TEST(allocations)
{
	rig_start(_i, 2, allocating);
}
END_TEST

/* The sender no longer waits when its receiver has found room.  Another thread of the
 * receiver has heard that. */
static struct p2p_message *late_receive;

static void *hear_of_end(void *ctx)
{
	struct rig *g = ctx;
	bool is_over = false;

	while (!is_over) {
		p2p_progress(g->p);
		pthread_mutex_lock(&g->p->moving);
		is_over = late_receive->entry->is_over;
		pthread_mutex_unlock(&g->p->moving);
	}
	return NULL;
}

static void *room_too_late(void *ctx, uint64_t bytes)
{
	struct rig *g = ctx;
	pthread_t t;

	atomic_fetch_add(&g->shared->step, 1);
	if (pthread_create(&t, NULL, hear_of_end, ctx) || pthread_join(t, NULL))
		return NULL;
	return malloc(bytes);
}

/* Until the receiver has looked for room K times: it may be late itself. */
static void send_too_late(struct rig *g, struct p2p_message *m, unsigned k)
{
	const struct p2p_message first = *m;

	do {
		*m = first;
		m->deadline_ns = clock_ns() + 20000000;
		rig_run(g, m, 1);
	} while (m->rc == BERTH_TIMEOUT && atomic_load(&g->shared->step) < k);
}

static void allocating_too_late(struct rig *g)
{
	static unsigned char data[1 << 20];
	const unsigned peer = !g->r->me;

	for (unsigned k = 1; k < SIZES; k++) {
		struct p2p_message m = rig_send(peer, 1, data, sizes[k]);

		if (g->r->me) {
			m = rig_receive(0, 1, NULL, 0);
			m.alloc = room_too_late;
			m.alloc_ctx = g;
			late_receive = &m;
			rig_run(g, &m, 1);
			free(m.out);
		} else {
			send_too_late(g, &m, k);
		}
		RANKS_ASSERT(g->r, m.rc == BERTH_TIMEOUT, "%zu bytes: %d", sizes[k],
			     m.rc);
		rig_meet(g);
	}
}

START_TEST(late_allocations)
{
	rig_start(_i, 2, allocating_too_late);
}
END_TEST

/* ---- time ---- */

static uint64_t in_ms(unsigned ms)
{
	return clock_ns() + ms * 1000000ull;
}

/* Receives and sends that nobody matches in time; what is left of them is gone, and
 * their tag can be used again. */
static void too_late(struct rig *g)
{
	static unsigned char data[300000], out[300000];
	unsigned me = g->r->me, peer = !me;

	for (unsigned k = 0; k < SIZES; k++) {
		size_t bytes = sizes[k] % sizeof data;
		struct p2p_message m = rig_receive((int)peer, 4, out, bytes);
		berth_result rc;

		m.deadline_ns = in_ms(20);
		rc = rig_do(g, m);
		RANKS_ASSERT(g->r, rc == BERTH_TIMEOUT, "receive: %d", rc);
		m = rig_send(peer, 5, data, bytes);
		m.deadline_ns = in_ms(20);
		rc = rig_do(g, m);
		RANKS_ASSERT(g->r, rc == BERTH_TIMEOUT, "send: %d", rc);
		rig_meet(g);
		rig_fill(data, me, k, bytes);
		m = me ? rig_send(peer, 4 + k % 2, data, bytes)
		       : rig_receive((int)peer, 4 + k % 2, out, bytes);
		rc = rig_do(g, m);
		RANKS_ASSERT(g->r, !rc, "then: %d", rc);
		if (!me)
			rig_check(g, out, 1, k, bytes);
	}
	rig_meet(g);
}

START_TEST(late)
{
	rig_start(_i, 2, too_late);
}
END_TEST

/* One side, which is to be cut off, ends in the middle of the data.  The other one
 * stops there until that has happened: else all data might come in one pass. */
static void cut_off(struct rig *g)
{
	enum { BYTES = 64 << 20 };
	unsigned me = g->r->me, peer = !me;
	unsigned char *data = calloc(1, BYTES);

	for (unsigned k = 0; k < 2; k++) {
		struct p2p_message m = me ? rig_receive((int)peer, 4, data, BYTES)
					  : rig_send(peer, 4, data, BYTES);

		rig_post(g, &m, 1);
		while (!m.moved)
			p2p_progress(g->p);
		if (me == k) {
			pthread_mutex_lock(&g->p->moving);
			m.deadline_ns = 1;
			atomic_store(&g->p->deadline_ns, 1);
			g->p->tick_ns = 0; /* it looks at once */
			pthread_mutex_unlock(&g->p->moving);
			p2p_progress(g->p);
			atomic_store(&g->shared->step, k + 1);
		}
		while (atomic_load(&g->shared->step) <= k)
			sched_yield();
		rig_await(g, 1);
		RANKS_ASSERT(g->r,
			     m.rc == BERTH_TIMEOUT || (me == 0 && k == 1 && !m.rc),
			     "%u: %d", k, m.rc);
		rig_meet(g);
	}
	free(data);
}

START_TEST(cut)
{
	rig_start(_i, 2, cut_off);
}
END_TEST

/* ---- limits ---- */

/* More sends than a receiver keeps, and more messages than there may be. */
static void too_many(struct rig *g)
{
	enum { SENDS = 3000, MOST = P2P_ROOM_BYTES / 200 * 200 };
	static struct p2p_message m[P2P_MESSAGES + 1];
	static unsigned char data[SENDS][200];
	unsigned me = g->r->me, peer = !me;

	for (unsigned k = 0; k < SENDS; k++) {
		rig_fill(data[k], 0, k, 200);
		m[k] = me ? rig_receive((int)peer, 1, data[k], 200)
			  : rig_send(peer, 1, data[k], 200);
	}
	if (me)
		memset(data, 0, sizeof data);
	else
		rig_post(g, m, SENDS);
	while (me ? !atomic_load(&g->shared->step)
		  : g->all->pair[peer].heads_out < SENDS)
		p2p_progress(g->p);
	RANKS_ASSERT(g->r, me || g->all->pair[peer].room_out == MOST,
		     "%u bytes without a receive", g->all->pair[peer].room_out);
	atomic_store(&g->shared->step, 1);
	if (me)
		rig_post(g, m, SENDS);
	rig_await(g, SENDS);
	for (unsigned k = 0; me && k < SENDS; k++)
		rig_check(g, data[k], 0, k, 200);
	for (unsigned k = 0; k <= P2P_MESSAGES; k++)
		m[k] = rig_receive((int)peer, 77, NULL, 0);
	RANKS_ASSERT(g->r, p2p_post(g->all, m, P2P_MESSAGES + 1) == BERTH_MEMORY,
		     "all");
	rig_post(g, m, P2P_MESSAGES);
	RANKS_ASSERT(g->r, p2p_post(g->all, m + P2P_MESSAGES, 1) == BERTH_MEMORY,
		     "more");
	m[0].peer = P2P_ANY;
	p2p_end(g->all, BERTH_ABORTED);
	RANKS_ASSERT(g->r, atomic_load(&rig_done) == P2P_MESSAGES, "%u ended",
		     atomic_load(&rig_done));
	RANKS_ASSERT(g->r, p2p_post(g->all, m, 1) == BERTH_ABORTED, "after the end");
}

START_TEST(limits)
{
	rig_start(_i, 2, too_many);
}
END_TEST

/* ---- what a rank owes its peers when it waits for nothing ---- */

static void await_step(struct rig *g, unsigned step)
{
	while (atomic_load(&g->shared->step) != step)
		nanosleep(&(struct timespec){ .tv_nsec = 100000 }, NULL);
}

/* What rank 1 has announced is here. */
static void await_head(struct rig *g)
{
	while (!g->all->has_begun || !g->all->pair[1].heads_in)
		p2p_progress(g->p);
}

/* A receive that ends as it is posted answers then: its owner may not look again. */
static void answer_at_once(struct rig *g)
{
	uint32_t data = 5;
	struct p2p_message m =
		g->r->me ? rig_send(0, 1, &data, 4) : rig_receive(P2P_ANY, 1, &data, 4);

	if (g->r->me) {
		rig_run(g, &m, 1);
		atomic_store(&g->shared->step, 1);
		return;
	}
	await_head(g);
	rig_post(g, &m, 1);
	RANKS_ASSERT(g->r, atomic_load(&rig_done) == 1, "not here");
	await_step(g, 1);
}

START_TEST(answers)
{
	rig_start(_i, 2, answer_at_once);
}
END_TEST

static bool owes_nothing(void *ctx)
{
	const struct rig *g = ctx;

	return !p2p_owes(g->p) && !atomic_load(&g->p->in_flight);
}

/* Rank 0 has no room for its answer, and says that it owes one. */
static void answer_later(struct rig *g)
{
	static struct p2p_message m[P2P_CELLS + 2];
	unsigned n = 1;

	if (g->r->me) {
		m[0] = rig_send(0, 1, "five", 4);
		rig_post(g, m, 1);
		await_step(g, 1);
		for (; n < P2P_CELLS + 2; n++)
			m[n] = rig_receive(0, 2, NULL, 0);
		rig_post(g, m + 1, n - 1);
		rig_await(g, n);
		return;
	}
	await_head(g);
	for (; n < P2P_CELLS + 2; n++) {
		m[n] = rig_send(1, 2, NULL, 0);
	}
	rig_post(g, m + 1, n - 1);
	m[0] = rig_receive(1, 1, (char[4]){ 0 }, 4);
	rig_post(g, m, 1);
	RANKS_ASSERT(g->r, p2p_owes(g->p), "owes nothing");
	atomic_store(&g->shared->step, 1);
	p2p_wait(g->p, owes_nothing, g, clock_ns() + RIG_LIMIT_S * 1000000000ull);
	RANKS_ASSERT(g->r, owes_nothing(g), "still owes something");
}

START_TEST(owed)
{
	rig_start(0, 2, answer_later);
}
END_TEST

/* ---- the end of the group ---- */

/* Rank 0 ends it, while the others wait for each other.  There is no connection yet. */
static void end_all(struct rig *g)
{
	char text[P2P_REASON_BYTES + 2], noted[sizeof rig_aborted];
	unsigned me = g->r->me;
	char data;

	memset(text, 'x', sizeof text);
	text[0] = '\n';
	text[sizeof text - 1] = '\0';
	if (me) {
		RANKS_ASSERT(g->r,
			     rig_do(g, rig_receive(3 - (int)me, 1, &data, 1)) ==
				     BERTH_ABORTED,
			     "a receive");
		text[0] = '?';
		snprintf(noted, sizeof noted, "0: %.*s", P2P_REASON_BYTES, text);
		RANKS_ASSERT(g->r, !strcmp(rig_aborted, noted), "%s", rig_aborted);
		return;
	}
	p2p_end(g->all, BERTH_ABORTED);
	p2p_abort(g->all, text);
	while (p2p_owes(g->p))
		p2p_progress(g->p);
}

START_TEST(aborts)
{
	rig_start(1, 3, end_all);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("p2p");
	TCase *t = tcase_create("p2p");
	SRunner *r = srunner_create(s);
	int failed;

	suite_add_tcase(s, t);
	tcase_set_timeout(t, 120);
	tcase_add_loop_test(t, order, 0, 3);
	tcase_add_loop_test(t, tags, 0, 2);
	tcase_add_loop_test(t, any, 0, 3);
	tcase_add_loop_test(t, self, 0, 2);
	tcase_add_loop_test(t, crossings, 0, 3);
	tcase_add_loop_test(t, mismatches, 0, 2);
	tcase_add_loop_test(t, allocations, 0, 2);
	tcase_add_loop_test(t, late_allocations, 0, 2);
	tcase_add_loop_test(t, late, 0, 2);
	tcase_add_loop_test(t, cut, 0, 2);
	tcase_add_loop_test(t, limits, 0, 2);
	tcase_add_loop_test(t, answers, 0, 2);
	tcase_add_test(t, owed);
	tcase_add_test(t, aborts);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed != 0;
}
