/* hier.h - collectives of ranks on several hosts, some of which share one: in memory
 * within a host, over connections between hosts.
 *
 * The agreement goes up (in memory to the first rank of each host), across (between
 * those) and down again, with the data of a small allreduce.  A large reduction is
 * done within each host first, so that each of its ranks has a part; ranks of the same
 * number on all hosts (a lane) reduce their part over connections of their own, all at
 * once; and the parts are put together in memory.  There are as many lanes as the host
 * with fewest ranks has.  A broadcast goes across once for each host.  Everything else
 * takes connections between all, and all does where no two ranks share a host.
 *
 * So a sum is that of each host's ranks in their order, then that of the hosts in the
 * order of pairwise.h. */
#ifndef BERTH_LIB_HIER_H
#define BERTH_LIB_HIER_H

#include "lib/backend/shm.h"
#include "lib/base/members.h"
#include "lib/net/net.h"

struct hier;

struct hier_config {
	struct net *net;
	uint32_t group; /* and the next number: not used by any other group */
	/* Stays the caller's; this rank is one.  The net's ranks are their places. */
	const struct members *members;
	const char *algorithms; /* of struct tcp_config */
	struct shm
		*local; /* of the places on this host, in their order; becomes ours */
};

/* NULL: out of memory. */
struct hier *hier_join(const struct hier_config *config);

extern const struct backend hier_backend;

#endif
