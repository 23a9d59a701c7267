/* The openssh transport: one `ssh -T` for each host, as a child.
 *
 * For what libssh cannot do.  It takes ten times the CPU time (60 ms for each host).
 * ssh never asks the user (BatchMode). */
#include "launcher/transport/transport.h"

#include <errno.h>
#include <event2/event.h>

#include "common/loop.h"
#include "launcher/transport/agent_install.h"
#include "launcher/transport/child.h"
#include "launcher/transport/dial.h"
#include "launcher/transport/ssh_said.h"

enum { STATUS_SSH = 255 };

struct conn {
	const struct transport_setup *setup;
	const struct target *target;
	const struct transport_events *events;
	void *ctx;
	int refs; /* the caller's, and one of each handler that runs */
	bool closed;

	struct child *ssh;  /* NULL: none runs */
	struct event *wake; /* timer: start, or start again */
	struct event *deadline;
	struct login_permit permit;
	unsigned tries;
	struct err last;
	struct agent_install install;
	bool up;
};

static void drop_ssh(struct conn *c)
{
	login_limit_leave(&c->permit);
	if (c->ssh)
		child_kill(c->ssh); /* sshd then closes, and the agent reads EOF */
	c->ssh = NULL;
}

static void conn_unref(struct conn *c)
{
	if (--c->refs)
		return;
	drop_ssh(c);
	event_free(c->wake);
	event_free(c->deadline);
	agent_install_free(&c->install);
	free(c);
}

/* Report the end, once; the caller closes. */
static void openssh_finish(struct conn *c, const struct err *e, int status)
{
	struct transport_end end = { .status = status };

	if (e)
		end.err = *e;
	end.said = c->ssh ? child_said(c->ssh) : "";
	event_del(c->wake);
	event_del(c->deadline);
	c->events->ended(c->ctx, &end);
	drop_ssh(c); /* end.said was its */
}

/* ssh itself failed and printed SAID: fill c->last.  True: a later try may succeed. */
static bool openssh_explain(struct conn *c, const char *said)
{
	const struct ssh_said s = ssh_said_read(said);
	const char *where = c->install.where;

	if (s.id == ERR_NONE)
		err_set(&c->last, E_SSH_PROGRAM, where, STATUS_SSH, s.line);
	else if (s.id == E_SSH_RESOLVE)
		err_set(&c->last, E_SSH_RESOLVE, where, c->target->name, s.line);
	else if (s.id == E_SSH_AUTH)
		err_set(&c->last, E_SSH_AUTH, where, s.line);
	else if (s.id == E_SSH_HOSTKEY)
		err_set(&c->last, E_SSH_HOSTKEY, where, s.line);
	else if (s.id == E_SSH_HOSTKEY_CHANGED) /* its own, or a jump host's */
		err_set(&c->last, E_SSH_HOSTKEY_CHANGED, where, s.line);
	else
		err_set(&c->last, E_SSH_CONNECT, where, s.line);
	if (s.private)
		err_hint(&c->last, "let nobody else read that private key: chmod 600");
	free(s.line);
	return s.again;
}

static void openssh_feed_install(struct conn *c)
{
	const void *data;
	size_t n, done = 1;

	while (done && (data = agent_install_pending(&c->install, &n))) {
		done = child_send(c->ssh, data, n);
		agent_install_sent(&c->install, done);
	}
}

static void openssh_on_install(struct conn *c, enum install_event got)
{
	switch (got) {
	case INSTALL_WAIT:
		openssh_feed_install(c);
		break;
	case INSTALL_AGAIN:
		drop_ssh(c);
		loop_after_ms(c->wake, 0);
		break;
	case INSTALL_FAILED:
		openssh_finish(c, &c->install.err, -1);
		break;
	case INSTALL_UP:
		c->up = true;
		event_del(c->deadline);
		child_forget_said(c->ssh);
		c->events->bytes(c->ctx, buf_head(&c->install.in), c->install.in.len);
		buf_free(&c->install.in);
		if (!c->closed)
			c->events->writable(c->ctx);
		break;
	}
}

static void openssh_on_bytes(void *ctx, const void *data, size_t n)
{
	struct conn *c = ctx;
	const char *said;

	c->refs++;
	login_limit_leave(&c->permit); /* it is logged in */
	c->last.id = ERR_NONE;
	if (c->up) {
		c->events->bytes(c->ctx, data, n);
	} else {
		said = child_said(c->ssh);
		/* ssh goes on with such a key where StrictHostKeyChecking says so */
		if (ssh_said_revoked(said))
			agent_install_warn(&c->install,
					   "its host key is revoked, and "
					   "StrictHostKeyChecking accepts it");
		else if (ssh_said_changed(said))
			agent_install_warn(
				&c->install,
				"its host key is not the one in known_hosts, and "
				"StrictHostKeyChecking accepts it");
		openssh_on_install(c, agent_install_bytes(&c->install, data, n));
	}
	conn_unref(c);
}

static void openssh_on_writable(void *ctx)
{
	struct conn *c = ctx;

	c->refs++;
	if (c->up)
		c->events->writable(c->ctx);
	else
		openssh_feed_install(c);
	conn_unref(c);
}

static void openssh_on_ended(void *ctx, const struct transport_end *end)
{
	struct conn *c = ctx;
	char *line;

	c->refs++;
	login_limit_leave(&c->permit);
	if (c->up && end->status == STATUS_SSH) {
		line = agent_install_last_line(end->said);
		err_set(&c->last, E_SSH_LOST, c->install.where,
			*line ? line : "ssh ended");
		free(line);
		openssh_finish(c, &c->last, -1);
	} else if (c->up) {
		openssh_finish(c, NULL, end->status);
	} else if (end->status != STATUS_SSH) {
		openssh_on_install(
			c, agent_install_ended(&c->install, end->status, end->said));
	} else if (openssh_explain(c, end->said)) {
		drop_ssh(c);
		loop_after_ms(c->wake, dial_backoff_ms(c->tries++));
	} else {
		openssh_finish(c, &c->last, -1);
	}
	conn_unref(c);
}

static void run_ssh(struct conn *c)
{
	static const struct transport_events events = { openssh_on_bytes,
							openssh_on_writable,
							openssh_on_ended };
	static const char *const fixed[] = { "ssh", "-T",
					     "-x",  "-a",
					     "-o",  "BatchMode=yes",
					     "-o",  "ClearAllForwardings=yes",
					     "-o",  "PermitLocalCommand=no" };
	const struct transport_setup *s = c->setup;
	const int port = transport_port(s, c->target);
	struct strv argv = { 0 };

	for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++)
		strv_add(&argv, fixed[i]);
	if (s->accept_new_hosts)
		strv_add(&argv, "-oStrictHostKeyChecking=accept-new");
	if (port)
		strv_take(&argv, xasprintf("-p%d", port));
	if (s->identity)
		strv_take(&argv, xasprintf("-i%s", s->identity));
	if (c->target->user)
		strv_take(&argv, xasprintf("-l%s", c->target->user));
	strv_add(&argv, "--");
	strv_add(&argv, c->target->name);
	strv_add(&argv, agent_install_command(&c->install));
	c->ssh = child_start(s->base, argv.v[0], argv.v, &(struct child_how){ 0 },
			     &events, c);
	if (c->ssh) {
		openssh_feed_install(c);
	} else {
		err_set(&c->last, E_SSH_PROGRAM, c->install.where, 127,
			strerror(errno));
		err_hint(&c->last, "install the ssh program (openssh-client)");
		openssh_finish(c, &c->last, -1);
	}
	strv_free(&argv);
}

static void openssh_on_wake(evutil_socket_t fd, short what, void *ctx)
{
	struct conn *c = ctx;
	const struct target *t = c->target;
	char *key;

	(void)fd;
	(void)what;
	c->refs++;
	key = login_limit_key(t->name, t->addr, t->naddr, transport_port(c->setup, t));
	if (c->permit.granted || login_limit_enter(&c->permit, key, c->wake))
		run_ssh(c);
	free(key);
	conn_unref(c);
}

static void openssh_on_deadline(evutil_socket_t fd, short what, void *ctx)
{
	struct conn *c = ctx;
	const char *said = c->ssh ? child_said(c->ssh) : "";
	char *line;

	(void)fd;
	(void)what;
	if (!transport_is_late(c->setup, c->deadline))
		return;
	c->refs++;
	if (*said) {
		line = agent_install_last_line(said);
		err_set(&c->last, E_START_TIMEOUT, c->install.where, line);
		free(line);
	} else if (c->last.id == ERR_NONE && c->ssh && c->permit.limit) {
		err_set(&c->last, E_START_TIMEOUT, c->install.where,
			"ssh got no answer from the host");
	} else if (c->last.id == ERR_NONE) {
		agent_install_late(&c->install);
		c->last = c->install.err;
	}
	openssh_finish(c, &c->last, -1);
	conn_unref(c);
}

static struct conn *openssh_start(const struct transport_setup *setup,
				  const struct target *t,
				  const struct transport_events *events, void *ctx)
{
	struct conn *c = xcalloc(1, sizeof *c);
	struct str where = { 0 };

	*c = (struct conn){
		.setup = setup, .target = t, .events = events, .ctx = ctx, .refs = 1
	};
	str_addf(&where, "%s%s%s", t->user ? t->user : "", t->user ? "@" : "", t->name);
	if (transport_port(setup, t))
		str_addf(&where, ":%d", transport_port(setup, t));
	agent_install_init(&c->install, setup, str_text(&where));
	str_free(&where);
	c->wake = event_new(setup->base, -1, 0, openssh_on_wake, c);
	c->deadline = event_new(setup->base, -1, 0, openssh_on_deadline, c);
	loop_after_ms(c->deadline, transport_left_ms(setup));
	loop_after_ms(c->wake, 0);
	return c;
}

static size_t openssh_send(struct conn *c, const void *data, size_t n)
{
	return c->up && c->ssh ? child_send(c->ssh, data, n) : 0;
}

static void openssh_close(struct conn *c)
{
	c->closed = true;
	conn_unref(c);
}

static const char *openssh_waits_for(const struct conn *c, bool *failed)
{
	*failed = c->last.id != ERR_NONE;
	if (*failed)
		return transport_reason(&c->last);
	if (c->permit.limit)
		return c->permit.granted ? "log-in" : "other log-ins there";
	return c->install.asked ? "agent is sent" : "agent starts";
}

const struct transport transport_openssh = { "openssh", openssh_start, openssh_send,
					     openssh_close, openssh_waits_for };
