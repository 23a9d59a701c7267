#include "launcher/output/progress.h"

#include <event2/event.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "launcher/hosts/hosts.h"

enum {
	FIRST_MS = 1000,
	REDRAW_MS = 100,
	NAMES_MAX = 256 /* no terminal is wider */
};

struct progress {
	const struct agents *agents;
	struct event *tick;
	uint64_t begin_ms;
	char *shown; /* the line on the terminal, or NULL */
};

char *progress_text(const struct agents *f, unsigned seconds, size_t width)
{
	const char *names[NAMES_MAX] = { 0 };
	size_t up = 0, wanted = 0, waiting = 0;
	struct str folded = { 0 };
	char *text;

	for (size_t i = 0; i < f->n; i++) {
		const struct host *h = &f->host[i];

		wanted += h->state != HOST_IDLE;
		up += h->state == HOST_UP;
		if (h->state == HOST_STARTING && waiting++ < NAMES_MAX)
			names[waiting - 1] = h->name;
	}
	hosts_fold(&folded, names, waiting < NAMES_MAX ? waiting : NAMES_MAX);
	text = xasprintf("runner: %zu of %zu hosts up after %u s, waiting for %s%s", up,
			 wanted, seconds, str_text(&folded),
			 waiting > NAMES_MAX ? ", ..." : "");
	str_free(&folded);
	if (strlen(text) >= width && width > 4)
		memcpy(text + width - 4, "...", 4);
	else if (strlen(text) >= width)
		*text = '\0';
	return text;
}

/* Write TEXT over the old line, and spaces over the rest of it. */
static void put(struct progress *p, const char *text)
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

static void on_tick(evutil_socket_t fd, short what, void *ctx)
{
	const struct timeval next = { .tv_usec = REDRAW_MS * 1000 };
	struct progress *p = ctx;
	const unsigned seconds = (unsigned)((clock_ms() - p->begin_ms) / 1000);
	struct pollfd terminal = { .fd = STDERR_FILENO, .events = POLLOUT };
	struct winsize size = { 0 };
	char *text;

	(void)fd;
	(void)what;
	event_add(p->tick, &next);
	/* Not from the background.  After ^S a write would block the job. */
	if (tcgetpgrp(STDERR_FILENO) != getpgrp() || poll(&terminal, 1, 0) != 1 ||
	    !(terminal.revents & POLLOUT))
		return;
	if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) || !size.ws_col)
		size.ws_col = 80;
	text = progress_text(p->agents, seconds, size.ws_col);
	if (p->shown && !strcmp(p->shown, text)) {
		free(text);
		return;
	}
	put(p, text);
	free(p->shown);
	p->shown = text;
}

struct progress *progress_open(const struct agents *f)
{
	const struct timeval first = { .tv_sec = FIRST_MS / 1000 };
	struct progress *p;

	if (!isatty(STDERR_FILENO))
		return NULL;
	p = xcalloc(1, sizeof *p);
	*p = (struct progress){ .agents = f, .begin_ms = clock_ms() };
	p->tick = event_new(f->base, -1, 0, on_tick, p);
	event_add(p->tick, &first);
	return p;
}

void progress_erase(struct progress *p)
{
	if (!p || !p->shown)
		return;
	put(p, "");
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
