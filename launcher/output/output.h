/* output.h - the output of the ranks: whole lines with labels to the terminal, raw
 * bytes to files.
 *
 * lines.h says what a line is, and what becomes of progress bars.
 *
 * No output is lost if the reader is slow.  `left` tells the job that bytes were
 * written, and the job returns their credit to the host, so the credit limits what
 * waits.  Lines without an end are limited to 64 KiB each and 4 MiB together; a longer
 * line is passed on in parts. */
#ifndef BERTH_LAUNCHER_OUTPUT_OUTPUT_H
#define BERTH_LAUNCHER_OUTPUT_OUTPUT_H

#include "common/str.h"
#include "launcher/output/logfiles.h"
#include "launcher/output/nccl_pairs.h"
#include "launcher/request.h"

struct event_base;
struct output;

struct output_events {
	/* Output frames of host HOST were written: N bytes with the heads. */
	void (*left)(void *ctx, uint32_t host, size_t n);
	/* Writing to our stdout or stderr (WHICH) failed.  EPIPE: it has no reader. */
	void (*unread)(void *ctx, const char *which, int error);
	/* Writing the file PATH failed; called once.  Output still goes on. */
	void (*disk)(void *ctx, const char *path, int error);
	/* The name of host HOST; for --nccl-transports alone. */
	const char *(*host_name)(void *ctx, uint32_t host);
};

/* For NP ranks.  RANK[0..NP) and JOB, the job id, are for the names of log files; their
 * strings must outlive OUT.  0, or -1 with E if there can be no such files. */
int output_open(struct output **out, struct event_base *base, const struct request *r,
		uint32_t np, const struct log_rank *rank, const char *job,
		const struct output_events *events, void *ctx, struct err *e);

/* N bytes that RANK on HOST wrote to stream 1 or 2, or to 3: NCCL's log, of which only
 * warnings and the version are shown, as output of stream 1. */
void output_data(struct output *o, uint32_t host, uint32_t rank, unsigned stream,
		 const void *data, size_t n);

/* No more output will come: pass on the lines that have no end. */
void output_finish(struct output *o);
/* RANK has started again: end its last line, if that has no end; forget its tail; begin
 * further files, if their names have the life.  0, or -1 with E. */
int output_rank_again(struct output *o, uint32_t rank, struct err *e);
/* All ranks start again, as EPOCH: forget the tails and times of the ranks before, and
 * open files of this epoch if their names have its number.  0, or -1 with E. */
int output_restart(struct output *o, uint32_t epoch, struct err *e);
/* Bytes that are not written yet. */
size_t output_waiting(const struct output *o);
/* Queue no more output: it has no reader.  The files still get it. */
void output_mute(struct output *o);

/* The user typed the end of a line at the terminal that is stdin. */
void output_typed(struct output *o);

/* The last lines RANK wrote to stderr, at most 10, or "". */
const char *output_tail(const struct output *o, uint32_t rank);
/* tail_reason() of RANK. */
const char *output_reason(const struct output *o, uint32_t rank, bool *gap);
/* The user saw what RANK wrote to stderr as it came: on a terminal, and not hidden. */
bool output_is_live(const struct output *o, uint32_t rank);
/* Milliseconds since RANK wrote last, or -1 if it never did. */
long output_quiet_ms(const struct output *o, uint32_t rank);

/* The pairs of ranks in NCCL's log since the start of all; NULL: the user did not
 * ask. */
const struct nccl_pairs *output_nccl(const struct output *o);

/* A line of runner itself for stderr, behind the output that came before. */
void output_note(struct output *o, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

/* Does stderr show a status of runner itself?  WIDTH and ROWS: of the terminal. */
bool output_shows_status(const struct output *o, size_t *width, size_t *rows);
/* That status, below the output, in place of the one before; NULL: none. */
void output_status(struct output *o, const char *text);

/* The N bytes of a whole line of runner itself for stdout. */
void output_line(struct output *o, const char *line, size_t n);

/* The loop runs no longer: write what is queued.  Waits 5 s at most. */
void output_settle(struct output *o);

void output_free(struct output *o);

#endif
