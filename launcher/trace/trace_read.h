/* trace_read.h - the events of a trace file, one after the other.
 *
 * A file is JSON of Chrome's trace format: a list of events, which may lack its end, or
 * an object with such a list as "traceEvents".  It may be gzipped.  Its bytes may be
 * anything: what is not such a file is an error that names the place.  A file that ends
 * early has the events that are whole.
 *
 * Source: "Trace Event Format", Google, 2016. */
#ifndef BERTH_LAUNCHER_TRACE_READ_H
#define BERTH_LAUNCHER_TRACE_READ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/err.h"

struct trace_reader;

/* Bytes of a file, not ended by a NUL.  Of a string: what is between the quotes, with
 * its escapes.  They are UTF-8 and sound JSON. */
struct trace_text {
	const char *s;
	size_t n;
};

enum { TRACE_OTHERS = 8 };

struct trace_event {
	char ph; /* "ph": its kind, or 0 */
	struct trace_text name, cat, id, scope;
	struct trace_text args;     /* an object with its braces, or nothing */
	struct trace_text bp;       /* of a flow */
	struct trace_text pid_text; /* "pid", "tid": if they are strings */
	struct trace_text tid_text;
	int64_t pid, tid;
	int64_t ts_ns, dur_ns;
	bool timed; /* it has a "ts" */
};

/* The head of a file, in front of its events. */
struct trace_head {
	bool object;     /* not a list */
	int64_t base_ns; /* "baseTimeNanoseconds" of Kineto; 0: not there */
	long rank;       /* "distributedInfo" of Kineto; -1 */
};

/* The next bytes: how many, 0 at the end, -1 with errno. */
typedef ssize_t trace_pull(void *ctx, void *to, size_t n);

/* MOST: bytes of memory for one event; an event that is larger is an error.  0, or -1
 * with E.  NAME is for messages. */
int trace_reader_open(struct trace_reader **r, const char *path, size_t most,
		      struct err *e);
void trace_reader_from(struct trace_reader **r, const char *name, trace_pull *pull,
		       void *ctx, size_t most);
void trace_reader_free(struct trace_reader *r); /* takes NULL */

/* The head, up to the first event.  To be called first, once. */
int trace_reader_begin(struct trace_reader *r, struct trace_head *h, struct err *e);
/* The next event into EV, whose texts are valid until the next call.  1, 0 at the end,
 * or -1 with E. */
int trace_reader_next(struct trace_reader *r, struct trace_event *ev, struct err *e);
/* The end of the file came before that of its list. */
bool trace_reader_cut(const struct trace_reader *r);

/* The members of OBJECT, an object of the file, one after the other; AT begins as 0.
 * VALUE is a string without its quotes, or another value as it is.  False: no more. */
bool trace_member(const struct trace_text *object, size_t *at, struct trace_text *key,
		  struct trace_text *value);
bool trace_is(const struct trace_text *t, const char *text);
/* T, a number in units of 1000 of the result: 1.5 is 1500.  False: it is none, or too
 * large. */
bool trace_thousandths(const struct trace_text *t, int64_t *out);
/* T as a whole number of 0 or more. */
bool trace_number(const struct trace_text *t, uint64_t *out);

#endif
