/* hier.h - collectives of ranks on several hosts, where some ranks share a host: over
 * two back ends, one for the ranks of a host and one for those of several.  Data go
 * through memory within a host, and over connections between hosts.
 *
 * The agreement goes up (in memory to the first rank of each host), across (between
 * those ranks) and down again.  The data of a small allreduce go with it.  A large
 * reduction is done within each host first, so that each of its ranks has a part.  The
 * ranks of the same number on all hosts are a lane.  All lanes reduce their parts at
 * once, each over connections of its own.  Then the parts are put together in memory.
 * There are as many lanes as the host with the fewest ranks has ranks.  A broadcast
 * goes across once for each host.  Everything else goes over connections between all
 * ranks.  If no two ranks share a host, all operations do.
 *
 * So a sum is that of each host's ranks in their order, then that of the hosts in the
 * order of pairwise.h. */
#ifndef BERTH_LIB_HIER_H
#define BERTH_LIB_HIER_H

#include "lib/backend/backend.h"
#include "lib/backend/lanes.h"
#include "lib/base/members.h"

struct hier;
struct tcp_config;

/* The back ends within a host and across hosts.  The second has agree() and data(), and
 * goes by LANES. */
struct hier_way {
	const struct backend *local, *across;
	const struct lanes *lanes;
	void *(*join_across)(const struct tcp_config *config);
};

enum { HIER_HOST, HIER_WAYS }; /* for the memory of hosts */
extern const struct hier_way hier_ways[HIER_WAYS];

struct hier_config {
	const struct hier_way *way;
	void *net;      /* that the lanes are of */
	uint32_t group; /* this and the next number: no other group has them */
	/* Stays the caller's.  This rank is one of them.  The net's ranks are the
	 * members' places. */
	const struct members *members;
	const char *algorithms; /* of struct tcp_config */
	void *local; /* the group of the places on this host, in their order; ours */
};

/* NULL: out of memory. */
struct hier *hier_join(const struct hier_config *config);

extern const struct backend hier_backend;

#endif
