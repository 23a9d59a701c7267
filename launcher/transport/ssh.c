/* The ssh transport: libssh inside the event loop, one session for each host.  Log-ins
 * of many hosts run on other cores (launcher/transport/ssh_pool.h), all else in the
 * loop.
 *
 * A connection goes through the phases below.  It steps on when its socket is ready.
 * If the host refuses or cuts it, it begins again after a pause, until the deadline. */
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
	PHASE_START,  /* nothing yet, or a pause before the next try */
	PHASE_PERMIT, /* the login limit of this address is reached */
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
	struct err last; /* the result of the last try */
	struct login_permit permit;
	struct dial *dial;
	struct ssh_login login;
	struct ssh_pool_task *task; /* the log-in is on another core */
	enum login_result got;      /* its result */
	struct agent_channel command;

	struct event *wake; /* timer: go on; now, or after a pause */
	struct event *deadline;
	struct event *readable, *writable; /* of the session's socket IO_FD */
	int io_fd;

	struct agent_install install;
	bool up;           /* an agent talks */
	bool want_room;    /* a send was short */
	bool busy, closed; /* inside a handler; closed meanwhile */
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
	ssh_pool_cancel(c->task);
	c->task = NULL;
	dial_cancel(c->dial);
	c->dial = NULL;
	agent_channel_close(&c->command);
	ssh_login_close(&c->login);
	login_limit_leave(&c->permit);
}

static void ssh_release(struct conn *c)
{
	drop_session(c);
	event_free(c->wake);
	event_free(c->deadline);
	agent_install_free(&c->install);
	free(c);
}

/* Report the end, once; the caller closes. */
static void ssh_finish(struct conn *c, const struct err *e, int status)
{
	char *said = str_take(&c->command.said);
	struct transport_end end = { .status = status,
				     .said = said,
				     .needs_openssh = c->got == LOGIN_OTHER };

	if (e)
		end.err = *e;
	drop_session(c);
	event_del(c->wake);
	event_del(c->deadline);
	c->events->ended(c->ctx, &end);
	free(said);
}

/* ---- trying ---- */

static void ssh_try_again(struct conn *c)
{
	const bool proxy = c->login.proxy != NULL;

	drop_session(c);
	c->phase = PHASE_START;
	if (proxy && c->tries >= PROXY_TRIES_MAX)
		ssh_finish(c, &c->last, -1);
	else
		loop_after_ms(c->wake, dial_backoff_ms(c->tries++));
}

static void on_dialed(void *ctx, const struct dial_end *end)
{
	struct conn *c = ctx;

	c->dial = NULL;
	if (end->fd >= 0) {
		c->last.id = ERR_NONE;
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
		ssh_try_again(c);
	else
		ssh_finish(c, &c->last, -1);
}

/* The addresses of the target, if the session goes there: HostName may name another. */
static size_t count_addresses(const struct conn *c)
{
	return strcmp(c->login.host, c->target->name) ? 0 : c->target->naddr;
}

static void start_dial(struct conn *c)
{
	c->phase = PHASE_LOGIN;
	if (c->login.proxy) {
		c->got = ssh_login_proxy(&c->login);
		if (c->got == LOGIN_FAILED)
			ssh_finish(c, &c->login.err, -1);
		else if (c->got == LOGIN_OTHER)
			ssh_finish(c, NULL, -1);
		c->got = LOGIN_WAIT;
		return;
	}
	c->phase = PHASE_DIAL;
	c->dial = dial_start(c->setup->base, c->login.host, c->target->addr,
			     count_addresses(c), c->login.port, c->login.facts.family,
			     on_dialed, c);
}

static void start_try(struct conn *c)
{
	char *key;

	if (ssh_login_open(&c->login, c->lib, c->setup, c->target)) {
		ssh_finish(c, &c->login.err, -1);
		return;
	}
	/* all hosts behind a jump host share its login limit */
	key = c->login.proxy ? xstrdup(c->login.proxy)
			     : login_limit_key(c->login.host, c->target->addr,
					       count_addresses(c), c->login.port);
	c->phase = PHASE_PERMIT;
	if (login_limit_enter(&c->permit, key, c->wake))
		start_dial(c);
	free(key);
}

/* ---- running ---- */

static void ssh_feed_install(struct conn *c)
{
	const void *data;
	size_t n, done = 1;

	while (done && (data = agent_install_pending(&c->install, &n))) {
		done = agent_channel_write(&c->command, data, n);
		agent_install_sent(&c->install, done);
	}
}

/* The session goes on with the next command. */
static void run_command(struct conn *c)
{
	agent_channel_open(&c->command, c->lib, c->login.session);
	c->phase = PHASE_COMMAND;
}

static void ssh_on_install(struct conn *c, enum install_event got)
{
	switch (got) {
	case INSTALL_WAIT:
		ssh_feed_install(c);
		break;
	case INSTALL_AGAIN:
		run_command(c);
		break;
	case INSTALL_FAILED:
		ssh_finish(c, &c->install.err, c->command.status);
		break;
	case INSTALL_UP:
		c->up = true;
		event_del(c->deadline);
		str_free(&c->command.said);
		c->events->bytes(c->ctx, buf_head(&c->install.in), c->install.in.len);
		buf_free(&c->install.in);
		if (!c->closed)
			c->events->writable(c->ctx);
		break;
	}
}

static void lose_session(struct conn *c)
{
	const char *why = ssh_login_reason(&c->login);

	if (c->up) {
		err_set(&c->last, E_SSH_LOST, c->login.where, why);
		ssh_finish(c, &c->last, -1);
	} else {
		err_set(&c->last, E_SSH_CONNECT, c->login.where, why);
		ssh_try_again(c);
	}
}

static bool is_running(const struct conn *c)
{
	return !c->closed && c->phase == PHASE_RUN &&
	       c->command.state == CHANNEL_RUNNING;
}

static void step_run(struct conn *c)
{
	/* Room for what comes, lent to one host after the other.  (One block for each
	 * of 256 hosts took a quarter of all memory.) */
	static struct buf spare;
	struct buf *in = &c->command.in, got;
	bool alive;

	if (!in->data) {
		*in = spare;
		spare = (struct buf){ 0 };
	}
	alive = agent_channel_take(&c->command);
	/* a send from inside bytes() may bring more into c->command.in */
	while (is_running(c) && in->len) {
		got = *in;
		*in = (struct buf){ 0 };
		if (c->up)
			c->events->bytes(c->ctx, buf_head(&got), got.len);
		else
			ssh_on_install(c, agent_install_bytes(&c->install,
							      buf_head(&got), got.len));
		if (spare.data)
			buf_free(&got);
		else
			spare = (struct buf){ .data = got.data, .cap = got.cap };
	}
	if (!is_running(c))
		return;
	if (!spare.data) {
		spare = (struct buf){ .data = in->data, .cap = in->cap };
		*in = (struct buf){ 0 };
	}
	buf_free(in);
	if (c->command.over && c->up) {
		ssh_finish(c, NULL, c->command.status);
	} else if (c->command.over) {
		ssh_on_install(c, agent_install_ended(&c->install, c->command.status,
						      str_text(&c->command.said)));
	} else if (!alive) {
		lose_session(c);
	} else if (!c->up) {
		ssh_feed_install(c);
	} else if (c->want_room && agent_channel_has_room(&c->command)) {
		c->want_room = false;
		c->events->writable(c->ctx);
	}
}

static void on_logged_in(void *ctx, enum login_result got)
{
	struct conn *c = ctx;

	c->task = NULL;
	c->got = got;
	go_on(c);
}

static void step_login(struct conn *c)
{
	struct ssh_pool *pool = c->setup->pool;

	if (c->got == LOGIN_WAIT && pool) {
		if (!c->task)
			c->task = ssh_pool_login(pool, &c->login, on_logged_in, c);
		return;
	}
	if (c->got == LOGIN_WAIT)
		c->got = ssh_login_step(&c->login);
	if (c->login.err.id != ERR_NONE)
		c->last = c->login.err;
	switch (c->got) {
	case LOGIN_WAIT:
		return;
	case LOGIN_RETRY:
		ssh_try_again(c);
		break;
	case LOGIN_FAILED:
	case LOGIN_OTHER:
		ssh_finish(c, &c->last, -1);
		break;
	case LOGIN_DONE:
		login_limit_leave(&c->permit);
		agent_install_free(&c->install);
		agent_install_init(&c->install, c->setup, c->login.where);
		if (c->login.note)
			agent_install_warn(&c->install, c->login.note);
		run_command(c);
	}
	c->got = LOGIN_WAIT;
}

/* As far as it goes without waiting. */
static void ssh_step(struct conn *c)
{
	enum phase before;
	int rc;

	if (!c->up && c->io_fd >= 0)
		ssh_login_ack_now(&c->login);
	do {
		before = c->phase;
		switch (c->phase) {
		case PHASE_START:
			start_try(c);
			break;
		case PHASE_PERMIT:
			if (c->permit.granted)
				start_dial(c);
			break;
		case PHASE_DIAL:
			break;
		case PHASE_LOGIN:
			step_login(c);
			break;
		case PHASE_COMMAND:
			rc = agent_channel_start(&c->command,
						 agent_install_command(&c->install));
			if (rc < 0)
				lose_session(c);
			else if (rc)
				c->phase = PHASE_RUN;
			break;
		case PHASE_RUN:
			step_run(c);
			break;
		}
	} while (!c->closed && c->login.session && c->phase != before);
}

static void on_io(evutil_socket_t fd, short what, void *ctx)
{
	(void)fd;
	(void)what;
	go_on(ctx);
}

/* Wait for what libssh waits for.  libssh closes its socket itself when the host does;
 * only one more call of it tells why. */
static void ssh_watch(struct conn *c)
{
	const bool ours = c->login.session && c->phase >= PHASE_LOGIN && !c->task;
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
		loop_after_ms(c->wake, 0);
	else if (is_running(c) && (c->command.in.len || c->command.over))
		loop_after_ms(c->wake, 0); /* a send took packets off the socket */
}

static void go_on(struct conn *c)
{
	c->busy = true;
	ssh_step(c);
	c->busy = false;
	if (c->closed)
		ssh_release(c);
	else
		ssh_watch(c);
}

static void ssh_on_deadline(evutil_socket_t fd, short what, void *ctx)
{
	struct conn *c = ctx;
	const char *waits_for = "sshd there did not start a session";

	(void)fd;
	(void)what;
	if (!transport_is_late(c->setup, c->deadline))
		return;
	ssh_pool_cancel(c->task);
	c->task = NULL;
	if (c->phase == PHASE_PERMIT)
		waits_for = "other log-ins at that address had not finished";
	else if (c->phase == PHASE_DIAL)
		waits_for = dial_looks_up(c->dial)
				    ? "the name server did not give its address"
				    : "nothing answers at that address";
	else if (c->phase == PHASE_LOGIN)
		waits_for =
			c->login.phase == LOGIN_CONNECT
				? "sshd there accepted the connection and sent nothing"
				: "sshd there was checking keys";
	if (c->phase == PHASE_RUN) {
		agent_install_late(&c->install);
		c->last = c->install.err;
	} else if (c->last.id == ERR_NONE) {
		err_set(&c->last, E_START_TIMEOUT,
			c->login.where ? c->login.where : c->target->name, waits_for);
	}
	c->busy = true;
	ssh_finish(c, &c->last, -1);
	c->busy = false;
	if (c->closed)
		ssh_release(c);
}

/* ---- the transport ---- */

static struct conn *ssh_start(const struct transport_setup *setup,
			      const struct target *t,
			      const struct transport_events *events, void *ctx)
{
	struct conn *c = xcalloc(1, sizeof *c);
	const char *why;

	*c = (struct conn){ .setup = setup, .target = t, .events = events, .ctx = ctx };
	c->io_fd = -1;
	c->lib = libssh_load(&why);
	c->wake = event_new(setup->base, -1, 0, on_io, c);
	c->deadline = event_new(setup->base, -1, 0, ssh_on_deadline, c);
	loop_after_ms(c->deadline, transport_left_ms(setup));
	loop_after_ms(c->wake, 0);
	return c;
}

static size_t ssh_send(struct conn *c, const void *data, size_t n)
{
	const size_t done = c->up ? agent_channel_write(&c->command, data, n) : 0;

	c->want_room = done < n;
	if (!c->busy && is_running(c))
		ssh_watch(c);
	return done;
}

static void ssh_close(struct conn *c)
{
	c->closed = true;
	if (!c->busy)
		ssh_release(c);
}

static const char *ssh_waits_for(const struct conn *c, bool *failed)
{
	const bool proxy = c->login.proxy != NULL;
	enum login_phase login;

	*failed = c->last.id != ERR_NONE && (c->phase < PHASE_LOGIN || proxy);
	if (*failed)
		return transport_reason(&c->last);
	switch (c->phase) {
	case PHASE_START:
		break;
	case PHASE_PERMIT:
		return "other log-ins there";
	case PHASE_DIAL:
		return dial_looks_up(c->dial) ? "its address is looked up"
					      : "no answer";
	case PHASE_LOGIN:
		login = c->task ? ssh_pool_phase(c->task) : c->login.phase;
		if (login != LOGIN_CONNECT)
			return "log-in";
		return proxy ? "no answer through its proxy" : "no answer from sshd";
	case PHASE_COMMAND:
		return "log-in";
	case PHASE_RUN:
		return c->install.asked ? "agent is sent" : "agent starts";
	}
	return NULL;
}

const struct transport transport_ssh = { "ssh", ssh_start, ssh_send, ssh_close,
					 ssh_waits_for };

#else

/* Never started: libssh_load() fails. */
const struct transport transport_ssh = { .name = "ssh" };

#endif
