#include "launcher/hosts/discovery.h"

#include <event2/event.h>

#include "common/loop.h"
#include "launcher/transport/child.h"

enum {
	PRINTED_MAX = 1 << 20, /* bytes */
	RUN_MS = 30000,        /* then it is killed */
	SAID_BYTES = 200       /* of its stderr, in a message */
};

struct discovery {
	struct event_base *base;
	const char *script;
	int slots;
	discovery_found *found;
	void *ctx;
	struct child *child; /* NULL: it does not run */
	struct str printed;
	struct event *late;
};

static void discovery_fail(struct discovery *d, const char *how)
{
	struct err e;

	err_set(&e, E_DISCOVERY, d->script, how);
	d->found(d->ctx, NULL, &e);
}

static void on_bytes(void *ctx, const void *data, size_t n)
{
	struct discovery *d = ctx;

	if (d->printed.len + n <= PRINTED_MAX)
		str_addn(&d->printed, data, n);
}

/* No host is an answer, too. */
static int read_hosts(struct hosts *h, struct discovery *d, struct err *e)
{
	const char *text = str_text(&d->printed);

	if (strlen(text) < d->printed.len)
		return err_set(e, E_HOSTFILE_BINARY, d->script);
	if (text[strspn(text, " \t\r\n")] &&
	    hosts_parse_lines(h, text, "the script's output", e))
		return -1;
	for (size_t i = 0; i < h->n; i++)
		if (!h->v[i].counted)
			h->v[i].slots = d->slots;
	return 0;
}

static void discovery_on_ended(void *ctx, const struct transport_end *end)
{
	struct discovery *d = ctx;
	struct hosts hosts = { 0 };
	struct str how = { 0 };
	struct err e = { 0 };

	event_del(d->late);
	if (end->status)
		str_addf(&how, "it ended with status %d%s%.*s", end->status,
			 *end->said ? ": " : "",
			 (int)strcspn(end->said, "\n") < SAID_BYTES
				 ? (int)strcspn(end->said, "\n")
				 : SAID_BYTES,
			 end->said);
	child_close(d->child);
	d->child = NULL;
	if (how.len)
		discovery_fail(d, how.s);
	else if (read_hosts(&hosts, d, &e))
		discovery_fail(d, e.text);
	else
		d->found(d->ctx, &hosts, NULL);
	str_free(&how);
}

static void on_late(evutil_socket_t fd, short what, void *ctx)
{
	struct discovery *d = ctx;

	(void)fd;
	(void)what;
	child_kill_all(d->child);
	d->child = NULL;
	discovery_fail(d, "it ran for more than 30 s");
}

struct discovery *discovery_open(struct event_base *base, const char *script, int slots,
				 discovery_found *found, void *ctx)
{
	struct discovery *d = xcalloc(1, sizeof *d);

	*d = (struct discovery){ .base = base,
				 .script = script,
				 .slots = slots,
				 .found = found,
				 .ctx = ctx };
	d->late = event_new(base, -1, 0, on_late, d);
	return d;
}

void discovery_ask(struct discovery *d)
{
	static const struct transport_events events = { .bytes = on_bytes,
							.ended = discovery_on_ended };
	static const struct child_how how = { .bound = true };
	char *argv[] = { (char *)"sh", (char *)"-c", (char *)d->script, NULL };

	if (d->child)
		return;
	str_free(&d->printed);
	d->child = child_start(d->base, "/bin/sh", argv, &how, &events, d);
	if (d->child)
		loop_after_ms(d->late, RUN_MS);
	else
		discovery_fail(d, "it cannot be started");
}

void discovery_close(struct discovery *d)
{
	if (!d)
		return;
	if (d->child)
		child_kill_all(d->child);
	event_free(d->late);
	str_free(&d->printed);
	free(d);
}

/* ---- once ---- */

struct answer {
	struct event_base *base;
	struct hosts *hosts;
	struct err *e;
	int rc;
};

static void on_answer(void *ctx, struct hosts *hosts, const struct err *e)
{
	struct answer *a = ctx;

	a->rc = e ? -1 : 0;
	if (!e)
		*a->hosts = *hosts;
	else if (a->e)
		*a->e = *e;
	event_base_loopbreak(a->base);
}

int discovery_once(struct hosts *hosts, const char *script, int slots, struct err *e)
{
	struct answer a = { loop_open(), hosts, e, -1 };
	struct discovery *d = discovery_open(a.base, script, slots, on_answer, &a);

	discovery_ask(d);
	if (d->child)
		event_base_dispatch(a.base);
	discovery_close(d);
	event_base_free(a.base);
	return a.rc;
}
