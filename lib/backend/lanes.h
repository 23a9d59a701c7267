/* lanes.h - what carries the bytes of tcp.h between the ranks of a group. */
#ifndef BERTH_LIB_LANES_H
#define BERTH_LIB_LANES_H

#include "lib/net/net.h"

/* Each call as net.h has it: net_exchange(), net_break(), net_unreached(). */
struct lanes {
	berth_result (*exchange)(void *of, struct net_send *out, size_t nout,
				 struct net_receive *in, size_t nin,
				 uint64_t deadline_ns, unsigned *lost);
	void (*end)(void *of, unsigned lost, berth_result why);
	const char *(*unreached)(const void *of);
};

/* OF is a struct net. */
extern const struct lanes net_lanes;

#endif
