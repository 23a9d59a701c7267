/* log.h - messages of the library to the caller's function, and the last error of each
 * thread.  The library prints nothing. */
#ifndef BERTH_LIB_LOG_H
#define BERTH_LIB_LOG_H

#include <stdarg.h>

#include "lib/berth.h"

enum { LOG_TEXT_BYTES = 4096, LOG_TENSOR_BYTES = 256, LOG_MISSING = 64 };

/* Sets the function that gets the messages.  SAY may be NULL: nobody gets them. */
void log_to(void (*say)(void *ctx, enum berth_log_level level, const char *text),
	    void *ctx);
/* After fork(2) in the child: nobody gets the child's messages. */
void log_in_child(void);
/* log_say() says one line, cut at LOG_TEXT_BYTES.  Any thread may call it, and calls
 * the caller's function itself.  It holds no lock meanwhile. */
__attribute__((format(printf, 2, 3))) void log_say(enum berth_log_level level,
						   const char *fmt, ...);

/* Notes the last error of this thread, and returns RC.  TENSOR may be NULL.  MISSING: N
 * ranks of the job, copied (the first LOG_MISSING).  FMT's arguments may point into the
 * error that log_last() gave.  If there is no memory for it, log_last() says that. */
__attribute__((format(printf, 5, 6))) berth_result
log_error(berth_result rc, const char *tensor, const unsigned *missing, size_t n,
	  const char *fmt, ...);
/* The last error of this thread, never NULL; valid until its next one. */
const struct berth_error *log_last(void);

#endif
