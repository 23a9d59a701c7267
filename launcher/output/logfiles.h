/* logfiles.h - what each rank wrote, in files: DIR/rank.N/stdout and DIR/rank.N/stderr
 * (--output-filename), N with as many digits as the last rank has.
 *
 * Bytes pass exactly as they came, without labels, and are written before
 * logfiles_write() returns: no queue and no reader of the terminal holds them up.
 *
 * All files stay open where descriptors suffice, 2 for each rank and 256 for all else;
 * where they do not, a file is opened for each write.  The first error ends all
 * writing: a full disk is said once. */
#ifndef BERTH_LAUNCHER_OUTPUT_LOGFILES_H
#define BERTH_LAUNCHER_OUTPUT_LOGFILES_H

#include <stddef.h>
#include <stdint.h>

#include "common/err.h"

struct logfiles;

/* Writing PATH failed with the errno ERROR; called once at most. */
typedef void logfiles_failed(void *ctx, const char *path, int error);

/* Make DIR, what is above it, and the files of NP ranks, empty.  DIR is not copied.
 * -1 with E_LOG_DIR; *F is to be freed even so. */
int logfiles_open(struct logfiles **f, const char *dir, uint32_t np,
		  logfiles_failed *failed, void *ctx, struct err *e);

/* N bytes that RANK wrote to stream 1 or 2; F may be NULL: there are no files. */
void logfiles_write(struct logfiles *f, uint32_t rank, unsigned stream, const char *p,
		    size_t n);

void logfiles_free(struct logfiles *f);

#endif
