/* lib/net: the door, in front of a net: how many connections it holds, which of them
 * makes room for another, and a hello that comes again. */
#include "turn.h"

#include <errno.h>

enum { ME = 1, RANKS = 80, OTHER_EPOCH = 7 };

/* Of a rank and a lane that no other K has. */
static struct net_hello hello_of(unsigned k, uint32_t epoch)
{
	struct net_hello h = { .from = 2 + k / NET_LANES,
			       .to = ME,
			       .lane = k % NET_LANES,
			       .at = ME,
			       .epoch = epoch,
			       .ranks = RANKS,
			       .secure = NET_MAC };

	net_hello_make(&h, stranger_key);
	return h;
}

static int begin(const struct net *n, const struct net_hello *h)
{
	const struct timeval patience = { .tv_sec = PATIENCE_MS / 1000 };
	int fd = stranger_connect(n);

	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
	stranger_say(fd, h, sizeof *h);
	return fd;
}

/* Whether an answer to H comes; if not, FD has ended. */
static bool has_answer(int fd, const struct net_hello *h, struct net_answer *a)
{
	size_t got = stranger_hear(fd, a, sizeof *a);
	char more;

	if (got == sizeof *a) {
		ck_assert(net_answer_is_good(a, stranger_key, h));
		return true;
	}
	ck_assert_uint_eq(got, 0);
	ck_assert_int_eq(recv(fd, &more, 1, 0), 0);
	return false;
}

static int answered(const struct net *n, const struct net_hello *h,
		    struct net_answer *a, uint32_t verdict)
{
	int fd = begin(n, h);

	ck_assert(has_answer(fd, h, a));
	ck_assert_uint_eq(a->verdict, verdict);
	return fd;
}

static bool is_open(int fd)
{
	char more;

	return recv(fd, &more, 1, MSG_DONTWAIT) < 0 && errno == EAGAIN;
}

/* N gets the connection, since its peer proves the key. */
static void becomes_a_link(struct net *n, int fd, const struct net_hello *h,
			   const struct net_answer *a)
{
	const uint64_t until = clock_ns() + PATIENCE_MS * 1000000ull;
	struct net_seal s;

	net_seal_make(&s, stranger_key, h, a);
	stranger_say(fd, &s, sizeof s);
	while (!net_has_come(n) && clock_ns() < until)
		sched_yield();
	ck_assert(net_has_come(n));
}

/* ---- a door that is full ---- */

/* 64 peers have an answer and have not said their next word; the 65th waits until one
 * of them goes, and takes its place alone. */
START_TEST(full_of_answered)
{
	struct net *n = stranger_net(ME, RANKS);
	int fd[NET_COMING_MOST], last;
	struct net_answer a;
	struct net_hello h;

	for (unsigned k = 0; k < NET_COMING_MOST; k++) {
		h = hello_of(k, 0);
		fd[k] = answered(n, &h, &a, NET_WELCOME);
	}
	h = hello_of(NET_COMING_MOST, 0);
	last = begin(n, &h);
	close(fd[_i]);
	ck_assert(has_answer(last, &h, &a));
	for (int k = 0; k < NET_COMING_MOST; k++)
		ck_assert_msg(k == _i || is_open(fd[k]), "%d was dropped", k);
	becomes_a_link(n, last, &h, &a);
	net_close(n);
}
END_TEST

/* Peers that were refused make room for one that is not. */
START_TEST(full_of_refused)
{
	struct net *n = stranger_net(ME, RANKS);
	struct net_hello h = hello_of(0, OTHER_EPOCH);
	struct net_answer a;
	int fd;

	for (unsigned k = 0; k < 2 * NET_COMING_MOST; k++)
		answered(n, &h, &a, NET_OTHER_EPOCH);
	h = hello_of(0, 0);
	fd = answered(n, &h, &a, NET_WELCOME);
	becomes_a_link(n, fd, &h, &a);
	net_close(n);
}
END_TEST

/* ---- hellos that come again ---- */

/* A recorded hello gets no answer, and the connection that it was said for stays. */
START_TEST(comes_again)
{
	struct net *n = stranger_net(ME, RANKS);
	const struct net_hello h = hello_of(0, 0), h2 = hello_of(1, 0);
	struct net_answer a, none;
	int fd = answered(n, &h, &a, NET_WELCOME);

	for (int k = 0; k < 2 * NET_COMING_MOST; k++)
		ck_assert(!has_answer(begin(n, &h), &h, &none));
	becomes_a_link(n, fd, &h, &a);
	for (int k = 0; k < NET_COMING_MOST; k++) /* all at a time, and they stay */
		begin(n, &h);
	fd = answered(n, &h2, &a, NET_WELCOME);
	becomes_a_link(n, fd, &h2, &a);
	net_close(n);
}
END_TEST

/* A peer begins a connection anew: the earlier one holds no place any more, and a hello
 * that it made before comes too late. */
START_TEST(begins_anew)
{
	struct net *n = stranger_net(ME, RANKS);
	const struct net_hello late = hello_of(0, 0), first = hello_of(0, 0),
			       second = hello_of(0, 0);
	struct net_answer a, none;
	int fd = answered(n, &first, &a, NET_WELCOME), fd2;
	char more;

	fd2 = answered(n, &second, &a, NET_WELCOME);
	ck_assert_int_eq(recv(fd, &more, 1, 0), 0);
	ck_assert(!has_answer(begin(n, &late), &late, &none));
	becomes_a_link(n, fd2, &second, &a);
	net_close(n);
}
END_TEST

/* Of another epoch, as after a restart: it says nothing of the numbers of this one. */
START_TEST(of_another_epoch)
{
	struct net *n = stranger_net(ME, RANKS);
	const struct net_hello h = hello_of(0, 0), later = hello_of(0, OTHER_EPOCH);
	struct net_answer a, other;
	int fd;

	answered(n, &later, &other, NET_OTHER_EPOCH);
	fd = answered(n, &h, &a, NET_WELCOME);
	answered(n, &later, &other, NET_OTHER_EPOCH);
	becomes_a_link(n, fd, &h, &a);
	net_close(n);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("net_door");
	TCase *c = tcase_create("net_door");
	SRunner *r = srunner_create(s);
	int failed;

	suite_add_tcase(s, c);
	tcase_set_timeout(c, 60);
	tcase_add_loop_test(c, full_of_answered, 0, 3);
	tcase_add_test(c, full_of_refused);
	tcase_add_test(c, comes_again);
	tcase_add_test(c, begins_anew);
	tcase_add_test(c, of_another_epoch);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed != 0;
}
