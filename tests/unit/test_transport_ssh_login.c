/* ssh_login.h: connections that end before the log-in. */
#include <check.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "launcher/transport/ssh_login.h"

#ifdef HAVE_LIBSSH

static const struct libssh *lib;
static const struct transport_setup given;
static const struct target target = { .name = "192.0.2.1", .user = "nobody" };

/* Steps until it has failed or is to be tried again. */
static enum login_result log_in(struct ssh_login *l)
{
	const uint64_t late = clock_ms() + 30000;
	enum login_result got;

	while ((got = ssh_login_step(l)) == LOGIN_WAIT) {
		ck_assert_uint_lt(clock_ms(), late);
		poll(NULL, 0, 1);
	}
	return got;
}

/* As a proxy's socket: its other end is closed before libssh looks at it, or after the
 * N bytes at TEXT. */
static const struct end_case {
	const char *text;
	size_t n;
} ends[] = { { "", 0 }, { "SSH-2.0-OpenSSH_9.2\r\n", 21 }, { "SSH-", 4 } };

START_TEST(an_end_is_told_as_one)
{
	const struct end_case *k = &ends[_i];
	struct ssh_login l;
	int pair[2];

	ck_assert(!socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair));
	ck_assert_int_eq(write(pair[1], k->text, k->n), (ssize_t)k->n);
	close(pair[1]);
	ck_assert_int_eq(ssh_login_open(&l, lib, &given, &target), 0);
	ssh_login_use(&l, pair[0]);
	ck_assert_int_eq(log_in(&l), LOGIN_RETRY);
	ck_assert_int_eq(l.err.id, E_SSH_CONNECT);
	ck_assert_str_eq(l.err.text,
			 "nobody@192.0.2.1:22: cannot connect: connection closed");
	ssh_login_close(&l);
}
END_TEST

#endif

int main(void)
{
	Suite *s = suite_create("ssh_login");
	TCase *c = tcase_create("ssh_login");
	SRunner *r = srunner_create(s);
	int failed;
#ifdef HAVE_LIBSSH
	const char *why;

	lib = libssh_load(&why);
	if (lib)
		tcase_add_loop_test(c, an_end_is_told_as_one, 0,
				    sizeof ends / sizeof *ends);
	else
		printf("note: %s: not tested\n", why);
#endif
	suite_add_tcase(s, c);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed != 0;
}
