/* events.h - --events FILE: the events of a job as JSON lines for programs.
 *
 * One object on a line: {"t": seconds since 1970, "job": job id, "event": "host up" |
 * "rank started" | "rank ended" | "stall" | "cause" | "restart" | "end", ...}.  Later
 * versions may add fields, but do not remove any. */
#ifndef BERTH_LAUNCHER_OUTPUT_EVENTS_H
#define BERTH_LAUNCHER_OUTPUT_EVENTS_H

#include "launcher/output/event_log.h"

struct events;

/* One line of N bytes for stdout, with its '\n'. */
typedef void events_to_stdout(void *ctx, const char *line, size_t n);

/* If FILE is NULL, nothing is written and OUT is NULL; every function accepts that.  If
 * FILE is "-", each line goes to TO_STDOUT.  An old FILE is replaced, unless it belongs
 * to another user (own_file.h). */
int events_open(struct events **out, const char *file, const char *job,
		events_to_stdout *to_stdout, void *ctx, struct err *e);
/* From now on, LOG gets them, too, which must outlive EV; EV may be NULL before. */
void events_keep(struct events **ev, const char *job, struct event_log *log);
/* From now on, TAP gets each line, too; EV may be NULL before. */
void events_tap(struct events **ev, const char *job, events_to_stdout *tap, void *ctx);
/* Begin an event, add its fields, end it.  A text that is NULL becomes null. */
void events_begin(struct events *ev, const char *name);
void events_number(struct events *ev, const char *key, long long value);
void events_text(struct events *ev, const char *key, const char *value);
void events_end(struct events *ev);
void events_close(struct events *ev);

/* Append TEXT as a JSON string with quotes.  Bytes that are not UTF-8 become U+FFFD. */
void json_string(struct str *out, const char *text);
/* Append a member of an object that is not its first one.  VALUE is NULL for null. */
void json_text(struct str *out, const char *key, const char *value);

#endif
