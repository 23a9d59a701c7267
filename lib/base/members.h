/* members.h - the ranks of a group, and the hosts that they are on.  A group is a set,
 * or the ranks that a back end is made for.
 *
 * A place is the number of a rank in the group, 0 to N - 1.  The group's hosts have
 * numbers in the order of their first places.  The local number of a place is its
 * number among the places of its host. */
#ifndef BERTH_LIB_MEMBERS_H
#define BERTH_LIB_MEMBERS_H

#include <stdbool.h>

#define MEMBERS_NONE (~0u)

struct members {
	unsigned n;
	unsigned me;     /* place of this rank, or MEMBERS_NONE */
	unsigned *rank;  /* of the job, for each place */
	unsigned *host;  /* for each place */
	unsigned *local; /* local number, for each place */
	unsigned nhosts;
	unsigned *start;   /* for each host, and the end: its first place in ORDER */
	unsigned *order;   /* places, host by host */
	unsigned here;     /* this host; MEMBERS_NONE: no place is on it */
	unsigned nlocal;   /* places of this host */
	unsigned local_me; /* local number of this rank */
	unsigned *local_place; /* in ORDER: the NLOCAL places of this host */
	unsigned lanes;        /* places of the host that has fewest */
};

/* Makes M of N ranks, RANK[place] of the job.  OWN is this rank, which may be in
 * another group.  HOST[rank]: any number for each rank of the job, the same on the same
 * host.  members_free() frees M.  -1: out of memory, and M is all 0. */
int members_make(struct members *m, const unsigned *rank, unsigned n,
		 const unsigned *host, unsigned own);
void members_free(struct members *m);

static inline bool members_is_here(const struct members *m, unsigned place)
{
	return m->host[place] == m->here;
}

/* How many places are on HOST. */
static inline unsigned members_on(const struct members *m, unsigned host)
{
	return m->start[host + 1] - m->start[host];
}

/* The place of local number LOCAL on HOST. */
static inline unsigned members_place(const struct members *m, unsigned host,
				     unsigned local)
{
	return m->order[m->start[host] + local];
}

#endif
