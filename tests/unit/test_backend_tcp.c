/* lib/net and lib/tcp: the collectives over connections; who has no key; who is
 * lost.
 * limit_s: 400
 * takes_s: 28 */
#include "collectives.h"
#include "meeting.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include "lib/net/net_address.h"
#include "lib/base/descriptor.h"
#include "lib/net/net_key.h"
#include "lib/backend/tcp_internal.h"

static unsigned own_host(unsigned rank, unsigned n)
{
	(void)n;
	return rank;
}

/* Of place 0 alone, which counts. */
static const char *algorithms;

static struct group join(struct ranks *r, struct net *n)
{
	unsigned rank[64];
	struct tcp_config c = { .lanes = &net_lanes,
				.net = n,
				.group = 1,
				.n = r->n,
				.me = r->me,
				.rank = rank,
				.algorithms = r->me ? "double" : algorithms };
	struct group g;

	for (unsigned k = 0; k < r->n; k++)
		rank[k] = k;
	g = (struct group){ &tcp_backend, tcp_join(&c), own_host };
	RANKS_ASSERT(r, g.group, "tcp_join");
	return g;
}

static void all_reductions(struct ranks *r)
{
	struct net *n = connect_with(r, key);
	struct group g = join(r, n);

	check_reductions(r, &g);
	g.back->leave(g.group);
	net_close(n);
}

START_TEST(reductions)
{
	ranks_run((unsigned)_i, sizeof(struct meeting), 0, all_reductions, 100);
}
END_TEST

/* Whatever the algorithm, the bits are the same. */
START_TEST(every_algorithm)
{
	static const char *const all[] = { "double", "halve", "direct",
					   "direct:100,double:5K,halve:80000,direct" };

	algorithms = all[_i];
	ranks_run(3 + (unsigned)_i % 3, sizeof(struct meeting), 0, all_reductions, 100);
}
END_TEST

static void all_moves(struct ranks *r)
{
	struct net *n = connect_with(r, key);
	struct group g = join(r, n);

	check_moves(r, &g);
	g.back->leave(g.group);
	net_close(n);
}

START_TEST(moves)
{
	ranks_run((unsigned)_i, sizeof(struct meeting), 0, all_moves, 100);
}
END_TEST

static void differ(struct ranks *r)
{
	struct net *n = connect_with(r, key);
	struct group g = join(r, n);

	check_mismatch(r, &g);
	g.back->leave(g.group);
	net_close(n);
}

START_TEST(mismatch)
{
	ranks_run((unsigned)_i, sizeof(struct meeting), 0, differ, 100);
}
END_TEST

/* One rank ends in the middle: all others hear who. */
static void one_is_lost(struct ranks *r)
{
	struct net *n = connect_with(r, key);
	struct group g = join(r, n);
	struct coll c = { .kind = BERTH_ALLREDUCE,
			  .type = BERTH_F32,
			  .count = 100000,
			  .in = calloc(100000, 4),
			  .out = calloc(100000, 4) };
	berth_result rc = BERTH_OK;
	unsigned who;

	for (int i = 0; !rc; i++) {
		if (r->me == 1 && i == 20)
			_exit(0);
		c.signature = (uint32_t)i;
		rc = g.back->begin(g.group, &c, 0);
	}
	RANKS_ASSERT(r, rc == BERTH_PEER_LOST, "%d", rc);
	RANKS_ASSERT(r, g.back->others(g.group, &who, 1) == 1, "nobody is named");
	RANKS_ASSERT(r, g.back->begin(g.group, &c, 0) == BERTH_PEER_LOST,
		     "not for good");
}

START_TEST(lost)
{
	ranks_run(5, sizeof(struct meeting), 0, one_is_lost, 100);
}
END_TEST

static void one_is_late(struct ranks *r)
{
	struct net *n = connect_with(r, key);
	struct group g = join(r, n);
	struct coll c = { .kind = BERTH_BARRIER };
	struct timespec now;
	berth_result rc;

	if (r->me == 2) {
		usleep(400000);
		_exit(0);
	}
	clock_gettime(CLOCK_MONOTONIC, &now);
	rc = g.back->begin(g.group, &c,
			   (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec +
				   200000000);
	RANKS_ASSERT(r, rc == BERTH_TIMEOUT || rc == BERTH_PEER_LOST, "%d", rc);
}

START_TEST(timeout)
{
	ranks_run(3, sizeof(struct meeting), 0, one_is_late, 100);
}
END_TEST

static void one_has_no_key(struct ranks *r)
{
	unsigned char other[NET_KEY_BYTES] = "another";
	struct net *n = connect_with(r, r->me == 0 ? other : key);
	struct net_send s = { .peer = 1, .data = "secret", .bytes = 6 };
	struct net_receive in = { .peer = 0, .data = (char[8]){ 0 }, .bytes = 6 };
	struct timespec now;
	unsigned who;
	berth_result rc;

	clock_gettime(CLOCK_MONOTONIC, &now);
	rc = net_exchange(n, &s, r->me == 0, &in, r->me == 1,
			  (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec +
				  500000000,
			  &who);
	RANKS_ASSERT(r, rc, "accepted");
	net_close(n);
}

START_TEST(no_key)
{
	ranks_run(2, sizeof(struct meeting), 0, one_has_no_key, 100);
}
END_TEST

/* Strangers that connect, say anything or nothing, do not keep the ranks from each
 * other. */
static void strangers(struct ranks *r)
{
	struct net *n = connect_with(r, key);
	struct group g;
	struct coll c = { .kind = BERTH_BARRIER };
	struct meeting *m = r->region;

	for (int i = 0; r->me == 0 && i < 40; i++) {
		struct net_where w;
		int bad = net_where(&w, m->address[1]),
		    fd = socket(w.at->ss_family, SOCK_STREAM, 0);
		unsigned char junk[500];

		ranks_fill(junk, BERTH_U8, sizeof junk, 0, (unsigned)i);
		RANKS_ASSERT(r,
			     !bad && !connect(fd, (struct sockaddr *)w.at,
					      net_address_size(w.at)),
			     "connect");
		if (i % 2)
			(void)!write(fd, junk, (size_t)i * 10);
	}
	g = join(r, n);
	RANKS_ASSERT(r, !g.back->begin(g.group, &c, 0), "barrier");
	g.back->leave(g.group);
	net_close(n);
}

START_TEST(strangers_come)
{
	ranks_run(3, sizeof(struct meeting), 0, strangers, 100);
}
END_TEST

/* Rank 1 says of other places than there are that they differ. */
static void places(struct ranks *r)
{
	struct net *n = connect_with(r, key);
	struct group g = join(r, n);
	struct tcp *t = g.group;
	const struct coll c = { .kind = BERTH_BARRIER, .signature = 500 };
	const uint32_t at[] = { 0, 1, 2, 63, 1u << 31, UINT32_MAX };

	t->probed = true;
	for (unsigned i = 0; i < 36; i++) {
		struct signatures says = { i % 2 ? 5 : 500, 700, at[i / 6], at[i % 6] };
		unsigned who = 0;

		if (r->me == 1) {
			RANKS_ASSERT(r, !tcp_backend.agree(t, &c, &says, 0), "agree");
			continue;
		}
		RANKS_ASSERT(r, g.back->begin(t, &c, 0) == BERTH_MISMATCH, "run");
		RANKS_ASSERT(r, g.back->others(t, &who, 1) <= 1 && who < r->n,
			     "place %u", who);
	}
	g.back->leave(g.group);
	net_close(n);
}

START_TEST(places_that_are_none)
{
	ranks_run(2, sizeof(struct meeting), 0, places, 100);
}
END_TEST

/* Rank 1 tells a text that does not end. */
static void texts(struct ranks *r)
{
	struct net *n = connect_with(r, key);
	struct group g = join(r, n);
	struct tcp *t = g.group;
	const char *said[2];
	char all[2 * BACKEND_TEXT_BYTES];
	struct coll c = { .kind = BERTH_ALLGATHER,
			  .type = BERTH_U8,
			  .count = BACKEND_TEXT_BYTES,
			  .out = all,
			  .signature = 0x45585031 };
	struct tcp_op w = tcp_op(t, &c, 0);

	t->probed = true;
	if (r->me == 1) {
		memset(all, 'x', sizeof all);
		c.in = all + BACKEND_TEXT_BYTES;
		t->seq++;
		RANKS_ASSERT(r, !tcp_allgather(&w), "allgather");
	} else {
		RANKS_ASSERT(r, !g.back->explain(t, "mine", said), "explain");
		RANKS_ASSERT(r, !strcmp(said[0], "mine"), "'%s'", said[0]);
		RANKS_ASSERT(r, strnlen(said[1], sizeof all) == BACKEND_TEXT_BYTES - 1,
			     "a text without an end");
	}
	g.back->leave(g.group);
	net_close(n);
}

START_TEST(endless_texts)
{
	ranks_run(2, sizeof(struct meeting), 0, texts, 100);
}
END_TEST

START_TEST(proofs)
{
	struct net_hello h = { .from = 1, .to = 2 }, h2 = h;
	struct net_answer a = { .verdict = NET_WELCOME, .secure = NET_MAC }, lie;
	struct net_seal s;
	unsigned char wrong[32] = { 1 };

	ck_assert(!net_key_init());
	net_hello_make(&h, key);
	ck_assert(net_hello_is_good(&h, key) && !net_hello_is_good(&h, wrong));
	net_hello_make(&h2, key);
	ck_assert(memcmp(h.nonce, h2.nonce, sizeof h.nonce));
	net_answer_make(&a, key, &h);
	ck_assert(net_answer_is_good(&a, key, &h) && !net_answer_is_good(&a, key, &h2));
	lie = a;
	lie.verdict = NET_LEFT;
	ck_assert(!net_answer_is_good(&lie, key, &h));
	net_seal_make(&s, key, &h, &a);
	ck_assert(net_seal_is_good(&s, key, &h, &a) &&
		  !net_seal_is_good(&s, key, &h2, &a));
	/* an answer is no seal: what one side proved can't be sent back to it */
	memcpy(s.proof, a.proof, sizeof s.proof);
	ck_assert(!net_seal_is_good(&s, key, &h, &a));
	/* nor is it one of the handshake with both nonces exchanged */
	h2 = h;
	lie = a;
	memcpy(h2.nonce, a.nonce, sizeof h2.nonce);
	memcpy(lie.nonce, h.nonce, sizeof lie.nonce);
	ck_assert(!net_seal_is_good(&s, key, &h2, &lie));
	for (size_t i = 0; i < sizeof h; i++) {
		h2 = h;
		((unsigned char *)&h2)[i] ^= 1;
		ck_assert(!net_hello_is_good(&h2, key));
	}
}
END_TEST

START_TEST(addresses)
{
	static const char *const good[] = { "1 10.0.0.1/8",
					    "65535 2001:db8::1/64 127.0.0.1/8" };
	static const char *const bad[] = { "",
					   "1",
					   "x 10.0.0.1/8",
					   "0 1.2.3.4/8",
					   "70000 1.2.3.4/8",
					   "1 1.2.3.4/33",
					   "1 1.2.3.4/",
					   "1 host/8",
					   "1 1.2.3.4/8 ",
					   "1 ::1/129",
					   "1  1.2.3.4/8" };
	struct net_where w;

	for (size_t i = 0; i < sizeof good / sizeof *good; i++)
		ck_assert_msg(!net_where(&w, good[i]), "%s", good[i]);
	ck_assert_uint_eq(w.n, 2);
	ck_assert(((struct sockaddr_in *)&w.at[0])->sin_addr.s_addr ==
		  htonl(INADDR_LOOPBACK)); /* it is ours: in front */
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
		ck_assert_msg(net_where(&w, bad[i]), "%s", bad[i]);
	ck_assert(!net_range_check("10.0.0.0/8,fd00::/8") &&
		  !net_range_check("127.0.0.1"));
	ck_assert(net_range_check("") && net_range_check("10.0.0.0/8,,") &&
		  net_range_check("eth0"));
}
END_TEST

START_TEST(interfaces)
{
	static const struct {
		const char *range, *names, *says;
	} rows[] = {
		{ NULL, "lo", " 127.0.0.1/8" },
		{ NULL, "nobody0,,lo", " 127.0.0.1/8" },
		{ "127.0.0.0/8", "nobody0", " 127.0.0.1/8" },
		{ NULL, "l,lo0,nobody0", "no interface of HOROVOD_GLOO_IFACE=\"l,lo0" },
		{ "240.0.0.0/8", "lo", "BERTH_NET=\"240.0.0.0/8\"" },
	};
	char text[NET_ADDRESS_BYTES] = "", why[256];

	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		int fd[NET_WHERE_MAX];
		int n = net_listen(rows[i].range, rows[i].names, 8, fd, text, why,
				   sizeof why);
		const char *said = n < 0 ? why : text;

		ck_assert_msg(strstr(said, rows[i].says), "%s", said);
		while (n > 0)
			descriptor_close(fd[--n]);
	}
}
END_TEST

int main(void)
{
	Suite *s = suite_create("tcp");
	TCase *t = tcase_create("tcp");
	SRunner *r = srunner_create(s);
	int failed;

	suite_add_tcase(s, t);
	tcase_set_timeout(t, 120);
	tcase_add_test(t, proofs);
	tcase_add_test(t, addresses);
	tcase_add_loop_test(t, reductions, 1, 6);
	tcase_add_loop_test(t, every_algorithm, 0, 4);
	tcase_add_loop_test(t, moves, 1, 7);
	tcase_add_loop_test(t, mismatch, 2, 6);
	tcase_add_test(t, lost);
	tcase_add_test(t, timeout);
	tcase_add_test(t, no_key);
	tcase_add_test(t, strangers_come);
	tcase_add_test(t, interfaces);
	tcase_add_test(t, places_that_are_none);
	tcase_add_test(t, endless_texts);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed != 0;
}
