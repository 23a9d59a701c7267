/* lib/net: heads and data that the peer did not say, or not now; handshakes of
 * other worlds.
 * limit_s: 120 */
#include "turn.h"

#include <signal.h>

#include "lib/base/nh.h"

/* ---- MACs ---- */

static struct net_mac one_way(unsigned char first, uint64_t set)
{
	unsigned char key[NET_WAY_KEY_BYTES];
	struct net_mac m;

	memset(key, first, sizeof key);
	ck_assert(!net_key_init());
	net_mac_begin(&m, key, set, UINT64_MAX);
	return m;
}

START_TEST(marks)
{
	struct net_mac m = one_way(1, 7), other = one_way(2, 7), set = one_way(1, 8);
	unsigned char head[NET_HEAD_BYTES] = { 3 };
	struct net_mark k = net_mark(&m, head), far;

	ck_assert(net_mark_is_good(&m, &k, head, false));
	ck_assert(!net_mark_is_good(&other, &k, head, false));
	ck_assert(!net_mark_is_good(&set, &k, head, false));
	k.set = 8; /* the MAC covers it */
	ck_assert(!net_mark_is_good(&set, &k, head, false));
	k.set = 7;
	for (size_t bit = 0; bit < 8 * sizeof head; bit++) {
		head[bit / 8] ^= (unsigned char)(1 << bit % 8);
		ck_assert(!net_mark_is_good(&m, &k, head, false));
		head[bit / 8] ^= (unsigned char)(1 << bit % 8);
	}
	m.number = 9;
	far = net_mark(&m, head);
	m.number = 5;
	ck_assert(!net_mark_is_good(&m, &far, head, false) &&
		  net_mark_is_good(&m, &far, head, true));
	ck_assert(!net_mark_is_good(&m, &k, head, true)); /* it was number 0 */
	far.number--;
	ck_assert(!net_mark_is_good(&m, &far, head, true));
}
END_TEST

/* Of pieces of PIECE bytes. */
static uint64_t tail_of(struct net_mac *m, uint64_t number, const unsigned char *data,
			size_t n, size_t piece)
{
	net_tail_begin(m);
	for (size_t at = 0; at < n; at += piece)
		net_tail_add(m, data + at, n - at < piece ? n - at : piece);
	return net_tail_end(m, number, n);
}

START_TEST(tails)
{
	static const size_t sizes[] = { 1, 7, 8, 15, 16, 17, 1023, 1024, 1025, 5000 };
	static unsigned char data[5000];
	struct net_mac m = one_way(1, 7), other = one_way(2, 7), set = one_way(1, 8);

	for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
		const size_t n = sizes[i], step = n > 1100 ? 97 : 1;
		const uint64_t tail = net_tail(&m, 5, data, n);

		ck_assert(tail == tail_of(&m, 5, data, n, n));
		ck_assert(tail == tail_of(&m, 5, data, n, 333));
		ck_assert(tail != net_tail(&m, 6, data, n));
		ck_assert(tail != net_tail(&other, 5, data, n));
		ck_assert(tail != net_tail(&set, 5, data, n));
		/* zeros at the end count, too */
		ck_assert(n == 1 || tail != net_tail(&m, 5, data, n - 1));
		for (size_t bit = 0; bit < 8 * n; bit += step) {
			data[bit / 8] ^= (unsigned char)(1 << bit % 8);
			ck_assert(tail != net_tail(&m, 5, data, n));
			data[bit / 8] ^= (unsigned char)(1 << bit % 8);
		}
	}
}
END_TEST

START_TEST(covered)
{
	struct net_mac m = one_way(1, 7);

	ck_assert(!net_tail_bytes(&m, 0) && net_tail_bytes(&m, 1) &&
		  net_tail_bytes(&m, UINT64_MAX));
	m.covered = NET_SMALL_BYTES;
	ck_assert(net_tail_bytes(&m, NET_SMALL_BYTES) &&
		  !net_tail_bytes(&m, NET_SMALL_BYTES + 1));
	m.covered = 0;
	ck_assert(!net_tail_bytes(&m, 1));
}
END_TEST

START_TEST(keys)
{
	struct net_hello h = { .from = 1, .to = 2, .lane = 1, .ranks = 3 }, other;
	struct net_answer a = { .secure = NET_MAC };
	unsigned char way[NET_WAY_KEY_BYTES], next[NET_WAY_KEY_BYTES];

	ck_assert(!net_key_init());
	net_hello_make(&h, stranger_key);
	net_answer_make(&a, stranger_key, &h);
	net_way_key(way, stranger_key, &h, &a, NET_FOR_MAC, false);
	net_way_key(next, stranger_key, &h, &a, NET_FOR_MAC, true);
	ck_assert(memcmp(way, next, sizeof way));
	net_way_key(next, stranger_key, &h, &a, NET_FOR_AEAD, false);
	ck_assert(memcmp(way, next, sizeof way));
	for (size_t at = 4; at < offsetof(struct net_hello, proof); at += 4) {
		if (at >= offsetof(struct net_hello, secure) &&
		    at < offsetof(struct net_hello, nonce))
			continue;
		other = h;
		((unsigned char *)&other)[at] ^= 1;
		net_way_key(next, stranger_key, &other, &a, NET_FOR_MAC, false);
		ck_assert_msg(memcmp(way, next, sizeof way), "byte %zu", at);
	}
	a.secure ^= 1;
	net_way_key(next, stranger_key, &h, &a, NET_FOR_MAC, false);
	ck_assert(memcmp(way, next, sizeof way));
}
END_TEST

/* ---- what a man in the middle does ---- */

static void replays(const struct turn *t)
{
	int fd = proven(t);
	const struct message m = good();

	stranger_say(fd, &m, sizeof m);
	stranger_say(fd, &m, sizeof m);
	pause();
}

static void reorders(const struct turn *t)
{
	int fd = proven(t);
	const struct message first = good(), second = good();

	stranger_say(fd, &second, sizeof second);
	stranger_say(fd, &first, sizeof first);
	pause();
}

static void leaves_out(const struct turn *t)
{
	int fd = proven(t);
	const struct message first = good(), cut = good(), third = good();

	(void)cut;
	stranger_say(fd, &first, sizeof first);
	stranger_say(fd, &third, sizeof third);
	pause();
}

/* Bytes of the second message are missing. */
static void cuts(const struct turn *t)
{
	int fd = proven(t);
	const struct message m[3] = { good(), good(), good() };

	stranger_say(fd, &m[0], sizeof m[0]);
	stranger_say(fd, &m[1], t->at);
	stranger_say(fd, (const char *)&m[1] + t->at + 1, sizeof m[1] - t->at - 1);
	stranger_say(fd, &m[2], sizeof m[2]);
	pause();
}

/* What the rank itself has said comes back to it. */
static void reflects(const struct turn *t)
{
	int fd = proven(t);
	struct message m;

	if (stranger_hear(fd, &m, sizeof m) != sizeof m)
		_exit(7);
	stranger_say(fd, &m, sizeof m);
	pause();
}

/* That rank 2 is gone, from nobody. */
static void tells(const struct turn *t)
{
	int fd = proven(t);
	const struct head h = { .magic = HEAD_MAGIC,
				.tag = { GROUP_LOST, 2, BERTH_PEER_LOST } };

	stranger_say(fd, &h, sizeof h);
	pause();
}

static void tells_behind(const struct turn *t)
{
	int fd = proven(t);
	const struct message first = good();
	struct head h = { .magic = HEAD_MAGIC,
			  .tag = { GROUP_LOST, 2, BERTH_PEER_LOST },
			  .mark = first.head.mark };
	struct {
		struct message first;
		struct head then;
	} __attribute__((packed)) all = { first, h };

	stranger_say(fd, &all, sizeof all);
	pause();
}

static const struct {
	void (*does)(const struct turn *t);
	unsigned good; /* messages that come in order first */
	size_t at;
} turns[] = {
	{ replays, 1, 0 },      { reorders, 0, 0 }, { leaves_out, 1, 0 },
	{ cuts, 1, 0 },         { cuts, 1, 40 },    { cuts, 1, 63 },
	{ cuts, 1, 64 },        { cuts, 1, 75 },    { cuts, 1, 76 },
	{ cuts, 1, 83 },        { reflects, 0, 0 }, { tells, 0, 0 },
	{ tells_behind, 1, 0 },
};

static void is_named(const struct net *n, int kind)
{
	const struct net_fault *f = net_fault(n);

	ck_assert(f && (int)f->kind == kind);
	ck_assert(f->by == 1 && f->peer == 0);
	ck_assert_str_eq(f->address, "127.0.0.1");
}

START_TEST(is_not_taken)
{
	struct turn t = { .n = stranger_net(1, 3), .at = turns[_i].at };
	struct net_send out = { .tag = { 1, 2, 3 },
				.note = { { 4 } },
				.data = "twelve bytes",
				.bytes = 12 };
	char got[12];
	unsigned lost;
	pid_t pid = fork();

	if (!pid) {
		turns[_i].does(&t);
		_exit(0);
	}
	if (turns[_i].does == reflects)
		ck_assert(!net_exchange(t.n, &out, 1, NULL, 0, 0, &lost));
	for (unsigned i = 0; i < turns[_i].good; i++) {
		ck_assert_int_eq(stranger_wait(t.n, got, PATIENCE_MS), BERTH_OK);
		ck_assert(!memcmp(got, "twelve bytes", 12));
	}
	memset(got, 'x', sizeof got);
	ck_assert_int_eq(stranger_wait(t.n, got, PATIENCE_MS), BERTH_AUTH);
	ck_assert(!memcmp(got, "xxxxxxxxxxxx", 12));
	is_named(t.n, NET_FORGED);
	net_close(t.n);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}
END_TEST

/* ---- data that come in pieces ---- */

enum { LARGE = 400000 };

static const struct nh_form *const forms[] = { &nh_base, &nh_avx2, &nh_avx512 };

/* LARGE bytes, of which the one AT, or one of the tail, is changed; CHANGE is 0: none.
 * They are hashed by the form K, if this processor has it. */
static void says_large(const struct turn *t)
{
	static unsigned char all[LARGE + NET_TAIL_BYTES];

	int fd = proven(t);
	struct head h = plain;
	uint64_t tail;

	nh_choose(forms[t->k]);
	for (size_t i = 0; i < LARGE; i++)
		all[i] = (unsigned char)(i / 7);
	h.bytes = LARGE;
	h = stranger_mark(h);
	tail = stranger_tail(&h, all);
	memcpy(all + LARGE, &tail, sizeof tail);
	all[t->at] ^= (unsigned char)t->change;
	stranger_say(fd, &h, sizeof h);
	stranger_say(fd, all, sizeof all);
	pause();
}

static void takes(void *ctx, size_t offset, const void *piece, size_t bytes)
{
	memcpy((unsigned char *)ctx + offset, piece, bytes);
}

static berth_result drops(void *ctx, struct net_receive *in, uint64_t bytes)
{
	(void)ctx;
	in->drop = bytes == LARGE;
	return BERTH_OK;
}

/* To where they belong, in pieces to a function, or to nowhere.  Both hosts have
 * processors of their own. */
START_TEST(large_data)
{
	static const size_t places[] = { 0,      1023,      1024,  262143,
					 262144, LARGE - 1, LARGE, LARGE + 7 };
	const size_t place = (size_t)_i / 3, ways = (size_t)_i % 3,
		     n = sizeof places / sizeof *places;
	static unsigned char got[LARGE];
	struct turn t = { .n = stranger_net(1, 3),
			  .at = place < n ? places[place] : 0,
			  .k = (place + ways) % 3,
			  .change = place < n };
	struct net_receive in = { .tag = plain.tag,
				  .note = plain.note,
				  .data = got,
				  .bytes = LARGE,
				  .take = ways == 1 ? takes : NULL,
				  .begin = ways == 2 ? drops : NULL,
				  .ctx = got,
				  .unit = 24 };
	unsigned lost;
	pid_t pid = fork();

	if (!pid) {
		says_large(&t);
		_exit(0);
	}
	nh_choose(forms[place % 3]);
	ck_assert_int_eq(net_exchange(t.n, NULL, 0, &in, 1, 0, &lost),
			 t.change ? BERTH_AUTH : BERTH_OK);
	if (t.change)
		is_named(t.n, NET_FORGED);
	else if (ways < 2)
		ck_assert_uint_eq(got[LARGE / 24 * 24 - 1],
				  (LARGE / 24 * 24 - 1) / 7 % 256);
	net_close(t.n);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}
END_TEST

/* A rank that is idle looks at what others have said last: no stranger's word. */
static void tells_and_goes(const struct turn *t)
{
	int fd = proven(t);
	struct head h = { .magic = HEAD_MAGIC, .tag = { GROUP_LEAVES } };

	if (t->k)
		h = last(GROUP_LEAVES);
	stranger_say(fd, &h, sizeof h);
}

START_TEST(false_farewell)
{
	struct turn t = { .n = stranger_net(1, 3), .k = (size_t)_i };
	static char large[32 << 20];
	struct net_send out = { .data = large, .bytes = sizeof large };
	unsigned lost;
	pid_t pid = fork();

	if (!pid) {
		tells_and_goes(&t);
		_exit(0);
	}
	t.n->config.leaver = BERTH_ABORTED;
	ck_assert_int_eq(net_have(t.n, 0, 0, 0), BERTH_OK);
	ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
	ck_assert_int_eq(net_exchange(t.n, &out, 1, NULL, 0, 0, &lost),
			 t.k ? BERTH_ABORTED : BERTH_PEER_LOST);
	if (!t.k)
		is_named(t.n, NET_CUT);
	net_close(t.n);
}
END_TEST

/* Who has seen it tells the other end, which names the same connection. */
static void says_auth(const struct turn *t)
{
	int fd = proven(t);
	struct head h = { .magic = HEAD_MAGIC,
			  .tag = { GROUP_LOST, (uint32_t)t->at, BERTH_AUTH },
			  .note = { { (uint32_t)t->k, t->change } } };

	h = stranger_mark(h);
	stranger_say(fd, &h, sizeof h);
	pause();
}

START_TEST(is_told)
{
	static const struct {
		size_t by, of;
		unsigned kind;
		bool known;
		const char *address;
	} cases[] = { { 0, 1, NET_FORGED, true, "127.0.0.1" },
		      { 0, 2, NET_FORGED, true, "" },
		      { 2, 1, NET_UNLIKE, true, "" },
		      { 3, 1, NET_FORGED, false, "" },
		      { 0, 3, NET_FORGED, false, "" },
		      { 0, 1, 0, false, "" },
		      { 0, 1, 77, false, "" } };
	struct turn t = { .at = cases[_i].of,
			  .k = cases[_i].by,
			  .change = cases[_i].kind,
			  .n = stranger_net(1, 3) };
	char got[12];
	const struct net_fault *f;
	pid_t pid = fork();

	if (!pid) {
		says_auth(&t);
		_exit(0);
	}
	ck_assert_int_eq(stranger_wait(t.n, got, PATIENCE_MS), BERTH_AUTH);
	f = net_fault(t.n);
	ck_assert(cases[_i].known == (f != NULL));
	if (f) {
		ck_assert_uint_eq(f->by, cases[_i].by);
		ck_assert_uint_eq(f->peer, cases[_i].of);
		ck_assert_str_eq(f->address, cases[_i].address);
	}
	net_close(t.n);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}
END_TEST

/* ---- handshakes ---- */

static const struct {
	uint32_t epoch, ranks, secure;
	int verdict; /* -1: no answer */
} hellos[] = {
	{ 0, 3, NET_MAC, NET_WELCOME },      { 1, 3, NET_MAC, NET_OTHER_EPOCH },
	{ 0, 4, NET_MAC, NET_OTHER_RANKS },  { 0, 3, NET_AEAD, NET_OTHER_SECURE },
	{ 0, 3, NET_AES, NET_OTHER_SECURE },
};

/* Then somebody comes who belongs there; not where both ends have to fail. */
static void says_hello(const struct turn *t)
{
	struct net_hello h = { .to = 1, .at = 1 };
	int fd = stranger_connect(t->n);
	struct message m;

	h.epoch = hellos[t->k].epoch;
	h.ranks = hellos[t->k].ranks;
	h.secure = hellos[t->k].secure;
	net_hello_make(&h, stranger_key);
	if (stranger_prove_by(fd, &h) != hellos[t->k].verdict)
		_exit(7);
	if (hellos[t->k].verdict == NET_OTHER_SECURE)
		return;
	if (hellos[t->k].verdict)
		fd = proven(t);
	m = good();
	stranger_say(fd, &m, sizeof m);
}

START_TEST(other_worlds)
{
	struct turn t = { .n = stranger_net(1, 3), .k = (size_t)_i };
	const bool fails = hellos[_i].verdict == NET_OTHER_SECURE;
	char got[12];
	int status;
	pid_t pid = fork();

	if (!pid) {
		says_hello(&t);
		_exit(0);
	}
	ck_assert_int_eq(stranger_wait(t.n, got, PATIENCE_MS),
			 fails ? BERTH_AUTH : BERTH_OK);
	if (fails) {
		is_named(t.n, NET_UNLIKE);
		ck_assert_str_eq(net_fault(t.n)->text, "has another BERTH_NET_SECURE");
	}
	net_close(t.n);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
}
END_TEST

/* The other side of it: rank 0 begins. */
START_TEST(is_refused)
{
	static const char *const texts[] = { "is in another epoch of the job",
					     "knows another number of ranks" };
	struct net *n[2] = { stranger_net(0, 3), stranger_net(1, _i ? 2 : 3) };
	struct net_send out = { .peer = 1, .data = "x", .bytes = 1 };
	unsigned lost;

	n[1]->config.epoch = _i ? 0 : 4;
	ck_assert(!net_peer(n[0], 1, net_address(n[1])));
	ck_assert_int_eq(net_exchange(n[0], &out, 1, NULL, 0, 0, &lost), BERTH_AUTH);
	ck_assert_str_eq(net_fault(n[0])->text, texts[_i]);
	ck_assert(*net_fault(n[0])->address);
	net_close(n[0]);
	net_close(n[1]);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("net_mac");
	TCase *t = tcase_create("net_mac");
	SRunner *r = srunner_create(s);
	int failed;

	suite_add_tcase(s, t);
	tcase_set_timeout(t, 60);
	tcase_add_test(t, marks);
	tcase_add_test(t, tails);
	tcase_add_test(t, covered);
	tcase_add_test(t, keys);
	tcase_add_loop_test(t, large_data, 0, 27);
	tcase_add_loop_test(t, is_not_taken, 0, sizeof turns / sizeof *turns);
	tcase_add_loop_test(t, false_farewell, 0, 2);
	tcase_add_loop_test(t, is_told, 0, 7);
	tcase_add_loop_test(t, other_worlds, 0, sizeof hellos / sizeof *hellos);
	tcase_add_loop_test(t, is_refused, 0, 2);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed != 0;
}
