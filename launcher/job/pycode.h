/* pycode.h - pure: Python source with everything but code made blank.
 *
 * No parser, only the lexical part of "The Python Language Reference", chapter 2. */
#ifndef BERTH_LAUNCHER_JOB_PYCODE_H
#define BERTH_LAUNCHER_JOB_PYCODE_H

#include <stdbool.h>
#include <stddef.h>

/* Stands for the ':' of a string that begins with "cuda:". */
enum { PYCODE_CUDA = 1 };

/* The N bytes TEXT with comments and strings blank and one statement a line: as long as
 * TEXT, the same offsets, ended by a NUL and without any other.  Of strings are left:
 * expressions inside f-strings; a string that is the name of a local rank
 * ("LOCAL_RANK"); "cuda" at the start of "cuda:3".  The caller frees it. */
char *pycode_only(const char *text, size_t n);

bool pycode_is_word(char c);

/* The name of a variable, attribute or function that is a local rank, or a rank: as a
 * device the two mean the same where there is one host. */
bool pycode_is_rank(const char *name, size_t n);

#endif
