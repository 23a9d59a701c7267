#include "lib/backend/lanes.h"

static berth_result lanes_exchange(void *of, struct net_send *out, size_t nout,
				   struct net_receive *in, size_t nin,
				   uint64_t deadline_ns, unsigned *lost)
{
	return net_exchange(of, out, nout, in, nin, deadline_ns, lost);
}

static void lanes_end(void *of, unsigned lost, berth_result why)
{
	net_break(of, lost, why);
}

static const char *lanes_unreached(const void *of)
{
	return net_unreached(of);
}

const struct lanes net_lanes = { lanes_exchange, lanes_end, lanes_unreached };
