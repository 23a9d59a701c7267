/* The openssh transport: a forked `ssh -T` per host, the same bytes over its stdin and
 * stdout.
 *
 * For what libssh can't do; ten times slower (60 ms of CPU per host).  ssh runs in a
 * session of its own, so that ^C is runner's alone, and never asks (BatchMode). */
#include "launcher/transport/transport.h"

#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/loop.h"
#include "launcher/transport/agent_install.h"
#include "launcher/transport/dial.h"
#include "launcher/transport/libssh.h"
#include "launcher/transport/ssh_config.h"

enum { SAID_MAX = 4096, READ_BYTES = 262144, REAP_MS = 2, STATUS_SSH = 255 };

struct conn {
	const struct transport_setup *setup;
	const struct target *target;
	const struct transport_events *events;
	void *ctx;

	pid_t pid; /* 0: no ssh runs */
	int to, from, said_fd;
	struct event *readable, *writable, *said_ready;
	struct event
		*wake; /* timer: start, start again, or look whether ssh has ended */
	struct event *deadline;
	struct gate_pass pass;
	unsigned tries;
	struct err last;

	struct agent_install boot;
	bool up, ended; /* ended: stdout of ssh is at its end */
	bool busy, dead;
	struct str said;
	unsigned char *room;
};

/* ---- the ssh program ---- */

static void close_fd(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

static void drop_event(struct event **e)
{
	if (*e)
		event_free(*e);
	*e = NULL;
}

static void drop_fds(struct conn *c)
{
	drop_event(&c->readable);
	drop_event(&c->writable);
	drop_event(&c->said_ready);
	close_fd(&c->to);
	close_fd(&c->from);
	close_fd(&c->said_fd);
}

static void drop_ssh(struct conn *c)
{
	drop_fds(c);
	gate_leave(&c->pass);
	if (!c->pid)
		return;
	kill(c->pid,
	     SIGKILL); /* its socket closes, sshd sees that, the agent reads EOF */
	waitpid(c->pid, NULL, 0);
	c->pid = 0;
}

static void make_argv(struct conn *c, struct strv *argv)
{
	static const char *const fixed[] = { "ssh", "-T",
					     "-x",  "-a",
					     "-o",  "BatchMode=yes",
					     "-o",  "ClearAllForwardings=yes",
					     "-o",  "PermitLocalCommand=no" };
	const struct transport_setup *s = c->setup;

	for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++)
		strv_add(argv, fixed[i]);
	if (s->accept_new_hosts)
		strv_add(argv, "-oStrictHostKeyChecking=accept-new");
	if (s->ssh_port)
		strv_take(argv, xasprintf("-p%d", s->ssh_port));
	if (s->identity)
		strv_take(argv, xasprintf("-i%s", s->identity));
	if (c->target->user)
		strv_take(argv, xasprintf("-l%s", c->target->user));
	strv_add(argv, "--");
	strv_add(argv, c->target->name);
	strv_add(argv, agent_install_command(&c->boot));
}

/* vfork: the address space is shared until exec. */
static pid_t spawn(char *const *argv, int in, int out, int said, int *error)
{
	volatile int failed = 0;
	sigset_t none;
	pid_t pid;

	sigemptyset(&none);
	pid = vfork();
	if (pid == 0) {
		setsid();
		signal(SIGPIPE, SIG_DFL);
		sigprocmask(SIG_SETMASK, &none, NULL);
		if (dup2(in, 0) >= 0 && dup2(out, 1) >= 0 && dup2(said, 2) >= 0)
			execvp(argv[0], argv);
		failed = errno;
		_exit(127);
	}
	*error = pid < 0 ? errno : failed;
	if (pid > 0 && failed)
		waitpid(pid, NULL, 0);
	return *error ? 0 : pid;
}

static int open_ssh(struct conn *c)
{
	struct strv argv = { 0 };
	int in[2] = { -1, -1 }, out[2] = { -1, -1 }, said[2] = { -1, -1 }, error;

	/* stdin is a socket: a write to an ssh that is gone must not raise SIGPIPE */
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, in) ||
	    pipe2(out, O_CLOEXEC) || pipe2(said, O_CLOEXEC)) {
		error = errno;
	} else {
		make_argv(c, &argv);
		c->pid = spawn(argv.v, in[1], out[1], said[1], &error);
		strv_free(&argv);
	}
	close_fd(&in[1]);
	close_fd(&out[1]);
	close_fd(&said[1]);
	c->to = in[0];
	c->from = out[0];
	c->said_fd = said[0];
	return error;
}

/* ---- the end ---- */

static void release(struct conn *c)
{
	drop_ssh(c);
	event_free(c->wake);
	event_free(c->deadline);
	agent_install_free(&c->boot);
	str_free(&c->said);
	free(c->room);
	free(c);
}

static void finish(struct conn *c, const struct err *e, int status)
{
	struct transport_end end = { .status = status, .said = str_text(&c->said) };

	if (e)
		end.err = *e;
	drop_ssh(c);
	event_del(c->wake);
	event_del(c->deadline);
	c->events->ended(c->ctx, &end);
}

static void wake_in(struct conn *c, unsigned ms)
{
	const struct timeval pause = { ms / 1000, (int)(ms % 1000) * 1000 };

	event_add(c->wake, &pause);
}

/* What ssh says when it fails by itself, most telling first. */
static const struct {
	const char *text;
	enum err_id id;
	bool again;
} failures[] = {
	{ "IDENTIFICATION HAS CHANGED", E_SSH_HOSTKEY_CHANGED, false },
	{ "Host key verification failed", E_SSH_HOSTKEY, false },
	{ "Permission denied", E_SSH_AUTH, false },
	{ "Too many authentication failures", E_SSH_AUTH, false },
	{ "Could not resolve hostname", E_SSH_RESOLVE, false },
	{ "Connection refused", E_SSH_CONNECT, true },
	{ "Connection reset", E_SSH_CONNECT, true },
	{ "Connection closed", E_SSH_CONNECT, true },
	{ "kex_exchange_identification", E_SSH_CONNECT, true },
	{ "No route to host", E_SSH_CONNECT, true },
	{ "Network is unreachable", E_SSH_CONNECT, true },
	{ "Connection timed out", E_SSH_CONNECT, true },
};

/* The line of SAID that has HIT in it. */
static char *line_of(const char *said, const char *hit)
{
	while (hit > said && hit[-1] != '\n')
		hit--;
	return agent_install_quote(hit, strlen(hit));
}

/* ssh itself failed: fill c->last; true: try again later. */
static bool explain(struct conn *c)
{
	const char *said = str_text(&c->said), *hit = NULL;
	const char *where = c->boot.where;
	bool again = false;
	char *line;
	size_t i;

	for (i = 0; !hit && i < sizeof failures / sizeof *failures; i++)
		hit = strstr(said, failures[i].text);
	if (!hit) {
		line = agent_install_quote(said, strlen(said));
		err_set(&c->last, E_SSH_PROGRAM, where, STATUS_SSH, line);
		free(line);
		return false;
	}
	line = line_of(said, hit);
	again = failures[--i].again;
	if (failures[i].id == E_SSH_RESOLVE)
		err_set(&c->last, E_SSH_RESOLVE, where, c->target->name, line);
	else if (failures[i].id == E_SSH_AUTH)
		err_set(&c->last, E_SSH_AUTH, where, line);
	else if (failures[i].id == E_SSH_HOSTKEY)
		err_set(&c->last, E_SSH_HOSTKEY, where, line);
	else if (failures[i].id == E_SSH_HOSTKEY_CHANGED)
		err_set(&c->last, E_SSH_HOSTKEY_CHANGED, where, "says ssh");
	else
		err_set(&c->last, E_SSH_CONNECT, where, line);
	free(line);
	return again;
}

static void on_boot(struct conn *c, enum boot_event got);

static void on_exited(struct conn *c, int status)
{
	struct err e;
	char *line;

	c->pid = 0;
	c->ended = false;
	gate_leave(&c->pass);
	drop_fds(c);
	if (c->up && status != STATUS_SSH) {
		finish(c, NULL, status);
	} else if (c->up) {
		line = agent_install_quote(str_text(&c->said), c->said.len);
		err_set(&e, E_SSH_LOST, c->boot.where, *line ? line : "ssh ended");
		free(line);
		finish(c, &e, -1);
	} else if (status != STATUS_SSH) {
		on_boot(c, agent_install_ended(&c->boot, status, str_text(&c->said)));
	} else if (explain(c)) {
		str_free(&c->said);
		wake_in(c, dial_backoff_ms(c->tries++));
	} else {
		finish(c, &c->last, -1);
	}
}

/* A master connection (ControlPersist) may keep stderr open for ever: stdout's end
 * counts. */
static void reap(struct conn *c)
{
	int st;
	char rest[SAID_MAX];
	ssize_t n;

	if (waitpid(c->pid, &st, WNOHANG) == 0) {
		wake_in(c, REAP_MS);
		return;
	}
	while ((n = read(c->said_fd, rest, sizeof rest)) > 0)
		str_addn(&c->said, rest, (size_t)n);
	on_exited(c, WIFEXITED(st) ? WEXITSTATUS(st) : 128 + WTERMSIG(st));
}

/* ---- bytes ---- */

static size_t write_some(struct conn *c, const void *data, size_t n)
{
	size_t done = 0;

	while (done < n && c->to >= 0) {
		ssize_t rc = send(c->to, (const char *)data + done, n - done,
				  MSG_NOSIGNAL | MSG_DONTWAIT);

		if (rc < 0 && errno == EINTR)
			continue;
		if (rc < 0 && errno != EAGAIN)
			return n; /* ssh is gone: its end says the rest */
		if (rc < 0)
			break;
		done += (size_t)rc;
	}
	if (done < n && c->writable)
		loop_watch(c->writable);
	return done;
}

static void feed_boot(struct conn *c)
{
	const void *data;
	size_t n, done = 1;

	while (done && (data = agent_install_pending(&c->boot, &n))) {
		done = write_some(c, data, n);
		agent_install_sent(&c->boot, done);
	}
}

static void on_boot(struct conn *c, enum boot_event got)
{
	switch (got) {
	case BOOT_WAIT:
		feed_boot(c);
		break;
	case BOOT_AGAIN:
		drop_ssh(c);
		str_free(&c->said);
		wake_in(c, 0);
		break;
	case BOOT_FAILED:
		finish(c, &c->boot.err, -1);
		break;
	case BOOT_UP:
		c->up = true;
		event_del(c->deadline);
		str_free(&c->said);
		c->events->bytes(c->ctx, buf_head(&c->boot.in), c->boot.in.len);
		if (!c->dead)
			buf_free(&c->boot.in);
		if (!c->dead)
			c->events->writable(c->ctx);
		break;
	}
}

static void read_out(struct conn *c)
{
	ssize_t n = read(c->from, c->room, READ_BYTES);

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0) {
		event_del(c->readable);
		c->ended = true;
		reap(c);
		return;
	}
	gate_leave(&c->pass); /* it is logged in */
	if (c->up)
		c->events->bytes(c->ctx, c->room, (size_t)n);
	else
		on_boot(c, agent_install_bytes(&c->boot, c->room, (size_t)n));
}

/* Call-backs into those above may close C: it lives until DO_IT has returned. */
static void guarded(struct conn *c, void (*do_it)(struct conn *c))
{
	c->busy = true;
	do_it(c);
	c->busy = false;
	if (c->dead)
		release(c);
}

static void on_readable(evutil_socket_t fd, short what, void *ctx)
{
	(void)fd;
	(void)what;
	guarded(ctx, read_out);
}

static void tell_writable(struct conn *c)
{
	if (c->up)
		c->events->writable(c->ctx);
	else
		feed_boot(c);
}

static void on_writable(evutil_socket_t fd, short what, void *ctx)
{
	(void)fd;
	(void)what;
	guarded(ctx, tell_writable);
}

static void on_said(evutil_socket_t fd, short what, void *ctx)
{
	struct conn *c = ctx;
	char text[SAID_MAX];
	ssize_t n = read(fd, text, sizeof text);

	(void)what;
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0) {
		event_del(c->said_ready);
		return;
	}
	str_addn(&c->said, text, (size_t)n);
	if (c->said.len > SAID_MAX) {
		memmove(c->said.s, c->said.s + c->said.len - SAID_MAX, SAID_MAX + 1);
		c->said.len = SAID_MAX;
	}
}

/* ---- start ---- */

static void run_ssh(struct conn *c)
{
	struct event_base *base = c->setup->base;
	int error = open_ssh(c);

	if (error) {
		err_set(&c->last, E_SSH_PROGRAM, c->boot.where, 127, strerror(error));
		err_hint(&c->last, "install the ssh program (openssh-client)");
		finish(c, &c->last, -1);
		return;
	}
	fcntl(c->from, F_SETFL, O_NONBLOCK);
	fcntl(c->said_fd, F_SETFL, O_NONBLOCK);
	fcntl(c->from, F_SETPIPE_SZ, 1 << 20);
	c->readable = event_new(base, c->from, EV_READ | EV_PERSIST, on_readable, c);
	c->writable = event_new(base, c->to, EV_WRITE, on_writable, c);
	c->said_ready = event_new(base, c->said_fd, EV_READ | EV_PERSIST, on_said, c);
	loop_watch(c->readable);
	loop_watch(c->said_ready);
	feed_boot(c);
}

static void on_gate(void *ctx)
{
	wake_in(ctx, 0);
}

static void knock(struct conn *c)
{
	const struct target *t = c->target;
	char *key = gate_key(t->name, t->addr, t->naddr, c->setup->ssh_port);

	if (gate_enter(&c->pass, key, on_gate, c))
		run_ssh(c);
	free(key);
}

static void go_on(struct conn *c)
{
	if (c->ended)
		reap(c);
	else if (c->pass.inside)
		run_ssh(c);
	else
		knock(c);
}

static void on_wake(evutil_socket_t fd, short what, void *ctx)
{
	(void)fd;
	(void)what;
	guarded(ctx, go_on);
}

static void give_up(struct conn *c)
{
	struct err e = c->last;
	char *line;

	if (c->pid && c->said.len) {
		line = agent_install_quote(c->said.s, c->said.len);
		err_set(&e, E_START_TIMEOUT, c->boot.where, line);
		free(line);
	} else if (e.id == ERR_NONE && c->pass.gate && c->pid) {
		err_set(&e, E_START_TIMEOUT, c->boot.where,
			"ssh got no answer from it");
	} else if (e.id == ERR_NONE) {
		agent_install_late(&c->boot);
		e = c->boot.err;
	}
	finish(c, &e, -1);
}

static void on_deadline(evutil_socket_t fd, short what, void *ctx)
{
	(void)fd;
	(void)what;
	guarded(ctx, give_up);
}

static struct conn *openssh_start(const struct transport_setup *setup,
				  const struct target *t,
				  const struct transport_events *events, void *ctx)
{
	struct conn *c = xcalloc(1, sizeof *c);
	const uint64_t now = clock_ms();
	const uint64_t left = setup->deadline_ms > now ? setup->deadline_ms - now : 0;
	const struct timeval tv = { (time_t)(left / 1000), (int)(left % 1000) * 1000 };
	struct str where = { 0 };

	*c = (struct conn){ .setup = setup, .target = t, .events = events, .ctx = ctx };
	c->to = c->from = c->said_fd = -1;
	c->room = xmalloc(READ_BYTES);
	str_addf(&where, "%s%s%s", t->user ? t->user : "", t->user ? "@" : "", t->name);
	if (setup->ssh_port)
		str_addf(&where, ":%d", setup->ssh_port);
	agent_install_init(&c->boot, setup, str_text(&where));
	str_free(&where);
	c->wake = event_new(setup->base, -1, 0, on_wake, c);
	c->deadline = event_new(setup->base, -1, 0, on_deadline, c);
	event_add(c->deadline, &tv);
	wake_in(c, 0);
	return c;
}

static size_t openssh_send(struct conn *c, const void *data, size_t n)
{
	return c->up ? write_some(c, data, n) : 0;
}

static void openssh_close(struct conn *c)
{
	c->dead = true;
	if (!c->busy)
		release(c);
}

const struct transport transport_openssh = { "openssh", openssh_start, openssh_send,
					     openssh_close };

const struct transport *transport_remote(const struct target *t, struct str *why)
{
	const bool agent = getenv("SSH_AUTH_SOCK") != NULL;
	struct ssh_config_facts facts;
	const char *reason;

	if (!libssh_load(&reason)) {
		str_addf(why, "by the ssh program, for %s", reason);
		return &transport_openssh;
	}
	ssh_config_ask(ssh_config_own(), t->name, t->user, agent, &facts);
	if (facts.why.len)
		str_addf(why, "by the ssh program, for libssh cannot do %s",
			 facts.why.s);
	str_free(&facts.why);
	return why->len ? &transport_openssh : &transport_ssh;
}
