/* monitor.h - samples the ranks of a job and their machine, each so often, for
 * --monitor.
 *
 * A sample of 8 ranks takes 0.6 ms.  If more than LAG_BYTES wait for the launcher, no
 * sample is sent.  The next one that is says how many were dropped. */
#ifndef BERTH_AGENT_MONITOR_MONITOR_H
#define BERTH_AGENT_MONITOR_MONITOR_H

#include "agent/monitor/gpu_use.h"
#include "agent/ranks/rank.h"

struct monitor {
	struct buf *out; /* the agent's send queue */
	const struct ranks *ranks;
	struct event *timer; /* NULL: none is due */
	struct gpu_use gpus;
	uint32_t period_ms, dropped, link_mbit;
};

/* Begin, if the job of R asks for it.  OUT and R must stay until monitor_end(); P: the
 * GPUs of G that R's ranks got. */
void monitor_begin(struct monitor *m, struct event_base *base, struct buf *out,
		   const struct ranks *r, const struct gpus *g,
		   const struct placement *p);
/* Takes {0} too. */
void monitor_end(struct monitor *m);
/* One sample now. */
void monitor_sample(struct monitor *m);

#endif
