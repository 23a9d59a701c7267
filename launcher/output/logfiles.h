/* logfiles.h - the output of each rank in files (--output-filename).
 *
 *   DIR       DIR/rank.N/stdout and DIR/rank.N/stderr; N has as many digits as the last
 *             rank.  %h, %l and %j in DIR stand for what they do in FILE.
 *   FILE      with %r, or with %h and %l: FILE has stdout, FILE.err has stderr
 *
 *   %r %t     rank                  %R     rank with as many digits as the last one
 *   %h %N     host, at the first start of the rank
 *   %l        local rank            %j     job id                 %%     %
 *   %e        life: 1, and one more with each start of the rank
 * A number behind the % is the least number of digits, as in %4r.
 *
 * Files of an earlier run are kept: DIR/rank.* move to DIR/run.1, then to DIR/run.2 and
 * so on, FILE to FILE.1.  All lives of a rank write to the same files, unless their
 * names have %e.
 *
 * Bytes are written as they came, without labels, before logfiles_write() returns.  So
 * a slow reader of the terminal does not delay the files.  No file of another user is
 * written to (own_file.h).
 *
 * All files stay open if there are enough descriptors: 2 for each rank, 3 for each of
 * their hosts, those of callers (callback.h), and 256 for everything else.  If not, a
 * file is opened for each write.  After the first error nothing more is written, so
 * that a full disk is reported once. */
#ifndef BERTH_LAUNCHER_OUTPUT_LOGFILES_H
#define BERTH_LAUNCHER_OUTPUT_LOGFILES_H

#include <stddef.h>
#include <stdint.h>

#include "common/str.h"

struct logfiles;

/* The parts of the files' names.  The strings must outlive the files. */
struct log_names {
	const char *pattern, *job;
	uint32_t np;
	struct log_rank {
		const char *host;
		uint32_t local;
		uint32_t again; /* so often it started alone */
	} * rank;               /* rank[0..np) */
	uint32_t epoch;
};

/* Writing PATH failed with the errno ERROR; called once at most. */
typedef void logfiles_failed(void *ctx, const char *path, int error);

/* Append the name of RANK's file of stream 1 or 2.  0, or -1 with E_LOG_NAME. */
int logfiles_name(struct str *out, const struct log_names *names, uint32_t rank,
		  unsigned stream, struct err *e);

/* Make the folders, and empty files for all ranks.  Takes NAMES->rank over.  NOTE gets
 * what became of an earlier run's files, or stays empty.  0, or -1 with E_LOG_NAME or
 * E_LOG_DIR.  The caller frees *F in both cases. */
int logfiles_open(struct logfiles **f, const struct log_names *names, struct str *note,
		  logfiles_failed *failed, void *ctx, struct err *e);

/* All ranks start again, as EPOCH, which is 1 at first: with %e, further files are made
 * as in logfiles_open().  Does nothing if F is NULL.  0, or -1 with E. */
int logfiles_restart(struct logfiles *f, uint32_t epoch, struct str *note,
		     struct err *e);

/* RANK starts again alone: with %e, the same for its files. */
int logfiles_rank_again(struct logfiles *f, uint32_t rank, struct str *note,
			struct err *e);

/* N bytes that RANK wrote to stream 1 or 2.  Does nothing if F is NULL. */
void logfiles_write(struct logfiles *f, uint32_t rank, unsigned stream, const char *p,
		    size_t n);

void logfiles_free(struct logfiles *f);

#endif
