/* trace_file.h - the file that a merged timeline is written to: gzipped if its name
 * ends in ".gz".  An old one is replaced (launcher/output/own_file.h). */
#ifndef BERTH_LAUNCHER_TRACE_FILE_H
#define BERTH_LAUNCHER_TRACE_FILE_H

#include <stdbool.h>
#include <stddef.h>

#include "common/err.h"

struct trace_file;

/* Whether PATH ends in END, and has a name in front of that. */
bool trace_file_ends(const char *path, const char *end);

int trace_file_open(struct trace_file **f, const char *path, struct err *e);
void trace_file_add(struct trace_file *f, const void *bytes, size_t n);
/* All is written: 0, or -1 with E.  F is gone either way. */
int trace_file_close(struct trace_file *f, struct err *e);

#endif
