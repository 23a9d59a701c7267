/* exchange.h - what PMI-1, PMIx and libberth's init rounds have in common: a part that
 * this host gives to an exchange of all hosts (wire.def), and ranks that wait for one
 * that never comes. */
#ifndef BERTH_AGENT_PMI_EXCHANGE_H
#define BERTH_AGENT_PMI_EXCHANGE_H

#include "agent/pmi/server_internal.h"

/* Gives BYTES, which are empty then, to exchange NUMBER of RANKS (none: all).
 * LAST: what the last part says. */
void exchange_give(const struct server *s, enum exchange_use use, wire_u32v ranks,
		   uint64_t number, enum exchange_last last, struct buf *bytes);

/* ---- ranks that never come ---- */

/* Ranks in MPI_Init may wait for one that has ended: in memory that they share, or in
 * a library that does not tell.  The launcher hears of it, decides how long that may
 * take, and then fails the exchange of all ranks to which they have not come. */
struct exchange_wait {
	struct server *s;
	enum exchange_use use; /* of that exchange */
	void *ctx;
	/* Local rank I has ended, and never came to MPI_Init; it is in MPI_Init. */
	bool (*never_came)(const void *ctx, size_t i);
	bool (*is_in_init)(const void *ctx, size_t i);
	uint32_t waiting; /* in MPI_Init, as the launcher was told last; 0 at first */
};

/* A rank may have ended, or may have come to MPI_Init or out of it. */
void exchange_wait_look(struct exchange_wait *w);
/* The launcher has failed that exchange: all ranks that are in MPI_Init are to be
 * ended. */
void exchange_none_comes(struct exchange_wait *w);

#endif
