/* growth.h - hosts that come and go while the job runs (--min-np).
 *
 * Once a second the user's script is asked for the hosts, and hosts that were lost are
 * tried again once their cooldown has passed.  A host counts once its agent listens: no
 * rank is ended for a host that cannot be reached.  The record says when the job is to
 * start anew on other hosts (growth.resizes), or waits for hosts (growth.lacks_hosts);
 * phase.h decides. */
#ifndef BERTH_LAUNCHER_JOB_GROWTH_H
#define BERTH_LAUNCHER_JOB_GROWTH_H

#include "launcher/job/job.h"

/* If the number of ranks of J follows its hosts. */
void growth_open(struct job *j);
void growth_close(struct growth *g);
/* HOST was lost, or did not come up. */
void growth_lost(struct job *j, size_t host);
/* HOST is to be left for good, because its user or manager says so. */
void growth_dismiss(struct job *j, size_t host);
/* Look at the hosts now. */
void growth_look(struct job *j);

#endif
