/* names.h - what ranks publish under names, for all ranks of the job to look up
 * (MPI_Publish_name, PMIx_Publish), and events, which go from one host to all others.
 *
 * Bounded: what has no room is refused, and an event is lost to a host that reads none.
 * A name stays until its rank takes it back, or it was to be read once, or the epoch
 * ends. */
#ifndef BERTH_LAUNCHER_JOB_NAMES_H
#define BERTH_LAUNCHER_JOB_NAMES_H

#include "launcher/job/epoch.h"

struct names;

/* For epoch E, once its ranks may run: for acts.c. */
struct names *names_open(const struct epoch *e);
void names_free(struct names *n); /* takes NULL */

/* Messages of agents: each function returns the fault of the message, or NULL.  N is
 * NULL, here and below, while no rank may run. */
const char *names_publish(struct names *n, struct host *h,
			  const struct wire_publish *m);
const char *names_lookup(struct names *n, struct host *h, const struct wire_lookup *m);
const char *names_unpublish(struct names *n, struct host *h,
			    const struct wire_unpublish *m);
const char *names_event(struct names *n, struct host *h, const struct wire_event *m);

/* A rank has ended: it waits for no name any more. */
void names_rank_ended(struct names *n, uint32_t rank);

#endif
