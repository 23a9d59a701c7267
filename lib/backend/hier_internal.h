/* hier_internal.h - shared by the files of hier.h: hier.c (joining, the agreement) and
 * hier_reduce.c. */
#ifndef BERTH_LIB_HIER_INTERNAL_H
#define BERTH_LIB_HIER_INTERNAL_H

#include "lib/backend/hier.h"

/* Signature of a step within a host, after the agreement.  The next number is one,
 * too. */
enum { HIER_PHASE = 0x50484153 };

struct hier {
	const struct backend *in, *across;
	void *local; /* of IN; the others are of ACROSS */
	void *all;   /* every rank of every host */
	void *lane;  /* the rank of the same number on each host; NULL: it has none */
	const struct members *m;
	uint64_t *counts; /* room for one count of each rank */
	unsigned char *room;
	size_t room_bytes;
	struct agreement *agreement;
	unsigned other;
	bool has_other;
};

static inline berth_result hier_in_memory(struct hier *t, const struct coll *c,
					  uint64_t deadline_ns)
{
	return t->in->begin(t->local, c, deadline_ns);
}

/* Reductions, after the agreement. */
berth_result hier_allreduce(struct hier *t, const struct coll *c, uint64_t deadline_ns);
berth_result hier_reduce(struct hier *t, const struct coll *c, uint64_t deadline_ns);
berth_result hier_reducescatter(struct hier *t, const struct coll *c,
				uint64_t deadline_ns);

#endif
