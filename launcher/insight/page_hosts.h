/* page_hosts.h - pure: hosts and their ranks: placement, strips, ends.
 *
 * A host is folded, unless the job is small, or it has an odd rank (facts.h).  A job
 * that is too large for a page has its odd ranks alone. */
#ifndef BERTH_LAUNCHER_INSIGHT_PAGE_HOSTS_H
#define BERTH_LAUNCHER_INSIGHT_PAGE_HOSTS_H

#include "launcher/insight/facts.h"

enum {
	PAGE_OPEN_RANKS = 16, /* so many ranks are a small job */
	PAGE_OPEN_HOSTS = 12, /* at most so many open hosts of a larger one */
	PAGE_RANKS_MOST = 4096,
	PAGE_HOSTS_MOST = 1024
};

/* Put OUT whenever it is long.  MOST_CPUS: the scale of the lines. */
void page_hosts(struct str *out, const struct facts *f, double most_cpus,
		facts_put *put, void *ctx);
/* CPUs of all threads and children, as page_lane() wants it. */
double page_cpus(const struct point *p);

#endif
