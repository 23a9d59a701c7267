/* imports.h - --check: a command that tries what a Python program imports.
 *
 * The command has the program's own interpreter, with its options and the words before
 * it.  The interpreter reads the program and executes its import statements alone,
 * those outside functions that always run; a missing module that the program expects
 * ("try: import x") is no failure.  It prints a NUL, the file of an NCCL that the
 * program loads, if any, a newline, "+" or "-", a text, and a NUL. */
#ifndef BERTH_LAUNCHER_JOB_IMPORTS_H
#define BERTH_LAUNCHER_JOB_IMPORTS_H

#include "common/str.h"

/* The command for the program ARGV into OUT.  WDIR is where ARGV will run, NULL for
 * this directory; the first line of ARGV[0] is read from there.  False: ARGV does not
 * start a Python program, as far as can be told. */
bool imports_command(struct strv *out, const struct strv *argv, const char *wdir);

#endif
