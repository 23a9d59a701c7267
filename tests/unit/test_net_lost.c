/* lib/net: peers that give up, are gone or hang in the middle of a message.
 * limit_s: 300 */
#include "lib/net/net_door.h"
#include "turn.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>

/* In the middle of a message, and while the other side of a connection hangs. */
static void says_half(const struct turn *t)
{
	int fd = proven(t);
	const struct message m = good();

	stranger_say(fd, &m, sizeof m.head + 6);
	pause();
}

static void tells_who(const struct turn *t)
{
	struct head h = { .magic = HEAD_MAGIC, .tag = { GROUP_LOST, 2, t->change } };
	int fd = proven(t);

	h = stranger_mark(h);
	stranger_say(fd, &h, sizeof h);
}

static void wait_for_half(void)
{
	ck_assert_int_eq(against(says_half, &(struct turn){ 0 }, 300), BERTH_TIMEOUT);
}

START_TEST(half_a_message)
{
	ck_assert_uint_lt(quickest(wait_for_half), 1000);
}
END_TEST

/* A peer whose time was over is told from one that lost a rank. */
START_TEST(says_why)
{
	static const struct {
		unsigned told;
		berth_result rc;
	} cases[] = { { BERTH_TIMEOUT, BERTH_TIMEOUT },
		      { BERTH_PEER_LOST, BERTH_PEER_LOST },
		      { BERTH_OK, BERTH_PEER_LOST },
		      { ~0u, BERTH_PEER_LOST } };
	struct net_receive in = { .tag = { 1, 2, 3 }, .bytes = 12 };
	struct turn t = { .n = stranger_net(1, 3), .change = cases[_i].told };
	unsigned lost = 9;
	pid_t pid;

	pid = fork();
	if (!pid) {
		tells_who(&t);
		_exit(0);
	}
	ck_assert_int_eq(net_exchange(t.n, NULL, 0, &in, 1, 0, &lost), cases[_i].rc);
	ck_assert_uint_eq(lost, 2);
	net_close(t.n);
	waitpid(pid, NULL, 0);
}
END_TEST

/* Because of rank 0, done with as many operations. */
static struct head given_up_after(unsigned operations)
{
	return stranger_mark((struct head){ .magic = HEAD_MAGIC,
					    .tag = { GROUP_LOST },
					    .note = { { 0, 0, operations } } });
}

/* Who comes late finds all that it waits for, and that the others did not wait. */
static void gave_up(const struct turn *t)
{
	int fd = proven(t);
	struct {
		struct message first;
		struct head then;
	} __attribute__((packed)) all = { good(), given_up_after(t->change) };

	stranger_say(fd, &all, sizeof all);
	pause();
}

/* Unless they gave up after this operation. */
START_TEST(too_late)
{
	ck_assert_int_eq(
		against(gave_up, &(struct turn){ .change = (unsigned)_i }, PATIENCE_MS),
		_i ? BERTH_OK : BERTH_PEER_LOST);
}
END_TEST

static void says_message(int fd)
{
	const struct message m = good();

	stranger_say(fd, &m, sizeof m);
}

/* The same of a peer that this rank does not wait for.  A third one speaks when this
 * rank has looked at that. */
static int looked[2];

static berth_result looks(void *ctx)
{
	(void)ctx;
	return write(looked[1], "", 1) == 1 ? BERTH_OK : BERTH_SYSTEM;
}

static void speaks_late(const struct net *n)
{
	const int fd = stranger_connect(n);
	char c[2];

	if (stranger_prove(fd, 0, 2) || read(looked[0], c, 1) != 1 ||
	    read(looked[0], c + 1, 1) != 1)
		_exit(8);
	says_message(fd);
	pause();
}

static void gives_up_beside(const struct net *n, unsigned operations)
{
	const int fd = stranger_connect(n);
	struct head h;

	if (stranger_prove(fd, 1, 2))
		_exit(8);
	h = given_up_after(operations);
	stranger_say(fd, &h, sizeof h);
}

START_TEST(beside)
{
	struct net *n = stranger_net(2, 3);
	char got[12];
	pid_t pid[2];

	ck_assert(!pipe(looked));
	for (int i = 0; i < 2; i++) {
		pid[i] = fork();
		if (!pid[i] && i)
			gives_up_beside(n, (unsigned)_i);
		else if (!pid[i])
			speaks_late(n);
		if (!pid[i])
			_exit(0);
	}
	ck_assert_int_eq(waitpid(pid[1], NULL, 0), pid[1]);
	ck_assert_int_eq(net_have(n, 1, 0, 0), BERTH_OK);
	net_watch(n, looks, NULL, NULL);
	ck_assert_int_eq(stranger_wait(n, got, PATIENCE_MS),
			 _i ? BERTH_OK : BERTH_PEER_LOST);
	net_close(n);
	kill(pid[0], SIGKILL);
	waitpid(pid[0], NULL, 0);
	close(looked[0]);
	close(looked[1]);
}
END_TEST

/* The same where the message has been read already, behind the one before it, or is
 * longer than what is read at once. */
static void gives_up_later(const struct turn *t, int go)
{
	static char large[3 * STASH_BYTES + sizeof plain + NET_TAIL_BYTES];
	struct head then = plain, over;
	struct message first;
	uint64_t tail;
	int fd = proven(t);
	char c;

	first = good();
	then.bytes = t->k;
	then = stranger_mark(then);
	tail = stranger_tail(&then, large + sizeof then);
	over = last(GROUP_LOST);
	memcpy(large, &then, sizeof then);
	memcpy(large + sizeof then + t->k, &tail, sizeof tail);
	stranger_say(fd, &first, sizeof first);
	stranger_say(fd, large, sizeof then + t->k + sizeof tail);
	if (read(go, &c, 1) == 1)
		stranger_say(fd, &over, sizeof over);
}

START_TEST(later)
{
	static const size_t sizes[] = { 12, STASH_BYTES, 3 * STASH_BYTES };
	static char got[3 * STASH_BYTES];
	struct turn t = { .n = stranger_net(1, 3), .k = sizes[_i] };
	struct net_receive in = {
		.tag = { 1, 2, 3 }, .note = { { 4 } }, .data = got, .bytes = t.k
	};
	unsigned lost;
	int go[2];
	pid_t pid;

	ck_assert(!pipe(go));
	pid = fork();
	if (!pid) {
		gives_up_later(&t, go[0]);
		_exit(0);
	}
	ck_assert_int_eq(stranger_wait(t.n, got, PATIENCE_MS), BERTH_OK);
	ck_assert_int_eq(write(go[1], "", 1), 1);
	ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
	ck_assert_int_eq(net_exchange(t.n, NULL, 0, &in, 1, 0, &lost), BERTH_PEER_LOST);
	net_close(t.n);
	close(go[0]);
	close(go[1]);
}
END_TEST

/* Nothing is said in the middle of a message that has gone in part: it would be taken
 * for its data. */
static int goes_on[2], room[2];

static void reads_at_last(const struct turn *t)
{
	static char all[1 << 20];
	size_t n, from = sizeof plain;
	int fd = proven(t);
	char c;

	if (read(goes_on[0], &c, 1) != 1)
		_exit(9);
	while ((n = stranger_hear(fd, all, sizeof all)) > 0) {
		for (; from < n; from++)
			if (all[from] != 'x')
				_exit(7);
		from = 0;
		if (write(room[1], "", 1) != 1 || read(goes_on[0], &c, 1) != 1)
			_exit(9);
	}
}

/* It can't send more: there is room again, and it is to end. */
static berth_result makes_room(void *ctx)
{
	char c;

	(void)ctx;
	return write(goes_on[1], "", 1) == 1 && read(room[0], &c, 1) == 1
		       ? BERTH_ABORTED
		       : BERTH_OK;
}

START_TEST(half_sent)
{
	static char large[32 << 20], many[sizeof large >> 10];
	struct turn t = { .n = stranger_net(1, 3) };
	struct net_send out = { .data = large, .bytes = sizeof large };
	int status;
	unsigned lost;
	pid_t pid;

	memset(large, 'x', sizeof large);
	ck_assert(!pipe(goes_on) && !pipe(room));
	pid = fork();
	if (!pid) {
		close(goes_on[1]);
		reads_at_last(&t);
		_exit(0);
	}
	ck_assert_int_eq(net_have(t.n, 0, 0, 0), BERTH_OK);
	net_watch(t.n, makes_room, NULL, NULL);
	ck_assert_int_eq(net_exchange(t.n, &out, 1, NULL, 0, 0, &lost), BERTH_ABORTED);
	ck_assert_uint_gt(out.sent, sizeof plain);
	net_break(t.n, 2, BERTH_PEER_LOST);
	net_close(t.n);
	ck_assert_int_gt(write(goes_on[1], many, sizeof many), 0);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
}
END_TEST

/* What a peer said last counts, though a send finds first that it is gone; also where
 * what it said before is awaited. */
static void leaves(const struct turn *t)
{
	int fd = proven(t);
	struct {
		struct message first;
		struct head then;
	} __attribute__((packed)) all = { good(), last(GROUP_LEAVES) };

	stranger_say(fd, &all, sizeof all);
}

START_TEST(last_word_before_a_send)
{
	static char large[32 << 20];
	struct turn t = { .n = stranger_net(1, 3) };
	struct net_send out = { .data = large, .bytes = sizeof large };
	struct net_receive in = { .tag = plain.tag, .note = plain.note, .bytes = 12 };
	struct pollfd p = { .events = POLLIN };
	unsigned lost;
	pid_t pid = fork();

	if (!pid) {
		leaves(&t);
		_exit(0);
	}
	t.n->config.leaver = BERTH_ABORTED;
	ck_assert_int_eq(net_have(t.n, 0, 0, 0), BERTH_OK);
	ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
	p.fd = net_socket(t.n, 0, 0);
	ck_assert(!_i || send(p.fd, "", 1, 0) == 1);
	while (_i && !(p.revents & POLLHUP))
		ck_assert_int_eq(poll(&p, 1, PATIENCE_MS), 1);
	ck_assert_int_eq(net_exchange(t.n, &out, 1, &in, (size_t)_i, 0, &lost),
			 BERTH_ABORTED);
	ck_assert(!net_fault(t.n));
	net_close(t.n);
}
END_TEST

static berth_result knows_nothing(void *ctx)
{
	(void)ctx;
	return BERTH_OK;
}

/* A connection ends without a word.  If the peer's door says that the peer has left, it
 * has; else it is lost. */
START_TEST(ends_without_a_word)
{
	struct net *n[2] = { stranger_net(0, 2), stranger_net(1, 2) };
	struct net_receive in = { .tag = plain.tag, .note = plain.note, .bytes = 12 };
	unsigned lost = 9;

	ck_assert(!net_peer(n[0], 1, net_address(n[1])));
	ck_assert(!net_peer(n[1], 0, net_address(n[0])));
	n[1]->config.leaver = BERTH_ABORTED;
	net_watch(n[1], knows_nothing, NULL, NULL);
	ck_assert_int_eq(net_have(n[0], 1, 0, 0), BERTH_OK);
	ck_assert_int_eq(net_have(n[1], 0, 0, 0), BERTH_OK);
	if (!_i)
		net_door_remove(n[0]->door, n[0], NULL);
	net_close_link(net_link(n[0], 1, 0));
	ck_assert_int_eq(net_exchange(n[1], NULL, 0, &in, 1, 0, &lost),
			 _i ? BERTH_PEER_LOST : BERTH_ABORTED);
	ck_assert_uint_eq(lost, 0);
	ck_assert(!net_fault(n[1]) == !_i);
	net_close(n[1]);
	net_close(n[0]);
}
END_TEST

/* A peer that has our answer takes the connection for one: it is told as well. */
static void hears_of_leaving(const struct turn *t)
{
	struct net_hello hello = stranger_hello(0, 1, 0);
	struct net_answer a;
	struct net_channel c;
	struct head h;
	int fd = stranger_connect(t->n);

	stranger_say(fd, &hello, sizeof hello);
	if (stranger_hear(fd, &a, sizeof a) != sizeof a ||
	    write(goes_on[1], "", 1) != 1)
		_exit(9);
	if (stranger_hear(fd, &h, sizeof h) != sizeof h ||
	    h.tag.group != GROUP_LEAVES ||
	    net_channel_open(&c, fd, stranger_key, &hello, &a, true) ||
	    !net_mark_is_good(c.in, &h.mark, &h, false))
		_exit(7);
}

static berth_result has_answered(void *ctx)
{
	struct pollfd p = { goes_on[0], POLLIN, 0 };

	(void)ctx;
	return poll(&p, 1, 0) > 0 ? BERTH_ABORTED : BERTH_OK;
}

START_TEST(leaves_in_a_handshake)
{
	struct turn t = { .n = stranger_net(1, 3) };
	int status;
	pid_t pid;

	ck_assert(!pipe(goes_on));
	pid = fork();
	if (!pid) {
		hears_of_leaving(&t);
		_exit(0);
	}
	net_watch(t.n, has_answered, NULL, NULL);
	ck_assert_int_eq(net_have(t.n, 0, 0, 0), BERTH_ABORTED);
	net_close(t.n);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
}
END_TEST

/* A peer that encrypts, which this rank does not, has seen that and has ended: the
 * watcher knows of its end by then. */
static void differs(const struct net *n)
{
	struct net_hello h = stranger_hello(0, 1, 0);
	const int fd = stranger_connect(n);

	h.secure = NET_AEAD;
	net_hello_make(&h, stranger_key);
	if (stranger_prove_by(fd, &h) != NET_OTHER_SECURE)
		_exit(8);
}

static void note_coming(void *ctx)
{
	(void)ctx;
	if (write(goes_on[1], "", 1) != 1)
		_exit(9);
}

static berth_result knows_its_end(void *ctx)
{
	net_break(ctx, 0, BERTH_PEER_LOST);
	return BERTH_PEER_LOST;
}

START_TEST(differs_and_ends)
{
	struct net *n = stranger_net(1, 3);
	char got[12];
	int status;
	pid_t pid;

	ck_assert(!pipe(goes_on));
	net_wake(n, note_coming, NULL);
	net_watch(n, knows_its_end, NULL, n);
	pid = fork();
	if (!pid) {
		differs(n);
		_exit(0);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
	ck_assert_int_eq(read(goes_on[0], got, 1), 1);
	ck_assert_int_eq(stranger_wait(n, got, PATIENCE_MS), BERTH_AUTH);
	ck_assert_int_eq(net_fault(n)->kind, NET_UNLIKE);
	net_close(n);
}
END_TEST

/* ---- connections that are not used ---- */

static struct head of_release(uint32_t group, uint32_t got)
{
	struct head h = { .magic = HEAD_MAGIC, .tag = { .group = group } };

	h.note.word[0] = got;
	return h;
}

/* As rank 0, which has begun the connection and has got T->k messages: after AT of its
 * own it would release it; what it hears is CHANGE.  CHANGE is 0: somebody else says
 * so. */
static void releases(const struct turn *t)
{
	struct head h = of_release(GROUP_RELEASE, (uint32_t)t->k);
	struct head heard = { 0 };
	int fd = proven(t);

	if (t->at)
		says_message(fd);
	if (t->change)
		h = stranger_mark(h);
	stranger_say(fd, &h, sizeof h);
	if (write(goes_on[1], "", 1) != 1)
		_exit(9);
	if (stranger_hear(fd, &heard, sizeof heard) != sizeof heard ||
	    !net_mark_is_good(stranger_channel.in, &heard.mark, &heard, false) ||
	    heard.tag.group != (t->change ? t->change : GROUP_LOST))
		_exit(7);
	if (t->change == GROUP_KEPT)
		says_message(fd);
	stranger_hear(fd, &heard, 1);
}

START_TEST(released)
{
	static const unsigned answers[] = { GROUP_RELEASED, GROUP_LEAVES, 0 };
	struct turn t = { .n = stranger_net(1, 3),
			  .at = 1,
			  .k = _i == 1, /* this rank has sent none */
			  .change = answers[_i] };
	char got[12];
	int status;
	pid_t pid;

	ck_assert(!pipe(goes_on));
	pid = fork();
	if (!pid) {
		releases(&t);
		_exit(0);
	}
	ck_assert_int_eq(stranger_wait(t.n, got, PATIENCE_MS), BERTH_OK);
	ck_assert_int_eq(read(goes_on[0], got, 1), 1);
	net_tidy(t.n);
	ck_assert_int_eq(net_socket(t.n, 0, 0) < 0, !_i);
	if (!t.change) {
		ck_assert_int_eq(stranger_wait(t.n, got, PATIENCE_MS), BERTH_AUTH);
		net_break(t.n, 0, BERTH_AUTH);
	}
	net_close(t.n);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
}
END_TEST

/* The other side is about to use it. */
START_TEST(kept)
{
	struct turn t = { .n = stranger_net(1, 3), .change = GROUP_KEPT };
	char got[12];
	int status;
	pid_t pid;

	ck_assert(!pipe(goes_on));
	pid = fork();
	if (!pid) {
		releases(&t);
		_exit(0);
	}
	ck_assert_int_eq(stranger_wait(t.n, got, PATIENCE_MS), BERTH_OK);
	net_close(t.n);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("net_lost");
	TCase *t = tcase_create("net_lost");
	SRunner *r = srunner_create(s);
	int failed;

	suite_add_tcase(s, t);
	tcase_set_timeout(t, 120);
	tcase_add_test(t, half_a_message);
	tcase_add_loop_test(t, says_why, 0, 4);
	tcase_add_loop_test(t, too_late, 0, 2);
	tcase_add_loop_test(t, beside, 0, 2);
	tcase_add_loop_test(t, later, 0, 3);
	tcase_add_test(t, half_sent);
	tcase_add_loop_test(t, last_word_before_a_send, 0, 2);
	tcase_add_loop_test(t, ends_without_a_word, 0, 2);
	tcase_add_test(t, leaves_in_a_handshake);
	tcase_add_test(t, differs_and_ends);
	tcase_add_loop_test(t, released, 0, 3);
	tcase_add_test(t, kept);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed != 0;
}
