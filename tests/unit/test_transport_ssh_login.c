/* ssh_login.h: connections that end before the log-in, and proxies. */
#include <check.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "launcher/transport/child.h"
#include "launcher/transport/ssh_login.h"
#include "tests/unit/ssh_config_free.h"

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

/* ---- proxies ---- */

static char home[64];

static void write_config(const char *text)
{
	char *path = xasprintf("%s/.ssh/config", home);
	FILE *f = fopen(path, "we");

	ck_assert_ptr_nonnull(f);
	fputs(text, f);
	fclose(f);
	free(path);
}

/* Our reader reads this home; libssh reads the user's own, and so knows of no proxy, as
 * 0.11 and later say of ProxyJump, which they do themselves. */
static void own_home(void)
{
	char *ssh;

	snprintf(home, sizeof home, "/tmp/test_ssh_login.XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(home));
	ssh = xasprintf("%s/.ssh", home);
	ck_assert(!mkdir(ssh, 0700));
	free(ssh);
}

static void no_config(struct ssh_config *c)
{
	ssh_config_free(c);
	*c = (struct ssh_config){ 0 };
}

static void no_home(void)
{
	static const char *const names[] = { ".ssh/config", ".ssh", "" };

	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		char *path = xasprintf("%s/%s", home, names[i]);

		remove(path);
		free(path);
	}
	no_config(ssh_config_own());
}

static void open_as(struct ssh_login *l, const char *config)
{
	struct ssh_config *own = ssh_config_own();

	write_config(config);
	no_config(own);
	ssh_config_read(own, home, home);
	ck_assert_int_eq(ssh_login_open(l, lib, &given, &target), 0);
}

static const struct {
	const char *jump, *command;
} jumps[] = {
	{ "gate", "ssh -W '[%h]:%p' -- 'gate'" },
	{ "me@gate:2222", "ssh -l 'me' -p '2222' -W '[%h]:%p' -- 'gate'" },
	{ "a:1,b,me@c", "ssh -l 'me' -J 'a:1,b' -W '[%h]:%p' -- 'c'" },
	{ "[fe80::1]:22", "ssh -p '22' -W '[%h]:%p' -- 'fe80::1'" },
	{ "a,[fe80::1]", "ssh -J 'a' -W '[%h]:%p' -- 'fe80::1'" },
	{ "fe80::1", "ssh -W '[%h]:%p' -- 'fe80::1'" },
};

START_TEST(a_jump_host_is_never_passed_over)
{
	char *config = xasprintf("ProxyJump %s\n", jumps[_i].jump);
	struct ssh_login l;

	open_as(&l, config);
	ck_assert_str_eq(l.proxy, jumps[_i].command);
	ck_assert(!l.only_ssh);
	ssh_login_close(&l);
	free(config);
}
END_TEST

static const char *const others[] = {
	"ProxyJump ssh://gate\n",  /* only ssh reads it */
	"ProxyCommand nc %h %p\n", /* libssh did not see it */
};

START_TEST(a_proxy_that_libssh_lacks_is_for_the_ssh_program)
{
	struct ssh_login l;

	open_as(&l, others[_i]);
	ck_assert_int_eq(ssh_login_step(&l), LOGIN_OTHER);
	ssh_login_close(&l);
}
END_TEST

START_TEST(no_proxy)
{
	struct ssh_login l;

	open_as(&l, "ProxyJump none\nProxyCommand nc %h %p\n");
	ck_assert_ptr_null(l.proxy);
	ck_assert(!l.only_ssh);
	ssh_login_close(&l);
}
END_TEST

/* What its proxy has said is the reason. */
START_TEST(a_proxy_that_fails)
{
	struct ssh_login l;

	open_as(&l, "ProxyJump gate\n");
	free(l.proxy);
	l.proxy = xstrdup("sh -c 'echo some words >&2; echo \"Host key for gate has "
			  "changed and you have requested strict checking.\" >&2'");
	ck_assert_int_eq(ssh_login_proxy(&l), LOGIN_DONE);
	ck_assert_int_eq(log_in(&l), LOGIN_FAILED);
	ck_assert_int_eq(l.err.id, E_SSH_CONNECT);
	ck_assert_str_eq(
		l.err.text,
		"nobody@192.0.2.1:22: cannot connect: its proxy says 'Host key "
		"for gate has changed and you have requested strict checking.'");
	ssh_login_close(&l);
	child_wait_all(10000);
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
	if (lib) {
		tcase_add_checked_fixture(c, own_home, no_home);
		tcase_add_loop_test(c, an_end_is_told_as_one, 0,
				    sizeof ends / sizeof *ends);
		tcase_add_loop_test(c, a_jump_host_is_never_passed_over, 0,
				    sizeof jumps / sizeof *jumps);
		tcase_add_loop_test(c, a_proxy_that_libssh_lacks_is_for_the_ssh_program,
				    0, sizeof others / sizeof *others);
		tcase_add_test(c, no_proxy);
		tcase_add_test(c, a_proxy_that_fails);
	} else {
		printf("note: %s: not tested\n", why);
	}
#endif
	suite_add_tcase(s, c);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed != 0;
}
