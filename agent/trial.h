/* trial.h - a process whose answer is awaited: one that runs as local rank 0 would, for
 * --check; --health-check.
 *
 * The answer is the text between two NULs on its stdout.  What it prints beside that is
 * dropped. */
#ifndef BERTH_AGENT_TRIAL_H
#define BERTH_AGENT_TRIAL_H

#include "common/wire.h"

struct agent;
struct trial;

enum trial_end { TRIAL_ANSWERED, TRIAL_SILENT, TRIAL_LATE };

/* Called once, in the loop.  TEXT, which the trial owns: the answer; of one that ended
 * without an answer the last line that it printed; "". */
typedef void trial_done(void *ctx, enum trial_end end, const char *text);

/* Start WORDS as local rank 0, for at most TIMEOUT_MS.  NULL with E.  A and
 * CTX must outlive it.  At its end all descendants of the agent are killed. */
struct trial *trial_start(struct agent *a, wire_strv words, uint32_t timeout_ms,
			  trial_done *done, void *ctx, struct err *e);
/* Take over the child PID, which leads a process group and writes to the other end of
 * OUT, which is taken over, too.  At its end its group is killed. */
struct trial *trial_await(struct agent *a, pid_t pid, int out, uint32_t timeout_ms,
			  trial_done *done, void *ctx);
/* In DONE: the last line that it printed before its answer, or "". */
const char *trial_last_line(struct trial *t);
/* End it.  NULL is left alone. */
void trial_free(struct trial *t);

#endif
