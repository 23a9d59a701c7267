/* progress.h - which hosts a start waits for, and why.
 *
 *     runner: 61 of 64 hosts up after 3 s, waiting for n17 (connection refused),
 *     n[05,33] (no answer from sshd)
 *
 * The line appears on a terminal if a start takes longer than a second.  Hosts that
 * failed and are tried again come first.  The line is drawn again at most ten times a
 * second, and cut to the terminal's width.  It is erased when all hosts are up, and
 * before any other line.  Nothing is drawn if runner is in the background.
 *
 * If stderr is not a terminal, one warning says the same: after a second if a host is
 * tried again, else after ten. */
#ifndef BERTH_LAUNCHER_OUTPUT_PROGRESS_H
#define BERTH_LAUNCHER_OUTPUT_PROGRESS_H

#include "launcher/hosts/agents.h"

struct progress;

/* Show the hosts of F from now on; F must live longer.  WARN gets the warning.  Every
 * function below accepts NULL. */
struct progress *progress_open(const struct agents *f,
			       void (*warn)(void *ctx, const struct err *e), void *ctx);
/* Call before another line is written to the terminal, and before runner is stopped. */
void progress_erase(struct progress *p);
void progress_close(struct progress *p);

/* The line after SECONDS, shorter than WIDTH columns.  The caller frees it. */
char *progress_text(const struct agents *f, unsigned seconds, size_t width);
/* The warning after SECONDS into E; false: there is none yet. */
bool progress_warning(const struct agents *f, unsigned seconds, struct err *e);

#endif
