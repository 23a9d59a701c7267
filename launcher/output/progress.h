/* progress.h - one line on the terminal while hosts come up.
 *
 *     runner: 61 of 64 hosts up after 3 s, waiting for n[05,17,33]
 *
 * The line appears if a start takes longer than a second.  It is drawn again at most
 * ten times a second, and cut to the terminal's width.  It is erased when all hosts are
 * up, and before any other line.  Nothing is drawn if stderr is not a terminal, or if
 * runner is in the background. */
#ifndef BERTH_LAUNCHER_OUTPUT_PROGRESS_H
#define BERTH_LAUNCHER_OUTPUT_PROGRESS_H

#include "launcher/hosts/agents.h"

struct progress;

/* Show the hosts of F from now on; F must live longer.  NULL if stderr is not a
 * terminal; every function accepts that. */
struct progress *progress_open(const struct agents *f);
/* Call before another line is written to the terminal, and before runner is stopped. */
void progress_erase(struct progress *p);
void progress_close(struct progress *p);

/* The line after SECONDS, shorter than WIDTH columns.  The caller frees it. */
char *progress_text(const struct agents *f, unsigned seconds, size_t width);

#endif
