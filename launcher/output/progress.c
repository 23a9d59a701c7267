#include "launcher/output/progress.h"

#include <ctype.h>
#include <event2/event.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "common/loop.h"
#include "launcher/hosts.h"

enum {
	FIRST_MS = 1000,
	REDRAW_MS = 100,
	WARN_S = 10,    /* of hosts that are only slow */
	NAMES_MAX = 256 /* no terminal is wider */
};

struct progress {
	const struct agents *agents;
	void (*warn)(void *ctx, const struct err *e);
	void *ctx;
	struct event *tick;
	uint64_t begin_ms;
	char *shown; /* the line on the terminal, or NULL */
};

/* A reason for which the start of one host waits. */
struct wait {
	const char *name, *why; /* why: "" for unknown, NULL: it is in the text */
};

/* Append W[0..N) to S, those that wait for the same thing together: "n[05,33] (why)".
 */
static void progress_fold_alike(struct str *s, struct wait *w, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		const char *names[NAMES_MAX], *why = w[i].why;
		size_t alike = 0;

		if (!why)
			continue;
		for (size_t k = i; k < n; k++)
			if (w[k].why && !strcmp(w[k].why, why)) {
				names[alike++] = w[k].name;
				w[k].why = NULL;
			}
		str_add(s, s->len ? ", " : "");
		hosts_fold(s, names, alike);
		if (*why && islower((unsigned char)why[1]))
			str_addf(s, " (%c%s)", tolower((unsigned char)*why), why + 1);
		else if (*why)
			str_addf(s, " (%s)", why);
	}
}

/* Append the hosts that are not up, with reasons, to S: first those that failed and are
 * tried again.  Returns how many have failed. */
static size_t list_waits(struct str *s, const struct agents *f)
{
	struct wait w[2][NAMES_MAX] = { 0 };
	size_t n[2] = { 0 };
	bool more = false;

	for (size_t i = 0; i < f->n; i++) {
		const struct host *h = &f->host[i];
		const char *why = NULL;
		bool failed = false;

		if (h->state != HOST_STARTING)
			continue;
		if (h->conn && h->transport->waits_for)
			why = h->transport->waits_for(h->conn, &failed);
		if (n[failed] < NAMES_MAX)
			w[failed][n[failed]++] =
				(struct wait){ h->name, why ? why : "" };
		else
			more = true;
	}
	progress_fold_alike(s, w[true], n[true]);
	progress_fold_alike(s, w[false], n[false]);
	str_add(s, more ? ", ..." : "");
	return n[true];
}

char *progress_text(const struct agents *f, unsigned seconds, size_t width)
{
	struct str waits = { 0 };
	size_t up = 0, wanted = 0;
	char *text;

	for (size_t i = 0; i < f->n; i++) {
		wanted += f->host[i].state != HOST_IDLE;
		up += f->host[i].state == HOST_UP;
	}
	list_waits(&waits, f);
	text = xasprintf("runner: %zu of %zu host%s up after %u s, waiting for %s", up,
			 wanted, str_plural(wanted), seconds, str_text(&waits));
	str_free(&waits);
	if (strlen(text) >= width && width > 4)
		memcpy(text + width - 4, "...", 4);
	else if (strlen(text) >= width)
		*text = '\0';
	return text;
}

bool progress_warning(const struct agents *f, unsigned seconds, struct err *e)
{
	struct str waits = { 0 };
	const size_t failed = list_waits(&waits, f);
	const bool due = failed || (waits.len && seconds >= WARN_S);

	if (due)
		err_set(e, E_START_WAITS, str_text(&waits),
			(unsigned)((transport_left_ms(&f->setup) + 999) / 1000));
	str_free(&waits);
	return due;
}

/* Write TEXT over the old line, and spaces over the rest of it. */
static void progress_put(struct progress *p, const char *text)
{
	const int old = p->shown ? (int)strlen(p->shown) : 0,
		  rest = old - (int)strlen(text);
	char *line = xasprintf("\r%s%*s%s", text, rest > 0 ? rest : 0, "",
			       *text ? "" : "\r");

	if (write(STDERR_FILENO, line, strlen(line)) < 0) {
		/* without a terminal there is no progress to show */
	}
	free(line);
}

static unsigned seconds_since(const struct progress *p)
{
	return (unsigned)((clock_ms() - p->begin_ms) / 1000);
}

/* No terminal. */
static void on_second(evutil_socket_t fd, short what, void *ctx)
{
	struct progress *p = ctx;
	struct err e;

	(void)fd;
	(void)what;
	if (progress_warning(p->agents, seconds_since(p), &e))
		p->warn(p->ctx, &e);
	else
		loop_after_ms(p->tick, FIRST_MS);
}

static void on_tick(evutil_socket_t fd, short what, void *ctx)
{
	struct progress *p = ctx;
	struct pollfd terminal = { .fd = STDERR_FILENO, .events = POLLOUT };
	struct winsize size = { 0 };
	char *text;

	(void)fd;
	(void)what;
	loop_after_ms(p->tick, REDRAW_MS);
	/* Not from the background.  After ^S a write would block the job. */
	if (tcgetpgrp(STDERR_FILENO) != getpgrp() || poll(&terminal, 1, 0) != 1 ||
	    !(terminal.revents & POLLOUT))
		return;
	if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) || !size.ws_col)
		size.ws_col = 80;
	text = progress_text(p->agents, seconds_since(p), size.ws_col);
	if (p->shown && !strcmp(p->shown, text)) {
		free(text);
		return;
	}
	progress_put(p, text);
	free(p->shown);
	p->shown = text;
}

struct progress *progress_open(const struct agents *f,
			       void (*warn)(void *ctx, const struct err *e), void *ctx)
{
	struct progress *p = xcalloc(1, sizeof *p);

	*p = (struct progress){
		.agents = f, .warn = warn, .ctx = ctx, .begin_ms = clock_ms()
	};
	p->tick = event_new(f->base, -1, 0, isatty(STDERR_FILENO) ? on_tick : on_second,
			    p);
	loop_after_ms(p->tick, FIRST_MS);
	return p;
}

void progress_erase(struct progress *p)
{
	if (!p || !p->shown)
		return;
	progress_put(p, "");
	free(p->shown);
	p->shown = NULL;
}

void progress_close(struct progress *p)
{
	if (!p)
		return;
	progress_erase(p);
	event_free(p->tick);
	free(p);
}
