/* lib/backend/p2p: each frame that cannot be ends its sender, and nothing else.
 * limit_s: 60 */
#include "p2p_rig.h"

/* Rank 1 of two; what rank 0 says is written by the test. */
static struct rig rig;
static struct ranks ranks;
static struct p2p_peer *peer;
static uint64_t said;

static void join(void)
{
	static const unsigned rank[] = { 0, 1 }, host[] = { 0, 0 };
	struct p2p_config c = { .members = &rig.members,
				.region = ranks_share(p2p_bytes(2)),
				.cores = 2 };

	ck_assert(!members_make(&rig.members, rank, 2, host, 1));
	rig.r = &ranks;
	ranks = (struct ranks){ .n = 2, .me = 1, .said = ranks_share(4096) };
	rig.p = p2p_open(&c);
	ck_assert(rig.p != NULL);
	rig.all = rig_group(&rig, &rig.members, 0);
	peer = &rig.p->peer[0];
	said = 0;
}

static void say(struct p2p_frame f)
{
	struct p2p_cell *c = &peer->in.ring->cell[said % P2P_CELLS];

	c->frame = f;
	atomic_store(&c->stamp, ++said);
	p2p_progress(rig.p);
}

/* A message of 10 bytes to rank 0 that has the number 0: EAGER, or OFFER. */
static struct p2p_message sent;

static void send_one(bool eager)
{
	static unsigned char data[20000];

	sent = rig_send(0, 1, data, eager ? 10 : sizeof data);
	rig_post(&rig, &sent, 1);
	ck_assert_int_eq(rig.p->slot[0].state, eager ? P2P_SENT : P2P_OFFERED);
}

/* A receive of rank 0's offer of 10 bytes has the number 0. */
static void receive_one(void)
{
	static unsigned char data[10];

	sent = rig_receive(0, 1, data, 10);
	rig_post(&rig, &sent, 1);
	say((struct p2p_frame){
		.kind = P2P_OFFER, .signature = 7, .id = 3, .tag = 1, .bytes = 10 });
	ck_assert_int_eq(rig.p->slot[0].state, P2P_RECEIVING);
}

static const struct {
	int before; /* 1: an EAGER has gone, 2: an OFFER, 3: an OFFER has been taken */
	bool good;
	struct p2p_frame f;
} cases[] = {
	{ 0, true, { .kind = P2P_EAGER, .bytes = 10 } },
	{ 0, true, { .kind = P2P_OFFER, .bytes = ~0ull } },
	{ 0, true, { .kind = P2P_ASK } },
	{ 0, true, { .kind = P2P_WITHDRAW, .id = 4 } },
	{ 0, false, { .kind = 0 } },
	{ 0, false, { .kind = P2P_EAGER - 1 } },
	{ 0, true, { .kind = P2P_ABORT } },
	{ 0, true, { .kind = P2P_ABORT, .bytes = P2P_REASON_BYTES } },
	{ 0, false, { .kind = P2P_ABORT, .bytes = P2P_REASON_BYTES + 1 } },
	{ 0, false, { .kind = P2P_ABORT + 1 } },
	{ 0, false, { .kind = P2P_LEAVE } },
	{ 0, true, { .kind = P2P_LEAVE, .group = 5 } }, /* this rank is in none */
	{ 0, true, { .kind = P2P_EAGER, .group = 5, .place = 9, .bytes = 10 } },
	{ 0, true, { .kind = P2P_OFFER, .group = 5, .id = P2P_NO_ID } },
	{ 0, true, { .kind = P2P_TAKE, .group = 5 } },
	{ 0, false, { .kind = P2P_EAGER, .place = 1, .bytes = 10 } },
	{ 0, false, { .kind = P2P_EAGER, .place = 2, .bytes = 10 } },
	{ 0, false, { .kind = P2P_EAGER, .id = P2P_NO_ID } },
	{ 0, false, { .kind = P2P_EAGER, .bytes = P2P_EAGER_BYTES + 1 } },
	{ 0, false, { .kind = P2P_EAGER, .bytes = ~0ull } },
	{ 0, false, { .kind = P2P_OFFER, .bytes = 0 } },
	{ 0, false, { .kind = P2P_OFFER, .bytes = 1, .id = P2P_NO_ID } },
	{ 0, false, { .kind = P2P_DATA, .bytes = 1 } },
	{ 0, false, { .kind = P2P_TAKE } },
	{ 0, false, { .kind = P2P_MATCHED } },
	{ 0, false, { .kind = P2P_REFUSE, .id = 1 << 30 } },
	{ 0, false, { .kind = P2P_GONE } },
	{ 1, true, { .kind = P2P_MATCHED } },
	{ 1, true, { .kind = P2P_REFUSE, .signature = BERTH_MISMATCH } },
	{ 1, false, { .kind = P2P_TAKE } },
	{ 1, false, { .kind = P2P_GONE } },
	{ 1, false, { .kind = P2P_DATA, .bytes = 1 } },
	{ 2, true, { .kind = P2P_TAKE, .to = 77 } },
	{ 2, true, { .kind = P2P_REFUSE } },
	{ 2, false, { .kind = P2P_MATCHED } },
	{ 2, false, { .kind = P2P_TAKE, .id = 1 } },
	{ 3, true, { .kind = P2P_DATA, .bytes = 10 } },
	{ 3, true, { .kind = P2P_DATA, .bytes = 9 } },
	{ 3, true, { .kind = P2P_WITHDRAW, .id = 3 } },
	{ 3, false, { .kind = P2P_DATA, .bytes = 11 } },
	{ 3, false, { .kind = P2P_DATA, .bytes = 0 } },
	{ 3, false, { .kind = P2P_DATA, .bytes = 1, .to = 1 } },
	{ 3, false, { .kind = P2P_TAKE, .id = 0 } },
};

START_TEST(one_frame)
{
	join();
	if (cases[_i].before == 3)
		receive_one();
	else if (cases[_i].before)
		send_one(cases[_i].before == 1);
	say(cases[_i].f);
	ck_assert_msg(peer->gone == !cases[_i].good, "case %d", _i);
	if (!cases[_i].good && cases[_i].before)
		ck_assert_int_eq(sent.rc, BERTH_PEER_LOST);
	p2p_leave(rig.all);
	p2p_close(rig.p);
}
END_TEST

/* What the reader of a ring says that it has taken. */
START_TEST(taken)
{
	static const uint64_t cells[] = { 64, 0, 65, ~0ull, 10, 10, 10 },
			      bytes[] = { 0, 0, 0, 0, 64, 1, ~0ull << 6 };

	join();
	for (unsigned k = 0; k < P2P_CELLS; k++)
		send_one(true), rig.p->slot[0].state = P2P_FREE, rig.p->free_slot = 0;
	atomic_store(&peer->out.ring->cells_taken, cells[_i]);
	atomic_store(&peer->out.ring->bytes_taken, bytes[_i]);
	sent = rig_send(0, 1, "", 1);
	ck_assert(!p2p_post(rig.all, &sent, 1));
	ck_assert_int_eq(peer->gone, _i > 1);
}
END_TEST

/* More than a receiver keeps. */
START_TEST(too_much)
{
	const bool data = _i;
	const unsigned most = data ? P2P_ROOM_BYTES / P2P_EAGER_BYTES : P2P_HEADS;

	join();
	for (unsigned k = 0; k <= most; k++) {
		ck_assert_msg(!peer->gone, "after %u", k);
		say((struct p2p_frame){ .kind = data ? P2P_EAGER : P2P_OFFER,
					.id = k,
					.bytes = P2P_EAGER_BYTES });
	}
	ck_assert(peer->gone);
	p2p_leave(rig.all);
	p2p_close(rig.p);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("p2p_frame");
	TCase *t = tcase_create("p2p_frame");
	SRunner *r = srunner_create(s);
	int failed;

	suite_add_tcase(s, t);
	tcase_set_timeout(t, 30);
	tcase_add_loop_test(t, one_frame, 0, sizeof cases / sizeof *cases);
	tcase_add_loop_test(t, taken, 0, 7);
	tcase_add_loop_test(t, too_much, 0, 2);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed != 0;
}
