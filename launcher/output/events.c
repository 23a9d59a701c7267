#include "launcher/output/events.h"

#include <string.h>
#include <time.h>
#include <unistd.h>

#include "launcher/output/own_file.h"

struct events {
	int fd; /* -1: it goes to TO_STDOUT, if there is one */
	events_to_stdout *to_stdout;
	void *ctx;
	events_to_stdout *tap; /* or NULL */
	void *tap_ctx;
	char *job;
	struct event_log *log; /* or NULL */
	struct str line;
};

int events_open(struct events **out, const char *file, const char *job,
		events_to_stdout *to_stdout, void *ctx, struct err *e)
{
	const bool is_stdout = file && !strcmp(file, "-");
	struct events *ev;
	struct str why = { 0 };
	int fd;

	*out = NULL;
	if (!file)
		return 0;
	fd = is_stdout ? -1 : own_file_open(file, OWN_FILE_REPLACE, &why);
	if (fd < 0 && !is_stdout)
		err_set(e, E_EVENTS_FILE, file, str_text(&why));
	str_free(&why);
	if (fd < 0 && !is_stdout)
		return -1;
	ev = xcalloc(1, sizeof *ev);
	*ev = (struct events){ .fd = fd, .to_stdout = to_stdout, .ctx = ctx };
	ev->job = xstrdup(job);
	*out = ev;
	return 0;
}

/* Events that may go nowhere but to a log or a tap. */
static struct events *events_made(struct events **ev, const char *job)
{
	if (!*ev) {
		*ev = xcalloc(1, sizeof **ev);
		(*ev)->fd = -1;
		(*ev)->job = xstrdup(job);
	}
	return *ev;
}

void events_keep(struct events **ev, const char *job, struct event_log *log)
{
	events_made(ev, job)->log = log;
}

void events_tap(struct events **ev, const char *job, events_to_stdout *tap, void *ctx)
{
	struct events *to = events_made(ev, job);

	to->tap = tap;
	to->tap_ctx = ctx;
}

void events_begin(struct events *ev, const char *name)
{
	struct timespec t;

	if (!ev)
		return;
	clock_gettime(CLOCK_REALTIME, &t);
	ev->line.len = 0;
	str_addf(&ev->line, "{\"t\": %lld.%06ld, \"job\": \"%s\", \"event\": \"%s\"",
		 (long long)t.tv_sec, t.tv_nsec / 1000, ev->job, name);
	if (ev->log)
		event_log_begin(ev->log, name,
				(double)t.tv_sec + (double)t.tv_nsec / 1e9);
}

void events_number(struct events *ev, const char *key, long long value)
{
	if (ev)
		str_addf(&ev->line, ", \"%s\": %lld", key, value);
	if (ev && ev->log)
		event_log_number(ev->log, key, value);
}

void events_text(struct events *ev, const char *key, const char *value)
{
	if (ev)
		json_text(&ev->line, key, value);
	if (ev && ev->log)
		event_log_text(ev->log, key, value);
}

/* One write for a whole line, so that a reader never sees a part of one. */
void events_end(struct events *ev)
{
	if (!ev)
		return;
	if (ev->log)
		event_log_end(ev->log);
	str_add(&ev->line, "}\n");
	if (ev->tap)
		ev->tap(ev->tap_ctx, ev->line.s, ev->line.len);
	if (ev->fd < 0 && ev->to_stdout)
		ev->to_stdout(ev->ctx, ev->line.s, ev->line.len);
	else if (ev->fd >= 0 && write(ev->fd, ev->line.s, ev->line.len) < 0)
		ev->line.len = 0; /* the job goes on without the file */
}

void events_close(struct events *ev)
{
	if (!ev)
		return;
	if (ev->fd >= 0)
		close(ev->fd);
	str_free(&ev->line);
	free(ev->job);
	free(ev);
}

void json_string(struct str *out, const char *text)
{
	const unsigned char *p = (const unsigned char *)text;

	str_add(out, "\"");
	while (*p) {
		size_t n = str_utf8((const char *)p);

		if (*p == '"' || *p == '\\')
			str_addf(out, "\\%c", *p);
		else if (*p < 0x20 || *p == 0x7f)
			str_addf(out, "\\u%04x", *p);
		else if (!n)
			str_add(out, "\xef\xbf\xbd");
		else
			str_addn(out, p, n);
		p += n ? n : 1;
	}
	str_add(out, "\"");
}

void json_text(struct str *out, const char *key, const char *value)
{
	str_addf(out, ", \"%s\": ", key);
	if (value)
		json_string(out, value);
	else
		str_add(out, "null");
}
