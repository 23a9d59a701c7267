/* progress.h - one line on the terminal while hosts come up.
 *
 *     runner: 61 of 64 hosts up after 3 s, waiting for n[05,17,33]
 *
 * It appears when a start takes longer than a second, is drawn anew in its place at
 * most ten times a second, is cut to the terminal's width, and is gone when all hosts
 * are up or anything else is to be said.  Nothing is ever drawn where stderr is no
 * terminal, or one that belongs to another job of the shell. */
#ifndef BERTH_LAUNCHER_OUTPUT_PROGRESS_H
#define BERTH_LAUNCHER_OUTPUT_PROGRESS_H

#include "launcher/hosts/agents.h"

struct progress;

/* Watch the hosts of F, which must outlive it, from now on.  NULL where there is
 * nowhere to draw; every function takes that. */
struct progress *progress_open(const struct agents *f);
/* Before something else is written to the terminal, and before runner is stopped. */
void progress_erase(struct progress *p);
void progress_close(struct progress *p);

/* The line after SECONDS, of less than WIDTH columns; the caller frees it. */
char *progress_text(const struct agents *f, unsigned seconds, size_t width);

#endif
