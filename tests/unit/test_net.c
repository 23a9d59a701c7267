/* lib/net: strangers, cut and changed bytes of the handshake and of frames, peers that
 * never come or are silent.
 * limit_s: 300  takes_s: 9 */
#include "turn.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>

/* ---- waiting ---- */

static unsigned naps,
	reads; /* calls of poll(), and of recv() after the first of them */

int poll(struct pollfd *p, nfds_t n, int ms)
{
	struct timespec t = { ms / 1000, ms % 1000 * 1000000L };

	naps++;
	return ppoll(p, n, ms < 0 ? NULL : &t, NULL);
}

ssize_t recv(int fd, void *to, size_t bytes, int flags)
{
	reads += naps > 0;
	return recvfrom(fd, to, bytes, flags, NULL, NULL);
}

static void says_nothing(const struct turn *t)
{
	proven(t);
	pause();
}

/* A rank that has once slept sleeps until something comes: after each sleep it looks
 * whether the message is there, and whether the peer is. */
START_TEST(sleeps)
{
	struct turn t = { .n = stranger_net(1, 3) };
	struct net_receive in = {
		.tag = { 1, 2, 3 }, .note = { { 4 } }, .data = &t, .bytes = 12
	};
	unsigned lost;
	pid_t pid = fork();

	if (!pid) {
		says_nothing(&t);
		_exit(0);
	}
	ck_assert_int_eq(net_have(t.n, 0, 0, 0), BERTH_OK);
	t.n->config.spins = 100;
	naps = reads = 0;
	ck_assert_int_eq(
		net_exchange(t.n, NULL, 0, &in, 1, clock_ns() + 400000000, &lost),
		BERTH_TIMEOUT);
	ck_assert_uint_ge(naps, 2);
	ck_assert_msg(reads <= 2 * naps, "%u reads in %u naps", reads, naps);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	net_close(t.n);
}
END_TEST

/* ---- frames ---- */

static void speaks_well(const struct turn *t)
{
	int fd = proven(t);
	const struct message m = good();

	for (size_t i = 0; i < sizeof m; i++)
		stranger_say(fd, (const char *)&m + i, 1);
	pause();
}

START_TEST(byte_by_byte)
{
	ck_assert_int_eq(against(speaks_well, &(struct turn){ 0 }, PATIENCE_MS),
			 BERTH_OK);
}
END_TEST

static void is_cut(const struct turn *t)
{
	int fd = proven(t);
	const struct message m = good();

	stranger_say(fd, &m, t->at);
}

START_TEST(cut_frames)
{
	for (size_t at = 0; at < sizeof(struct message); at++)
		ck_assert_int_eq(
			against(is_cut, &(struct turn){ .at = at }, PATIENCE_MS),
			BERTH_PEER_LOST);
}
END_TEST

static void changes(const struct turn *t)
{
	int fd = proven(t);
	struct message m = good();

	((unsigned char *)&m)[t->at] ^= (unsigned char)t->change;
	stranger_say(fd, &m, sizeof m);
	pause();
}

START_TEST(changed_frames)
{
	const char *text = getenv("SEED");
	unsigned seed = text ? (unsigned)atoi(text) : (unsigned)getpid();

	printf("SEED=%u\n", seed);
	for (size_t at = 0; at < sizeof(struct message); at++) {
		struct turn t = { .at = at,
				  .change = 1 + (unsigned)rand_r(&seed) % 255 };
		berth_result rc;

		rc = against(changes, &t, PATIENCE_MS);
		ck_assert_msg(rc == BERTH_AUTH, "byte %zu ^ %u: %d", at, t.change, rc);
	}
}
END_TEST

/* ---- the handshake ---- */

static void hello_is_cut(const struct turn *t)
{
	struct net_hello h = stranger_hello(0, 1, 0);
	int fd = stranger_connect(t->n);

	if (t->change)
		((unsigned char *)&h)[t->at] ^= (unsigned char)t->change;
	stranger_say(fd, &h, t->change ? sizeof h : t->at);
	if (t->change) { /* nothing is said to it */
		if (stranger_hear(fd, &h, 1))
			_exit(7);
		close(fd);
	} else {
		shutdown(fd, SHUT_WR);
	}
	speaks_well(t); /* then somebody comes who can */
}

START_TEST(cut_hellos)
{
	for (size_t at = 0; at < sizeof(struct net_hello); at++) {
		ck_assert_int_eq(
			against(hello_is_cut, &(struct turn){ .at = at }, PATIENCE_MS),
			BERTH_OK);
		ck_assert_int_eq(
			against(hello_is_cut,
				&(struct turn){ .at = at, .change = 1u << at % 8 },
				PATIENCE_MS),
			BERTH_OK);
	}
}
END_TEST

static void seal_is_bad(const struct turn *t)
{
	struct net_hello h = stranger_hello(0, 1, 0);
	struct net_answer a;
	struct net_seal s;
	int fd = stranger_connect(t->n);

	stranger_say(fd, &h, sizeof h);
	stranger_hear(fd, &a, sizeof a);
	net_seal_make(&s, stranger_key, &h, &a);
	if (t->change)
		s.proof[t->at] ^= (unsigned char)t->change;
	stranger_say(fd, &s, t->change ? sizeof s : t->at);
	shutdown(fd, SHUT_WR);
	stranger_hear(fd, &h, 1);
	speaks_well(t);
}

START_TEST(bad_seals)
{
	for (size_t at = 0; at < sizeof(struct net_seal); at++) {
		ck_assert_int_eq(
			against(seal_is_bad, &(struct turn){ .at = at }, PATIENCE_MS),
			BERTH_OK);
		ck_assert_int_eq(against(seal_is_bad,
					 &(struct turn){ .at = at, .change = 16 },
					 PATIENCE_MS),
				 BERTH_OK);
	}
}
END_TEST

/* Hellos that are in order and not for us: of ourselves, of nobody, to another, of a
 * lane that there is not. */
static void is_not_expected(const struct turn *t)
{
	static const uint32_t said[][3] = {
		{ 1, 1, 0 }, { 3, 1, 0 }, { 0, 2, 0 }, { 0, 1, NET_LANES }
	};
	const struct net_hello h =
		stranger_hello(said[t->at][0], said[t->at][1], said[t->at][2]);
	struct net_answer a;
	int fd = stranger_connect(t->n);

	stranger_say(fd, &h, sizeof h);
	if (stranger_hear(fd, &a, sizeof a))
		_exit(7);
	speaks_well(t);
}

START_TEST(wrong_hellos)
{
	ck_assert_int_eq(against(is_not_expected, &(struct turn){ .at = (size_t)_i },
				 PATIENCE_MS),
			 BERTH_OK);
}
END_TEST

/* 200 that connect and say nothing, half of them half a hello. */
static void comes_after_many(const struct turn *t)
{
	for (int i = 0; i < 200; i++)
		stranger_say(stranger_connect(t->n), "BTH1............",
			     i % 2 ? 16 : 0);
	speaks_well(t);
}

static void serve_after_many(void)
{
	ck_assert_int_eq(against(comes_after_many, &(struct turn){ 0 }, PATIENCE_MS),
			 BERTH_OK);
}

START_TEST(silent_ones)
{
	ck_assert_uint_lt(quickest(serve_after_many), 4000);
}
END_TEST

static void is_gone(int listener)
{
	close(listener);
}

static struct net *watched;

static berth_result says_lost(void *ctx)
{
	if (++*(int *)ctx < 3)
		return BERTH_OK;
	net_break(watched, 2, BERTH_PEER_LOST);
	return BERTH_PEER_LOST;
}

/* The other side: N is rank 0 and begins; who listens has no key, or says nothing.
 * KNOWS: the host, that rank 2 is gone. */
static berth_result begin_with(void (*child)(int listener), bool knows, unsigned ms)
{
	struct net *n = watched = stranger_net(0, 3);
	struct sockaddr_in at = { .sin_family = AF_INET,
				  .sin_addr = { htonl(INADDR_LOOPBACK) } };
	socklen_t size = sizeof at;
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	struct net_send out = { .peer = 1, .data = "x", .bytes = 1 };
	char text[64];
	berth_result rc;
	const char *why;
	unsigned lost;
	int looks = 0;
	pid_t pid;

	if (knows)
		net_watch(n, says_lost, NULL, &looks);
	bind(fd, (struct sockaddr *)&at, sizeof at);
	listen(fd, 10);
	getsockname(fd, (struct sockaddr *)&at, &size);
	pid = fork();
	if (!pid) {
		child(fd);
		_exit(0);
	}
	close(fd);
	snprintf(text, sizeof text, "%u 127.0.0.1/8", ntohs(at.sin_port));
	ck_assert(!net_peer(n, 1, text));
	rc = net_exchange(n, &out, 1, NULL, 0, clock_ns() + ms * 1000000ull, &lost);
	ck_assert_uint_eq(lost, knows ? 2 : 1);
	why = net_unreached(n);
	ck_assert_msg(!why == (child != is_gone || knows) &&
			      (!why || strstr(why, "at 127.0.0.1: Connection refused")),
		      "%s", why ? why : "is taken to be gone");
	net_close(n);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	return rc;
}

static void answers_wrong(int listener)
{
	char junk[sizeof(struct net_answer)] = "no key";
	struct net_hello h;

	for (;;) {
		int fd = accept(listener, NULL, NULL);

		stranger_hear(fd, &h, sizeof h);
		stranger_say(fd, junk, sizeof junk);
		stranger_hear(fd, &h, 1);
		close(fd);
	}
}

static void hangs_up(int listener)
{
	struct net_hello h;

	for (;;) {
		int fd = accept(listener, NULL, NULL);

		stranger_hear(fd, &h, sizeof h);
		close(fd);
	}
}

static void is_silent(int listener)
{
	accept(listener, NULL, NULL);
	pause();
}

START_TEST(listeners)
{
	ck_assert_int_eq(begin_with(answers_wrong, false, PATIENCE_MS), BERTH_AUTH);
	ck_assert_int_eq(begin_with(hangs_up, false, PATIENCE_MS), BERTH_AUTH);
	ck_assert_int_eq(begin_with(is_silent, false, 300), BERTH_TIMEOUT);
	ck_assert_int_eq(begin_with(is_gone, false, PATIENCE_MS), BERTH_PEER_LOST);
	/* a peer that has given up because another one is gone */
	ck_assert_int_eq(begin_with(is_gone, true, PATIENCE_MS), BERTH_PEER_LOST);
	ck_assert_int_eq(begin_with(hangs_up, true, PATIENCE_MS), BERTH_PEER_LOST);
}
END_TEST

/* ---- who never comes ---- */

/* A connection that never comes ends with what the host knows. */
static void wait_for_nobody(void)
{
	struct net_receive in = { .peer = 0, .bytes = 0 };
	unsigned lost = 9;
	int looks = 0;

	watched = stranger_net(1, 3);
	net_watch(watched, says_lost, NULL, &looks);
	ck_assert_int_eq(net_exchange(watched, NULL, 0, &in, 1, 0, &lost),
			 BERTH_PEER_LOST);
	ck_assert_uint_eq(lost, 2);
	net_close(watched);
}

START_TEST(never_comes)
{
	ck_assert_uint_lt(quickest(wait_for_nobody), 1000);
}
END_TEST

/* ---- lanes ---- */

enum { LANE = 300000 };

static void take_all(void *ctx, size_t offset, const void *piece, size_t bytes)
{
	ck_assert_uint_eq(bytes % 8, 0);
	memcpy((char *)ctx + offset, piece, bytes);
}

static void two_lanes(struct net *n, unsigned peer, unsigned seed)
{
	static char out[2][LANE], in[2][LANE];
	struct net_send s[2];
	struct net_receive r[2];
	unsigned lost;

	for (unsigned i = 0; i < 2; i++) {
		memset(out[i], (int)(seed + i), LANE);
		s[i] = (struct net_send){
			.peer = peer, .lane = i, .data = out[i], .bytes = LANE
		};
		r[i] = (struct net_receive){
			.peer = peer, .lane = i, .data = in[i], .bytes = LANE
		};
		r[i].take = i ? take_all : NULL;
		r[i].ctx = in[i];
		r[i].unit = 8;
	}
	if (net_exchange(n, s, 2, r, 2, 0, &lost))
		_exit(5);
	for (unsigned i = 0; i < 2; i++)
		for (size_t k = 0; k < LANE; k++)
			if (in[i][k] != (char)(11 - seed + i))
				_exit(6);
}

START_TEST(lanes)
{
	struct net *n[2] = { stranger_net(0, 2), stranger_net(1, 2) };
	pid_t pid;
	int status;

	ck_assert(!net_peer(n[0], 1, net_address(n[1])));
	ck_assert(!net_peer(n[1], 0, net_address(n[0])));
	pid = fork();
	/* a child has no thread at its door, and begins */
	two_lanes(n[!!pid], !pid, pid ? 7 : 4);
	if (!pid)
		_exit(0);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
	net_close(n[0]);
	net_close(n[1]);
}
END_TEST

/* ---- a child of a rank ---- */

/* The rank of N forks a child that lives on, and is killed. */
static void leaves_a_child(struct net *n)
{
	if (net_have(n, 1, 0, 0))
		_exit(5);
	if (!fork()) {
		descriptor_in_child();
		alarm(20);
		pause();
	}
	raise(SIGKILL);
}

START_TEST(child_lives)
{
	struct net *n[2] = { stranger_net(0, 2), stranger_net(1, 2) };
	char got[12];
	struct net_receive in = { .data = got, .bytes = sizeof got };
	unsigned lost = 9;
	pid_t pid;

	ck_assert(!net_peer(n[0], 1, net_address(n[1])));
	ck_assert(!net_peer(n[1], 0, net_address(n[0])));
	pid = fork();
	if (!pid)
		leaves_a_child(n[0]);
	ck_assert_int_eq(
		net_exchange(n[1], NULL, 0, &in, 1, clock_ns() + 15000000000u, &lost),
		BERTH_PEER_LOST);
	ck_assert_uint_eq(lost, 0);
	ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
	net_close(n[0]);
	net_close(n[1]);
}
END_TEST

START_TEST(childs_descriptors)
{
	int status, ours = descriptor_socket(AF_INET, SOCK_STREAM, 0),
		    gone = descriptor_socket(AF_INET, SOCK_STREAM, 0), other;
	pid_t pid;

	ck_assert_int_ge(ours, 0);
	ck_assert_int_ge(gone, 0);
	descriptor_close(gone);
	other = dup(0); /* has the number of what is closed */
	ck_assert_int_eq(other, gone);
	pid = fork();
	if (!pid) {
		descriptor_in_child();
		_exit(fcntl(ours, F_GETFD) >= 0 || fcntl(other, F_GETFD) < 0);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
	ck_assert_int_eq(fcntl(ours, F_GETFD), FD_CLOEXEC);
	descriptor_close(ours);
	close(other);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("net");
	TCase *t = tcase_create("net");
	SRunner *r = srunner_create(s);
	int failed;

	suite_add_tcase(s, t);
	tcase_set_timeout(t, 120);
	tcase_add_test(t, sleeps);
	tcase_add_test(t, byte_by_byte);
	tcase_add_test(t, cut_frames);
	tcase_add_test(t, changed_frames);
	tcase_add_test(t, cut_hellos);
	tcase_add_test(t, bad_seals);
	tcase_add_loop_test(t, wrong_hellos, 0, 4);
	tcase_add_test(t, silent_ones);
	tcase_add_test(t, listeners);
	tcase_add_test(t, never_comes);
	tcase_add_test(t, lanes);
	tcase_add_test(t, child_lives);
	tcase_add_test(t, childs_descriptors);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed != 0;
}
