/* trial.h - a process that runs as local rank 0 would, whose answer is awaited: for
 * --check.
 *
 * The answer is the text between two NULs on its stdout.  What it prints beside that is
 * dropped.  At the end of a trial all descendants of the agent are killed. */
#ifndef BERTH_AGENT_TRIAL_H
#define BERTH_AGENT_TRIAL_H

#include "common/wire.h"

struct agent;
struct trial;

enum trial_end { TRIAL_ANSWERED, TRIAL_SILENT, TRIAL_LATE };

/* Called once, in the loop.  TEXT, which the trial owns: the answer; of one that ended
 * without an answer the last line that it printed; "". */
typedef void trial_done(void *ctx, enum trial_end end, const char *text);

/* Start WORDS, for at most TIMEOUT_MS.  NULL with E.  A and CTX must outlive it. */
struct trial *trial_start(struct agent *a, wire_strv words, uint32_t timeout_ms,
			  trial_done *done, void *ctx, struct err *e);
/* NULL is left alone. */
void trial_free(struct trial *t);

#endif
