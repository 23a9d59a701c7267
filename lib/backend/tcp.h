/* tcp.h - collectives over connections (net.h), for ranks on any hosts.
 *
 * An operation begins with an agreement by recursive doubling, in which every rank
 * hears the least and the greatest signature of all.  Its pattern is the same for all
 * operations.  So ranks that call for different operations hear that, and do not wait
 * for each other.  The data of an allreduce of up to BACKEND_EARLY_BYTES travel in the
 * agreement.  Data from a rank that calls for something else are thrown away, and OUT
 * may have been written then.  In a group of two, each rank hears all signatures with
 * the first data.  So data of any size travel in the agreement, and OUT is not written.
 *
 *   allreduce       recursive doubling, recursive halving and doubling (Rabenseifner),
 *                   or parts directly to the ranks that reduce them.  A probe measures
 *                   which is the cheapest, when the group is first used (tune.h)
 *   reduce          a tree, or parts directly and from there to the root
 *   reducescatter   parts directly to the ranks that get them
 *   allgather       a ring
 *   broadcast       a binomial tree to 64 KiB; above the root gives each rank a part,
 *                   then a ring
 *   alltoall        in step i with the rank i further on
 *   gather, scatter directly to or from the root
 *
 * All of them combine in one order (pairwise.h): every rank gets the same bits, in
 * every run. */
#ifndef BERTH_LIB_TCP_H
#define BERTH_LIB_TCP_H

#include "lib/backend/backend.h"
#include "lib/backend/tune.h"
#include "lib/backend/lanes.h"

struct tcp_config {
	const struct lanes *lanes;
	void *net;      /* that LANES are of */
	uint32_t group; /* not used by any other group of these ranks */
	unsigned n, me;
	const unsigned *rank; /* of the job, one for each place; copied */
	/* For tune_read(), or NULL.  That of place 0 counts. */
	const char *algorithms;
};

/* A group of tcp_backend.  NULL: out of memory. */
void *tcp_join(const struct tcp_config *config);

#endif
