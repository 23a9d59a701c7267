/* log.h - what the library has to tell: to the caller's function, and as the last error
 * of a thread.  It prints nothing. */
#ifndef BERTH_LIB_LOG_H
#define BERTH_LIB_LOG_H

#include <stdarg.h>

#include "lib/berth.h"

enum { LOG_TEXT_BYTES = 4096, LOG_TENSOR_BYTES = 256, LOG_MISSING = 64 };

/* To whom; SAY may be NULL: nobody. */
void log_to(void (*say)(void *ctx, enum berth_log_level level, const char *text),
	    void *ctx);
/* One line, cut at LOG_TEXT_BYTES.  Any thread, whose own call of the caller's function
 * it then is; no lock is held in it. */
/* After fork(2) in the child: nobody gets its messages. */
void log_in_child(void);
__attribute__((format(printf, 2, 3))) void log_say(enum berth_log_level level,
						   const char *fmt, ...);

/* Note the last error of this thread, and return RC.  TENSOR may be NULL.  MISSING: N
 * ranks of the job, copied (the first LOG_MISSING).  FMT's arguments may point into
 * what log_last() gave.  Where there is no memory for it, log_last() says that. */
__attribute__((format(printf, 5, 6))) berth_result
log_error(berth_result rc, const char *tensor, const unsigned *missing, size_t n,
	  const char *fmt, ...);
/* The last error of this thread, never NULL; valid until its next one. */
const struct berth_error *log_last(void);

#endif
