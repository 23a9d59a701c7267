/* file.h - a small file as one text: host files, environment files, scripts.
 *
 * Never more than the caller's limit, so that /dev/zero and a mistyped name do no harm.
 */
#ifndef BERTH_LAUNCHER_FILE_H
#define BERTH_LAUNCHER_FILE_H

#include <stdbool.h>

#include "common/str.h"

/* Append the first MOST bytes of the file PATH to OUT.  Returns 0, or -1 with errno
 * (EISDIR for a folder).  REGULAR: nothing but a regular file is read (EINVAL): a pipe
 * that someone else is to read, as of bash's <(...), stays whole. */
int file_read(struct str *out, const char *path, size_t most, bool regular);

#endif
