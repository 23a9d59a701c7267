/* event_log.h - pure: the events of a job as rows, for its report.
 *
 * Events that differ in their rank or host alone are one row: the start of 256 ranks is
 * one.  Of a job with too many rows the first and the last ones are kept. */
#ifndef BERTH_LAUNCHER_OUTPUT_EVENT_LOG_H
#define BERTH_LAUNCHER_OUTPUT_EVENT_LOG_H

#include "launcher/request.h"

enum { EVENT_ROWS_FIRST = 500, EVENT_ROWS_LAST = 500, EVENT_HOSTS_MOST = 1024 };

struct event_row {
	double begin, end; /* of its first and last event: seconds since 1970 */
	char *name;
	size_t count;
	struct rank_set ranks;
	struct strv hosts; /* the first ones */
	char *text;        /* "status 1, SIGKILL"; or "" */
};

/* {0} is empty. */
struct event_log {
	struct event_row *v; /* the rows from EVENT_ROWS_FIRST on are a ring */
	size_t n, next;      /* next: the row of the ring that goes first */
	size_t left_out;
	/* the event that has begun */
	struct event_row row;
	struct str text;
};

/* An event, as events.h has it. */
void event_log_begin(struct event_log *l, const char *name, double t);
void event_log_number(struct event_log *l, const char *key, long long value);
void event_log_text(struct event_log *l, const char *key, const char *value);
void event_log_end(struct event_log *l);

/* Row I of l->n, in the order of time. */
const struct event_row *event_log_row(const struct event_log *l, size_t i);
void event_log_free(struct event_log *l);

#endif
