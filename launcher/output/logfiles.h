/* logfiles.h - the output of each rank in files: DIR/rank.N/stdout and
 * DIR/rank.N/stderr (--output-filename).  N has as many digits as the last rank.
 *
 * Bytes are written as they came, without labels, before logfiles_write() returns.  So
 * a slow reader of the terminal does not delay the files.
 *
 * All files stay open if there are enough descriptors: 2 for each rank and 256 for
 * everything else.  If not, a file is opened for each write.  After the first error
 * nothing more is written, so that a full disk is reported once. */
#ifndef BERTH_LAUNCHER_OUTPUT_LOGFILES_H
#define BERTH_LAUNCHER_OUTPUT_LOGFILES_H

#include <stddef.h>
#include <stdint.h>

#include "common/err.h"

struct logfiles;

/* Writing PATH failed with the errno ERROR; called once at most. */
typedef void logfiles_failed(void *ctx, const char *path, int error);

/* Make DIR, the directories above it, and empty files for NP ranks.  DIR is not copied.
 * 0, or -1 with E_LOG_DIR.  The caller frees *F in both cases. */
int logfiles_open(struct logfiles **f, const char *dir, uint32_t np,
		  logfiles_failed *failed, void *ctx, struct err *e);

/* N bytes that RANK wrote to stream 1 or 2.  Does nothing if F is NULL. */
void logfiles_write(struct logfiles *f, uint32_t rank, unsigned stream, const char *p,
		    size_t n);

void logfiles_free(struct logfiles *f);

#endif
