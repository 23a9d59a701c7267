/* capture.h - what a program writes to stdout, within a limit of time and size. */
#ifndef BERTH_LAUNCHER_CAPTURE_H
#define BERTH_LAUNCHER_CAPTURE_H

#include <stddef.h>

struct str;

struct capture {
	const char *const
		*words; /* the program, found by PATH, and its arguments; NULL */
	int in;         /* its stdin; -1: /dev/null */
	unsigned limit_ms;
	size_t most_bytes;
};

/* Runs C and appends what it writes to OUT; its stderr is dropped.  Returns why there
 * is not all of it, in words, or NULL.  No process of it is left.  Blocks. */
const char *capture_run(struct str *out, const struct capture *c);

#endif
