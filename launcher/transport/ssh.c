/* The ssh transport: libssh inside the event loop, one session per host.  Log-ins of
 * many hosts run on other cores (launcher/transport/ssh_pool.h), all else is the loop's.
 *
 * A connection goes through the phases below, steps on whenever its socket is ready,
 * and begins again after a pause where the host refused or cut it, until the deadline.
 */
#include "launcher/transport/transport.h"

#include <event2/event.h>

#include "common/loop.h"
#include "launcher/transport/agent_install.h"
#include "launcher/transport/ssh_channel.h"
#include "launcher/transport/dial.h"
#include "launcher/transport/ssh_login.h"
#include "launcher/transport/ssh_pool.h"

#ifdef HAVE_LIBSSH

enum { PROXY_TRIES_MAX = 5 };

enum phase {
	PHASE_START, /* nothing yet, or waiting to try again */
	PHASE_GATE,  /* others log in at this address */
	PHASE_DIAL,
	PHASE_LOGIN,
	PHASE_COMMAND, /* opening a channel for a command */
	PHASE_RUN
};

struct conn {
	const struct libssh *lib;
	const struct transport_setup *setup;
	const struct target *target;
	const struct transport_events *events;
	void *ctx;

	enum phase phase;
	unsigned tries;
	struct err last; /* what the last try came to */
	struct gate_pass pass;
	struct dial *dial;
	struct ssh_login login;
	struct ssh_pool_task *away; /* the log-in is on another core */
	enum login_result got;      /* what came back */
	struct agent_channel command;

	struct event *wake; /* timer: go on; now, or after a pause */
	struct event *deadline;
	struct event *readable, *writable; /* of the session's socket IO_FD */
	int io_fd;

	struct agent_install boot;
	bool up;         /* an agent talks */
	bool want_room;  /* a send was short */
	bool busy, dead; /* inside our own code; closed meanwhile */
	struct conn
		*other; /* of transport_openssh, which took over; its own struct conn */
};

static void go_on(struct conn *c);

/* ---- the end ---- */

static void drop_events(struct conn *c)
{
	if (c->readable)
		event_free(c->readable);
	if (c->writable)
		event_free(c->writable);
	c->readable = c->writable = NULL;
	c->io_fd = -1;
}

static void drop_session(struct conn *c)
{
	drop_events(c);
	ssh_pool_cancel(c->away);
	c->away = NULL;
	dial_cancel(c->dial);
	c->dial = NULL;
	agent_channel_close(&c->command);
	ssh_login_close(&c->login);
	gate_leave(&c->pass);
}

static void release(struct conn *c)
{
	drop_session(c);
	event_free(c->wake);
	event_free(c->deadline);
	agent_install_free(&c->boot);
	free(c);
}

/* Tell those above, once; they close. */
static void finish(struct conn *c, const struct err *e, int status)
{
	char *said = str_take(&c->command.said);
	struct transport_end end = { .status = status, .said = said };

	if (e)
		end.err = *e;
	drop_session(c);
	event_del(c->wake);
	event_del(c->deadline);
	c->events->ended(c->ctx, &end);
	free(said);
}

/* ---- the other transport, where libssh cannot ---- */

static void relay_bytes(void *ctx, const void *data, size_t n)
{
	struct conn *c = ctx;

	c->up = true;
	c->events->bytes(c->ctx, data, n);
}

static void relay_writable(void *ctx)
{
	struct conn *c = ctx;

	c->events->writable(c->ctx);
}

static void relay_ended(void *ctx, const struct transport_end *end)
{
	struct conn *c = ctx;
	struct transport_end ours = *end;

	/* libssh's reason says more than that ssh was refused as well */
	if (!c->up && c->last.id != ERR_NONE &&
	    (end->err.id == E_SSH_AUTH || end->err.id == E_SSH_PROGRAM))
		ours.err = c->last;
	c->events->ended(c->ctx, &ours);
}

static const struct transport_events relay = { relay_bytes, relay_writable,
					       relay_ended };

static void hand_over(struct conn *c)
{
	drop_session(c);
	event_del(c->wake);
	event_del(c->deadline);
	c->other = transport_openssh.start(c->setup, c->target, &relay, c);
}

/* ---- trying ---- */

static void wake_in(struct conn *c, unsigned ms)
{
	const struct timeval pause = { ms / 1000, (int)(ms % 1000) * 1000 };

	event_add(c->wake, &pause);
}

static void try_again(struct conn *c)
{
	const bool proxy = c->login.proxy != NULL;

	drop_session(c);
	c->phase = PHASE_START;
	if (proxy && c->tries >= PROXY_TRIES_MAX)
		finish(c, &c->last, -1);
	else
		wake_in(c, dial_backoff_ms(c->tries++));
}

static void on_dialed(void *ctx, const struct dial_end *end)
{
	struct conn *c = ctx;

	c->dial = NULL;
	if (end->fd >= 0) {
		ssh_login_use(&c->login, end->fd);
		c->phase = PHASE_LOGIN;
		go_on(c);
		return;
	}
	if (end->no_address)
		err_set(&c->last, E_SSH_RESOLVE, c->login.where, c->login.host,
			end->text);
	else
		err_set(&c->last, E_SSH_CONNECT, c->login.where, end->text);
	if (end->again)
		try_again(c);
	else
		finish(c, &c->last, -1);
}

static void start_dial(struct conn *c)
{
	const struct target *t = c->target;
	const bool same = !strcmp(c->login.host, t->name);

	if (c->login.proxy) {
		c->phase = PHASE_LOGIN;
		return;
	}
	c->phase = PHASE_DIAL;
	c->dial =
		dial_start(c->setup->base, c->login.host, t->addr, same ? t->naddr : 0,
			   c->login.port, c->login.facts.family, on_dialed, c);
}

static void on_gate(void *ctx)
{
	struct conn *c = ctx;

	wake_in(c, 0);
}

static void start_try(struct conn *c)
{
	const struct target *t = c->target;
	char *key;
	bool inside;

	if (ssh_login_open(&c->login, c->lib, c->setup, c->target)) {
		finish(c, &c->login.err, -1);
		return;
	}
	/* all hosts behind a jump host knock at one door */
	key = c->login.proxy ? xstrdup(c->login.proxy)
			     : gate_key(c->login.host, t->addr,
					strcmp(c->login.host, t->name) ? 0 : t->naddr,
					c->login.port);
	inside = gate_enter(&c->pass, key, on_gate, c);
	free(key);
	c->phase = PHASE_GATE;
	if (inside)
		start_dial(c);
}

static void feed_boot(struct conn *c)
{
	const void *data;
	size_t n, done = 1;

	while (done && (data = agent_install_pending(&c->boot, &n))) {
		done = agent_channel_write(&c->command, data, n);
		agent_install_sent(&c->boot, done);
	}
}

/* ---- running ---- */

/* The session goes on with the next command. */
static void run_command(struct conn *c)
{
	agent_channel_open(&c->command, c->lib, c->login.session);
	c->phase = PHASE_COMMAND;
}

static void on_boot(struct conn *c, enum boot_event got)
{
	switch (got) {
	case BOOT_WAIT:
		feed_boot(c);
		break;
	case BOOT_AGAIN:
		run_command(c);
		break;
	case BOOT_FAILED:
		finish(c, &c->boot.err, c->command.status);
		break;
	case BOOT_UP:
		c->up = true;
		event_del(c->deadline);
		str_free(&c->command.said);
		c->events->bytes(c->ctx, buf_head(&c->boot.in), c->boot.in.len);
		if (!c->dead)
			buf_free(&c->boot.in);
		if (!c->dead)
			c->events->writable(c->ctx);
		break;
	}
}

/* Room for what comes, lent to one host after the other: at 256 hosts one for each took
 * a quarter of all memory. */
static struct buf spare;

static void lend_room(struct agent_channel *command)
{
	if (command->in.data)
		return;
	command->in = spare;
	spare = (struct buf){ 0 };
}

static void give_back(struct buf *room)
{
	if (spare.data)
		buf_free(room);
	else
		spare = (struct buf){ .data = room->data, .cap = room->cap };
	*room = (struct buf){ 0 };
}

/* Hand up what has come.  Sends from there may bring more into c->in meanwhile. */
static void deliver(struct conn *c)
{
	struct buf *in = &c->command.in, got = *in;

	*in = (struct buf){ 0 };
	if (c->up)
		c->events->bytes(c->ctx, buf_head(&got), got.len);
	else
		on_boot(c, agent_install_bytes(&c->boot, buf_head(&got), got.len));
	give_back(&got);
}

static void end_command(struct conn *c)
{
	if (c->up)
		finish(c, NULL, c->command.status);
	else
		on_boot(c, agent_install_ended(&c->boot, c->command.status,
					       str_text(&c->command.said)));
}

static void lose_session(struct conn *c)
{
	const char *why = c->lib->ssh_get_error(c->login.session);

	err_set(&c->last, E_SSH_CONNECT, c->login.where,
		*why ? why : "connection closed");
	if (c->up) {
		err_set(&c->last, E_SSH_LOST, c->login.where,
			*why ? why : "connection closed");
		finish(c, &c->last, -1);
	} else {
		try_again(c);
	}
}

static bool is_running(const struct conn *c)
{
	return !c->dead && c->phase == PHASE_RUN && c->command.state == SSHCMD_RUNNING;
}

static void step_run(struct conn *c)
{
	bool alive;

	lend_room(&c->command);
	alive = agent_channel_take(&c->command);
	while (is_running(c) && c->command.in.len)
		deliver(c);
	if (!is_running(c))
		return;
	give_back(&c->command.in);
	if (c->command.over) {
		end_command(c);
	} else if (!alive) {
		lose_session(c);
	} else if (!c->up) {
		feed_boot(c);
	} else if (c->want_room && agent_channel_has_room(&c->command)) {
		c->want_room = false;
		c->events->writable(c->ctx);
	}
}

static void on_logged_in(void *ctx, enum login_result got)
{
	struct conn *c = ctx;

	c->away = NULL;
	c->got = got;
	go_on(c);
}

/* A proxy is forked by libssh: that stays with the loop. */
static void step_login(struct conn *c)
{
	enum login_result got = c->got;

	c->got = LOGIN_WAIT;
	if (got == LOGIN_WAIT && c->setup->pool && !c->login.proxy) {
		if (!c->away)
			c->away = ssh_pool_login(c->setup->pool, &c->login,
						 on_logged_in, c);
		return;
	}
	if (got == LOGIN_WAIT)
		got = ssh_login_step(&c->login);
	c->last = c->login.err.id != ERR_NONE ? c->login.err : c->last;
	switch (got) {
	case LOGIN_WAIT:
		return;
	case LOGIN_RETRY:
		try_again(c);
		return;
	case LOGIN_FAILED:
		finish(c, &c->last, -1);
		return;
	case LOGIN_OTHER:
		hand_over(c);
		return;
	case LOGIN_DONE:
		gate_leave(&c->pass);
		agent_install_free(&c->boot);
		agent_install_init(&c->boot, c->setup, c->login.where);
		run_command(c);
	}
}

static void step_command(struct conn *c)
{
	int rc = agent_channel_start(&c->command, agent_install_command(&c->boot));

	if (rc < 0)
		lose_session(c);
	else if (rc)
		c->phase = PHASE_RUN;
}

/* As far as it goes without waiting. */
static void step(struct conn *c)
{
	enum phase before;

	if (!c->up && c->io_fd >= 0)
		ssh_login_ack_now(&c->login);
	do {
		before = c->phase;
		switch (c->phase) {
		case PHASE_START:
			start_try(c);
			break;
		case PHASE_GATE:
			if (c->pass.inside)
				start_dial(c);
			break;
		case PHASE_DIAL:
			break;
		case PHASE_LOGIN:
			step_login(c);
			break;
		case PHASE_COMMAND:
			step_command(c);
			break;
		case PHASE_RUN:
			step_run(c);
			break;
		}
	} while (!c->dead && c->login.session && c->phase != before);
}

static void on_io(evutil_socket_t fd, short what, void *ctx)
{
	(void)fd;
	(void)what;
	go_on(ctx);
}

/* Wait for what libssh waits for.  It closes its socket by itself when the far side
 * goes: then only another call tells why. */
static void watch(struct conn *c)
{
	const bool ours = c->login.session && c->phase >= PHASE_LOGIN && !c->away;
	const int fd = ours ? c->lib->ssh_get_fd(c->login.session) : -1;

	if (fd != c->io_fd) {
		drop_events(c);
		c->io_fd = fd;
		if (fd >= 0) {
			c->readable = event_new(c->setup->base, fd,
						EV_READ | EV_PERSIST, on_io, c);
			c->writable = event_new(c->setup->base, fd, EV_WRITE, on_io, c);
			loop_watch(c->readable);
		}
	}
	if (fd >= 0 &&
	    (c->lib->ssh_get_poll_flags(c->login.session) & SSH_WRITE_PENDING))
		loop_watch(c->writable);
	if (fd < 0 && ours)
		wake_in(c, 0);
	else if (is_running(c) && (c->command.in.len || c->command.over))
		wake_in(c, 0); /* a send took packets off the socket */
}

static void go_on(struct conn *c)
{
	c->busy = true;
	step(c);
	c->busy = false;
	if (c->dead)
		release(c);
	else
		watch(c);
}

static void on_wake(evutil_socket_t fd, short what, void *ctx)
{
	(void)fd;
	(void)what;
	go_on(ctx);
}

static const char *waited_for(const struct conn *c)
{
	switch (c->phase) {
	case PHASE_GATE:
		return "others were logging in at that address";
	case PHASE_DIAL:
		return "nothing answers at that address";
	case PHASE_LOGIN:
		return c->login.phase == LOGIN_CONNECT
			       ? "sshd there took the connection and said nothing"
			       : "sshd there was checking keys";
	default:
		return "sshd there did not start a session";
	}
}

static void on_deadline(evutil_socket_t fd, short what, void *ctx)
{
	struct conn *c = ctx;
	struct err e = c->last;

	(void)fd;
	(void)what;
	ssh_pool_cancel(c->away);
	c->away = NULL;
	c->busy = true;
	if (c->phase == PHASE_RUN) {
		agent_install_late(&c->boot);
		e = c->boot.err;
	} else if (e.id == ERR_NONE) {
		err_set(&e, E_START_TIMEOUT,
			c->login.where ? c->login.where : c->target->name,
			waited_for(c));
	}
	finish(c, &e, -1);
	c->busy = false;
	if (c->dead)
		release(c);
}

/* ---- the transport ---- */

static struct conn *ssh_start(const struct transport_setup *setup,
			      const struct target *t,
			      const struct transport_events *events, void *ctx)
{
	struct conn *c = xcalloc(1, sizeof *c);
	const uint64_t now = clock_ms();
	const uint64_t left = setup->deadline_ms > now ? setup->deadline_ms - now : 0;
	const struct timeval tv = { (time_t)(left / 1000), (int)(left % 1000) * 1000 };
	const char *why;

	*c = (struct conn){ .setup = setup, .target = t, .events = events, .ctx = ctx };
	c->io_fd = -1;
	c->lib = libssh_load(&why);
	c->wake = event_new(setup->base, -1, 0, on_wake, c);
	c->deadline = event_new(setup->base, -1, 0, on_deadline, c);
	if (!c->lib) {
		hand_over(c);
		return c;
	}
	event_add(c->deadline, &tv);
	wake_in(c, 0);
	return c;
}

static size_t ssh_send(struct conn *c, const void *data, size_t n)
{
	size_t done = 0;

	if (c->other)
		return transport_openssh.send(c->other, data, n);
	if (c->up)
		done = agent_channel_write(&c->command, data, n);
	c->want_room = done < n;
	if (!c->busy && is_running(c))
		watch(c);
	return done;
}

static void ssh_close(struct conn *c)
{
	if (c->other)
		transport_openssh.close(c->other);
	c->other = NULL;
	c->dead = true;
	if (!c->busy)
		release(c);
}

#else

static struct conn *ssh_start(const struct transport_setup *setup,
			      const struct target *t,
			      const struct transport_events *events, void *ctx)
{
	return transport_openssh.start(setup, t, events, ctx);
}

static size_t ssh_send(struct conn *c, const void *data, size_t n)
{
	return transport_openssh.send(c, data, n);
}

static void ssh_close(struct conn *c)
{
	transport_openssh.close(c);
}

#endif

const struct transport transport_ssh = { "ssh", ssh_start, ssh_send, ssh_close };
