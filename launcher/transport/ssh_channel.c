#include "launcher/transport/ssh_channel.h"

#ifdef HAVE_LIBSSH

#include <signal.h>

#include "launcher/transport/child.h"

enum { TAKE_BYTES = 65536, POLLS_MAX = 64, WRITE_MAX = 32768 };

static int on_data(ssh_session s, ssh_channel ch, void *data, uint32_t n, int is_stderr,
		   void *ctx)
{
	struct agent_channel *c = ctx;

	(void)s;
	(void)ch;
	if (is_stderr)
		child_keep_said(&c->said, data, n);
	else
		buf_add(&c->in, data, n);
	return (int)n;
}

static void channel_on_closed(ssh_session s, ssh_channel ch, void *ctx)
{
	(void)s;
	(void)ch;
	((struct agent_channel *)ctx)->over = true;
}

static void on_status(ssh_session s, ssh_channel ch, int status, void *ctx)
{
	(void)s;
	(void)ch;
	((struct agent_channel *)ctx)->status = status;
}

static void channel_on_signal(ssh_session s, ssh_channel ch, const char *name, int core,
			      const char *text, const char *lang, void *ctx)
{
	struct agent_channel *c = ctx;

	(void)s;
	(void)ch;
	(void)core;
	(void)text;
	(void)lang;
	c->status = 128 + SIGKILL;
	for (int i = 1; i < 32; i++)
		if (sigabbrev_np(i) && !strcmp(sigabbrev_np(i), name))
			c->status = 128 + i;
}

static void drop_channel(struct agent_channel *c)
{
	if (c->channel) {
		c->lib->ssh_remove_channel_callbacks(c->channel, &c->callbacks);
		if (c->state == CHANNEL_RUNNING && !c->over)
			c->lib->ssh_channel_send_eof(c->channel);
		c->lib->ssh_channel_free(c->channel);
	}
	c->channel = NULL;
	c->state = CHANNEL_NONE;
	buf_free(&c->in);
	str_free(&c->said);
}

void agent_channel_open(struct agent_channel *c, const struct libssh *lib,
			ssh_session session)
{
	drop_channel(c);
	c->lib = lib;
	c->session = session;
	c->channel = lib->ssh_channel_new(session);
	c->state = CHANNEL_OPENING;
	c->over = false;
	c->status = -1;
	c->callbacks = (struct ssh_channel_callbacks_struct){
		.userdata = c,
		.channel_data_function = on_data,
		.channel_close_function = channel_on_closed,
		.channel_exit_status_function = on_status,
		.channel_exit_signal_function = channel_on_signal,
	};
	ssh_callbacks_init(&c->callbacks);
	lib->ssh_set_channel_callbacks(c->channel, &c->callbacks);
}

void agent_channel_close(struct agent_channel *c)
{
	drop_channel(c);
	if (c->pump) {
		c->lib->ssh_event_remove_session(c->pump, c->session);
		c->lib->ssh_event_free(c->pump);
	}
	c->pump = NULL;
}

int agent_channel_start(struct agent_channel *c, const char *command)
{
	int rc = SSH_OK;

	if (c->state == CHANNEL_OPENING) {
		rc = c->lib->ssh_channel_open_session(c->channel);
		if (rc == SSH_OK)
			c->state = CHANNEL_EXECUTING;
	}
	if (c->state == CHANNEL_EXECUTING)
		rc = c->lib->ssh_channel_request_exec(c->channel, command);
	if (rc != SSH_OK)
		return rc == SSH_AGAIN ? 0 : -1;
	c->state = CHANNEL_RUNNING;
	if (!c->pump) {
		c->pump = c->lib->ssh_event_new();
		c->lib->ssh_event_add_session(c->pump, c->session);
	}
	return 1;
}

bool agent_channel_take(struct agent_channel *c)
{
	for (int i = 0; i < POLLS_MAX && c->in.len < TAKE_BYTES; i++)
		if (c->lib->ssh_event_dopoll(c->pump, 0) != SSH_OK)
			break;
	return c->lib->ssh_is_connected(c->session) &&
	       c->lib->ssh_get_fd(c->session) >= 0;
}

bool agent_channel_has_room(const struct agent_channel *c)
{
	return c->state == CHANNEL_RUNNING && !c->over &&
	       !(c->lib->ssh_get_poll_flags(c->session) & SSH_WRITE_PENDING) &&
	       c->lib->ssh_channel_window_size(c->channel);
}

size_t agent_channel_write(struct agent_channel *c, const void *data, size_t n)
{
	size_t done = 0;

	while (done < n && agent_channel_has_room(c)) {
		size_t window = c->lib->ssh_channel_window_size(c->channel),
		       part = n - done;
		int rc;

		part = part < WRITE_MAX ? part : WRITE_MAX;
		part = part < window ? part : window;
		rc = c->lib->ssh_channel_write(c->channel, (const char *)data + done,
					       (uint32_t)part);
		if (rc <= 0)
			break;
		done += (size_t)rc;
	}
	return done;
}

#endif
