/* fence.h - what the ranks that use libberth need of the launcher: who is where, one
 * exchange of texts among all hosts for each joining (wire.def), and news of who is
 * lost.
 *
 * A joining ends when every host in use has said its ranks' texts, or when a rank is
 * known not to come: then who waits is told who that is.  Only hosts that asked for the
 * world hear of losses, so jobs that do not use the library cost nothing.  Of a host no
 * more is kept than the texts of one joining. */
#ifndef BERTH_LAUNCHER_JOB_FENCE_H
#define BERTH_LAUNCHER_JOB_FENCE_H

#include "launcher/job/job.h"

struct fence;

/* Of one epoch: for session.c. */
struct fence *fence_open(struct job *j);
void fence_free(struct fence *w); /* takes NULL */

/* What agents say: each returns what is wrong with it, or NULL. */
const char *fence_asked(struct job *j, struct host *h);
const char *fence_texts(struct job *j, struct host *h, const struct wire_fence *m);
const char *fence_lost(struct job *j, struct host *h, const struct wire_lost *m);

/* A rank has ended; all that its agent knew was said before. */
void fence_rank_ended(struct job *j, uint32_t rank);
/* A host is lost, and all ranks on it that did not end before. */
void fence_host_lost(struct job *j, uint32_t host);

#endif
