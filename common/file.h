/* file.h - read a small file as one text: host files, config files, scripts, /proc;
 * write a text; make a file without a name.
 *
 * Reads no more than the caller's limit: a user may name /dev/zero by mistake. */
#ifndef BERTH_FILE_H
#define BERTH_FILE_H

#include <stdbool.h>
#include <sys/types.h>

#include "common/str.h"

/* Append the first MOST bytes of the file PATH to OUT.  0, or -1 with errno (EISDIR for
 * a directory).  REGULAR: refuse other files than regular ones (EINVAL), so that a pipe
 * such as bash's <(...) keeps its bytes for the program. */
int file_read(struct str *out, const char *path, size_t most, bool regular);
/* As file_read(), from stdin, at its present place. */
int file_read_stdin(struct str *out, size_t most);
/* The first SIZE - 1 bytes of the file PATH, as one read gives them, and a NUL into
 * OUT: how many, or -1 with errno.  A FIFO is not waited for. */
ssize_t file_start(const char *path, char *out, size_t size);
/* TMPDIR, else /tmp. */
const char *file_tmp_folder(void);
/* A new file in that folder, which has no name: nothing of it is left.  A descriptor,
 * or -1 with errno. */
int file_nameless(void);
/* Write all N bytes at P to FD, which blocks.  0, or -1 with errno. */
int file_write(int fd, const char *p, size_t n);

#endif
