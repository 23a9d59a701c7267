/* strangers.h - for tests: connections to a listener here, of this user and others. */
#ifndef BERTH_TESTS_STRANGERS_H
#define BERTH_TESTS_STRANGERS_H

#include <arpa/inet.h>
#include <check.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

enum { STRANGER = 65534 };

/* How a client connects, and to what kind of listener. */
static const struct kind {
	const char *client, *listener; /* NULL: a UNIX socket */
} kinds[] = {
	{ "127.0.0.1", "127.0.0.1" },
	{ "::1", "::1" },
	{ "127.0.0.1", "::" },
	{ "::ffff:127.0.0.1", "127.0.0.1" },
	{ "::ffff:127.0.0.1", "::" },
	{ "127.0.0.7", "0.0.0.0" },
	{ NULL, NULL },
};
enum { KINDS = sizeof kinds / sizeof *kinds };

union address {
	struct sockaddr any;
	struct sockaddr_in v4;
	struct sockaddr_in6 v6;
	struct sockaddr_un local;
};

static socklen_t address_at(union address *a, const char *text, uint16_t port)
{
	memset(a, 0, sizeof *a);
	if (!text) {
		a->local.sun_family = AF_UNIX;
		snprintf(a->local.sun_path + 1, 40, "test-pmix-accept.%d",
			 (int)getpid());
		return sizeof a->local;
	}
	if (strchr(text, ':')) {
		a->v6.sin6_family = AF_INET6;
		a->v6.sin6_port = port;
		ck_assert_int_eq(inet_pton(AF_INET6, text, &a->v6.sin6_addr), 1);
		return sizeof a->v6;
	}
	a->v4.sin_family = AF_INET;
	a->v4.sin_port = port;
	ck_assert_int_eq(inet_pton(AF_INET, text, &a->v4.sin_addr), 1);
	return sizeof a->v4;
}

/* A listener that does not block, and where clients of it connect to. */
struct place {
	int fd;
	union address to;
	socklen_t bytes;
};

static struct place place_open(const struct kind *k)
{
	struct place p;
	union address at;
	socklen_t bytes = address_at(&at, k->listener, 0);
	uint16_t port;

	p.fd = socket(at.any.sa_family, SOCK_STREAM | SOCK_NONBLOCK, 0);
	ck_assert_int_ge(p.fd, 0);
	ck_assert_int_eq(bind(p.fd, &at.any, bytes), 0);
	ck_assert_int_eq(listen(p.fd, 4096), 0);
	bytes = sizeof at;
	ck_assert_int_eq(getsockname(p.fd, &at.any, &bytes), 0);
	port = at.any.sa_family == AF_INET ? at.v4.sin_port : at.v6.sin6_port;
	p.bytes = address_at(&p.to, k->client, k->client ? port : 0);
	return p;
}

/* From PORT, or from any if it is 0. */
static int connect_from(const struct place *p, uint16_t port)
{
	union address from = { .v4 = { .sin_family = AF_INET, .sin_port = port } };
	int fd = socket(p->to.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0), yes = 1;

	if (port && (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) ||
		     bind(fd, &from.any, sizeof from.v4)))
		_exit(8);
	if (fd < 0 || connect(fd, &p->to.any, p->bytes))
		_exit(9);
	return fd;
}

static void wait_for(pid_t pid)
{
	int status;

	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
}

enum end { STAYS, CLOSES, RESETS };

/* A process of user UID that has connected N times from PORT, and then has done END. */
static pid_t connect_as(const struct place *p, uid_t uid, unsigned n, uint16_t port,
			enum end end)
{
	const struct linger none = { .l_onoff = 1 };
	int ready[2];
	char c;
	pid_t pid;

	ck_assert_int_eq(pipe(ready), 0);
	pid = fork();
	ck_assert_int_ge(pid, 0);
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (uid != geteuid() && setresuid(uid, uid, uid))
			_exit(7);
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (unsigned i = 0; i < n; i++) {
			int fd = connect_from(p, port);

			if (end == RESETS)
				setsockopt(fd, SOL_SOCKET, SO_LINGER, &none,
					   sizeof none);
			if (end != STAYS)
				close(fd);
		}
		close(ready[0]);
		close(ready[1]);
		while (end == STAYS)
			pause();
		_exit(0);
	}
	close(ready[1]);
	ck_assert_int_eq(read(ready[0], &c, 1), 0);
	close(ready[0]);
	if (end != STAYS)
		wait_for(pid);
	return pid;
}

static void end_process(pid_t pid)
{
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

static bool may_be_others(void)
{
	if (geteuid())
		printf("skipped: connections of other users need root\n");
	return !geteuid();
}

#endif
