/* meeting.h - ranks (ranks.h) that connect to each other over TCP. */
#ifndef BERTH_TESTS_MEETING_H
#define BERTH_TESTS_MEETING_H

#include "ranks.h"

#include <sched.h>
#include <stdatomic.h>

#include "lib/net/net.h"

static const unsigned char key[NET_KEY_BYTES] = "a key of thirty-two bytes, or so";

/* What the ranks see of each other before they are connected. */
struct meeting {
	_Atomic unsigned here;
	char address[64][NET_ADDRESS_BYTES];
	_Atomic uint64_t left;
};

static struct net *connect_with(struct ranks *r, const unsigned char *with)
{
	struct net_config c = { .rank = r->me, .size = r->n, .key = with, .spins = 20 };
	struct meeting *m = r->region;
	char why[128];
	struct net *n = net_open(&c, why, sizeof why);

	RANKS_ASSERT(r, n, "net_open: %s", why);
	snprintf(m->address[r->me], NET_ADDRESS_BYTES, "%s", net_address(n));
	atomic_fetch_add(&m->here, 1);
	while (atomic_load(&m->here) < r->n)
		sched_yield();
	for (unsigned k = 0; k < r->n; k++)
		RANKS_ASSERT(r, !net_peer(n, k, m->address[k]), "address %s",
			     m->address[k]);
	return n;
}

#endif
