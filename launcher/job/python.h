/* python.h - pure: what starts a Python program, and what starts another text with its
 * interpreter. */
#ifndef BERTH_LAUNCHER_JOB_PYTHON_H
#define BERTH_LAUNCHER_JOB_PYTHON_H

#include "common/str.h"

/* Into OUT the words that run TEXT with the interpreter of the program ARGV, its
 * options and the words before it, then "file", "module" or "text", what that names and
 * the program's arguments.  WDIR is where ARGV will run, NULL for this directory; the
 * first line of ARGV[0] is read from there.  False: ARGV does not start a Python
 * program, as far as can be told. */
bool python_command(struct strv *out, const struct strv *argv, const char *wdir,
		    const char *text);
/* Does ARGV begin with a program that starts another one, as numactl does? */
bool python_wraps(const struct strv *argv);

#endif
