/* events.h - --events FILE: what happened, as JSON lines that a program can follow.
 *
 * One object a line: {"t": seconds of the epoch, "job": job_id, "event": "host up" |
 * "rank started" | "rank ended" | "cause" | "end", ...}.  Fields are only added. */
#ifndef BERTH_LAUNCHER_OUTPUT_EVENTS_H
#define BERTH_LAUNCHER_OUTPUT_EVENTS_H

#include "common/str.h"

struct events;

/* FILE may be NULL: then nothing is written and OUT is NULL, which every function
 * takes. */
int events_open(struct events **out, const char *file, const char *job, struct err *e);
/* Begin an event, add fields, end it: "rank started", then numbers and texts (NULL:
 * null). */
void events_begin(struct events *ev, const char *name);
void events_number(struct events *ev, const char *key, long long value);
void events_text(struct events *ev, const char *key, const char *value);
void events_end(struct events *ev);
void events_close(struct events *ev);

/* TEXT as a JSON string, quotes included; bytes that are no UTF-8 become U+FFFD. */
void json_string(struct str *out, const char *text);

#endif
