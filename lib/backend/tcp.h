/* tcp.h - collectives over connections (net.h), for ranks on any hosts.
 *
 * An operation begins with an agreement: recursive doubling, in which every rank
 * hears the least and the greatest signature of all.  Its pattern is the same
 * whatever is called for, so ranks that call for different things hear that and do
 * not wait for each other.  The data of an allreduce of up to BACKEND_EARLY_BYTES
 * travel in it: what comes from a rank that calls for something else is thrown away,
 * and OUT may have been written then.  Of two ranks each hears all it needs with the
 * first data: they travel in it whatever their size, and OUT is not written.
 *
 *   allreduce       recursive doubling, recursive halving and doubling (Rabenseifner),
 *                   or parts directly to who reduces them: the cheapest by what a
 *                   probe measured, when the group was first used (tune.h)
 *   reduce          a tree, or parts directly and from there to the root
 *   reducescatter   parts directly to whose they are
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
#include "lib/net/net.h"

struct tcp;

struct tcp_config {
	struct net *net;
	uint32_t group; /* not used by any other group of these ranks */
	unsigned n, me;
	const unsigned *rank; /* of the job, one for each place; copied */
	/* For tune_read(), or NULL; that of place 0 counts. */
	const char *algorithms;
};

/* The lowest and the highest signature that a rank knows, and the places of their
 * ranks. */
struct tcp_signatures {
	uint32_t low, high, low_at, high_at;
};

/* For a back end that agrees in another way (hier.h): what run() consists of.
 *
 * The least and the greatest of what all ranks of the group know; and C, a small
 * allreduce or one of no elements, whose OUT is anything unless LOW and HIGH are the
 * same. */
berth_result tcp_agree(struct tcp *t, const struct coll *c,
		       struct tcp_signatures *signatures, uint64_t deadline_ns);
/* The data of an operation that has been agreed. */
berth_result tcp_data(struct tcp *t, const struct coll *c, uint64_t deadline_ns);

/* NULL: out of memory. */
struct tcp *tcp_join(const struct tcp_config *config);

#endif
