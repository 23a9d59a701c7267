#include "launcher/transport/child.h"

#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/loop.h"

enum { SAID_MAX = 4096, READ_MAX = 262144 };

extern char **environ;

struct child {
	const struct transport_events *events;
	void *ctx;
	pid_t pid; /* 0: it has ended and was waited for */
	int sock, said_fd;
	int pidfd; /* readable when it has ended; -1: this kernel has no pidfds */
	struct event *readable, *writable, *said_ready, *exited;
	struct str said;
	struct child *next; /* among those that are closed and still run */
};

static struct child *closed;
static unsigned char room[READ_MAX]; /* for one read, whichever child is read */

void child_keep_said(struct str *said, const void *text, size_t n)
{
	str_addn(said, text, n);
	if (said->len > SAID_MAX) {
		memmove(said->s, said->s + said->len - SAID_MAX, SAID_MAX + 1);
		said->len = SAID_MAX;
	}
}

const char *child_said(struct child *c)
{
	char text[SAID_MAX];
	ssize_t n;

	while ((n = read(c->said_fd, text, sizeof text)) > 0)
		child_keep_said(&c->said, text, (size_t)n);
	if (n == 0 || (errno != EAGAIN && errno != EINTR))
		event_del(c->said_ready);
	return str_text(&c->said);
}

void child_forget_said(struct child *c)
{
	str_free(&c->said);
}

static void on_said(evutil_socket_t fd, short what, void *ctx)
{
	(void)fd;
	(void)what;
	child_said(ctx);
}

static void child_on_readable(evutil_socket_t fd, short what, void *ctx)
{
	struct child *c = ctx;
	ssize_t n = recv(fd, room, sizeof room, MSG_DONTWAIT);

	(void)what;
	if (n > 0)
		c->events->bytes(c->ctx, room, (size_t)n);
	else if (n == 0 || (errno != EAGAIN && errno != EINTR))
		event_del(c->readable); /* child_on_exited() reports the end */
}

static void child_on_writable(evutil_socket_t fd, short what, void *ctx)
{
	struct child *c = ctx;

	(void)fd;
	(void)what;
	c->events->writable(c->ctx);
}

static void child_on_exited(evutil_socket_t fd, short what, void *ctx)
{
	struct child *c = ctx;
	struct transport_end end = { 0 };
	/* The rest that is still in the socket comes first, one read in each turn of
	 * the loop: a process that the child left behind may write without end. */
	ssize_t n = recv(c->sock, room, sizeof room, MSG_DONTWAIT);
	pid_t got;
	int st = 0;

	(void)fd;
	(void)what;
	if (n > 0) {
		c->events->bytes(c->ctx, room, (size_t)n);
		return;
	}
	got = waitpid(c->pid, &st, WNOHANG);
	if (!got)
		return;
	c->pid = 0;
	event_del(c->exited);
	if (got < 0)
		end.status = -1; /* the kernel reaped it: SIGCHLD is ignored */
	else
		end.status = WIFEXITED(st) ? WEXITSTATUS(st) : 128 + WTERMSIG(st);
	end.said = child_said(c);
	c->events->ended(c->ctx, &end); /* may free c */
}

/* Returns an errno, that of exec too.  From the clone to the exec no handler of ours
 * runs in the child, which would write to the pipe of libevent's signals: libc blocks
 * all signals meanwhile, and resets the handlers before the mask of the child. */
static int child_spawn(pid_t *pid, const char *path, char *const *argv,
		       char *const *env, int sock, int said)
{
	posix_spawn_file_actions_t files;
	posix_spawnattr_t attr;
	sigset_t none, usual;
	int error;

	sigemptyset(&none);
	sigemptyset(&usual);
	sigaddset(&usual, SIGPIPE);
	sigaddset(&usual, SIGCHLD); /* ssh waits for its ProxyCommand */
	posix_spawn_file_actions_init(&files);
	posix_spawnattr_init(&attr);
	posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGDEF |
						POSIX_SPAWN_SETSIGMASK);
	posix_spawnattr_setsigdefault(&attr, &usual);
	posix_spawnattr_setsigmask(&attr, &none);
	if (posix_spawn_file_actions_adddup2(&files, sock, 0) ||
	    posix_spawn_file_actions_adddup2(&files, sock, 1) ||
	    posix_spawn_file_actions_adddup2(&files, said, 2))
		error = ENOMEM;
	else
		error = posix_spawnp(pid, path, &files, &attr, argv, env);
	posix_spawn_file_actions_destroy(&files);
	posix_spawnattr_destroy(&attr);
	return error;
}

/* ---- the same, for a child that dies with us ---- */

enum { STACK_BYTES = 65536 };

struct bound {
	const char *path;
	char *const *argv, *const *env;
	int sock, said, error;
	pid_t parent;
};

/* On our memory, while our thread waits: only what POSIX allows after fork().
 * AddressSanitizer would warn of a stack that is not the thread's. */
__attribute__((no_sanitize("address"))) static int bound_main(void *arg)
{
	struct bound *b = arg;
	sigset_t none;

	for (int i = 1; i < NSIG; i++)
		signal(i, SIG_DFL);
	sigemptyset(&none);
	setsid();
	if (prctl(PR_SET_PDEATHSIG, SIGKILL) || getppid() != b->parent)
		_exit(127);
	if (dup2(b->sock, 0) >= 0 && dup2(b->sock, 1) >= 0 && dup2(b->said, 2) >= 0) {
		sigprocmask(SIG_SETMASK, &none, NULL);
		execvpe(b->path, b->argv, b->env);
	}
	b->error = errno;
	_exit(127);
}

/* posix_spawn() cannot ask for a signal at the parent's death. */
static int spawn_bound(pid_t *pid, const char *path, char *const *argv,
		       char *const *env, int sock, int said)
{
	struct bound b = { .path = path,
			   .argv = argv,
			   .env = env ? env : environ,
			   .sock = sock,
			   .said = said,
			   .parent = getpid() };
	unsigned char *stack = mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE,
				    MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
	sigset_t all, mask;

	if (stack == MAP_FAILED)
		return errno;
	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, &mask);
	*pid = clone(bound_main, stack + STACK_BYTES, CLONE_VM | CLONE_VFORK | SIGCHLD,
		     &b);
	if (*pid < 0)
		b.error = errno;
	else if (b.error)
		waitpid(*pid, NULL, 0);
	pthread_sigmask(SIG_SETMASK, &mask, NULL);
	munmap(stack, STACK_BYTES);
	return b.error;
}

struct child *child_start(struct event_base *base, const char *path, char *const *argv,
			  const struct child_how *how,
			  const struct transport_events *events, void *ctx)
{
	const struct timeval poll_exit = { .tv_usec = 10000 };
	struct child *c;
	int sock[2], said[2], error;
	pid_t pid;

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sock))
		return NULL;
	if (pipe2(said, O_CLOEXEC)) { /* a socket cannot be opened as /dev/stderr */
		error = errno;
		close(sock[0]);
		close(sock[1]);
		errno = error;
		return NULL;
	}
	error = how->bound
			? spawn_bound(&pid, path, argv, how->env, sock[1], said[1])
			: child_spawn(&pid, path, argv, how->env ? how->env : environ,
				      sock[1], said[1]);
	close(sock[1]);
	close(said[1]);
	if (error) {
		close(sock[0]);
		close(said[0]);
		errno = error;
		return NULL;
	}
	c = xcalloc(1, sizeof *c);
	*c = (struct child){ .events = events, .ctx = ctx, .pid = pid };
	c->sock = sock[0];
	c->said_fd = said[0];
	fcntl(c->said_fd, F_SETFL, O_NONBLOCK);
	c->pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
	c->readable =
		event_new(base, c->sock, EV_READ | EV_PERSIST, child_on_readable, c);
	c->writable = event_new(base, c->sock, EV_WRITE, child_on_writable, c);
	c->said_ready = event_new(base, c->said_fd, EV_READ | EV_PERSIST, on_said, c);
	c->exited = event_new(base, c->pidfd,
			      c->pidfd < 0 ? EV_PERSIST : EV_READ | EV_PERSIST,
			      child_on_exited, c);
	loop_watch(c->readable);
	loop_watch(c->said_ready);
	if (c->pidfd < 0)
		event_add(c->exited, &poll_exit); /* before Linux 5.3, under valgrind */
	else
		loop_watch(c->exited);
	return c;
}

size_t child_send(struct child *c, const void *data, size_t n)
{
	ssize_t sent = send(c->sock, data, n, MSG_DONTWAIT | MSG_NOSIGNAL);

	if (sent < 0 && errno != EAGAIN)
		return n; /* it has ended, and ended() will come */
	if (sent < (ssize_t)n)
		loop_watch(c->writable);
	return sent > 0 ? (size_t)sent : 0;
}

/* A file in memory that takes so many bytes and no more.  In a pipe a child that says
 * much would wait for a reader, and be killed without one. */
static int said_file(void)
{
	const int fd = memfd_create("stderr", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	if (fd >= 0 &&
	    (ftruncate(fd, CHILD_LENT_SAID) || fcntl(fd, F_ADD_SEALS, F_SEAL_GROW))) {
		close(fd);
		return -1;
	}
	return fd;
}

struct child *child_lend(const char *path, char *const *argv, char *const *env,
			 int *sock)
{
	const int said = said_file();
	struct child *c;
	int pair[2], error;
	pid_t pid;

	if (said < 0)
		return NULL;
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair)) {
		error = errno;
		close(said);
		errno = error;
		return NULL;
	}
	error = child_spawn(&pid, path, argv, env, pair[1], said);
	close(pair[1]);
	if (error) {
		close(said);
		close(pair[0]);
		errno = error;
		return NULL;
	}
	*sock = pair[0];
	c = xcalloc(1, sizeof *c);
	*c = (struct child){ .pid = pid, .sock = -1, .said_fd = said };
	c->pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
	return c;
}

const char *child_lent_said(const struct child *c, char text[CHILD_LENT_SAID + 1])
{
	const ssize_t n = pread(c->said_fd, text, CHILD_LENT_SAID, 0);

	text[n > 0 ? n : 0] = '\0';
	return text;
}

/* Free the closed children that have ended. */
static void child_reap(void)
{
	struct child **at = &closed, *c;

	while ((c = *at)) {
		if (!waitpid(c->pid, NULL, WNOHANG)) {
			at = &c->next;
			continue;
		}
		*at = c->next;
		if (c->pidfd >= 0)
			close(c->pidfd);
		free(c);
	}
}

void child_return(struct child *c)
{
	kill(c->pid, SIGTERM);
	close(c->said_fd);
	c->next = closed;
	closed = c;
	child_reap();
}

void child_close(struct child *c)
{
	event_free(c->readable);
	event_free(c->writable);
	event_free(c->said_ready);
	event_free(c->exited);
	close(c->sock);
	close(c->said_fd);
	str_free(&c->said);
	if (c->pid) {
		c->next = closed;
		closed = c;
		return;
	}
	if (c->pidfd >= 0)
		close(c->pidfd);
	free(c);
}

void child_stop(struct child *c)
{
	if (c->pid)
		kill(c->pid, SIGTERM);
	child_close(c);
}

void child_kill(struct child *c)
{
	if (c->pid) {
		kill(c->pid, SIGKILL);
		waitpid(c->pid, NULL, 0);
		c->pid = 0;
	}
	child_close(c);
}

void child_kill_all(struct child *c)
{
	if (c->pid)
		kill(-c->pid, SIGKILL);
	child_kill(c);
}

void child_wait_all(unsigned ms)
{
	uint64_t until = clock_ms() + ms, now;

	while (closed) {
		struct child *c = closed;
		struct pollfd p = { .fd = c->pidfd, .events = POLLIN };

		now = clock_ms();
		if (poll(&p, 1, now < until ? (int)(until - now) : 0) != 1)
			kill(c->pid, SIGKILL);
		waitpid(c->pid, NULL, 0);
		closed = c->next;
		if (c->pidfd >= 0)
			close(c->pidfd);
		free(c);
	}
}
