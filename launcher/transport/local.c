/* transport_local: the agent on this machine, as a child. */
#include "launcher/transport/local.h"

#include <errno.h>
#include <event2/event.h>
#include <unistd.h>

#include "launcher/transport/child.h"

struct conn {
	const struct transport_events *events;
	void *ctx;
	struct child *child;  /* NULL: it could not be started ... */
	struct event *failed; /* ... which this tells from the loop */
	struct err err;
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

static void local_on_failed(evutil_socket_t fd, short what, void *ctx)
{
	struct conn *c = ctx;
	const struct transport_end end = { .err = c->err, .status = -1, .said = "" };

	(void)fd;
	(void)what;
	c->events->ended(c->ctx, &end); /* may free c */
}

static struct conn *local_start(const struct transport_setup *setup,
				const struct target *t,
				const struct transport_events *events, void *ctx)
{
	struct conn *c = xcalloc(1, sizeof *c);
	const char *path = setup->agent;
	char *argv[] = { (char *)"berth-agent", NULL, NULL, NULL };

	*c = (struct conn){ .events = events, .ctx = ctx };
	if (!path && setup->own_agent && !access(setup->own_agent, X_OK))
		path = setup->own_agent;
	if (!path)
		path = argv[0];
	if (t->topology) {
		argv[1] = (char *)"--place";
		argv[2] = (char *)t->topology;
	}
	c->child = child_start(setup->base, path, argv, &(struct child_how){ 0 },
			       events, ctx);
	if (!c->child) {
		err_set(&c->err, E_AGENT_EXEC, path, strerror(errno));
		c->failed = event_new(setup->base, -1, 0, local_on_failed, c);
		event_active(c->failed, EV_TIMEOUT, 0);
	}
	return c;
}

static size_t local_send(struct conn *c, const void *data, size_t n)
{
	return c->child ? child_send(c->child, data, n) : 0;
}

static void local_close(struct conn *c)
{
	if (c->child)
		child_close(c->child); /* the agent ends at EOF */
	if (c->failed)
		event_free(c->failed);
	free(c);
}

static const char *local_waits_for(const struct conn *c, bool *failed)
{
	(void)c;
	*failed = false;
	return "agent starts";
}

const struct transport transport_local = { "local", local_start, local_send,
					   local_close, local_waits_for };
