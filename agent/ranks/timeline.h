/* timeline.h - the file in which a rank writes its timeline, for runner --timeline.
 *
 * It is in TMPDIR, else in /tmp, and has no name: nothing of it is left, however this
 * agent ends.  The rank opens it by this agent's folder in /proc.  Once no process of
 * the rank is left, its bytes go out as output of WIRE_TIMELINE, as credit comes. */
#ifndef BERTH_AGENT_RANKS_TIMELINE_H
#define BERTH_AGENT_RANKS_TIMELINE_H

#include "agent/placement/env.h"
#include "agent/ranks/io.h"

struct rank_timeline {
	int fd; /* if TEXT is not "" */
	uint64_t sent;
	char text[80]; /* BERTH_RANK_TIMELINE: steps and path; "": there is none */
};

/* A file for the steps FIRST to LAST.  0, or an errno. */
int timeline_open(struct rank_timeline *t, uint32_t first, uint32_t last);
/* Put TEXT into a rank's environment. */
void timeline_tell(const struct rank_timeline *t, struct env_paths *to);
/* Send what RANK wrote, as far as credit and room go.  Whether all is sent. */
bool timeline_send(struct rank_timeline *t, struct io *io, uint32_t rank);
/* All is sent, and the rank starts again: the file is empty. */
void timeline_again(struct rank_timeline *t);
void timeline_free(struct rank_timeline *t); /* takes {0} */

#endif
