/* output.h - what ranks write: whole lines with labels to the terminal, raw bytes to
 * files.
 *
 * Bytes pass exactly as they came; a line ends at '\n', or at a '\r' that no '\n'
 * follows (progress bars).  Lines of one rank's stream keep their order.  A '\r' that
 * nothing follows for 100 ms ends a line, and on a terminal the text behind a '\r' is
 * shown when nothing follows it for so long: bars move with each update.
 *
 * Nothing is lost when the reader is slow: a byte counts as left only when it was
 * written, and `left` tells the session, which returns the credit to the host; so what
 * waits is bounded by the credits, and lines without an end by 64 KiB each and 4 MiB
 * together: what is longer is passed on in pieces. */
#ifndef BERTH_LAUNCHER_OUTPUT_OUTPUT_H
#define BERTH_LAUNCHER_OUTPUT_OUTPUT_H

#include "common/str.h"
#include "launcher/request.h"

struct event_base;
struct output;

struct output_events {
	/* Output frames of host HOST have left runner, N bytes with their heads. */
	void (*left)(void *ctx, uint32_t host, size_t n);
	/* Our stdout or stderr (WHICH) takes no more: nobody reads it (EPIPE), or
	 * worse. */
	void (*unread)(void *ctx, const char *which, int error);
	/* Writing DIR's files failed, once; output goes on to the terminal. */
	void (*disk)(void *ctx, const char *path, int error);
};

/* NP ranks.  -1 with E when the log folder can't be made. */
int output_open(struct output **out, struct event_base *base, const struct request *r,
		uint32_t np, const struct output_events *events, void *ctx,
		struct err *e);

/* N bytes that RANK on HOST wrote to stream 1 or 2. */
void output_data(struct output *o, uint32_t host, uint32_t rank, unsigned stream,
		 const void *data, size_t n);

/* No more will come: pass on lines that have no end. */
void output_finish(struct output *o);
/* All ranks start again: what the last ones said explains nothing any more. */
void output_restart(struct output *o);
/* Bytes still waiting for a reader. */
size_t output_waiting(const struct output *o);
/* Stop queueing for a reader that went away; files go on. */
void output_mute(struct output *o);

/* The last lines RANK wrote to stderr, at most 10, or "". */
const char *output_tail(const struct output *o, uint32_t rank);
/* Milliseconds since RANK last wrote something, or -1: never. */
long output_quiet_ms(const struct output *o, uint32_t rank);

/* A line of runner's own for stderr, in order with what the ranks wrote. */
void output_note(struct output *o, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

void output_free(struct output *o);

#endif
