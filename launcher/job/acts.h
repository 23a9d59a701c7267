/* acts.h - what the steps of phase.h do: orders to agents, words to the user.
 *
 * An act assigns neither the phase nor what it awaits.  One that fails sets j->refused,
 * with the reason in j->err unless it has said it. */
#ifndef BERTH_LAUNCHER_JOB_ACTS_H
#define BERTH_LAUNCHER_JOB_ACTS_H

#include "launcher/job/phase.h"

void acts_do(struct job *j, enum job_act act);

/* An agent on each host that is needed and has none. */
void acts_launch(struct job *j);
/* j->err to the user, if it is set; j is no longer refused. */
void acts_say_error(struct job *j);
/* All that is known of the ranks of the epoch goes. */
void acts_forget_ranks(struct job *j);

#endif
