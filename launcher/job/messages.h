/* messages.h - what runner tells the agents of a job, and what their frames and the
 * loss of a host change in its record. */
#ifndef BERTH_LAUNCHER_JOB_MESSAGES_H
#define BERTH_LAUNCHER_JOB_MESSAGES_H

#include "launcher/job/fence.h"
#include "launcher/job/job.h"

/* Call-backs for job.agents; their context is the job. */
extern const struct agents_events messages_events;

/* To each host with ranks: exec them. */
void messages_start(struct job *j);
/* Each agent stops its ranks: TERM, and KILL after GRACE_MS; 0: KILL at once. */
void messages_stop(struct job *j, uint32_t grace_ms);
/* SIGNO to the ranks' main processes, or to their whole trees, once ranks run. */
void messages_signal(struct job *j, int signo, bool tree);

/* RANK ended in order, and others of JOB wait for it: it has failed. */
void messages_missed(void *job, uint32_t rank);

/* The next world of libberth: ranks that are in it again, hosts that are left. */
extern const struct fence_events messages_of_fence;

/* N bytes of output have left runner that came from JOB's HOST: it may send as many
 * more.  Credits go back in quarters of the window: often enough to keep the host
 * writing, seldom enough to cost nothing. */
void messages_credit(void *job, uint32_t host, size_t n);

/* There is one restart more, of all ranks or of one.  The times of the last ones are
 * kept, as many as there may be in one span. */
void messages_note_restart(struct job *j);

#endif
