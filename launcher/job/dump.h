/* dump.h - where all ranks are now, for --dump and Ctrl-\ twice: asks all agents, and
 * gives the text of dump_text.h to all that asked meanwhile.
 *
 * Agents have DUMP_MS to answer: a rank of which nothing has come is shown as such. */
#ifndef BERTH_LAUNCHER_JOB_DUMP_H
#define BERTH_LAUNCHER_JOB_DUMP_H

#include "common/wire.h"

enum { DUMP_MS = 1500 };

struct dump;
struct host;
struct job;

struct dump *dump_open(struct job *j);
void dump_free(struct dump *d); /* takes NULL */

/* FN gets the text, before this call returns or later. */
void dump_ask(struct dump *d, void (*fn)(void *ctx, const char *text), void *ctx);
/* An FN: to the user, as runner's other words; CTX is the job. */
void dump_print(void *job, const char *text);
/* CTX does not want it any more. */
void dump_forget(struct dump *d, const void *ctx);
/* The ranks of this epoch are forgotten just after. */
void dump_epoch_ends(struct dump *d); /* takes NULL */

/* The message of an agent.  Returns its fault, or NULL. */
const char *dump_dumped(struct dump *d, const struct host *h,
			const struct wire_dumped *m);

#endif
