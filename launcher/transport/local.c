/* transport_local: the agent on this machine, a child with a socket for stdin and
 * stdout.
 *
 * The child begins a session of its own, so that ^C in the terminal reaches runner
 * alone. */
#include "launcher/transport/local.h"

#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/loop.h"
#include "launcher/transport/transport.h"

enum { SAID_MAX = 4096, READ_MAX = 262144 };

struct conn {
	const struct transport_events *events;
	void *ctx;
	int sock, pidfd, said_fd; /* -1: closed */
	pid_t pid;
	struct event *readable, *writable, *exited, *failed;
	struct str said;
	struct err err;
	unsigned char *room;
};

char *local_agent_path(void)
{
	char self[4096];
	ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
	char *slash;

	if (n <= 0)
		return NULL;
	self[n] = '\0';
	slash = strrchr(self, '/');
	return slash ? xasprintf("%.*s/berth-agent", (int)(slash - self), self) : NULL;
}

static char *choose_agent(const struct transport_setup *setup)
{
	if (setup->agent)
		return xstrdup(setup->agent);
	if (setup->own_agent && !access(setup->own_agent, X_OK))
		return xstrdup(setup->own_agent);
	return xstrdup("berth-agent");
}

static void add_said(struct conn *c, const char *text, size_t n)
{
	str_addn(&c->said, text, n);
	if (c->said.len > SAID_MAX) {
		memmove(c->said.s, c->said.s + c->said.len - SAID_MAX, SAID_MAX + 1);
		c->said.len = SAID_MAX;
	}
}

static void drain_said(struct conn *c)
{
	char text[1024];
	ssize_t n;

	while (c->said_fd >= 0 && c->said.len < SAID_MAX &&
	       (n = read(c->said_fd, text, sizeof text)) > 0)
		add_said(c, text, (size_t)n);
}

static void finish(struct conn *c, int status)
{
	struct transport_end end = { .err = c->err, .status = status };

	drain_said(c);
	end.said = str_text(&c->said);
	c->events->ended(c->ctx, &end); /* may free c */
}

static void on_exited(evutil_socket_t fd, short what, void *ctx)
{
	struct conn *c = ctx;
	int st = 0;
	ssize_t n;

	(void)fd;
	(void)what;
	/* What is still in the socket comes first, a block a turn of the loop: a child
	 * of the agent's may hold the other end and never stop. */
	n = c->readable ? recv(c->sock, c->room, READ_MAX, MSG_DONTWAIT) : 0;
	if (n > 0) {
		c->events->bytes(c->ctx, c->room, (size_t)n);
		return;
	}
	if (waitpid(c->pid, &st, WNOHANG) == 0)
		return;
	c->pid = 0;
	event_del(c->exited);
	finish(c, WIFEXITED(st) ? WEXITSTATUS(st) : 128 + WTERMSIG(st));
}

static void on_readable(evutil_socket_t fd, short what, void *ctx)
{
	struct conn *c = ctx;
	ssize_t n = recv(c->sock, c->room, READ_MAX, MSG_DONTWAIT);

	(void)fd;
	(void)what;
	if (n > 0)
		c->events->bytes(c->ctx, c->room, (size_t)n);
	else if (n == 0 || (errno != EAGAIN && errno != EINTR))
		event_del(c->readable); /* its exit tells the rest */
}

static void on_writable(evutil_socket_t fd, short what, void *ctx)
{
	struct conn *c = ctx;

	(void)fd;
	(void)what;
	c->events->writable(c->ctx);
}

static void on_failed(evutil_socket_t fd, short what, void *ctx)
{
	(void)fd;
	(void)what;
	finish(ctx, -1);
}

/* Exec the agent with S for stdin and stdout.  vfork: the address space is shared until
 * exec. */
static pid_t spawn_agent(const char *path, const char *topology, int s, int said)
{
	char *argv[4] = { (char *)"berth-agent", NULL };
	volatile int error = 0;
	sigset_t none;
	pid_t pid;

	if (topology) {
		argv[1] = (char *)"--place";
		argv[2] = (char *)topology;
	}
	sigemptyset(&none);
	pid = vfork();
	if (pid == 0) {
		setsid();
		signal(SIGPIPE, SIG_DFL);
		sigprocmask(SIG_SETMASK, &none, NULL);
		if (dup2(s, 0) < 0 || dup2(s, 1) < 0 || dup2(said, 2) < 0)
			_exit(125);
		execvp(path, argv);
		error = errno;
		_exit(127);
	}
	if (pid > 0 && error) {
		waitpid(pid, NULL, 0);
		errno = error;
		return -1;
	}
	return pid;
}

/* Where there are no pidfds (before Linux 5.3, under valgrind): look every 10 ms. */
static void watch_exit(struct conn *c, struct event_base *base)
{
	const struct timeval look = { .tv_usec = 10000 };

	c->pidfd = (int)syscall(SYS_pidfd_open, c->pid, 0);
	c->exited = event_new(base, c->pidfd,
			      c->pidfd < 0 ? EV_PERSIST : EV_READ | EV_PERSIST,
			      on_exited, c);
	if (c->pidfd < 0)
		event_add(c->exited, &look);
	else
		loop_watch(c->exited);
}

static int open_agent(struct conn *c, const struct transport_setup *setup,
		      const char *path, const struct target *t)
{
	int s[2], said[2];

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, s))
		return err_set(&c->err, E_SYSTEM, "socketpair", strerror(errno));
	if (pipe2(said, O_CLOEXEC)) {
		close(s[0]);
		close(s[1]);
		return err_set(&c->err, E_SYSTEM, "pipe", strerror(errno));
	}
	fcntl(said[0], F_SETFL, O_NONBLOCK);
	c->sock = s[0];
	c->said_fd = said[0];
	c->pid = spawn_agent(path, t->topology, s[1], said[1]);
	close(s[1]);
	close(said[1]);
	if (c->pid < 0) {
		c->pid = 0;
		return err_set(&c->err, E_AGENT_EXEC, path, strerror(errno));
	}
	c->readable =
		event_new(setup->base, c->sock, EV_READ | EV_PERSIST, on_readable, c);
	c->writable = event_new(setup->base, c->sock, EV_WRITE, on_writable, c);
	loop_watch(c->readable);
	watch_exit(c, setup->base);
	return 0;
}

static struct conn *local_start(const struct transport_setup *setup,
				const struct target *t,
				const struct transport_events *events, void *ctx)
{
	struct conn *c = xcalloc(1, sizeof *c);
	char *path = choose_agent(setup);

	*c = (struct conn){ .events = events, .ctx = ctx };
	c->sock = c->pidfd = c->said_fd = -1;
	c->room = xmalloc(READ_MAX);
	if (open_agent(c, setup, path, t)) {
		c->failed = event_new(setup->base, -1, 0, on_failed, c);
		event_active(c->failed, EV_TIMEOUT, 0);
	}
	free(path);
	return c;
}

static size_t local_send(struct conn *c, const void *data, size_t n)
{
	ssize_t sent =
		c->sock < 0 ? -1 : send(c->sock, data, n, MSG_DONTWAIT | MSG_NOSIGNAL);

	if (sent < 0 && c->sock >= 0 && errno != EAGAIN)
		return n; /* it is gone: its end is on the way */
	if (sent < (ssize_t)n && c->writable)
		loop_watch(c->writable);
	return sent > 0 ? (size_t)sent : 0;
}

/* Agents whose stream is closed and who may not have ended yet. */
static struct leaving {
	pid_t pid;
	int pidfd;
	struct leaving *next;
} * leaving;

static void leave(pid_t pid, int pidfd)
{
	struct leaving *l = xcalloc(1, sizeof *l);

	*l = (struct leaving){ pid, pidfd, leaving };
	leaving = l;
}

void local_wait(unsigned ms)
{
	uint64_t until = clock_ms() + ms, now;

	while (leaving) {
		struct leaving *l = leaving;
		struct pollfd p = { .fd = l->pidfd, .events = POLLIN };

		now = clock_ms();
		if (poll(&p, 1, now < until ? (int)(until - now) : 0) != 1)
			kill(l->pid, SIGKILL);
		waitpid(l->pid, NULL, 0);
		if (l->pidfd >= 0)
			close(l->pidfd);
		leaving = l->next;
		free(l);
	}
}

static void free_event(struct event *e)
{
	if (e)
		event_free(e);
}

static void local_close(struct conn *c)
{
	free_event(c->readable);
	free_event(c->writable);
	free_event(c->exited);
	free_event(c->failed);
	if (c->sock >= 0)
		close(c->sock);
	if (c->pid > 0)
		leave(c->pid, c->pidfd); /* it ends by itself at EOF */
	else if (c->pidfd >= 0)
		close(c->pidfd);
	if (c->said_fd >= 0)
		close(c->said_fd);
	str_free(&c->said);
	free(c->room);
	free(c);
}

const struct transport transport_local = { "local", local_start, local_send,
					   local_close };
