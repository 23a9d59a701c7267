/* timeline.h - --timeline: what all ranks wrote and what runner did, as one file.
 *
 * What agents send of the ranks' timelines waits in a file without a name, in TMPDIR or
 * /tmp, until the job has ended (trace_merge.h).  In memory are 16 bytes for each row
 * of frames of one rank. */
#ifndef BERTH_LAUNCHER_JOB_TIMELINE_H
#define BERTH_LAUNCHER_JOB_TIMELINE_H

#include "common/str.h"
#include "launcher/hosts/agents.h"
#include "launcher/insight/record.h"
#include "launcher/output/events.h"

struct timeline;

/* For FILE, which is made now, and gets the lines of EV from now on.  If FILE is NULL,
 * T is, and every function takes that.  0, or -1 with E. */
int timeline_open(struct timeline **t, const char *file, struct events **ev,
		  const char *job, struct err *e);

/* RANK runs on H from now on: what comes of it until it does again is of one life. */
void timeline_begin(struct timeline *t, uint32_t epoch, uint32_t rank,
		    const struct host *h);
/* N bytes of RANK's, which runs on H.  False: it never ran, or has no more. */
bool timeline_data(struct timeline *t, uint32_t rank, const struct host *h,
		   const void *data, size_t n);
/* RANK used so much until AT_NS of our clock, as the monitor sees it. */
void timeline_sample(struct timeline *t, uint32_t rank, int64_t at_ns,
		     const struct point *p);
/* Whether anything came since the last call. */
bool timeline_grows(struct timeline *t);
/* Write the file.  0 with LINE about it, or -1 with E. */
int timeline_write(struct timeline *t, struct str *line, struct err *e);
void timeline_free(struct timeline *t);

#endif
