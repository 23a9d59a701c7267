/* hier_internal.h - what the files of hier.h share: hier.c (joining, the agreement) and
 * hier_reduce.c. */
#ifndef BERTH_LIB_HIER_INTERNAL_H
#define BERTH_LIB_HIER_INTERNAL_H

#include "lib/backend/hier.h"
#include "lib/backend/tcp.h"

/* Signature of a step within a host, behind the agreement; and the next number. */
enum { HIER_PHASE = 0x50484153 };

struct hier {
	struct shm *local;
	struct tcp *all; /* every rank of every host */
	struct tcp
		*lane; /* the rank of the same number on each host; NULL: it has none */
	unsigned n, me;
	unsigned nlocal, local_me;
	unsigned lanes;  /* the ranks of the host that has fewest */
	unsigned *place; /* of the local ones */
	unsigned *host;  /* its number, 0, 1, ..., for each place */
	unsigned *first; /* place of the first rank of each host */
	unsigned nhosts;
	uint64_t *counts; /* room for one of each rank */
	unsigned char *room;
	size_t room_bytes;
	struct agreement *agreement;
	unsigned other;
	bool has_other;
};

static inline unsigned hier_ranks_on(const struct hier *t, unsigned host)
{
	unsigned n = 0;

	for (unsigned i = 0; i < t->n; i++)
		n += t->host[i] == host;
	return n;
}

/* Of the rank of local number LOCAL on HOST. */
static inline unsigned hier_place(const struct hier *t, unsigned host, unsigned local)
{
	unsigned i = 0;

	while (t->host[i] != host || local--)
		i++;
	return i;
}

static inline berth_result hier_in_memory(struct hier *t, const struct coll *c,
					  uint64_t deadline_ns)
{
	return shm_backend.run(t->local, c, deadline_ns);
}

/* Reductions, after the agreement. */
berth_result hier_allreduce(struct hier *t, const struct coll *c, uint64_t deadline_ns);
berth_result hier_reduce(struct hier *t, const struct coll *c, uint64_t deadline_ns);
berth_result hier_reducescatter(struct hier *t, const struct coll *c,
				uint64_t deadline_ns);

#endif
