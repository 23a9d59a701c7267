/* tail.h - the last lines that a rank wrote to stderr, and the one that names an
 * exception.
 *
 * Pure.  PyTorch prints up to a hundred lines of stack behind the line with the reason,
 * so the last lines alone may not say why a rank failed.  A line names an exception if
 * it begins with a name of letters, digits, '_' and '.' that ends in "Error",
 * "Exception", "Interrupt" or "Exit", and if ": " follows, or nothing: Python's
 * "RuntimeError: text".  torch puts "[rank0]: " in front of it.
 *
 * A rank takes 20 KiB at most, however much it writes. */
#ifndef BERTH_LAUNCHER_OUTPUT_TAIL_H
#define BERTH_LAUNCHER_OUTPUT_TAIL_H

#include <stdbool.h>

#include "common/str.h"

enum {
	TAIL_LINES = 10,
	TAIL_BYTES = 4096,        /* of the last lines, at least so many are kept */
	TAIL_WINDOW = 200,        /* lines: a reason before them is forgotten */
	TAIL_REASON_BYTES = 1024, /* of a reason, at most so many are kept */
};

/* {0} is empty. */
struct tail {
	struct str bytes;  /* the last ones */
	struct str line;   /* the beginning of the line that has no end yet */
	struct str reason; /* the last line that names an exception, without its end */
	size_t since;      /* lines that ended since, itself included; 0: no reason */
	bool cut;          /* BYTES is not all */
};

/* The rank wrote N bytes. */
void tail_add(struct tail *t, const char *p, size_t n);
/* The last lines, at most TAIL_LINES, or "". */
const char *tail_lines(const struct tail *t);
/* The line that names an exception, if tail_lines() does not show it; else NULL.  GAP:
 * other lines stand between the two. */
const char *tail_reason(const struct tail *t, bool *gap);
void tail_free(struct tail *t);

#endif
